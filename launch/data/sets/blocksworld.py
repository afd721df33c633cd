"""Blocksworld of PlanBench: write a plan, or judge one."""

from collections.abc import Iterable

from envs.problems.blocks.read import read_task
from envs.tasks.files import Located
from launch.data.records import Files, PublicSet, Row

DOMAIN = "blocksworld"  # the file has other domains too; records without the field are of this one


def instance(record: Located) -> Iterable[Row]:
    """The record as it is: the world asks without its solved example, in its wording of the rules."""
    fields = dict(record.fields)
    if fields.get("domain", DOMAIN) == DOMAIN:
        task = read_task(fields, record.where, record.task_id)
        yield {"id": record.task_id, **fields, "stated": task.question}


def _of(name: str, task: str, title: str, count: int | None) -> PublicSet:
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


BLOCKSWORLD_PLAN = _of("blocksworld_plan", "task_1_plan_generation", "plans", 2_270)
BLOCKSWORLD_VERIFY = _of("blocksworld_verify", "task_3_plan_verification", "verdicts", None)
