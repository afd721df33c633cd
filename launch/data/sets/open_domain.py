"""Open-domain questions, which take a search to answer, most in FlashRAG's copies; and the Wikipedia that is searched.

ReSearch trains on MuSiQue, SWiRL on HotpotQA, ICRL on Natural Questions.
"""

from collections.abc import Iterable, Mapping

from envs.services.retriever.corpus import document
from envs.tasks.files import Located
from launch.data.records import Files, Passage, PublicSet, paragraphs, questions
from rlsys.errors import BadInput

FLASH_RAG = "RUC-NLPIR/FlashRAG_datasets"
NO_OTHERS: Mapping[str, tuple[str, ...]] = {}


def _flash_rag(
    folder: str, counts: Mapping[str, int | None], alternatives: Mapping[str, tuple[str, ...]] = NO_OTHERS
) -> dict[str, Files]:
    """The splits of FlashRAG's copy of a set; `alternatives` are names of files that do as well."""
    return {
        split: Files(
            names=(f"{folder}/{split}.jsonl", *alternatives.get(split, ())),
            hub=(f"{FLASH_RAG}:{folder}",),
            split=split,
            count=count,
        )
        for split, count in counts.items()
    }


def _hotpotqa(split: str, alternatives: tuple[str, ...], count: int) -> Files:
    names = (f"hotpot_qa/distractor/{split}-*.parquet", *alternatives)
    return Files(names=names, hub=("hotpotqa/hotpot_qa:distractor",), split=split, count=count)


def _musique_paragraphs(split: str, count: int) -> Files:
    """The authors' files: FlashRAG's copy has no paragraphs."""
    names, hub = (f"musique_ans_v1.0_{split}.jsonl",), ("dgslibisey/MuSiQue:musique_ans",)
    return Files(names=names, hub=hub, split=split, count=count)


def stored_passages(record: Located) -> Iterable[Passage]:
    try:
        passage = document(dict(record.fields))
    except BadInput as error:
        raise BadInput(error, where=record.where) from error
    yield passage.title, passage.text


OPEN_DOMAIN = (
    PublicSet(
        name="musique",
        title="MuSiQue-Ans",
        licence="CC BY 4.0",
        page="https://github.com/StonyBrookNLP/musique",
        splits={
            **_flash_rag(
                "musique",
                {"train": 19_938, "dev": 2_417},
                {"train": ("musique_ans_v1.0_train.jsonl",), "dev": ("musique_ans_v1.0_dev.jsonl",)},
            ),
            "train_paragraphs": _musique_paragraphs("train", 19_938),
            "dev_paragraphs": _musique_paragraphs("dev", 2_417),
        },
        rows=questions("question_decomposition"),
        passages=paragraphs,
    ),
    PublicSet(
        name="hotpotqa",
        title="HotpotQA",
        licence="CC BY-SA 4.0",
        page="https://hotpotqa.github.io",
        splits={
            "train": _hotpotqa("train", ("hotpotqa/train.jsonl", "hotpot_train_v1.1.json"), 90_447),
            "dev": _hotpotqa("validation", ("hotpotqa/dev.jsonl", "hotpot_dev_distractor_v1.json"), 7_405),
        },
        rows=questions("type", "level"),
        passages=paragraphs,
    ),
    PublicSet(
        name="2wiki",
        title="2WikiMultiHopQA",
        licence="Apache-2.0",
        page="https://github.com/Alab-NII/2wikimultihop",
        # FlashRAG's train has 15,000 of the authors' 167,454.
        splits=_flash_rag("2wikimultihopqa", {"train": 15_000, "dev": 12_576}, {"dev": ("2wiki*/dev.json",)}),
        rows=questions("type"),
        passages=paragraphs,
    ),
    PublicSet(
        name="bamboogle",
        title="Bamboogle",
        licence="MIT",
        page="https://github.com/ofirpress/self-ask",
        splits=_flash_rag("bamboogle", {"test": 125}),
    ),
    PublicSet(
        name="nq",
        title="Natural Questions",
        licence="CC BY-SA 3.0",
        page="https://ai.google.com/research/NaturalQuestions",
        splits=_flash_rag("nq", {"train": 79_168, "dev": 8_757, "test": 3_610}),
    ),
    PublicSet(
        name="triviaqa",
        title="TriviaQA",
        licence="not stated for the questions (the authors' code: Apache-2.0)",
        page="https://nlp.cs.washington.edu/triviaqa",
        splits=_flash_rag(
            "triviaqa",
            {"train": None, "dev": None, "test": None},
            {
                "train": ("trivia_qa/rc.nocontext/train-*.parquet",),
                "dev": ("trivia_qa/rc.nocontext/validation-*.parquet",),
            },
        ),
    ),
    PublicSet(
        name="beerqa",
        title="BeerQA",
        licence="CC BY-SA 4.0 of its sources, SQuAD and HotpotQA",
        page="https://beerqa.github.io",
        splits={
            split: Files(names=(f"beerqa_{split}_v1.0.json",), count=count)
            for split, count in {"train": 134_043, "dev": 14_121}.items()
        },
        rows=questions("src"),
        passages=paragraphs,
    ),
    PublicSet(  # in no paper here, but in every comparison of search
        name="popqa",
        title="PopQA",
        licence="MIT",
        page="https://github.com/AlexTMallen/adaptive-retrieval",
        splits=_flash_rag("popqa", {"test": None}),
    ),
    PublicSet(
        name="wiki18",
        title="Wikipedia, December 2018, 100 words a passage",
        licence="CC BY-SA 3.0",
        page="https://huggingface.co/datasets/PeterJinGo/wiki-18-corpus",
        splits={
            "passages": Files(
                names=("wiki-18.jsonl.gz", "wiki-18.jsonl", "wiki18_100w.jsonl"), hub=("PeterJinGo/wiki-18-corpus",)
            )
        },
        passages=stored_passages,
    ),
)
