"""The JSON of `rlsys eval --output`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.evaluation.groups import Steps, averages, steps_of
from launch.evaluation.played import EvalResult
from launch.evaluation.results import Result
from launch.evaluation.sets import Play
from rlsys.files import replace_file

MORE = (
    "metrics",
    "planned",
    "tokens",
    "episodes_by_turns",
    "by_turns",
    "by",
    "by_value",
    "episodes_by_value",
    "answered_by",
    "versions",
    "tasks",
    "contents",
)


def report(about: Mapping[str, Any], plays: Mapping[str, Play], results: Mapping[str, Result]) -> dict[str, Any]:
    """By key, for JSON. `accuracy`, `mean_reward`, `episodes`, `failures` and `ends` are by play."""
    measures = {each.measure for each in results.values()}
    found: dict[str, Any] = dict(about) | {"measure": measures.pop() if len(measures) == 1 else None}
    for key in ("accuracy", "mean_reward"):
        numbers = {name: each.metrics[key].value if key in each.metrics else None for name, each in results.items()}
        if any(each.key == key or numbers[name] is not None for name, each in results.items()):
            found[key] = numbers
    for key in ("episodes", "failures", "ends"):
        found[key] = {name: getattr(each, key) for name, each in results.items()}
    return found | {"plays": {name: _play(plays[name], each) for name, each in results.items()}}


def of_several(
    plays: Mapping[str, Play], ours: Mapping[str, EvalResult], earlier: Mapping[str, EvalResult] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """What plays say together, in lines and for JSON: single steps beside whole tasks, and the means of groups."""
    steps: dict[str, Steps] = {}
    for name, play in plays.items():
        of = f"{play.of.steps_of}/{play.name}"
        found = steps_of(of, ours[name], ours[of], play.of.parents) if of in ours else None
        steps |= {name: found} if found is not None else {}
    groups = averages(ours, earlier)
    lines = [f"{name}: {each.told()}" for name, each in steps.items()]
    lines += [f"{name}  {each.told()}" for name, each in groups.items()]
    values: dict[str, Mapping[str, Any]] = {"steps": steps, "groups": groups}
    return lines, {key: {name: asdict(each) for name, each in found.items()} for key, found in values.items() if found}


def _play(play: Play, result: Result) -> dict[str, Any]:
    sampling = {"samples": play.samples, "seeds": play.seeds, "temperature": play.temperature, "group": play.of.group}
    found = {"prompts": play.digest(), "measure": result.measure, "partial": result.partial} | sampling
    values = asdict(result)
    return found | {key: values[key] for key in MORE} | {"paper": papers_of(play)}


def papers_of(play: Play) -> dict[str, float]:
    """The paper's figures that speak of this play: all that name none, and those that name it."""
    found = {key: value for key, value in play.of.paper.items() if "/" not in key}
    mark = f"{play.name}/"
    return found | {key.removeprefix(mark): value for key, value in play.of.paper.items() if key.startswith(mark)}


def write(path: Path, found: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
