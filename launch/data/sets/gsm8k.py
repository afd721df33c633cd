"""GSM8K: word problems of two to eight steps, with their calculations."""

from launch.data.records import Files, PublicSet, questions

HUB = ("openai/gsm8k:main",)

GSM8K = PublicSet(
    name="gsm8k",
    title="GSM8K",
    licence="MIT",
    page="https://github.com/openai/grade-school-math",
    splits={
        "train": Files(
            names=("gsm8k/main/train-*.parquet", "gsm8k/train.jsonl", "gsm8k_train*.jsonl"),
            hub=HUB,
            split="train",
            count=7_473,
        ),
        "test": Files(
            names=("gsm8k/main/test-*.parquet", "gsm8k/test.jsonl", "gsm8k_test*.jsonl"),
            hub=HUB,
            split="test",
            count=1_319,
        ),
    },
    rows=questions("answer"),  # the worked solution: what demonstrations are made of
)
