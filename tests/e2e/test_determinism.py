"""One worker, one sequence at a time, no prefix cache, no lag: two runs sample the same tokens."""

import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.e2e.runs import rlsys, rows, trajectories

MODE = ["engine.max_num_seqs=1", "engine.prefix_cache=false", "stages.rl.loop.max_policy_lag=0", "rollout.workers=1"]
SHORT = ["stages.sft.steps=12", "stages.rl.steps=2", "stages.rl.loop.groups_per_step=4", "stages.rl.loop.group_size=4"]
SHORT += ["eval.tasks=2", "wandb.mode=disabled"]


@pytest.mark.slow
def test_two_runs_are_token_identical_and_their_updates_bit_identical(tmp_path: Path) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        result = rlsys("train", "quickstart", "--run-dir", str(run), *MODE, *SHORT)
        assert result.code == 0, result.output[-3000:]
    first, second = (trajectories(run, "*.jsonl") for run in runs)
    assert len(first) == 2 * 16 + 2 * (2 + 4)
    keys = ("task", "sequence", "sibling", "token_ids", "messages", "weight_versions", "reward", "advantage")
    assert [[t[key] for key in keys] for t in first] == [[t[key] for key in keys] for t in second]
    weights = [load_file(run / "checkpoints" / "step-000014" / "hf" / "model.safetensors") for run in runs]
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    losses = [[row.get("loss/total") for row in rows(run)] for run in runs]
    assert losses[0] == losses[1]
    on_policy([row for row in rows(runs[0]) if row["stage"] == "rl" and "mismatch/max" in row])


def on_policy(steps: list[dict[str, Any]]) -> None:
    """Without lag every token was sampled by the weights that are trained: all ratios to the engine are 1 to 1e-4.
    To the learner's own log-probabilities they are exactly 1: test_learner_rank.py."""
    assert steps, "a group with contrast, and so an update"
    for row in steps:
        assert row["lag/max"] == 0
        assert math.expm1(row["mismatch/max"]) < 1e-4  # the largest |ratio - 1|: that of the token furthest off
        assert row["ratio/mean"] == pytest.approx(1, abs=1e-4)
        assert row["ratio/outside_0.1"] == row["clip/low"] == row["clip/high"] == 0
