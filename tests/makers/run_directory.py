"""Run directories made by hand: whole and plain by default, so that a test says only what matters to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlsys.journal import read_journal
from rlsys.seals import append_chain_digest, links
from tests.makers.made import jsonl

STAGES = [{"name": "sft", "kind": "sft", "steps": 2}, {"name": "rl", "kind": "rl", "steps": 2}]


def run_directory(
    path: Path,
    rows: Iterable[Mapping[str, Any]] = (),
    *,
    summary: Mapping[str, Any] | None = None,
    evaluations: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] | None = None,
    record: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Rows without a stage are of stage rl, and their stage_step is their step."""
    (path / "trajectories").mkdir(parents=True)
    recipe = {"name": "q", "seed": 0, "stages": STAGES, "learner": {"lr": 1.0}, "reward": {"name": "answer"}} | config
    (path / "config.yaml").write_text(yaml.safe_dump(recipe))
    jsonl(path / "metrics.jsonl", [{"stage": "rl", "stage_step": row["step"], **row} for row in rows])
    if evaluations:
        jsonl(path / "evaluations.jsonl", evaluations)
    for name, content in (("summary.json", summary), ("run.json", record)):
        if content is not None:
            (path / name).write_text(json.dumps(content))
    if events is not None:
        jsonl(path / "events.jsonl", events)
    return path


def result(path: Path, name: str, tasks: Mapping[str, float], *, also: str | None = None, **more: Any) -> None:
    """evaluations/NAME.json of a greedy play with an accuracy by task. also: add a play of that name instead."""
    file = path / "evaluations" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    value = sum(tasks.values()) / len(tasks)
    metrics = {"accuracy": {"value": value, "low": max(0.0, value - 0.1), "high": min(1.0, value + 0.1)}}
    play = {
        "prompts": "2:same",
        "measure": "accuracy",
        "metrics": {key: {**metric, "count": float(len(tasks)), "spread": None} for key, metric in metrics.items()},
        "tasks": dict(tasks),
        "contents": {task: f"what {task} asks" for task in tasks},
    } | more
    report = json.loads(file.read_text()) if also else {"plays": {}, "episodes": {}, "failures": {}}
    for key, entry in {"plays": play, "episodes": len(tasks), "failures": 0}.items():
        report[key][also or "greedy"] = entry
    file.write_text(json.dumps(report))


def episode(**more: Any) -> dict[str, Any]:
    """A line of a file of trajectories: one message, right, 10 tokens of version 1."""
    begin = {"task": {"task_id": "t:1", "question": "2 + 3?"}, "sequence": 0, "sibling": 0, "attempt": 0}
    reply = {"prompt": [], "messages": [{"role": "assistant", "content": "5"}], "end": "answered", "truncated": False}
    scored = {"reward": 1.0, "parts": {"correct": 1.0}, "advantage": 0.5, "num_tokens": 10}
    return begin | reply | scored | {"weight_versions": [[[1, 0, 10]]], "worker": "rollout:0"} | more


def seal_again(run: Path, name: str, digest: str) -> None:
    """A last row of the journal, as the run itself would write it."""
    journal = run / "journal.jsonl"
    lineage = max(row.lineage for row in read_journal(journal))
    row = {"event": "seal", "name": name, "digest": digest, "lineage": lineage}
    *_, last = links(journal.read_bytes().splitlines(keepends=True))
    line, _ = append_chain_digest(json.dumps(row), last.chain)
    with journal.open("a") as file:
        file.write(f"{line}\n")
