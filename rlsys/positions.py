"""How many positions a model was made for, by its config.json: an engine refuses a longer context (vLLM's rule)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

KEYS = ("max_position_embeddings", "n_positions")  # the smaller of them counts
OVERRIDE = "model_max_length"  # that Cohere's models have in addition: it counts alone
CHANGING = frozenset({"dynamic", "longrope", "su"})  # RoPE that changes with the length of a text
# RoPE whose factor is in `max_position_embeddings` already; another's is multiplied with it.
INCLUDED = frozenset({"deepseek_llama_scaling", "deepseek_yarn", "llama3", "longrope", "su", "yarn"})


def positions_of(config: Mapping[str, Any]) -> int | None:
    """Tokens of its longest sequence, stretched by its own RoPE scaling; None where the file does not say.

    config: of config.json, as the hub has it or as transformers writes it.
    """
    text = config.get("text_config") or config
    counts = _counts(text, (OVERRIDE,)) or _counts(text, KEYS)
    if not counts:
        return None
    kind = str(config.get("model_type", ""))
    return int(min(counts) * (1.0 if "gemma3" in kind else _read_rope_factor(text)))


def _read_rope_factor(text: Mapping[str, Any]) -> float:
    factor = 1.0
    for rope in ropes_of(text.get("rope_parameters") or text.get("rope_scaling")):
        if rope.get("rope_type", rope.get("type")) not in INCLUDED and isinstance(rope.get("factor"), (int, float)):
            factor = float(rope["factor"])
    return factor


def rope_change_of(config: Mapping[str, Any]) -> tuple[int, str] | None:
    """Beyond how many positions a RoPE changes with the length of a text, and its kind. None: it never changes.

    There the angles of all tokens follow from the largest position of a row, so that samples that are packed into one
    would change each other's numbers; an engine takes one set of angles for its whole window.
    """
    text = config.get("text_config") or config
    for rope in ropes_of(text.get("rope_parameters") or text.get("rope_scaling")):
        kind = rope.get("rope_type", rope.get("type"))
        if kind in CHANGING:
            counts = _counts({**text, **rope}, ("original_max_position_embeddings",)) or _counts(text, KEYS)
            return (min(counts), str(kind)) if counts else None
    return None


def ropes_of(parameters: Any) -> Iterator[dict[str, Any]]:
    """The parameters of each RoPE: one, or one for each kind of layer."""
    if not isinstance(parameters, dict):
        return
    inner = [value for value in parameters.values() if isinstance(value, dict)]
    if inner:
        for layer_parameters in inner:
            yield from ropes_of(layer_parameters)
    else:
        yield parameters


def _counts(text: Mapping[str, Any], keys: Sequence[str]) -> list[int]:
    return [count for key in keys if isinstance(count := text.get(key), int) and count > 0]
