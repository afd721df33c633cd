"""ProScript: the steps of an everyday goal, and which of them must come before which."""

from collections.abc import Iterable

from envs.tasks.files import Located
from envs.tasks.formats import proscript
from launch.data.records import Files, PublicSet, Row


def script(record: Located) -> Iterable[Row]:
    task = proscript(record)
    yield {"id": record.task_id, **{key: task.record[key] for key in ("goal", "steps", "constraints")}}


def by_goal_and_steps(row: Row) -> str:
    return " ".join([row["goal"], *sorted(row["steps"].values())]).casefold()


PROSCRIPT = PublicSet(
    name="proscript",
    title="ProScript",
    licence="not stated",
    page="https://proscript.allenai.org",
    splits={
        "train": Files(names=("proscript*/train.jsonl", "proscript_train*.jsonl")),
        "dev": Files(names=("proscript*/dev.jsonl", "proscript_dev*.jsonl")),
        "test": Files(names=("proscript*/test.jsonl", "proscript_test*.jsonl"), count=2_077),
    },
    rows=script,
    same=by_goal_and_steps,
    text=by_goal_and_steps,
    style="free",
    prompt="graph_rl/proscript",
)
