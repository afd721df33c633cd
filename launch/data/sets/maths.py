"""Mathematics: GSM8K, MATH, and what is measured with them (MATH-500, AIME, TheoremQA); ReTool trains on DAPO-Math."""

from launch.data.records import Files, PublicSet, questions

SUBJECTS = (
    ("algebra", "counting_and_probability", "geometry", "intermediate_algebra")
    + ("number_theory", "prealgebra", "precalculus")
)  # fmt: skip


def _gsm8k(split: str, count: int) -> Files:
    names = (f"gsm8k/main/{split}-*.parquet", f"gsm8k/{split}.jsonl", f"gsm8k_{split}*.jsonl")
    return Files(names=names, hub=("openai/gsm8k:main",), split=split, count=count)


def _math(split: str, count: int) -> Files:
    names = (f"math/{split}*.jsonl", f"hendrycks_math/*/{split}-*.parquet")
    hub = tuple(f"EleutherAI/hendrycks_math:{subject}" for subject in SUBJECTS)
    return Files(names=names, hub=hub, split=split, count=count)


def _test(hub: str, names: tuple[str, ...], count: int, *, split: str = "test") -> dict[str, Files]:
    """The only split of a set; `split` is its name on the hub."""
    return {"test": Files(names=names, hub=(hub,), split=split, count=count)}


AIME_LICENCE = "not stated (problems of the Mathematical Association of America)"

MATHS = (
    PublicSet(
        name="gsm8k",
        title="GSM8K",
        licence="MIT",
        page="https://github.com/openai/grade-school-math",
        splits={"train": _gsm8k("train", 7_473), "test": _gsm8k("test", 1_319)},
        rows=questions("answer"),  # the worked solution: what demonstrations are made of
    ),
    PublicSet(
        name="math",
        title="MATH",
        licence="MIT",
        page="https://github.com/hendrycks/math",
        splits={"train": _math("train", 7_500), "test": _math("test", 5_000)},
        rows=questions("solution", "level", "type"),
    ),
    PublicSet(
        name="math500",
        title="MATH-500",
        licence="MIT",
        page="https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
        splits=_test("HuggingFaceH4/MATH-500", ("MATH-500/test.jsonl", "math500*.jsonl", "math500*.parquet"), 500),
        rows=questions("solution", "level", "subject"),
    ),
    PublicSet(
        name="aime24",
        title="AIME 2024",
        licence=AIME_LICENCE,
        page="https://huggingface.co/datasets/HuggingFaceH4/aime_2024",
        splits=_test(
            "HuggingFaceH4/aime_2024",
            ("aime_2024/data/*.parquet", "aime*24*.parquet", "aime*24*.jsonl"),
            30,
            split="train",
        ),
        rows=questions("solution"),
    ),
    PublicSet(
        name="aime25",
        title="AIME 2025",
        licence=AIME_LICENCE,
        page="https://huggingface.co/datasets/math-ai/aime25",
        splits=_test("math-ai/aime25", ("aime25/test.jsonl", "aime*25*.parquet", "aime*25*.jsonl"), 30),
        rows=questions("solution"),
    ),
    PublicSet(
        name="theoremqa",
        title="TheoremQA",
        licence="MIT",
        page="https://huggingface.co/datasets/TIGER-Lab/TheoremQA",
        splits=_test(
            "TIGER-Lab/TheoremQA", ("TheoremQA/data/*.parquet", "theoremqa*.parquet", "theoremqa*.json*"), 800
        ),
        rows=questions("answer_type"),
    ),
    PublicSet(
        name="dapo_math",
        title="DAPO-Math-17k",
        licence="Apache-2.0",
        page="https://huggingface.co/datasets/BytedTsinghua-SIA/DAPO-Math-17k",
        splits={"train": Files(names=("dapo-math-17k.parquet",), hub=("BytedTsinghua-SIA/DAPO-Math-17k",))},
    ),
)
