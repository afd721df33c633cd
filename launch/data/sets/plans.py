"""Steps and plans: ProScript, steps of a goal and their order; Blocksworld of PlanBench, plans to write or to judge."""

from collections.abc import Iterable

from envs.problems.blocks.read import read_task
from envs.tasks.files import Located
from envs.tasks.formats import proscript
from launch.data.records import Files, PublicSet, Row

DOMAIN = "blocksworld"  # the file has other domains too; records without the field are of this one


def script(record: Located) -> Iterable[Row]:
    task = proscript(record)
    yield {"id": record.task_id, **{key: task.record[key] for key in ("goal", "steps", "constraints")}}


def by_goal_and_steps(row: Row) -> str:
    return " ".join([row["goal"], *sorted(row["steps"].values())]).casefold()


def instance(record: Located) -> Iterable[Row]:
    """The record as it is: the world asks without its solved example, in its wording of the rules."""
    fields = dict(record.fields)
    if fields.get("domain", DOMAIN) == DOMAIN:
        task = read_task(fields, record.where, record.task_id)
        yield {"id": record.task_id, **fields, "stated": task.question}


def _proscript(split: str, count: int | None = None) -> Files:
    return Files(names=(f"proscript*/{split}.jsonl", f"proscript_{split}*.jsonl"), count=count)


def _blocksworld(name: str, task: str, title: str, count: int | None) -> PublicSet:
    return PublicSet(
        name=name,
        title=f"Blocksworld (PlanBench), {title}",
        licence="MIT",
        page="https://huggingface.co/datasets/tasksource/planbench",
        splits={
            "all": Files(
                names=(f"planbench/{task}/*.parquet", f"{name}*.jsonl"),
                hub=(f"tasksource/planbench:{task}",),
                count=count,
            )
        },
        rows=instance,
        same=lambda row: str(row["stated"]),
        text=None,
    )


PLANS = (
    PublicSet(
        name="proscript",
        title="ProScript",
        licence="not stated",
        page="https://proscript.allenai.org",
        splits={"train": _proscript("train"), "dev": _proscript("dev"), "test": _proscript("test", 2_077)},
        rows=script,
        same=by_goal_and_steps,
        text=by_goal_and_steps,
        style="free",
        prompt="graph_rl/proscript",
    ),
    _blocksworld("blocksworld_plan", "task_1_plan_generation", "plans", 2_270),
    _blocksworld("blocksworld_verify", "task_3_plan_verification", "verdicts", None),
)
