"""How large the adapter of a recipe is, for what is planned and for `--dry-run`."""

from __future__ import annotations

from rich.filesize import decimal as size

from launch.checks.gpu_memory import BYTES, adapter_parameters
from launch.checks.model_size import policy_shape
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.system.device import Device, dtype_of


def trained_parameters(recipe: RecipeConfig, count: int) -> int:
    """Of a stage: of its adapter, or the `count` of the whole model, which stands too where its sizes are not known."""
    lora, shape = recipe.model.lora, policy_shape(recipe)
    return adapter_parameters(shape, lora.targets, lora.rank) if lora.rank and shape is not None else count


def describe_adapter(config: RunConfig, count: int | None, device: Device) -> list[str]:
    """Lines of `--dry-run`; none without an adapter."""
    stages = [stage for stage in config.stages if stage.config.model.lora.rank]
    if not stages or count is None:
        return []
    recipe, lora = stages[0].config, stages[0].config.model.lora
    trained = trained_parameters(recipe, count)
    itemsize = BYTES[dtype_of(recipe.model.dtype, device)]
    transfer = f"{size(trained * itemsize)} a version instead of {size(count * itemsize)}"
    of = f"rank {lora.rank} on {', '.join(lora.targets)}: {trained:,} parameters ({trained / count:.1%}), {transfer}"
    rates = {stage.config.learner.lr * lora.lr_scale for stage in stages if stage.steps or stage.epochs}
    rate = ", ".join(f"{lr:g}" for lr in sorted(rates))
    scale = f"alpha / rank = {lora.alpha / lora.rank:g}; learning rate = learner.lr x {lora.lr_scale:g} = {rate}"
    return [f"from stage {stages[0].name} on, {of}", scale]
