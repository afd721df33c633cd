"""Whether a model can be divided among the processes of an engine, told from its sizes before anything starts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from launch.checks.described import load_model_config
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import require

KEY = "engine.tensor_parallel"
# Heads, key-value heads, width inside: as a scratch model has them, and as config.json does.
NAMES = (("num_heads", "num_attention_heads"), ("num_kv_heads", "num_key_value_heads"), ("intermediate_size",))


def check(recipe: RecipeConfig, path: str | None) -> None:
    """Raises BadInput unless each of `engine.tensor_parallel` processes gets whole attention heads.

    path: a folder, a hub name, or None for the recipe's scratch model. A hub name that nothing describes, and an
    architecture that names its sizes otherwise, are left to the engine.
    """
    ways = recipe.engine.tensor_parallel
    if ways == 1:
        return
    sizes = _sizes(recipe, path)
    heads, kv_heads, inner = (next((sizes[key] for key in keys if sizes.get(key)), None) for keys in NAMES)
    kv_heads = kv_heads or heads
    if isinstance(heads, int) and isinstance(kv_heads, int):
        whole = heads % ways == 0 and (kv_heads % ways == 0 or ways % kv_heads == 0)
        expected = f"a divisor of the model's {heads} attention heads, and a divisor or multiple of its {kv_heads}"
        require(whole, KEY, ways, f"{expected} key-value heads")
    if isinstance(inner, int):
        require(inner % ways == 0, KEY, ways, f"a divisor of the model's intermediate_size={inner}")


def _sizes(recipe: RecipeConfig, path: str | None) -> dict[str, Any]:
    if path is None:
        return asdict(recipe.model.scratch)
    config = load_model_config(path)
    if config is None:
        return {}
    inner = config.get("text_config")
    return dict(inner if isinstance(inner, dict) else config)
