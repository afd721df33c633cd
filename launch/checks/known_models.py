"""Sizes of well-known models, so that memory and speed can be planned without a network.

Each entry is the integers of the model's config.json on huggingface.co/NAME; the tests hold the parameters that follow
from it against the count that the hub shows next to its files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlsys.errors import BadInput, nearest

Config = Mapping[str, Any]
LONGEST = 80  # characters of a word that an error shows

_QWEN25 = {"model_type": "qwen2", "vocab_size": 152064, "tie_word_embeddings": False}
_QWEN25_SMALL = {"model_type": "qwen2", "vocab_size": 151936, "tie_word_embeddings": True}
_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "tie_word_embeddings": False}
_QWEN3_SMALL = {**_QWEN3, "tie_word_embeddings": True}
_MATH = {"max_position_embeddings": 4096}
_LLAMA = {"model_type": "llama", "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072}
_LLAMA_SMALL = {**_LLAMA, "tie_word_embeddings": True}
_SMOLLM2 = {"model_type": "llama", "vocab_size": 49152, "tie_word_embeddings": True, "max_position_embeddings": 8192}
_GEMMA2 = {"model_type": "gemma2", "vocab_size": 256000, "tie_word_embeddings": True, "max_position_embeddings": 8192}


def _shape(base: Config, *sizes: int) -> Config:
    """sizes: hidden, layers, heads, heads of keys and values, width inside, and where it is not hidden / heads that of
    a head."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    return {**base, **dict(zip((*names, "head_dim"), sizes, strict=False))}


def _and_instruct(name: str, config: Config) -> dict[str, Config]:
    return {name: config, f"{name}-Instruct": config}


KNOWN: Mapping[str, Config] = {
    "smollm2-135m-instruct": _shape(_SMOLLM2, 576, 30, 9, 3, 1536, 64),  # of `launch.checks.packaged`
    **_and_instruct("Qwen/Qwen2.5-0.5B", _shape(_QWEN25_SMALL, 896, 24, 14, 2, 4864)),
    **_and_instruct("Qwen/Qwen2.5-1.5B", _shape(_QWEN25_SMALL, 1536, 28, 12, 2, 8960)),
    **_and_instruct("Qwen/Qwen2.5-3B", _shape(_QWEN25_SMALL, 2048, 36, 16, 2, 11008)),
    **_and_instruct("Qwen/Qwen2.5-7B", _shape(_QWEN25, 3584, 28, 28, 4, 18944)),
    **_and_instruct("Qwen/Qwen2.5-14B", _shape(_QWEN25, 5120, 48, 40, 8, 13824)),
    **_and_instruct("Qwen/Qwen2.5-32B", _shape(_QWEN25, 5120, 64, 40, 8, 27648)),
    **_and_instruct("Qwen/Qwen2.5-72B", _shape(_QWEN25, 8192, 80, 64, 8, 29568)),
    "Qwen/Qwen2.5-Math-1.5B": _shape({**_QWEN25_SMALL, **_MATH}, 1536, 28, 12, 2, 8960),
    "Qwen/Qwen2.5-Math-7B": _shape({**_QWEN25, **_MATH}, 3584, 28, 28, 4, 18944),
    "Qwen/Qwen3-0.6B": _shape(_QWEN3_SMALL, 1024, 28, 16, 8, 3072, 128),
    "Qwen/Qwen3-1.7B": _shape(_QWEN3_SMALL, 2048, 28, 16, 8, 6144, 128),
    "Qwen/Qwen3-4B": _shape(_QWEN3_SMALL, 2560, 36, 32, 8, 9728, 128),
    "Qwen/Qwen3-8B": _shape(_QWEN3, 4096, 36, 32, 8, 12288, 128),
    "Qwen/Qwen3-14B": _shape(_QWEN3, 5120, 40, 40, 8, 17408, 128),
    "Qwen/Qwen3-32B": _shape(_QWEN3, 5120, 64, 64, 8, 25600, 128),
    **_and_instruct("meta-llama/Llama-3.2-1B", _shape(_LLAMA_SMALL, 2048, 16, 32, 8, 8192, 64)),
    **_and_instruct("meta-llama/Llama-3.2-3B", _shape(_LLAMA_SMALL, 3072, 28, 24, 8, 8192, 128)),
    **_and_instruct("meta-llama/Llama-3.1-8B", _shape(_LLAMA, 4096, 32, 32, 8, 14336)),
    **_and_instruct("meta-llama/Llama-3.1-70B", _shape(_LLAMA, 8192, 80, 64, 8, 28672)),
    "google/gemma-2-2b-it": _shape(_GEMMA2, 2304, 26, 8, 4, 9216, 256),
    "google/gemma-2-9b-it": _shape(_GEMMA2, 3584, 42, 16, 8, 14336, 256),
    "google/gemma-2-27b-it": _shape(_GEMMA2, 4608, 46, 32, 16, 36864, 128),
}

# `rlsys plan --shape`: a model of this size where that of the recipe is not known.
SHAPES: Mapping[str, str] = {
    "0.5b": "Qwen/Qwen2.5-0.5B", "0.6b": "Qwen/Qwen3-0.6B", "1b": "meta-llama/Llama-3.2-1B",
    "1.5b": "Qwen/Qwen2.5-1.5B", "1.7b": "Qwen/Qwen3-1.7B", "3b": "Qwen/Qwen2.5-3B", "4b": "Qwen/Qwen3-4B",
    "7b": "Qwen/Qwen2.5-7B", "8b": "meta-llama/Llama-3.1-8B", "14b": "Qwen/Qwen2.5-14B", "32b": "Qwen/Qwen2.5-32B",
    "70b": "meta-llama/Llama-3.1-70B", "72b": "Qwen/Qwen2.5-72B",
}  # fmt: skip


def named_shape(word: str) -> str:
    """The known model that --shape means: a size such as 7b, or a name of KNOWN. Raises BadInput."""
    name = SHAPES.get(word.lower(), word)
    if name not in KNOWN:
        excerpt = word if len(word) <= LONGEST else f"{word[:LONGEST]}..."
        raise BadInput(
            key="--shape",
            found=excerpt,
            expected=f"one of {', '.join(SHAPES)}, or a known hub name{_nearest_shape(word)}",
        )
    return name


def _nearest_shape(word: str) -> str:
    """The size that a number is nearest to, or the name that is most like the word."""
    number = re.match(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", word)
    if number is None or "/" in word:
        return nearest(word, [*SHAPES, *KNOWN], otherwise="")
    size = min(SHAPES, key=lambda name: abs(float(name.removesuffix("b")) - float(number[0])))
    return f" (did you mean {size!r}?)"
