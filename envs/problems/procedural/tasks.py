"""Tasks of reasoning-gym: shares of the families and levels, what a task remembers for its scorer, files of entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.problems.procedural.entries import Entry, Part, make_entries
from envs.problems.procedural.families import check_family
from envs.tasks.files import Located, read_records
from envs.tasks.splits import make_generated_task
from rlsys.errors import BadInput, require
from rlsys.jsonl import kind_of
from rlsys.types import Task

DEFAULT = "chain_sum"


@dataclass(frozen=True, kw_only=True)
class FamilyConfig:
    """One family of problems."""

    weight: float = 1.0
    """Share of the tasks, relative to the weights of the other families. 0: none."""
    levels: list[int] = field(default_factory=list)
    """Levels of the family's own curriculum, in equal shares; 0 is the easiest. []: the library's default settings, as
    one level."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the family's generator, such as `max_terms`, over those of the level."""

    def __post_init__(self) -> None:
        require(self.weight >= 0, "env.families: weight", self.weight, "0 or more")
        is_valid = all(level >= 0 for level in self.levels) and len(set(self.levels)) == len(self.levels)
        require(is_valid, "env.families: levels", self.levels, "different numbers from 0")
        keys = {"seed", "size"} & self.options.keys()
        require(not keys, "env.families: options", sorted(keys), "neither seed nor size: env.seed and env.train_tasks")


def make_tasks(
    families: Mapping[str, FamilyConfig], train_tasks: int, held_out_tasks: int, seed: int
) -> tuple[list[Task], list[Task]]:
    """(training, held-out) tasks in which the families and levels take turns. Raises BadInput."""
    parts = plan_parts(families, train_tasks, held_out_tasks)
    splits = make_entries(parts, seed)
    train = [[_to_task(part, entry) for entry in entries] for part, (entries, _) in zip(parts, splits, strict=True)]
    held_out = [[_to_task(part, entry) for entry in entries] for part, (_, entries) in zip(parts, splits, strict=True)]
    return take_turns(train), take_turns(held_out)


def plan_parts(families: Mapping[str, FamilyConfig], train_tasks: int, held_out_tasks: int) -> list[Part]:
    """How many tasks of each family and level there are to be."""
    active = {name: family for name, family in families.items() if family.weight} or {DEFAULT: FamilyConfig()}
    default: list[int | None] = [None]
    places = [(name, level) for name, family in active.items() for level in (family.levels or default)]
    weights = [active[name].weight / max(1, len(active[name].levels)) for name, _ in places]
    counts = zip(share_out(train_tasks, weights), share_out(held_out_tasks, weights), strict=True)
    return [
        Part(family=name, level=level, options=active[name].options, train=train, held_out=held_out)
        for (name, level), (train, held_out) in zip(places, counts, strict=True)
    ]


def share_out(count: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in the ratio of the weights that add up to `count`: 10 over 1, 1, 2 is 3, 2, 5."""
    shares, so_far, total = [], 0, 0.0
    for weight in weights:
        total += weight
        up_to = round(count * total / sum(weights))
        shares.append(up_to - so_far)
        so_far = up_to
    return shares


def take_turns(groups: Sequence[Sequence[Task]]) -> list[Task]:
    """All tasks, so ordered that every beginning of the list has about the same share of each group."""
    placed = [
        ((at + 0.5) / len(group), index, task) for index, group in enumerate(groups) for at, task in enumerate(group)
    ]
    return [task for *_, task in sorted(placed, key=lambda placement: placement[:2])]


def _to_task(part: Part, entry: Entry) -> Task:
    # Not "level": `eval.by=level` would take that field for what the environment calls the level, `gcd 0`.
    record = {"family": part.family, "difficulty": part.level, "options": dict(part.options), **entry}
    task = make_generated_task(part.family, entry["question"], "", record)
    return Task(task_id=task.task_id, question=task.question, answers=answers_of(entry), record=record)


def answers_of(entry: Entry) -> tuple[str, ...]:
    """None for an entry that only a scorer can judge."""
    answer = entry.get("answer")
    return (answer,) if isinstance(answer, str) and answer.strip() else ()


def read_tasks(source: str, **how: Any) -> Iterable[Task]:
    """Entries of a file or data set in the library's form. how: as of `read_records`. Raises BadInput with the place of
    a bad one."""
    return map(_read, read_records(source, **how))


def _read(record: Located) -> Task:
    question, metadata = record.text("question"), record.fields.get("metadata")
    if isinstance(metadata, str):  # as data sets on the hub keep it, for its fields differ
        try:
            metadata = json.loads(metadata)
        except ValueError as error:
            raise BadInput(f"is no JSON ({error})", where=record.where, key='"metadata"') from error
    family = metadata.get("source_dataset") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(family, str):
        raise BadInput('no "metadata" with "source_dataset"', where=record.where, expected="a record of reasoning-gym")
    check_family(family, where=record.where)
    answer = record.fields.get("answer")
    if answer is not None and not isinstance(answer, str):
        expected = "a text, as the library writes it, or null"
        raise BadInput(where=record.where, key='"answer"', found=kind_of(answer), expected=expected)
    # A file's own "difficulty" and "options" are no settings of ours: its entries are scored by the default ones.
    task_record = {"family": family, "metadata": metadata, "difficulty": None, "options": {}}
    return record.task(question, answers_of(record.fields), task_record)


def scorer_request(task: Task) -> dict[str, Any]:
    """What the scorer of a task is given with the answer: family, level, options, entry."""
    record = task.record
    level, options, answer = (record.get(key) for key in ("difficulty", "options", "answer"))
    return {
        "family": record["family"],
        "level": level if isinstance(level, int) else None,
        "options": options if isinstance(options, Mapping) else {},
        "entry": {
            "question": task.question,
            "answer": answer if isinstance(answer, str) else None,
            "metadata": record.get("metadata"),
        },
    }


def level_of(task: Task) -> str:
    """`chain_sum 1`; the family alone where the config names no levels."""
    level = task.record.get("difficulty")
    return str(task.record["family"]) if level is None else f"{task.record['family']} {level}"
