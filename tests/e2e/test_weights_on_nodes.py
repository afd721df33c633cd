"""The learner on one node and the engine on another: the same run as on one, and nothing left in either's memory."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlsys.system.memory import GRACE_S, PREFIX
from tests.e2e.runs import rlsys, rows, steps_of, trajectories
from tests.e2e.test_determinism import MODE, SHORT
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

TRAIN = ["train", "quickstart", *MODE, *SHORT]
KEYS = ("task", "sequence", "sibling", "token_ids", "messages", "weight_versions", "reward", "advantage")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[Cluster]:
    """Each node has room for one part: a rank or an engine."""
    with nodes(2, shared=shared, cpus=1) as cluster:
        yield cluster


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "launch", *argv]


def until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds()


def held(cluster: Cluster) -> str:
    return "".join(cluster.sh(number, f"ls -d /dev/shm/{PREFIX}* 2>/dev/null || true") for number in (1, 2))


def test_two_nodes_sample_and_learn_what_one_does(cluster: Cluster, shared: Path, tmp_path: Path) -> None:
    result = cluster.run(command(*TRAIN, "--run-dir", str(shared / "two")), timeout=400)
    assert result.code == 0, result.output[-3000:]
    assert held(cluster) == ""
    carried = [row["weights/carried_mb"] for row in rows(shared / "two") if "weights/carried_mb" in row]
    assert carried and all(megabytes > 2 for megabytes in carried)  # 0.7 M parameters in float32, to the other node
    result = rlsys(*TRAIN, "--run-dir", str(tmp_path / "one"))
    assert result.code == 0, result.output[-3000:]
    runs = (shared / "two", tmp_path / "one")
    two_nodes, one_node = ([[t[key] for key in KEYS] for t in trajectories(run, "*.jsonl")] for run in runs)
    assert len(one_node) == 2 * 16 + 2 * (2 + 4) and two_nodes == one_node
    weights = [load_file(run / "checkpoints" / "step-000014" / "hf" / "model.safetensors") for run in runs]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_deliveries_without_learning_change_no_log_probability(cluster: Cluster, shared: Path) -> None:
    """Steps too small for float32: engine against learner is the same to the last bit after each of the deliveries, and
    what is sampled by seeds too."""
    still = ["stages.rl.learner.lr=1e-30", "stages.rl.steps=5"]
    result = cluster.run(command(*TRAIN, *still, "--run-dir", str(shared / "still")), timeout=400)
    assert result.code == 0, result.output[-3000:]
    delivered = [row for row in rows(shared / "still") if "weights/carried_mb" in row]
    assert len(delivered) >= 3  # a step without signal delivers nothing
    assert len({(row["mismatch/probe_mean"], row["mismatch/probe_max"]) for row in delivered}) == 1
    before, after = (trajectories(shared / "still", f"*{when}*.jsonl") for when in ("before", "after"))
    assert len(before) == 2 + 4 and [t["token_ids"] for t in before] == [t["token_ids"] for t in after]


def test_a_run_survives_its_weight_stores_and_leaves_no_memory_when_killed(cluster: Cluster, shared: Path) -> None:
    folder = shared / "killed"
    train = ["train", "quickstart", "stages.sft.steps=12", "stages.rl.steps=200", "eval.tasks=2", "wandb.mode=disabled"]
    with (shared / "killed.log").open("w") as output:
        process = cluster.start(command(*train, "--run-dir", str(folder)), output=output.fileno())
        assert until(lambda: steps_of(folder, "rl") >= 1, 240), (shared / "killed.log").read_text()[-3000:]
        for number in (1, 2):
            cluster.sh(number, "pkill -KILL -f '^ray::.*[Ww]eight ?[Ss]tore'")
            steps = steps_of(folder, "rl")
            assert until(lambda steps=steps: steps_of(folder, "rl") >= steps + 2, 120)
        assert held(cluster).count("\n") == 2
        cluster.signal(process, signal.SIGKILL)
        process.wait(60)
    assert until(lambda: held(cluster) == "", 60 + GRACE_S), held(cluster)
