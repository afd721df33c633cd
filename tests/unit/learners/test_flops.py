"""The arithmetic of a row, by hand."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from learners import flops
from learners.flops import matmul_peak, row_flops, sheet_peak
from learners.policy import PolicyModel
from rlsys.adapters import Adapter
from rlsys.batch import make_row
from rlsys.types import Sample
from tests.makers import made


def sample(length: int, sampled: int) -> Sample:
    return made.sample((0,) * (length - sampled) + (1,) * sampled)


def test_a_row_costs_its_matrices_its_head_and_the_pairs_that_attention_compares() -> None:
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=50, hidden_size=8, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2)
    )
    row = make_row([sample(10, 3), sample(6, 2)])
    of_layer = 4 * 8 * 8 + 3 * 8 * 16  # q, k, v, o; gate, up, down
    forward = 2 * 3 * of_layer * 16 + 2 * (50 * 8) * 5 + 4 * 3 * 2 * 4 * (10**2 + 6**2) / 2
    assert row_flops(PolicyModel(model), row) == 3 * forward


def test_under_an_adapter_frozen_matrices_cost_two_thirds() -> None:
    """The forward pass and the gradient of their inputs; rank 2 on q, k, v and o adds 4 x 2 x (8 + 8) to each layer."""
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=50, hidden_size=8, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2)
    )
    policy = PolicyModel(model)
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    policy.take_adapter(Adapter(base="b", rank=2, alpha=4.0, targets=targets), seed=0)
    row = make_row([sample(10, 3), sample(6, 2)])
    frozen, trained = 3 * (4 * 8 * 8 + 3 * 8 * 16), 3 * 4 * 2 * (8 + 8)
    pairs = 3 * 4 * 3 * 2 * 4 * (10**2 + 6**2) / 2
    assert row_flops(policy, row) == (2 * 2 * frozen + 3 * 2 * trained) * 16 + 2 * 2 * (50 * 8) * 5 + pairs


def test_a_cards_peak_is_that_of_twenty_products_after_one_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    times = iter([4.0, 4.5])
    monkeypatch.setattr(torch, "randn", lambda *size, device, dtype: torch.empty(*size, device="meta", dtype=dtype))
    monkeypatch.setattr(torch, "mm", lambda a, b: done.append(f"{a.shape[0]} {b.dtype}"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("finished"))
    monkeypatch.setattr(flops.time, "perf_counter", lambda: next(times))
    peak = matmul_peak.__wrapped__(torch.device("cuda"), "bfloat16")
    product = "8192 torch.bfloat16"
    assert done == [product, "finished", *[product] * 20, "finished"]
    assert peak == 20 * 2 * 8192**3 / 0.5


def test_a_cpu_has_no_peak_to_be_measured_against() -> None:
    assert matmul_peak(torch.device("cpu"), "float32") is None
    assert sheet_peak(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("name", "peak"), [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("Some card", None)]
)
def test_a_card_is_found_in_the_data_sheets_by_its_name(
    name: str, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(name=name, total_memory=85_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert sheet_peak(torch.device("cuda")) == peak
