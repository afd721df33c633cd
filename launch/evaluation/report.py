"""The JSON of `rlsys eval --output`, and what it says against another one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.evaluation.results import Result
from launch.evaluation.sets import Play
from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.stats import bootstrap_interval, paired_test, proportions_z_test

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


def _play(play: Play, result: Result) -> dict[str, Any]:
    sampling = {"samples": play.samples, "seeds": play.seeds, "temperature": play.temperature}
    found = {"prompts": play.digest(), "measure": result.measure, "partial": result.partial} | sampling
    values = asdict(result)
    return found | {key: values[key] for key in MORE} | {"paper": papers_of(play)}


def papers_of(play: Play) -> dict[str, float]:
    """The paper's figures that speak of this play: all that name none, and those that name it."""
    found = {key: value for key, value in play.of.paper.items() if "/" not in key}
    mark = f"{play.name}/"
    return found | {key.removeprefix(mark): value for key, value in play.of.paper.items() if key.startswith(mark)}


def read_report(path: str) -> dict[str, Any]:
    """What `--against` names. Raises BadInput."""
    try:
        found = json_object(Path(path).read_bytes(), path)
    except OSError as error:
        raise BadInput(f"--against {path}: cannot be read ({error.strerror})") from error
    if not isinstance(found.get("plays"), dict):
        raise BadInput(f'--against {path}: no "plays": expected what rlsys eval --output has written')
    return found


def against(results: Mapping[str, Result], other: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By play that both have: ours, theirs, and whether they differ.

    unpaired: the z-test of two proportions over all graded episodes, where both are accuracies. paired: over the tasks
    that both have, the mean difference with its 95 % interval and the z-test that it is 0.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, ours in results.items():
        theirs = other["plays"].get(name)
        if theirs is None or ours.value is None or ours.key not in theirs["metrics"]:
            continue
        value = theirs["metrics"][ours.key]["value"]
        found[name] = {"ours": ours.value, "theirs": value, "difference": ours.value - value}
        graded = [ours.episodes - ours.failures, other["episodes"][name] - other["failures"][name]]
        if ours.measure == "accuracy":
            z, p = proportions_z_test(ours.value * graded[0], graded[0], value * graded[1], graded[1])
            found[name]["unpaired"] = {"z": z, "p": p}
        both = [task for task in ours.tasks if task in theirs["tasks"]]
        if both:
            differences = [ours.tasks[task] - theirs["tasks"][task] for task in both]
            (z, p), (low, high) = paired_test(differences), bootstrap_interval(differences)
            mean = math.fsum(differences) / len(both)
            paired = {"tasks": len(both), "difference": mean, "low": low, "high": high, "p": p}
            found[name]["paired"] = paired | {"z": z if math.isfinite(z) else None}
    return found


def against_lines(found: Mapping[str, Mapping[str, Any]], path: str) -> list[str]:
    if not found:
        return [f"against {path}: no play with a number in both"]
    lines = []
    for name, each in found.items():
        said = f"against {path}: {name} {each['ours']:.3f}, there {each['theirs']:.3f}"
        if "unpaired" in each:
            said += f"; z-test p = {each['unpaired']['p']:.3g}"
        if "paired" in each:
            paired = each["paired"]
            between = f"{paired['difference']:+.3f} ({paired['low']:+.3f} to {paired['high']:+.3f})"
            said += f"; on the {paired['tasks']} tasks of both {between}, p = {paired['p']:.3g}"
        lines.append(said)
    return lines


def write(path: Path, found: Mapping[str, Any]) -> None:
    from rlsys.files import replace_file

    replace_file(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
