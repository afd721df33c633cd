"""One play of an evaluation as its JSON has it: what is compared with another."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from envs.tasks.conversation import full_question
from launch.run_dir.significance import proportions_z_test
from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.types import Task
from rlsys.untrusted import visible

POOLED = "_pooled"  # a share over all that a set holds, such as the constraints of ProScript

Test = Literal["paired", "paper"]  # task by task; the z-test of two proportions of Graph-RL (arXiv 2506.00845)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Number(value=0.592, count=6968): of how many it is a share or a mean."""

    value: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    measure: str  # accuracy or mean reward
    numbers: Mapping[str, Number]  # by metric
    tasks: Mapping[str, float]  # the measure, by task
    group: str = ""  # eval.sets.NAME.group
    contents: Mapping[str, str] = field(default_factory=dict)  # by task what it asks; {} in files of before
    prompts: str = ""  # a digest of which prompts were played in which way
    way: Mapping[str, Any] = field(default_factory=dict)  # how, whichever tasks they were; {} in files of before

    @property
    def key(self) -> str:
        """Of `numbers`: the one that stands for the set. A pooled share, where it has one: so the papers count."""
        pooled = next((name for name in self.numbers if name.endswith(POOLED)), None)
        return pooled or ("accuracy" if self.measure == "accuracy" else "mean_reward")

    @property
    def number(self) -> Number | None:
        return self.numbers.get(self.key)

    @property
    def is_pooled(self) -> bool:
        return self.key.endswith(POOLED)

    @property
    def is_share(self) -> bool:
        return is_share(self.key)


def is_share(key: str) -> bool:
    """Whether a number that stands for a set is a share of right answers."""
    return key != "mean_reward"


def content_of(task: Task) -> str:
    """Equal for two tasks that ask the same and take the same answers, whatever their files and lines are called."""
    content = json.dumps([full_question(task), list(task.answers)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def differ(ours: Number, theirs: Number) -> tuple[float, float]:
    """(z, p) of the test of two proportions."""
    return proportions_z_test(ours.value * ours.count, ours.count, theirs.value * theirs.count, theirs.count)


def read_played(path: str, head: str) -> dict[str, EvalResult]:
    """What `rlsys eval --output` has written, by play. head: how an error line begins. Raises BadInput."""
    try:
        document = json_object(Path(path).read_bytes(), path)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=head) from error
    if not isinstance(document.get("plays"), dict):
        raise BadInput('no "plays"', where=head, expected="what rlsys eval --output has written")
    try:
        return {visible(name): _parse_result(document, name) for name in document["plays"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"not as rlsys eval --output writes it ({type(error).__name__}: {error})", where=head) from error


def _parse_result(document: Mapping[str, Any], name: str) -> EvalResult:
    """Raises what a dictionary of another shape makes of this, and ValueError for numbers that cannot be."""
    play = document["plays"][name]
    graded = document["episodes"][name] - document["failures"][name]
    numbers = {
        key: Number(value=float(metric["value"]), count=float(metric.get("count", graded)))
        for key, metric in play["metrics"].items()
    }
    for key, number in numbers.items():
        share = key == "accuracy" or key.endswith(POOLED)
        if not math.isfinite(number.value) or not 0 < number.count < math.inf or (share and not 0 <= number.value <= 1):
            raise ValueError(f"{key} of {name!r} is {number.value:g} of {number.count:g}")
    measure, group = str(play.get("measure", "accuracy")), str(play.get("group", ""))
    tasks, contents = dict(play["tasks"]), dict(play.get("contents", {}))
    if contents and contents.keys() != tasks.keys():
        raise ValueError(f"contents of {name!r} are of other tasks")
    return EvalResult(
        measure=measure,
        numbers=numbers,
        tasks=tasks,
        group=group,
        contents=contents,
        prompts=str(play.get("prompts", "")),
        way=dict(play.get("way", {})),
    )
