"""What a learner's checkpoint can be loaded into: the same critic and rank of an adapter, divided in any way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learners.algorithms.base import VALUES, Algorithm
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput
from rlsys.jsonl import json_object

FILE = "layout.json"  # in the folder of a learner's checkpoint


def layout_of(learner: LearnerConfig, algorithm: Algorithm, world_size: int, lora: int = 0) -> dict[str, Any]:
    """lora: the adapter's rank; 0 where all weights are trained."""
    critic = VALUES in algorithm.needs
    return {"world_size": world_size, "zero_stage": learner.zero_stage, "critic": critic, "lora": lora}


def other_division(folder: Path, ours: Mapping[str, Any]) -> tuple[int, int] | None:
    """The number of ranks and the ZeRO stage that the checkpoint in `folder` was saved with; None where both are ours.

    Raises BadInput where it cannot be loaded, however it is divided.
    """
    path = folder / FILE
    if not path.is_file():
        raise BadInput(f"not a learner checkpoint ({FILE} is missing)", where=folder)
    saved = json_object(path.read_bytes(), str(path))
    ranks, zero_stage = saved.get("world_size"), saved.get("zero_stage")
    if type(ranks) is not int or ranks < 1:
        raise BadInput(f"saved with learner.ranks={ranks}", where=folder, expected="1 or more")
    if zero_stage not in (1, 2, 3):
        raise BadInput(f"saved with learner.zero_stage={zero_stage}", where=folder, expected="1, 2 or 3")
    if saved.get("lora", 0) != ours["lora"]:
        raise BadInput(f"saved with model.lora.rank={saved.get('lora', 0)}", where=folder, expected=str(ours["lora"]))
    if saved.get("critic") != ours["critic"]:
        critic = "with a critic" if saved.get("critic") else "without a critic"
        raise BadInput(f"saved {critic}", where=folder, expected="the algorithm that the stage began with")
    same = (ranks, zero_stage) == (ours["world_size"], ours["zero_stage"])
    return None if same else (ranks, zero_stage)
