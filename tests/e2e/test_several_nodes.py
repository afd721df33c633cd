"""A run on a cluster of several nodes, by its command: what is placed where, and what becomes of it when a node dies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.e2e.runs import rlsys, rows
from tests.nodes import Cluster, needs_nodes, nodes

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


def recipe(folder: Path, text: str) -> str:
    path = folder / "recipe.yaml"
    path.write_text(text)
    return str(path)


def learned(run: Path) -> list[dict[str, Any]]:
    """What the rows say of the mathematics."""
    return [
        {key: row[key] for key in row if key.startswith(("loss", "learner/grad", "tokens/tr"))} for row in rows(run)
    ]


def weights(run: Path) -> dict[str, torch.Tensor]:
    (file,) = (run / "checkpoints" / "step-000004" / "hf").glob("*.safetensors")
    return load_file(file)


def test_two_ranks_on_two_nodes_learn_what_they_learn_on_one(tmp_path: Path) -> None:
    """One CPU on each node: two ranks of one CPU cannot share it."""
    there, here = tmp_path / "there", tmp_path / "here"
    asked = recipe(tmp_path, SFT)
    with nodes(2, shared=tmp_path, cpus=1) as cluster:
        far = cluster.run(["rlsys", "train", asked, "--run-dir", str(there)], timeout=240)
        assert far.code == 0, far.output
        assert "learner ranks: 0 on 10.77.0.1, 1 on 10.77.0.2" in far.output
        for node in (1, 2):
            assert "rlsys" not in cluster.sh(node, "ls /dev/shm")
    near = rlsys("train", asked, "--run-dir", str(here))
    assert near.code == 0, near.output
    assert len(learned(there)) == 4 and learned(there) == learned(here)
    ours, theirs = weights(here), weights(there)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
