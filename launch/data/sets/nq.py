"""Natural Questions, the open part: what people asked a search engine (ICRL trains on it)."""

from launch.data.records import Files, PublicSet

HUB = ("RUC-NLPIR/FlashRAG_datasets:nq",)

NQ = PublicSet(
    name="nq",
    title="Natural Questions",
    licence="CC BY-SA 3.0",
    page="https://ai.google.com/research/NaturalQuestions",
    splits={
        "train": Files(names=("nq/train.jsonl",), hub=HUB, split="train", count=79_168),
        "dev": Files(names=("nq/dev.jsonl",), hub=HUB, split="dev", count=8_757),
        "test": Files(names=("nq/test.jsonl",), hub=HUB, split="test", count=3_610),
    },
)
