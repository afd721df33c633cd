"""Multiple choice: MMLU-Pro, up to ten options in 14 subjects; Knowledge Crosswords, blanks of a small graph."""

from collections.abc import Iterable

from envs.tasks.files import Located
from envs.tasks.formats import knowledge_crosswords
from launch.data.records import Files, PublicSet, Row, identity, questions

# Knowledge Crosswords by difficulty. A puzzle may be in all three: its graph is the same, and so is the right answer.
COUNTS = {"easy": 869, "medi": 873, "hard": 359}


def puzzle(record: Located) -> Iterable[Row]:
    task, fields = knowledge_crosswords(record), record.lower
    kept = {key: fields[key] for key in ("source", "relation", "target", "blanks", "golds")}
    kept |= {key: task.record[key] for key in ("options", "edges", "num_blanks", "filled")}
    yield {"id": identity(record), "question": task.question, "answers": list(task.answers), **kept}


CHOICE = (
    PublicSet(
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
    ),
    PublicSet(
        name="knowledge_crosswords",
        title="Knowledge Crosswords",
        licence="not stated",
        page="https://github.com/Wenwen-D/KnowledgeCrosswords",
        splits={
            level: Files(names=(f"MC/MC_{level}.jsonl", f"MC_{level}.jsonl"), count=count)
            for level, count in COUNTS.items()
        },
        rows=puzzle,
        twin=lambda row: f"{row['question']}\n{sorted(row['options'].values())}",
        style="choice",
        prompt="graph_rl/crosswords",
    ),
)
