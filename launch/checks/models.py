"""What a model is, read from its files before anything starts: whether it can be trained, its sizes, and its weights.

docs/models.md shows the tables of architectures.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from launch.checks import hub
from launch.checks.known_models import KNOWN, Config
from launch.checks.packaged import PACKAGED, folder_of
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, require
from rlsys.experts import has_experts
from rlsys.positions import positions_of, rope_change_of

# Dense decoders that load, whose samples in one packed row do not see each other, and that vLLM serves:
# tests/e2e/test_architectures.py looks at each. Whole runs have been made with llama and qwen3.
TRAINED = (
    *("apertus", "cohere", "cohere2", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm4", "gpt2"),
    *("granite", "llama", "minicpm3", "mistral", "opt", "phi3", "qwen2", "qwen3"),
)
EXPERTS = "a mixture of experts: engine and learner may choose other experts for a token and then differ on it"
RECURRENT = "it has recurrent layers, through which samples packed in one row would see each other"
OWN_ATTENTION = "its attention in transformers cannot be replaced by one for packed rows"
CHUNKED = "its attention is cut into chunks, counted from the start of a packed row and not of each sample"
PICTURES = "it reads pictures or sound: take the model of its text half"
QUANTISED = "its weights are quantised: take the model that they were made from"
ENCODER = "an encoder, with or without a decoder: expected a model that continues text"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "gpt_oss", "granitemoe", "mixtral", "olmoe"), EXPERTS),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), EXPERTS),
    **dict.fromkeys(("falcon_h1", "falcon_mamba", "jamba", "mamba", "mamba2", "qwen3_next"), RECURRENT),
    **dict.fromkeys(("bloom", "gptj", "nemotron", "stablelm"), OWN_ATTENTION),
    "llama4_text": CHUNKED,
}
ENCODERS = ("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "bert", "roberta", "deberta-v2", "modernbert", "whisper")

PARTITIONS = "engine.tensor_parallel"
LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"  # for who knows better: engines obey it too
# Heads, key-value heads, width inside: as a scratch model has them, and as config.json does.
SIZE_KEYS = (("num_heads", "num_attention_heads"), ("num_kv_heads", "num_key_value_heads"), ("intermediate_size",))
WEIGHTS_INDEX = "model.safetensors.index.json"


# What a config.json says of an architecture that no table names.
SIGNS: tuple[tuple[Callable[[Config], bool], str], ...] = (
    (lambda config: "vision_config" in config or "audio_config" in config, PICTURES),
    (lambda config: config.get("quantization_config") is not None, QUANTISED),
    (has_experts, EXPERTS),
    (lambda config: config.get("attention_chunk_size") is not None, CHUNKED),
)


def check_architecture(config: Config, name: str, *, learner: bool) -> None:
    """Raises BadInput for a model that cannot be trained or, without a learner, not be played.

    config: of config.json. name: how the line begins, "model.path='./my-model'".
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise BadInput("config.json names no model_type", where=name, expected="a Hugging Face causal language model")
    causal = [arch for arch in config.get("architectures") or [] if "CausalLM" in arch or "LMHead" in arch]
    encoder = kind in ENCODERS or bool(config.get("is_encoder_decoder"))
    reason = ENCODER if encoder and not causal else None
    if reason is None and learner:
        reason = REFUSED.get(kind) or next((reason for sign, reason in SIGNS if sign(config)), None)
    if reason is not None:
        verb = "trained" if learner else "played"
        raise BadInput(f"a {kind} model cannot be {verb}: {reason} (docs/models.md lists what can)", where=name)


def describe_untried(config: Config) -> list[str]:
    """A line for `--dry-run` about a type that no table names: it meets its checks when the run starts."""
    kind = config.get("model_type")
    return [] if kind in TRAINED else [f"model type                {kind}: not tried; a run checks it when it starts"]


def read_model_config(folder: Path, name: str) -> Config:
    """Raises BadInput where it is not readable."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"config.json is not readable JSON ({error})", where=name) from error
    if not isinstance(config, dict):
        raise BadInput("config.json is no JSON object", where=name)
    return config


def whole_path(model: str) -> str:
    """Of a folder, since actors work elsewhere, or of a model of a package; a hub name is itself."""
    if Path(model).is_dir():
        return str(Path(model).resolve())
    return str(folder_of(model)) if model in PACKAGED else model


def load_model_config(path: str, key: str = "model.path") -> Config | None:
    """config.json of a folder or hub name; None where no network, no earlier download and no table has it.

    Raises BadInput for a file that is not readable.
    """
    folder = Path(path) if Path(path).is_dir() else hub.find_cached(path)
    if folder is not None:
        return read_model_config(folder, f"{key}={path!r}")
    return KNOWN.get(path) or hub.fetch_config(path)


def check_partition(recipe: RecipeConfig, path: str | None, *, learner: bool = False) -> None:
    """Raises BadInput unless each of `engine.tensor_parallel` processes, and with a learner each of the
    `learner.sequence_parallel` ranks that share a row, gets whole attention heads.

    path: a folder, a hub name, or None for the recipe's scratch model. A hub name that nothing describes, and an
    architecture that names its sizes otherwise, are left to the engine.
    """
    ways = recipe.engine.tensor_parallel
    if ways > 1:
        check_division(_sizes_of(recipe, path), ways, PARTITIONS)
    sharing = recipe.learner.sequence_parallel if learner else 1
    heads = next((size for name in SIZE_KEYS[0] if (size := _sizes_of(recipe, path).get(name))), None)
    if sharing > 1 and isinstance(heads, int):
        divides = heads % sharing == 0
        require(divides, "learner.sequence_parallel", sharing, f"a divisor of the model's {heads} attention heads")


def check_division(sizes: Config, ways: int, key: str) -> None:
    """Raises BadInput unless so many processes get whole attention heads. sizes: as config.json or a scratch model has
    them. key: what says how many."""
    heads, kv_heads, inner = (next((sizes[key] for key in keys if sizes.get(key)), None) for keys in SIZE_KEYS)
    kv_heads = kv_heads or heads
    if isinstance(heads, int) and isinstance(kv_heads, int):
        divides = heads % ways == 0 and (kv_heads % ways == 0 or ways % kv_heads == 0)
        expected = f"a divisor of the model's {heads} attention heads, and a divisor or multiple of its {kv_heads}"
        require(divides, key, ways, f"{expected} key-value heads")
    if isinstance(inner, int):
        require(inner % ways == 0, key, ways, f"a divisor of the model's intermediate_size={inner}")


def check_window(recipe: RecipeConfig, path: str | None, *, learner: bool) -> None:
    """Raises BadInput for a policy that was made for fewer positions than the window has, unless they are lengthened,
    and for one to be trained whose RoPE changes within the window.

    path: as of `check_partition`; a scratch model has what is asked for. learner: the run may lengthen them itself.
    """
    window, lengthened = recipe.engine.max_model_len, learner and recipe.learner.rope_theta_scale != 1.0
    if path is None:
        return
    config = load_model_config(path) or {}
    if learner:
        require_fixed_rope(config, path, window)
    if lengthened or os.environ.get(LONGER) == "1":
        return
    longest = positions_of(config)
    if longest is not None and longest < window:
        reason = f"the model was trained on {longest} positions"
        longer = "learner.rope_theta_scale above 1 for a longer one" if learner else "a checkpoint of longer ones"
        raise BadInput(
            reason, key="engine.max_model_len", found=window, expected=f"{longest} at most with {path}, or {longer}"
        )


def require_fixed_rope(config: Config, path: str, window: int) -> None:
    """Raises BadInput for a model of packed rows whose RoPE changes within the window."""
    change = rope_change_of(config)
    if change is not None and change[0] < window:
        reason = f"the model's RoPE ({change[1]}) changes with the length of a text, and so with what is packed with it"
        raise BadInput(reason, key="engine.max_model_len", found=window, expected=f"{change[0]} at most with {path}")


def _sizes_of(recipe: RecipeConfig, path: str | None) -> dict[str, Any]:
    if path is None:
        return asdict(recipe.model.scratch)
    config = load_model_config(path)
    return {} if config is None else dict(text_of(config))


def text_of(config: Config) -> Config:
    """Of the language model, where config.json describes several."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def parameters_in(folder: Path, name: str) -> int | None:
    """All numbers of all tensors; None without such files. `name` begins the line of an error.

    Raises BadInput for a file that is missing, cut short or something else.
    """
    files = sorted(folder.glob("*.safetensors"))
    indexed = _list_indexed_files(folder, name)
    for missing in indexed - {file.name for file in files}:
        raise BadInput(f"{missing} is missing, which {WEIGHTS_INDEX} names", where=name)
    # The same weights may lie there in another cut too: what an index names, or the one file of the usual name, is all.
    loaded = indexed or {"model.safetensors"} & {file.name for file in files}
    files = [file for file in files if not loaded or file.name in loaded]
    return sum(_parameters(file, name) for file in files) if files else None


def _list_indexed_files(folder: Path, name: str) -> set[str]:
    path = folder / WEIGHTS_INDEX
    if not path.is_file():
        return set()
    try:
        return set(map(str, json.loads(path.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{WEIGHTS_INDEX} is not readable", where=name, expected="its weight_map") from error


def _parameters(path: Path, name: str) -> int:
    try:
        with safe_open(path, framework="numpy") as file:  # checks that the numbers fill the rest of the file
            return sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        reason = f"{path.name} ({path.stat().st_size:,} bytes) is no whole safetensors file"
        raise BadInput(f"{reason} ({error}): download it again", where=name) from error
