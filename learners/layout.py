"""What a learner's checkpoint can be loaded into: the same ranks, ZeRO stage, critic and rank of an adapter."""

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


def refuse_other_layout(folder: Path, ours: Mapping[str, Any]) -> None:
    """Raises BadInput where the checkpoint in `folder` is of another."""
    path = folder / FILE
    if not path.is_file():
        raise BadInput(f"not a learner checkpoint ({FILE} is missing)", where=folder)
    saved = json_object(path.read_bytes(), str(path))
    for key, config_key in (("world_size", "learner.ranks"), ("zero_stage", "learner.zero_stage")):
        if saved.get(key) != ours[key]:
            raise BadInput(f"saved with {config_key}={saved.get(key)}", where=folder, expected=ours[key])
    if saved.get("lora", 0) != ours["lora"]:
        raise BadInput(f"saved with model.lora.rank={saved.get('lora', 0)}", where=folder, expected=str(ours["lora"]))
    if saved.get("critic") != ours["critic"]:
        found = "with a critic" if saved.get("critic") else "without a critic"
        raise BadInput(f"saved {found}", where=folder, expected="the algorithm that the stage began with")
