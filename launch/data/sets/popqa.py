"""PopQA: questions about entities of known popularity; in no paper here, but in every comparison of search."""

from launch.data.records import Files, PublicSet

POPQA = PublicSet(
    name="popqa",
    title="PopQA",
    licence="MIT",
    page="https://github.com/AlexTMallen/adaptive-retrieval",
    splits={"test": Files(names=("popqa/test.jsonl",), hub=("RUC-NLPIR/FlashRAG_datasets:popqa",), split="test")},
)
