"""The gradient of a packed row in bfloat16, through each attention that a run may train with.

Against float32 with `packed_sdpa`: three samples, queries that share keys and values, heads of 128, with a sliding
window and without. On a CPU the kernels of a GPU stand aside for `packed_sdpa`; tests/gpu runs them.
"""

from __future__ import annotations

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM
from transformers.utils import is_flash_attn_2_available

from learners import attention
from learners.rows import output_positions, pack_ids, row_inputs
from tests.device import name

LENGTHS = (150, 37, 260)
WINDOW = 64


pytestmark = pytest.mark.slow


def gradient(key: str, dtype: torch.dtype, window: int | None) -> torch.Tensor:
    """Of all that attention is made of, in 64 bits."""
    attention.register()
    config = MistralConfig(
        vocab_size=128, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=128, sliding_window=window, initializer_range=0.06, attn_implementation=key,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MistralForCausalLM(config).to(torch.bfloat16).to(dtype).to(name())  # the same weights in both formats
    samples = [torch.randint(128, (length,)).tolist() for length in LENGTHS]
    inputs = row_inputs(model, *pack_ids(samples, name()))
    hidden = model.base_model(**inputs).last_hidden_state[0]
    hidden = hidden.index_select(0, output_positions(inputs, torch.arange(sum(LENGTHS), device=name())))
    torch.manual_seed(1)
    direction = torch.randn(hidden.shape).to(hidden)
    (hidden * direction).float().sum().backward()
    return torch.cat(
        [parameter.grad.double().flatten().cpu() for parameter_name, parameter in model.named_parameters()
         if "self_attn" in parameter_name and parameter.grad is not None]
    )  # fmt: skip


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("key", [attention.PACKED_SDPA, attention.PACKED_VARLEN, attention.FLASH])
def test_in_bfloat16_it_points_where_that_of_float32_points(key: str, window: int | None) -> None:
    if key == attention.FLASH and not (name() == "cuda" and is_flash_attn_2_available()):
        pytest.skip("flash-attn is not installed")
    exact = gradient(attention.PACKED_SDPA, torch.float32, window)
    bf16 = gradient(key, torch.bfloat16, window)
    cosine = float(torch.nn.functional.cosine_similarity(bf16, exact, dim=0))
    print(f"{key}, window {window}: cosine {cosine:.6f}, norm {float(bf16.norm() / exact.norm()):.4f}")
    assert cosine > 0.999
    assert float(bf16.norm()) == pytest.approx(float(exact.norm()), rel=0.02)


def test_the_window_is_something_that_this_gradient_sees() -> None:
    plain, cut = (gradient(attention.PACKED_SDPA, torch.float32, window) for window in (None, WINDOW))
    assert float(torch.nn.functional.cosine_similarity(plain, cut, dim=0)) < 0.999
