"""Where the seconds and the tokens of a stage went: accounts that add up to what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launch.run_dir.table import Rows
from launch.tools.report.facts import Stage
from launch.tools.report.words import total

STEP = "time/step"
INSIDE = ("time/episode_", "time/learner_")  # parts of other phases, and not of the step
LABELS: Mapping[str, str] = {
    "wait_rollout": "waiting for rollouts",
    "wait_data": "waiting for data",
    "publish_previous": "waiting for the delivery",
    "rest": "everything else",
}
FATES: Mapping[str, str] = {
    "tokens/in_trained_groups": "in groups that were trained",
    "tokens/in_filtered_groups": "in groups without signal",
    "tokens/in_failed_groups": "in groups that failed",
}
SMALL = 0.01  # share of the whole below which a phase is part of the rest


def seconds_by_phase(rows: Rows) -> dict[str, float]:
    """Seconds by phase, the most first; they add up to those of the steps."""
    keys = [key for key in rows.columns if key.startswith("time/") and key != STEP and not key.startswith(INSIDE)]
    phases = {key.removeprefix("time/"): total(rows.known(key)) for key in keys}
    return dict(sorted(phases.items(), key=lambda item: -item[1]))


def account_for_seconds(stage: Stage) -> dict[str, Any]:
    """{"stage", "total_s", "parts": [{"label", "seconds", "share"}]}: shares add up to 1."""
    total_s, phases = total(stage.rows.known(STEP)), seconds_by_phase(stage.rows)
    by_phase = {name: seconds for name, seconds in phases.items() if seconds >= SMALL * total_s and name != "other"}
    rest_s = total_s - sum(by_phase.values())
    if rest_s > 1e-6 * total_s:
        by_phase["rest"] = rest_s
    parts = [
        {"label": phase_label(name), "seconds": round(seconds, 3), "share": round(seconds / total_s, 4)}
        for name, seconds in by_phase.items()
        if total_s > 0
    ]
    return {"stage": stage.name, "total_s": round(total_s, 1), "parts": parts}


def phase_label(phase: str) -> str:
    return LABELS.get(phase, phase.replace("_", " "))


def tokens_by_fate(rows: Rows) -> dict[str, float]:
    """Sampled tokens by what became of them."""
    return {label: total(rows.known(key)) for key, label in FATES.items()}
