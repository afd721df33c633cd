"""HotpotQA: two-hop questions about Wikipedia, ten paragraphs each (SWiRL trains on it)."""

from launch.data.records import Files, PublicSet, paragraphs, questions

HUB = ("hotpotqa/hotpot_qa:distractor",)

HOTPOTQA = PublicSet(
    name="hotpotqa",
    title="HotpotQA",
    licence="CC BY-SA 4.0",
    page="https://hotpotqa.github.io",
    splits={
        "train": Files(
            names=("hotpot_qa/distractor/train-*.parquet", "hotpotqa/train.jsonl", "hotpot_train_v1.1.json"),
            hub=HUB,
            split="train",
            count=90_447,
        ),
        "dev": Files(
            names=("hotpot_qa/distractor/validation-*.parquet", "hotpotqa/dev.jsonl", "hotpot_dev_distractor_v1.json"),
            hub=HUB,
            split="validation",
            count=7_405,
        ),
    },
    rows=questions("type", "level"),
    passages=paragraphs,
)
