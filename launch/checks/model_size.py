"""How large a policy, its adapter and its weights on disk and in shared memory are, by what its recipe says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from launch.checks.gpu_memory import (
    BYTES,
    VERSIONS_IN_MEMORY,
    ModelShape,
    adapter_parameters,
    has_tied_head,
    shape_of,
)
from launch.checks.models import load_model_config, parameters_in, text_of
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.system.device import Device, dtype_of, require_resolved, resolve_cluster

TEACHER = "learner.reference"  # the key that names a teacher


def model_config(recipe: RecipeConfig) -> Mapping[str, Any] | None:
    """config.json of the model, or what a scratch model's would say. None for a hub name that cannot be asked."""
    path, scratch = recipe.model.path, recipe.model.scratch
    if path is None:
        return {
            "num_hidden_layers": scratch.num_layers, "hidden_size": scratch.hidden_size,
            "intermediate_size": scratch.intermediate_size, "num_attention_heads": scratch.num_heads,
            "num_key_value_heads": scratch.num_kv_heads, "head_dim": scratch.head_dim,
            "vocab_size": scratch.vocab_size,
        }  # fmt: skip
    return load_model_config(path)


def shape_at(path: str, key: str, parameters: int | None = None) -> ModelShape | None:
    """Of a folder or a hub name that `key` gives; None where nothing says its sizes. parameters: as of `shape_of`."""
    config = load_model_config(path, key)
    return None if config is None else shape_of(config, parameters)


def policy_shape(recipe: RecipeConfig, parameters: int | None = None) -> ModelShape | None:
    """None where nothing says its sizes. parameters: counted in its files, if they are here."""
    config = model_config(recipe)
    return None if config is None else shape_of(config, parameters)


def parameters(recipe: RecipeConfig) -> int | None:
    """How many the policy has: counted in its files, or by config.json of a hub name. None where nothing says it."""
    if recipe.model.path is not None:
        return _count(recipe.model.path, "model.path")
    shape = policy_shape(recipe)
    return None if shape is None else shape.parameters + 2 * shape.layers * shape.head_dim  # norms of queries and keys


def teacher_parameters(path: str) -> int | None:
    """Of a teacher, as of the policy."""
    return _count(path, TEACHER)


def _count(path: str, key: str) -> int | None:
    counted = parameters_in(Path(path), f"{key}={path!r}") if Path(path).is_dir() else None
    if counted is not None:
        return counted
    shape = shape_at(path, key)
    return None if shape is None else shape.parameters


def adapter_of(recipe: RecipeConfig) -> int | None:
    """Parameters of the adapter that is all that a run trains; None where a stage trains all weights, or may, and where
    the model's sizes are not known. recipe: of the run, which no stage has changed."""
    lora = recipe.model.lora
    if not lora.rank or lora.begins is not None or recipe.model.path is None:  # built from nothing, it is taught whole
        return None
    shape = policy_shape(recipe)
    return None if shape is None else adapter_parameters(shape, lora.targets, lora.rank)


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


def model_bytes(recipe: RecipeConfig, device: Device) -> int:
    """Of the policy, as a process loads it; 0 where its size is not known."""
    return (parameters(recipe) or 0) * BYTES[dtype_of(recipe.model.dtype, device)]


def other_model_bytes(path: str) -> int:
    """Of a model besides the policy, in bfloat16; 0 where its size is not known."""
    return (teacher_parameters(path) or 0) * BYTES["bfloat16"]


def weights_bytes(recipe: RecipeConfig, device: Device) -> int | None:
    """Of all versions that a node holds at once; None where the model's sizes are not known."""
    count = parameters(recipe)
    if count is None:
        return None
    adapter = adapter_of(recipe)
    if adapter is not None:
        return VERSIONS_IN_MEMORY * adapter * BYTES[dtype_of(recipe.model.dtype, device)]
    if recipe.model.path is not None:
        config = load_model_config(recipe.model.path) or {}
        # a tied head is one tensor in the files, and two in a version
        text = text_of(config)
        count += text.get("vocab_size", 0) * text.get("hidden_size", 0) if has_tied_head(config) else 0
    return VERSIONS_IN_MEMORY * count * BYTES[dtype_of(recipe.model.dtype, device)]


def store_bytes(recipe: RecipeConfig, device: Device) -> int:
    """What a run's batches take of Ray's object store, where that shares /dev/shm with versions of the weights."""
    store_mb = require_resolved(resolve_cluster(recipe.cluster, device).object_store_mb)
    return store_mb * 2**20 if recipe.cluster.weights_dir is None else 0
