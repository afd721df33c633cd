"""Mixed precision on a CPU: products in bfloat16, everything else in float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from learners.export import export_version
from learners.hub_folder import copy_hf
from learners.kernels import multiplies_bfloat16, narrow_linear
from learners.policy import PolicyModel, load_policy
from learners.rows import pack_ids
from learners.snapshot import Snapshot
from rlsys.system.device import DEVICES
from rlsys.system.weight_folder import WeightFolder

WIDTH = 64  # smaller products are left to torch's own library, which rounds nothing
SAMPLES = [[(7 * step + 3 * which) % 90 for step in range(20 + which)] for which in range(4)]
needs_bfloat16 = pytest.mark.skipif(not multiplies_bfloat16(), reason="this processor does not multiply bfloat16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def load(folder: Path, dtype: str, **options: bool) -> PolicyModel:
    return load_policy(str(folder), dtype=dtype, held="float32", attention_key="packed_sdpa", **options)


def gradient(policy: PolicyModel, rows: list[list[list[int]]]) -> torch.Tensor:
    """Of the mean log-probability of all samples, added up over rows, as one vector."""
    policy.zero_grad()
    for row in rows:
        logp_T, entropy_T = policy(*pack_ids(row, "cpu"), 1.0, 1000, entropy_gradient=True)
        ((logp_T + 0.1 * entropy_T).sum() / 100).backward()
    gradients = [parameter.grad for parameter in policy.parameters()]
    return torch.cat([grad.flatten() for grad in gradients if grad is not None])


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@needs_bfloat16
def test_factors_and_products_are_rounded_and_sums_are_not() -> None:
    """1 + 2^-9 is 1 in bfloat16. 64 ones and eight 64ths are 64.125, which rounds to 64; one by one they would be lost,
    and 32 of them are 64.5, which bfloat16 has."""
    x, weight = torch.full((WIDTH, WIDTH), 1 + 2.0**-9), torch.ones(WIDTH, WIDTH)
    weight[:, :32] += 2.0**-6
    product = narrow_linear(x.requires_grad_(), weight.requires_grad_(), torch.full((WIDTH,), 2.0**-9))
    assert torch.equal(product, torch.full_like(product, 64.5 + 2.0**-9))  # the bias is added in float32
    product.backward(torch.full_like(product, 1 + 2.0**-9))
    assert x.grad is not None and weight.grad is not None
    assert (weight.grad == WIDTH).all() and (x.grad[:, 32:] == WIDTH).all() and (x.grad[:, :32] == WIDTH + 1).all()


@needs_bfloat16
def test_what_is_around_a_product_is_not_rounded() -> None:
    x = torch.full((WIDTH, WIDTH), 1 + 2.0**-9)
    narrow_linear(x, x, None)
    assert torch.equal(x @ torch.eye(WIDTH), x)


@needs_bfloat16
def test_a_gradient_is_that_of_float32_within_the_rounding_of_bfloat16(folder: Path) -> None:
    policy, exact = load(folder, "bfloat16"), load(folder, "float32")
    assert 1e-4 < distance(gradient(policy, [SAMPLES]), gradient(exact, [SAMPLES])) < 3e-2
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}


@needs_bfloat16
def test_a_gradient_does_not_depend_on_rows(folder: Path) -> None:
    """But for the rounding of each row's share of it."""
    policy = load(folder, "bfloat16")
    expected = gradient(policy, [SAMPLES])
    for rows in ([[sample] for sample in SAMPLES], [SAMPLES[:1], SAMPLES[1:]]):
        assert distance(gradient(policy, rows), expected) < 5e-3


@needs_bfloat16
def test_the_head_rounds_nothing(folder: Path) -> None:
    policy = load(folder, "bfloat16")
    x = torch.full((WIDTH, WIDTH), 1 + 2.0**-9)
    for layer, rounds in ((policy.model.lm_head, False), (policy.model.model.layers[0].mlp.up_proj, True)):
        exact = x.double() @ layer.weight.double().t()
        assert ((layer(x).double() - exact).abs().max() > 1e-3) == rounds


def test_what_leaves_the_learner_is_in_the_models_format(folder: Path, tmp_path: Path) -> None:
    policy, snapshot = load(folder, "bfloat16"), Snapshot()
    weights = WeightFolder(tmp_path / "sent")
    sent = export_version(policy.model, weights, 1, rank=0, num_ranks=1, dtype=policy.dtype)
    copy_hf(policy, tmp_path / "hf", str(folder), snapshot, rank=0, num_ranks=1)
    snapshot.write()
    saved = load_file(tmp_path / "hf" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(saved[name], parameter.bfloat16()), name
    assert sum(tensor.numel() for tensor in saved.values()) * 2 == sent.bytes


def test_only_a_cpu_holds_another_format_than_the_models() -> None:
    assert DEVICES["cpu"].held_dtype == "float32" and DEVICES["cuda"].held_dtype is None
