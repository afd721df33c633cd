"""The table of architectures: what is to be trained, loads and keeps packed samples apart; the rest does not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from launch.checks.models import CHUNKED, OWN_ATTENTION, RECURRENT, REFUSED, TRAINED
from learners.policy import load_policy
from learners.rows import pack_ids
from rlsys.errors import BadInput
from tests.makers.outliers import put_outliers

pytestmark = pytest.mark.slow
SMALL = {
    **dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4),
    **dict(num_key_value_heads=2, head_dim=16, max_position_embeddings=256, eos_token_id=1, pad_token_id=0),
    **dict(n_embd=64, n_layer=2, n_head=4, n_positions=256, n_inner=96, ffn_dim=96, word_embed_proj_dim=64),
}
# Mamba 2 wants sizes that fit each other, and a random bloom would be refused as it is here: by transformers.
NOT_BUILT = ("mamba2",)
SCALED_OR_CAPPED = ("cohere", "cohere2", "gemma2", "minicpm3")  # logits, after the head or before it
BY_THE_LEARNER = [
    kind for kind, reason in REFUSED.items() if reason in (RECURRENT, OWN_ATTENTION, CHUNKED) and kind not in NOT_BUILT
]


def small(kind: str, folder: Path, outliers: bool = False) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {key: value for key, value in SMALL.items() if hasattr(AutoConfig.for_model(kind), key)}
    config = AutoConfig.for_model(kind, **sizes)
    if len(getattr(config, "layer_types", None) or [0, 0]) != 2:
        config = AutoConfig.for_model(kind, **sizes, layer_types=config.layer_types[:2])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    if outliers:
        put_outliers(model)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", TRAINED)
def test_the_learner_takes_it_and_the_engine_has_it(kind: str, tmp_path: Path) -> None:
    model = small(kind, tmp_path)
    load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    registry = importlib.import_module("vllm.model_executor.models.registry")
    assert type(model).__name__ in registry.ModelRegistry.get_supported_archs()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", TRAINED)
def test_the_learner_takes_it_with_outliers(kind: str, dtype: str, tmp_path: Path) -> None:
    small(kind, tmp_path, outliers=True)
    policy = load_policy(str(tmp_path), dtype=dtype, attention_key="packed_sdpa")
    plain = load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    assert policy.linear_head == plain.linear_head == (kind not in SCALED_OR_CAPPED)
    peaks: list[float] = []
    for module in plain.model.modules():
        module.register_forward_hook(lambda _module, _inputs, output: peaks.extend(largest(output)))
    with torch.no_grad():
        plain(*pack_ids([range(2, 18)], "cpu"), 1.0, 64)
    assert max(peaks) > 100 * plain.model.get_input_embeddings().weight.abs().max()


def largest(output: Any) -> list[float]:
    return [float(output.abs().max())] if torch.is_tensor(output) and output.is_floating_point() else []


@pytest.mark.parametrize("kind", BY_THE_LEARNER)
def test_the_learner_refuses_it_too(kind: str, tmp_path: Path) -> None:
    small(kind, tmp_path)
    with pytest.raises(BadInput):
        load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
