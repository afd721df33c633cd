"""Which models can be trained, told from `config.json` before anything starts. docs/models.md shows these tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput

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

Config = Mapping[str, Any]


def _experts(config: Config) -> bool:
    counts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return any(isinstance(config.get(key), int) and config[key] > 1 for key in counts)


# What a config.json says of an architecture that no table names.
SIGNS: tuple[tuple[Callable[[Config], bool], str], ...] = (
    (lambda config: "vision_config" in config or "audio_config" in config, PICTURES),
    (lambda config: config.get("quantization_config") is not None, QUANTISED),
    (_experts, EXPERTS),
    (lambda config: config.get("attention_chunk_size") is not None, CHUNKED),
)


def check(config: Config, name: str, *, learner: bool) -> None:
    """Raises BadInput for a model that cannot be trained or, without a learner, not be played.

    config: of config.json. name: how the line begins, "model.path='./my-model'".
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise BadInput(f"{name}: config.json names no model_type: expected a Hugging Face causal language model")
    causal = [each for each in config.get("architectures") or [] if "CausalLM" in each or "LMHead" in each]
    encoder = kind in ENCODERS or bool(config.get("is_encoder_decoder"))
    reason = ENCODER if encoder and not causal else None
    if reason is None and learner:
        reason = REFUSED.get(kind) or next((reason for sign, reason in SIGNS if sign(config)), None)
    if reason is not None:
        what = "trained" if learner else "played"
        raise BadInput(f"{name}: a {kind} model cannot be {what}: {reason} (docs/models.md lists what can)")


def describe_untried(config: Config) -> list[str]:
    """A line for `--dry-run` about a type that no table names: it meets its checks when the run starts."""
    kind = config.get("model_type")
    return [] if kind in TRAINED else [f"model type                {kind}: not tried; a run checks it when it starts"]


def read_config(folder: Path, name: str) -> Config:
    """Raises BadInput where it is not readable."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: config.json is not readable JSON ({error})") from error
    if not isinstance(config, dict):
        raise BadInput(f"{name}: config.json is no JSON object")
    return config
