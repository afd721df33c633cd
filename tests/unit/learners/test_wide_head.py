"""Logits in float32 from bfloat16 weights, with the gradient of a bfloat16 head."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from learners.policy import PolicyModel, load_policy, pack_ids
from learners.wide_head import WideHead, wide_linear, widen

SHAPE = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
    num_key_value_heads=2, initializer_range=0.5,
)  # fmt: skip
SAMPLES = [[3, 14, 15, 9, 26, 5], [35, 8, 9, 7]]


def test_the_product_is_that_of_float32() -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*size).bfloat16().requires_grad_() for size in ((3, 5, 64), (7, 64), (7,)))
    found = wide_linear(x, weight, bias)
    expected = x.float() @ weight.float().t() + bias.float()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    target = torch.randn_like(found)
    ours = torch.autograd.grad((found * target).sum(), (x, weight, bias))
    theirs = torch.autograd.grad((expected * target).sum(), (x, weight, bias))
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.float(), other.float(), atol=0.02 * float(other.abs().max()), rtol=0)


def loaded(folder: Path, dtype: str, **options: bool) -> PolicyModel:
    return load_policy(str(folder), dtype=dtype, attention_key="packed_sdpa", **options)


def logprobs(policy: PolicyModel, chunk: int = 1000) -> torch.Tensor:
    logp, _ = policy(*pack_ids(SAMPLES, "cpu"), 1.0, chunk)
    return logp


def by_hand(policy: PolicyModel) -> torch.Tensor:
    """From the policy's own bfloat16 hidden states: logits in float32, then log-probabilities."""
    found = []
    for sample in SAMPLES:
        hidden = policy.model.base_model(torch.tensor([sample]), use_cache=False).last_hidden_state[0, :-1]
        logits = hidden.float() @ policy.model.get_output_embeddings().weight.float().t()
        cap = getattr(policy.model.config, "final_logit_softcapping", None)
        logits = logits if cap is None else torch.tanh(logits / cap) * cap
        found.append(logits.log_softmax(-1).gather(1, torch.tensor(sample)[1:, None]).squeeze(1))
    return torch.cat(found)


@torch.no_grad()
def test_a_policy_gives_log_probabilities_of_wide_logits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(tmp_path / "llama")
    gemma = Gemma2Config(**SHAPE, query_pre_attn_scalar=8, final_logit_softcapping=30.0)
    Gemma2ForCausalLM(gemma).save_pretrained(tmp_path / "gemma")
    for name in ("llama", "gemma"):  # a plain head, and one whose logits the model itself changes
        narrow, wide = (loaded(tmp_path / name, "bfloat16", fp32_head=head) for head in (False, True))
        assert wide.linear_head == (name == "llama")
        expected, trained = by_hand(wide), torch.tensor([1, 2, 3, 4, 5, 7, 8, 9])
        for chunk in (3, 1000):
            torch.testing.assert_close(logprobs(wide, chunk)[trained], expected, atol=2e-3, rtol=0)
        assert (logprobs(narrow)[trained] - expected).abs().max() > 5e-3


def test_float32_weights_and_what_is_no_linear_layer_stay_as_they_are() -> None:
    head = torch.nn.Linear(2, 3)
    widen(head)
    assert type(head) is torch.nn.Linear
    widen(head.bfloat16())
    assert type(head) is WideHead
    widen(torch.nn.Identity())
