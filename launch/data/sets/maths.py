"""MATH and what is measured beside it: MATH-500, AIME, TheoremQA; and DAPO-Math, which ReTool trains on."""

from launch.data.records import Files, PublicSet, questions

SUBJECTS = (
    ("algebra", "counting_and_probability", "geometry", "intermediate_algebra")
    + ("number_theory", "prealgebra", "precalculus")
)  # fmt: skip
MATH_HUB = tuple(f"EleutherAI/hendrycks_math:{subject}" for subject in SUBJECTS)

MATH = PublicSet(
    name="math",
    title="MATH",
    licence="MIT",
    page="https://github.com/hendrycks/math",
    splits={
        "train": Files(
            names=("math/train*.jsonl", "hendrycks_math/*/train-*.parquet"),
            hub=MATH_HUB,
            split="train",
            count=7_500,
        ),
        "test": Files(
            names=("math/test*.jsonl", "hendrycks_math/*/test-*.parquet"),
            hub=MATH_HUB,
            split="test",
            count=5_000,
        ),
    },
    rows=questions("solution", "level", "type"),
)
MATH500 = PublicSet(
    name="math500",
    title="MATH-500",
    licence="MIT",
    page="https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
    splits={
        "test": Files(
            names=("MATH-500/test.jsonl", "math500*.jsonl", "math500*.parquet"),
            hub=("HuggingFaceH4/MATH-500",),
            split="test",
            count=500,
        )
    },
    rows=questions("solution", "level", "subject"),
)
AIME24 = PublicSet(
    name="aime24",
    title="AIME 2024",
    licence="not stated (problems of the Mathematical Association of America)",
    page="https://huggingface.co/datasets/HuggingFaceH4/aime_2024",
    splits={
        "test": Files(
            names=("aime_2024/data/*.parquet", "aime*24*.parquet", "aime*24*.jsonl"),
            hub=("HuggingFaceH4/aime_2024",),
            split="train",  # as it is called there
            count=30,
        )
    },
    rows=questions("solution"),
)
AIME25 = PublicSet(
    name="aime25",
    title="AIME 2025",
    licence="not stated (problems of the Mathematical Association of America)",
    page="https://huggingface.co/datasets/math-ai/aime25",
    splits={
        "test": Files(
            names=("aime25/test.jsonl", "aime*25*.parquet", "aime*25*.jsonl"),
            hub=("math-ai/aime25",),
            split="test",
            count=30,
        )
    },
    rows=questions("solution"),
)
THEOREMQA = PublicSet(
    name="theoremqa",
    title="TheoremQA",
    licence="MIT",
    page="https://huggingface.co/datasets/TIGER-Lab/TheoremQA",
    splits={
        "test": Files(
            names=("TheoremQA/data/*.parquet", "theoremqa*.parquet", "theoremqa*.json*"),
            hub=("TIGER-Lab/TheoremQA",),
            split="test",
            count=800,
        )
    },
    rows=questions("answer_type"),
)
DAPO_MATH = PublicSet(
    name="dapo_math",
    title="DAPO-Math-17k",
    licence="Apache-2.0",
    page="https://huggingface.co/datasets/BytedTsinghua-SIA/DAPO-Math-17k",
    splits={"train": Files(names=("dapo-math-17k.parquet",), hub=("BytedTsinghua-SIA/DAPO-Math-17k",))},
)
