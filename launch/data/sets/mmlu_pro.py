"""MMLU-Pro: multiple choice with up to ten options, in 14 subjects."""

from launch.data.records import Files, PublicSet, questions

MMLU_PRO = PublicSet(
    name="mmlu_pro",
    title="MMLU-Pro",
    licence="MIT",
    page="https://huggingface.co/datasets/TIGER-Lab/MMLU-Pro",
    splits={
        "test": Files(
            names=("MMLU-Pro/data/test-*.parquet", "mmlu_pro*test*.parquet", "mmlu_pro*test*.jsonl"),
            hub=("TIGER-Lab/MMLU-Pro",),
            split="test",
            count=12_032,
        )
    },
    rows=questions("category", "src"),
    style="choice",
)
