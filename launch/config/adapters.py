"""Which stages of a recipe train an adapter (`model.lora`), and what those stages cannot have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from learners.algorithms import make_algorithm
from learners.algorithms.base import VALUES
from rlsys.config.model import LoraConfig
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.errors import BadInput, nearest


def with_adapters(recipe: RecipeConfig, stages: Sequence[StageConfig]) -> list[StageConfig]:
    """The stages, each with its own `model.lora`: rank 0 in those that train all weights, and the name of the first one
    that does not. Raises BadInput for what does not go together with an adapter."""
    lora = recipe.model.lora
    if not lora.rank:
        return list(stages)
    first = _first(lora, stages, scratch=recipe.model.path is None)
    configs = []
    for index, stage in enumerate(stages):
        stage_lora = replace(lora, rank=lora.rank if index >= first else 0, begins=stages[first].name)
        configs.append(replace(stage, config=replace(stage.config, model=replace(stage.config.model, lora=stage_lora))))
    for index, stage in enumerate(configs):
        if index >= first:
            _check(stage, follows_weights=index == first and any(map(_trains, configs[:index])))
    return configs


def _trains(stage: StageConfig) -> bool:
    return bool(stage.steps or stage.epochs)


def _first(lora: LoraConfig, stages: Sequence[StageConfig], *, scratch: bool) -> int:
    """Index of the first stage that trains an adapter; 0 where no stage trains."""
    training = {stage.name: index for index, stage in enumerate(stages) if _trains(stage)}
    if lora.begins is not None and training:
        if lora.begins not in training:
            expected = f"a stage that trains ({', '.join(training)}){nearest(lora.begins, training, otherwise='')}"
            raise BadInput(key="model.lora.begins", found=lora.begins, expected=expected)
        return training[lora.begins]
    if not scratch:
        return next(iter(training.values()), 0)
    first_index = next((index for index in training.values() if stages[index].kind != "sft"), None)
    if first_index is None and training:
        raise BadInput(
            "the policy is built from nothing and every stage is supervised", key="model.lora.rank", found=lora.rank,
            expected="model.path, model.lora.begins, or 0",
        )  # fmt: skip
    return first_index or 0


def _check(stage: StageConfig, *, follows_weights: bool) -> None:
    learner, where = stage.config.learner, f"stages.{stage.name}"
    if learner.zero_stage == 3:
        raise BadInput(
            "with model.lora.rank above 0", where=where, key="learner.zero_stage", found=3,
            expected="1 or 2, which divide what an adapter trains: ZeRO-3 with frozen weights is not supported",
        )  # fmt: skip
    if VALUES in make_algorithm(stage.config.algorithm).needs:
        name = stage.config.algorithm.name
        expected = "an algorithm without a critic, such as grpo"
        raise BadInput("with model.lora.rank above 0", where=where, key="algorithm.name", found=name, expected=expected)
    if follows_weights and learner.optimizer == "run":
        raise BadInput(
            "the stage before it trains all weights, and this one an adapter", where=where, key="learner.optimizer",
            found="run", expected="stage",
        )  # fmt: skip
