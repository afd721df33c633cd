"""2WikiMultiHopQA: questions of two to four hops, made of Wikidata's facts."""

from launch.data.records import Files, PublicSet, paragraphs, questions

HUB = ("RUC-NLPIR/FlashRAG_datasets:2wikimultihopqa",)

TWO_WIKI = PublicSet(
    name="2wiki",
    title="2WikiMultiHopQA",
    licence="Apache-2.0",
    page="https://github.com/Alab-NII/2wikimultihop",
    splits={  # FlashRAG's train has 15,000 of the authors' 167,454
        "train": Files(names=("2wikimultihopqa/train.jsonl",), hub=HUB, split="train", count=15_000),
        "dev": Files(names=("2wikimultihopqa/dev.jsonl", "2wiki*/dev.json"), hub=HUB, split="dev", count=12_576),
    },
    rows=questions("type"),
    passages=paragraphs,
)
