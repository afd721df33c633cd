"""One worker, one sequence at a time, no prefix cache, no lag: runs sample the same tokens and end in equal weights."""

import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.e2e.runs import rlsys, rows, trajectories

MODE = ["engine.max_num_seqs=1", "engine.prefix_cache=false", "stages.rl.loop.max_policy_lag=0", "rollout.workers=1"]
SHORT = ["stages.sft.steps=12", "stages.rl.steps=2", "stages.rl.loop.groups_per_step=4", "stages.rl.loop.group_size=4"]
SHORT += ["eval.tasks=2", "wandb.mode=disabled"]


KEYS = ("task", "sequence", "sibling", "token_ids", "messages", "weight_versions", "reward", "advantage")
WEIGHTS = Path("checkpoints", "step-000014", "hf", "model.safetensors")


def play(folder: Path, module: str = "launch") -> Path:
    result = rlsys("train", "quickstart", "--run-dir", str(folder), *MODE, *SHORT, module=module)
    assert result.code == 0, result.output[-3000:]
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("determinism") / "a")


def assert_equal_weights(first: Path, second: Path) -> None:
    weights = [load_file(run / WEIGHTS) for run in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_two_runs_are_token_identical_and_their_updates_bit_identical(first: Path, tmp_path: Path) -> None:
    second = play(tmp_path / "b")
    played = [trajectories(run, "*.jsonl") for run in (first, second)]
    assert len(played[0]) == 2 * 16 + 2 * (2 + 4)
    assert [[t[key] for key in KEYS] for t in played[0]] == [[t[key] for key in KEYS] for t in played[1]]
    assert_equal_weights(first, second)
    losses = [[row.get("loss/total") for row in rows(run)] for run in (first, second)]
    assert losses[0] == losses[1]
    on_policy([row for row in rows(first) if row["stage"] == "rl" and "mismatch/max" in row])


@pytest.mark.slow
def test_without_lag_the_loop_is_a_synchronous_one_bit_for_bit(first: Path, tmp_path: Path) -> None:
    """Against a loop in which nothing overlaps: groups one after the other, then the update, then the new weights."""
    second = play(tmp_path / "synchronous", module="tests.e2e.synchronous")
    played = [trajectories(run) for run in (first, second)]
    assert len(played[1]) == 2 * 16 and any(t["advantage"] for t in played[1])
    assert [[t[key] for key in KEYS] for t in played[0]] == [[t[key] for key in KEYS] for t in played[1]]
    assert_equal_weights(first, second)


def on_policy(steps: list[dict[str, Any]]) -> None:
    """Without lag every token was sampled by the weights that are trained: all ratios to the engine are 1 to 1e-4.
    To the learner's own log-probabilities they are exactly 1: test_learner_rank.py."""
    assert steps, "a group with signal, and so an update"
    for row in steps:
        assert row["lag/max"] == 0
        assert math.expm1(row["mismatch/max"]) < 1e-4  # the largest |ratio - 1|: that of the token furthest off
        assert row["ratio/mean"] == pytest.approx(1, abs=1e-4)
        assert row["ratio/outside_0.1"] == row["clip/low"] == row["clip/high"] == 0
