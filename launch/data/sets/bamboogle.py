"""Bamboogle: 125 two-hop questions that a search engine did not answer."""

from launch.data.records import Files, PublicSet

BAMBOOGLE = PublicSet(
    name="bamboogle",
    title="Bamboogle",
    licence="MIT",
    page="https://github.com/ofirpress/self-ask",
    splits={
        "test": Files(
            names=("bamboogle/test.jsonl",), hub=("RUC-NLPIR/FlashRAG_datasets:bamboogle",), split="test", count=125
        )
    },
)
