"""`rlsys eval` with sets, killed and resumed: what was played is not played again, and the numbers are the same."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys, rows, summary
from tests.makers.made import records

SETS = """extends: quickstart
name: sets
eval:
  greedy: false
  concurrency: 2
  sets:
    small: {tasks: 24, samples: 2, seeds: 2, top_p: 0.95, paper: {accuracy: 0.5}}
    short: {env: {max_turns: 2}, tasks: 12, greedy: true, samples: 0}
"""
SHORT = ["stages.sft.steps=12", "stages.sft.loop.groups_per_step=8", "stages.rl.steps=4", "eval.concurrency=64"]
SHORT += ["stages.rl.loop.groups_per_step=8", "stages.rl.loop.group_size=4", "eval.sets.small.tasks=8"]


def played(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]


def said(folder: Path) -> dict[tuple[str, int, int], Any]:
    """What the model said, by set, task and sample."""
    answers = {}
    for file in sorted(folder.glob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            answers[file.name, row["sequence"], row["sibling"]] = (row["task"]["task_id"], row["messages"])
    return answers


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_with_what_it_owes(tmp_path: Path) -> None:
    recipe, output, full_output = tmp_path / "sets.yaml", tmp_path / "result.json", tmp_path / "whole.json"
    recipe.write_text(SETS)
    transcripts = tmp_path / "result.transcripts"
    command = ["eval", str(recipe), "--output", str(output)]
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: len(played(transcripts)) >= 10)
    assert killed.code == -signal.SIGKILL, killed.output[-2000:]
    before = len(played(transcripts))
    assert 10 <= before < 24 * 4 + 12 and not output.exists()

    result = rlsys(*command, "--resume")
    assert result.code == 0, result.output[-3000:]
    assert "groups have been played already" in result.output
    report = json.loads(output.read_text())
    assert report["episodes"] == {"small/sampled": 96, "short/greedy": 12}
    assert len(played(transcripts)) == 108 == len(said(transcripts))
    play = report["plays"]["small/sampled"]
    assert play["metrics"]["pass@4"]["value"] >= play["metrics"]["accuracy"]["value"]
    assert play["metrics"]["accuracy"]["spread"] is not None and len(play["tasks"]) == 24
    assert report["weights"] and report["versions"]["vllm"] and report["config"]["eval"]["sets"]["small"]["tasks"] == 24
    assert "paper 0.500" in result.output

    refused = rlsys(*command, "--resume", "eval.sets.small.temperature=0.5")
    assert refused.code == 2 and "small/sampled" in refused.output

    # all at once, other episodes beside each: what a task is answered with is its own, to an engine's rounding
    rerun = rlsys("eval", str(recipe), "--output", str(full_output), "--against", str(output), "eval.concurrency=64")
    assert rerun.code == 0, rerun.output[-3000:]
    resumed, full = said(transcripts), said(tmp_path / "whole.transcripts")
    assert resumed.keys() == full.keys()
    matches = sum(resumed[key] == full[key] for key in resumed)
    assert matches >= 0.9 * len(resumed), f"{matches} of {len(resumed)}"
    assert f"against {output}: small/sampled" in rerun.output
    assert left_behind() == []


@pytest.mark.slow
def test_evaluations_beside_training_and_the_best_model(tmp_path: Path) -> None:
    recipe, run = tmp_path / "sets.yaml", tmp_path / "run"
    recipe.write_text(SETS)
    best = ["eval.every=1", "checkpoint.every=1", "checkpoint.best=small/sampled/mean_reward"]
    result = rlsys("train", str(recipe), "--run-dir", str(run), *SHORT, *best)
    assert result.code == 0, result.output[-3000:]
    lines = records(run / "evaluations.jsonl")
    assert {(line["when"], line["stage"]) for line in lines} >= {("before", "rl"), ("during", "rl"), ("after", "rl")}
    assert all(line["newest_version"] >= line["version"] for line in lines)
    assert all("eval/seconds" in row for row in rows(run) if row["stage"] == "rl")
    assert summary(run)["eval"]["stages"]["rl"].keys() == {"before", "after"}
    values = {line["step"]: line["small/sampled/mean_reward"] for line in lines if "small/sampled/planned" not in line}
    record = json.loads(next((run / "checkpoints").glob("best-*/best.json")).read_text())
    assert record["value"] == pytest.approx(max(values.values()))
    output = tmp_path / "best.json"
    evaluation = rlsys(
        "eval", str(recipe), "--checkpoint", f"{run}@best", "--output", str(output), "eval.sets.small.tasks=8"
    )
    assert evaluation.code == 0, evaluation.output[-3000:]
    report = json.loads(output.read_text())
    assert report["step"] == record["step"]
    assert report["mean_reward"]["small/sampled"] == pytest.approx(record["value"], abs=0.2)
