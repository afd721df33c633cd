"""A paper's figures out of a run's configuration, under the names that its evaluations have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launch.analysis.episodes import plays_of
from launch.analysis.runs import Run


def papers_of(run: Run) -> dict[str, float]:
    """{"musique/greedy/exact_match": 0.2168}: of `eval.paper` and `eval.sets.NAME.paper`, also those of a stage."""
    given: dict[str, Mapping[str, Any]] = {}  # by set; the held-out tasks have no name
    for config in (run.config, *run.config["stages"]):
        evaluation = config.get("eval") or {}
        given[""] = {**given.get("", {}), **(evaluation.get("paper") or {})}
        for name, one in (evaluation.get("sets") or {}).items():
            given[name] = {**given.get(name, {}), **((one or {}).get("paper") or {})}
    found: dict[str, float] = {}
    for play in plays_of(run.evaluations):
        name, _, how = play.rpartition("/")
        for key, value in given.get(name, {}).items():
            if "/" not in key or key.startswith(f"{how}/"):
                found[f"{play}/{key.removeprefix(f'{how}/')}"] = float(value)
    return found
