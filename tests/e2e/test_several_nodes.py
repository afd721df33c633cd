"""A run on several nodes, by its command: what is placed where, and what becomes of it when a node dies."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.e2e.runs import rlsys, rows, summary
from tests.nodes import needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

SFT = """
name: sft
env: {name: calculator, train_tasks: 64, held_out_tasks: 8}
reward: {name: answer}
learner: {ranks: 2, threads: 1, lr: 2.0e-3}
loop: {groups_per_step: 8}
eval: {tasks: 8, every: 2}
stages: [{name: sft, kind: sft, steps: 4}]
"""

RL = """
name: rl
env: {name: calculator, train_tasks: 64, held_out_tasks: 4}
reward: {name: answer}
rollout: {workers: 2, max_turn_tokens: 8}
learner: {threads: 2, lr: 1.0e-4}
loop: {groups_per_step: 2, group_size: 2}
eval: {tasks: 4}
stages: [{name: rl, kind: rl, steps: 1000}]
"""
DEADLINE_S = 240


def recipe(folder: Path, text: str) -> str:
    path = folder / "recipe.yaml"
    path.write_text(text)
    return str(path)


def learned(run: Path) -> list[dict[str, Any]]:
    """What the rows say of the mathematics."""
    measured = ("loss", "learner/grad", "tokens/trained", "held_out")
    return [{key: row[key] for key in row if key.startswith(measured) and not key.endswith("_s")} for row in rows(run)]


def weights(run: Path) -> dict[str, torch.Tensor]:
    (file,) = (run / "checkpoints" / "step-000004" / "hf").glob("*.safetensors")
    return load_file(file)


def test_two_ranks_on_two_nodes_learn_what_they_learn_on_one(tmp_path: Path) -> None:
    """One CPU on each node: two ranks of one CPU cannot share it."""
    two_nodes, one_node = tmp_path / "there", tmp_path / "here"
    config = recipe(tmp_path, SFT)
    with nodes(2, shared=tmp_path, cpus=1) as cluster:
        far = cluster.run(["rlsys", "train", config, "--run-dir", str(two_nodes)], timeout=240)
        assert far.code == 0, far.output
        assert "learner ranks: 0 on 10.77.0.1, 1 on 10.77.0.2" in far.output
        for node in (1, 2):
            assert "rlsys" not in cluster.sh(node, "ls /dev/shm")
    near = rlsys("train", config, "--run-dir", str(one_node))
    assert near.code == 0, near.output
    assert len(learned(two_nodes)) == 4 and all(learned(two_nodes)) and learned(two_nodes) == learned(one_node)
    ours, theirs = weights(one_node), weights(two_nodes)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def seen(run: Path, lost: float, after: int = 0) -> int:
    """Wait for a row with so many lost workers. Returns how many rows there are by then."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        written = rows(run) if (run / "metrics.jsonl").exists() else []
        if any(row["engine/lost"] == lost for row in written[after:]):
            return len(written)
        time.sleep(0.5)
    raise AssertionError(f"no step with {lost:g} lost workers after {len(written)} steps")


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_run_goes_on_without_the_node_of_an_engine_and_takes_it_back(how: str, tmp_path: Path) -> None:
    """Three CPUs on each node: rank and engine on the first, whose driver lives on, an engine on what is left of the
    second."""
    run, output = tmp_path / "run", tmp_path / "output"
    with nodes(2, shared=tmp_path, cpus=3) as cluster, output.open("wb") as log:
        cluster.fill(2, cpus=2)
        argv = ["rlsys", "train", recipe(tmp_path, RL), "--run-dir", str(run)]
        driver = cluster.start(argv, output=log.fileno())
        written = seen(run, lost=0.0)
        cluster.kill(2) if how == "killed" else cluster.cut(2)
        written = seen(run, lost=1.0, after=written)
        if how == "cut off":
            cluster.mend(2)
            cluster.kill(2)  # what is left of a node that Ray has given up ends by itself, at some time
        cluster.boot(2)
        seen(run, lost=0.0, after=written)
        cluster.signal(driver, signal.SIGINT)
        assert driver.wait(60) == 130, output.read_text()
        assert "rlsys" not in cluster.sh(1, "ls /dev/shm")
    text = output.read_text()
    assert "rollout:1 is lost: its node is gone" in text or "rollout:0 is lost: its node is gone" in text
    assert "10.77.0.2" in text  # whose log it was
    assert summary(run)["status"] == "stopped"


def test_a_run_whose_rank_lost_its_node_for_good_goes_on_with_the_rank_that_is_left(tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "output"
    keys = SFT.replace("ranks: 2,", "ranks: 2, start_timeout_s: 20, max_restarts: 1,").replace(
        "steps: 4", "steps: 1000"
    )
    config = recipe(tmp_path, f"{keys}checkpoint: {{every: 2}}\ncluster: {{placement_timeout_s: 10}}\n")
    with nodes(2, shared=tmp_path, cpus=1) as cluster, output.open("wb") as log:
        driver = cluster.start(["rlsys", "train", config, "--run-dir", str(run)], output=log.fileno())
        end = time.monotonic() + DEADLINE_S
        while not (run / "checkpoints" / "step-000004").is_dir() and time.monotonic() < end:
            time.sleep(0.2)
        cluster.kill(2)
        assert driver.wait(DEADLINE_S) == 1, output.read_text()
        step = max(int(folder.name.removeprefix("step-")) for folder in (run / "checkpoints").glob("step-*"))
        changes = ["learner.ranks=1", f"stages.sft.steps={step + 3}"]
        rerun = cluster.run(["rlsys", "train", config, "--run-dir", str(run), "--resume", *changes], timeout=DEADLINE_S)
        assert rerun.code == 0, rerun.output
    assert "learner.ranks=2 learner.zero_stage=2, now learner.ranks=1 learner.zero_stage=2" in rerun.output
    assert [row["step"] for row in rows(run)] == list(range(1, step + 4))
    assert summary(run)["status"] == "done" and summary(run)["learner"]["world_size"] == 1
