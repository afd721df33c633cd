"""MuSiQue-Ans: questions of two to four hops, composed of single ones (ReSearch trains on it)."""

from launch.data.records import Files, PublicSet, paragraphs, questions

FLASH, AUTHORS = "RUC-NLPIR/FlashRAG_datasets:musique", "dgslibisey/MuSiQue"

MUSIQUE = PublicSet(
    name="musique",
    title="MuSiQue-Ans",
    licence="CC BY 4.0",
    page="https://github.com/StonyBrookNLP/musique",
    splits={
        "train": Files(
            names=("musique/train.jsonl", "musique_ans_v1.0_train.jsonl"), hub=(FLASH,), split="train", count=19_938
        ),
        "dev": Files(names=("musique/dev.jsonl", "musique_ans_v1.0_dev.jsonl"), hub=(FLASH,), split="dev", count=2_417),
        # FlashRAG's copy has no paragraphs.
        "train_paragraphs": Files(
            names=("musique_ans_v1.0_train.jsonl",), hub=(f"{AUTHORS}:musique_ans",), split="train", count=19_938
        ),
        "dev_paragraphs": Files(
            names=("musique_ans_v1.0_dev.jsonl",), hub=(f"{AUTHORS}:musique_ans",), split="dev", count=2_417
        ),
    },
    rows=questions("question_decomposition"),
    passages=paragraphs,
)
