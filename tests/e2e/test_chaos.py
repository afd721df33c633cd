"""A run with real parts that are killed, one after the other: it is done, and nothing was lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, summary
from tests.paths import ROOT

SHORT = ["stages.sft.steps=60", "stages.rl.loop.groups_per_step=8", "stages.rl.steps=60", "eval.tasks=16"]
SHORT += ["checkpoint.every=4", "stages.sft.checkpoint.every=60", "wandb.mode=disabled"]
KILLED = ("rollout:0@2s", "worlds:0@12s", "learner:0@20s", "engine:0@28s", "weights@40s", "driver@46s")


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["cluster.placement=sleep"]], ids=["apart", "in turn"])
def test_every_part_is_killed_once_and_nothing_is_lost(tmp_path: Path, more: list[str]) -> None:
    run, table = tmp_path / "run", tmp_path / "chaos.json"
    kills = [word for part in KILLED for word in ("--kill", part)]
    result = rlsys("chaos", "quickstart", "--run-dir", str(run), "--json", str(table), *SHORT, *more, *kills)
    assert result.code == 0, result.output[-3000:]
    report = json.loads(table.read_text())
    assert report["holds"] and report["starts"] == 2
    hits = [cost for cost in report["costs"] if cost["hit"]]
    # In turn a part that was killed comes back when the engines have the devices: the next kill may find it gone.
    assert len(hits) >= (4 if more else len(KILLED)), report["costs"]
    for cost in hits:
        assert cost["next_step_s"] is not None and cost["detected_s"] is not None, cost
    assert summary(run)["status"] == "done" and summary(run)["prompts"]["in_flight"] == 0
    assert left_behind() == []


@pytest.mark.slow
def test_a_driver_that_is_killed_at_random_instants_continues_each_time(tmp_path: Path) -> None:
    """Its start is as good an instant as any, and so is the writing of a checkpoint: there is one after every step."""
    run, table = tmp_path / "run", tmp_path / "chaos.json"
    small = ["stages.sft.steps=20", "stages.rl.loop.groups_per_step=8", "stages.rl.steps=80", "eval.tasks=8"]
    small += ["stages.sft.checkpoint.every=20", "stages.rl.checkpoint.every=1", "wandb.mode=disabled"]
    killed = ["--random", "2/min", "--roles", "driver", "--most", "5", "--seed", "5"]
    result = rlsys("chaos", "quickstart", "--run-dir", str(run), "--json", str(table), *small, *killed)
    assert result.code == 0, result.output[-3000:]
    report = json.loads(table.read_text())
    kills = [cost for cost in report["costs"] if cost["hit"]]
    # The second of two kills within seconds may hit what tidies up after the first: one start follows both.
    assert report["holds"] and len(kills) >= 3 and 3 <= report["starts"] <= 1 + len(kills)
    assert report["lost"] == report["repeated"] == 0
    assert summary(run)["status"] == "done" and summary(run)["prompts"]["in_flight"] == 0
    assert left_behind() == []


@pytest.mark.slow
def test_two_faults_a_few_seconds_apart_end_like_one(tmp_path: Path) -> None:
    """The pair that left a learner waiting for rollouts and a worker for weights, for good; and three drawn ones."""
    command = [sys.executable, str(ROOT / "benchmarks" / "fault_pairs.py"), "--runs", str(tmp_path)]
    for words in (["--pairs", "rollout:kill,weights:kill,7"], ["--draw", "3", "--seed", "1"]):
        result = subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT)
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
    assert left_behind() == []
