"""The names of what lies in a run directory, and under which the journal keeps the digests of its lines."""

from __future__ import annotations

METRICS, EVALUATIONS, EVENTS = "metrics.jsonl", "evaluations.jsonl", "events.jsonl"
PLAYING = "playing.json"  # what is played now


def evaluation_name(stage: str, when: str, step: int) -> str:
    """Of the file in evaluations/ that holds it: rl-before, or rl-step-000040 of one during the stage."""
    return f"{stage}-step-{step:06d}" if when == "during" else f"{stage}-{when}"


def metrics_line_name(step: int) -> str:
    """What the digest of a line of metrics.jsonl is kept under, in the journal."""
    return f"{METRICS} {step}"


def evaluation_line_name(stage: object, when: object, step: int) -> str:
    """The same of a line of evaluations.jsonl."""
    return f"{EVALUATIONS} {stage} {when} {step}"


def episodes_name(stage: str, when: str, step: int, play: str) -> str:
    """Of the file in trajectories/ that holds one play of it: eval-rl-before-hotpotqa-greedy."""
    return f"eval-{evaluation_name(stage, when, step)}-{play.replace('/', '-')}"
