"""Knowledge Crosswords: blanks of a small knowledge graph, as multiple choice of three difficulties."""

from collections.abc import Callable, Iterable

from envs.tasks.files import Located
from envs.tasks.formats import knowledge_crosswords
from launch.data.records import Files, PublicSet, Row, identity

# One puzzle may be there in all three: their graph is the same, and so is the right answer.
COUNTS = {"easy": 869, "medi": 873, "hard": 359}


def puzzle(record: Located) -> Iterable[Row]:
    task, fields = knowledge_crosswords(record), record.lower
    kept = {key: fields[key] for key in ("source", "relation", "target", "blanks", "golds")}
    kept |= {key: task.record[key] for key in ("options", "edges", "num_blanks", "filled")}
    yield {"id": identity(record), "question": task.question, "answers": list(task.answers), **kept}


def _split(level: str) -> Files:
    return Files(names=(f"MC/MC_{level}.jsonl", f"MC_{level}.jsonl"), count=COUNTS[level])


read: Callable[[Located], Iterable[Row]] = puzzle
KNOWLEDGE_CROSSWORDS = PublicSet(
    name="knowledge_crosswords",
    title="Knowledge Crosswords",
    licence="not stated",
    page="https://github.com/Wenwen-D/KnowledgeCrosswords",
    splits={level: _split(level) for level in COUNTS},
    rows=read,
    twin=lambda row: f"{row['question']}\n{sorted(row['options'].values())}",
    style="choice",
    prompt="graph_rl/crosswords",
)
