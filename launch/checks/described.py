"""What a model's config.json says of its sizes: of a folder, of what the hub sent before, or of a name alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.checks import architectures, hub

Config = Mapping[str, Any]

_QWEN25 = {"model_type": "qwen2", "vocab_size": 152064, "tie_word_embeddings": False}
_LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
_GEMMA2 = {"model_type": "gemma2", "vocab_size": 256000, "tie_word_embeddings": True}


def _shape(base: Config, *sizes: int) -> Config:
    """sizes: hidden, layers, heads, heads of keys and values, width inside, and where it is not hidden / heads that of
    a head."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    return {**base, **dict(zip((*names, "head_dim"), sizes, strict=False))}


# Those that recipes name, so that their memory is known without a network: each is its config.json on the hub, and
# tests/unit/launch/checks/test_described.py holds the count that follows against the one that the hub shows.
KNOWN: Mapping[str, Config] = {
    "Qwen/Qwen2.5-3B-Instruct": {**_shape(_QWEN25, 2048, 36, 16, 2, 11008), "vocab_size": 151936,
                                 "tie_word_embeddings": True},
    **dict.fromkeys(("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-Math-7B"),
                    _shape(_QWEN25, 3584, 28, 28, 4, 18944)),
    "Qwen/Qwen2.5-14B-Instruct": _shape(_QWEN25, 5120, 48, 40, 8, 13824),
    **dict.fromkeys(("Qwen/Qwen2.5-32B", "Qwen/Qwen2.5-32B-Instruct"), _shape(_QWEN25, 5120, 64, 40, 8, 27648)),
    "Qwen/Qwen3-8B": {**_shape(_QWEN25, 4096, 36, 32, 8, 12288, 128), "model_type": "qwen3", "vocab_size": 151936},
    **dict.fromkeys(("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"), _LLAMA),
    "google/gemma-2-2b-it": _shape(_GEMMA2, 2304, 26, 8, 4, 9216, 256),
    "google/gemma-2-9b-it": _shape(_GEMMA2, 3584, 42, 16, 8, 14336, 256),
    "google/gemma-2-27b-it": _shape(_GEMMA2, 4608, 46, 32, 16, 36864, 128),
}  # fmt: skip


def load_model_config(path: str, key: str = "model.path") -> Config | None:
    """config.json of a folder or hub name; None where no network, no earlier download and no table has it.

    Raises BadInput for a file that is not readable.
    """
    folder = Path(path) if Path(path).is_dir() else hub.find_cached(path)
    if folder is not None:
        return architectures.read_config(folder, f"{key}={path!r}")
    return KNOWN.get(path) or hub.fetched_config(path)
