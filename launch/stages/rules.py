"""What each kind of stage is made of: its algorithm, its data, how long it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs import make_world
from envs.base import demonstrated
from launch.stages.datasets import open_data, steps_for
from learners.algorithms import ALGORITHMS
from learners.algorithms.dpo import DPOConfig
from rlsys.config import RecipeConfig, StageConfig
from rlsys.errors import BadInput, nearest
from rlsys.types import Task

# The kinds, and the algorithm of each where nothing names one. A generate stage trains nothing.
KIND_ALGORITHM: dict[Any, str] = {"sft": "sft", "rl": "grpo", "generate": "sft", "dpo": "dpo"}
STAGE_KEYS = ("name", "kind", "steps", "epochs", "data")

Head = dict[str, Any]  # the STAGE_KEYS of a stage


def build_stage(where: str, head: Head, recipe: RecipeConfig, earlier: Sequence[StageConfig]) -> StageConfig:
    """A stage, checked against the others before it. Raises BadInput in one line.

    `epochs` become steps, unless they go over what another stage of the run has yet to make.
    """
    kind, name, data = head["kind"], str(head["name"] or head["kind"]), head["data"]
    check_algorithm(where, kind, recipe)
    if kind in ("rl", "generate"):
        check_length(where, recipe)
    if kind == "generate":
        return _generate(where, head, name, recipe)
    if data is None and kind == "dpo":
        raise BadInput(f"{where}: a dpo stage without data: expected the name of a generate stage, or a path to pairs")
    if data is not None and kind == "rl":
        raise BadInput(f"{where}.data={data!r}: an rl stage plays env's tasks: expected env.data, or another kind")
    if data is not None and (not isinstance(data, str) or not data):
        raise BadInput(f"{where}.data={data!r}: expected the name of a generate stage, or a path")
    if kind == "dpo" and recipe.eval.every and recipe.learner.reference != "stage":
        raise BadInput(
            f"{where}: learner.reference={recipe.learner.reference!r} with eval.every={recipe.eval.every}: expected "
            "stage, since the held-out loss is measured against the weights that the stage begins with"
        )
    made_here = any(stage.kind == "generate" and stage.name == data for stage in earlier)
    if data is not None and not made_here:
        _check_file(where, data, earlier)
    steps = _steps(where, head)
    if steps is not None:
        return StageConfig(name=name, kind=kind, steps=steps, config=recipe, data=data)
    epochs = float(head["epochs"])
    if made_here:
        return StageConfig(name=name, kind=kind, steps=0, config=recipe, data=data, epochs=epochs)
    if data is not None:
        count = len(open_data(kind, Path(data), recipe.eval, recipe.seed).train)
    else:
        count = len(training_tasks(kind, recipe.env))
    steps = steps_for(epochs, count, recipe.loop.groups_per_step)
    return StageConfig(name=name, kind=kind, steps=steps, config=recipe, data=data)


def check_algorithm(where: str, kind: str, recipe: RecipeConfig) -> None:
    """An algorithm that a kind of stage has nothing for would train to no effect, or on something else."""
    name = recipe.algorithm.name
    if kind == "sft" and name in ALGORITHMS and name != "sft":
        raise BadInput(f"{where}: algorithm.name={name!r} in an sft stage: expected 'sft'")
    if kind == "dpo" and not isinstance(recipe.algorithm, DPOConfig):
        raise BadInput(f"{where}: algorithm.name={name!r} in a dpo stage: expected 'dpo'")
    if kind == "rl" and isinstance(recipe.algorithm, DPOConfig):
        raise BadInput(
            f"{where}: algorithm.name='dpo' in an rl stage, which makes no preference pairs: "
            "expected a generate stage, and then one of kind dpo with its name as data"
        )
    lam = getattr(recipe.algorithm, "lam", 1.0)
    if kind == "rl" and lam != 1 and getattr(recipe.reward, "token_streams", False):
        raise BadInput(
            f"{where}: algorithm.lam={lam:g}: expected 1 for a reward with token streams, where one critic cannot "
            "discount by two factors; reward.repetition_penalty=0 leaves them out"
        )
    if kind == "rl" and recipe.rollout.top_p != 1.0:
        raise BadInput(
            f"{where}: rollout.top_p={recipe.rollout.top_p:g}: expected 1 in an rl stage, where the engine's "
            "log-probabilities would be of the cut distribution and the learner's of the whole one"
        )


def check_length(where: str, recipe: RecipeConfig) -> None:
    """A response that generation cuts off never reaches a longer limit, nor the whole punishment before it."""
    limit = getattr(recipe.reward, "max_length", None)
    key, most = "rollout.max_response_tokens", recipe.rollout.max_response_tokens
    if most is None:
        key, most = "engine.max_model_len", recipe.engine.max_model_len
    if getattr(recipe.reward, "overlong_buffer", None) is not None and limit is not None and limit > most:
        raise BadInput(f"{where}: reward.max_length={limit}: expected at most {key}={most}, where a response ends")


def _generate(where: str, head: Head, name: str, recipe: RecipeConfig) -> StageConfig:
    for key in ("steps", "epochs", "data"):
        if head[key] is not None:
            raise BadInput(
                f"{where}.{key}={head[key]!r}: a generate stage plays every training task once: "
                "expected generate.tasks and generate.samples"
            )
    if not all(letter.isalnum() or letter in "-_" for letter in name):
        raise BadInput(f"{where}.name={name!r}: expected letters, digits, - and _ : it names a file")
    return StageConfig(name=name, kind="generate", steps=0, config=recipe)


def _check_file(where: str, data: str, earlier: Sequence[StageConfig]) -> None:
    """A path is looked for where it is used: a saved configuration may outlive its files."""
    made = [stage.name for stage in earlier if stage.kind == "generate"]
    if Path(data).suffix or "/" in data or Path(data).exists():
        return
    hint = nearest(data, made, otherwise="")
    stages = f"one of the generate stages before it ({', '.join(made)})" if made else "a generate stage before it"
    raise BadInput(f"{where}.data={data!r}: neither {stages} nor a file{hint}")


def _steps(where: str, head: Head) -> int | None:
    """The number given; None where `epochs` is."""
    steps, epochs = head["steps"], head["epochs"]
    if (steps is None) == (epochs is None):
        raise BadInput(f"{where}: expected exactly one of steps and epochs")
    if steps is None:
        if not isinstance(epochs, (int, float)) or isinstance(epochs, bool) or not 0 <= epochs < float("inf"):
            raise BadInput(f"{where}.epochs={epochs!r}: expected a number, 0 or more")
        return None
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise BadInput(f"{where}.steps={steps!r}: expected a whole number, 0 or more")
    return steps


def training_tasks(kind: str, env: Any) -> Sequence[Task]:
    """What a stage of that kind goes through in one epoch, where it has no data of its own."""
    world = make_world(env)
    shown = demonstrated(world)[0] if kind == "sft" else []
    return shown or world.tasks("train")  # without any demonstration the stage is refused before it begins
