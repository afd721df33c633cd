"""What is asked of DeepSpeed to divide a model over ranks that never holds it whole. The real one: tests/e2e."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from learners.partitioned import partition, whole_in_forward


class Zero:
    """DeepSpeed's `zero`: a parameter that it has divided has an id, and knows how others are divided."""

    def __init__(self) -> None:
        self.begun: list[tuple[nn.Module, Any]] = []
        self.divided: list[nn.Parameter] = []
        self.whole: list[nn.Parameter] = []
        self.most = 0

    def Init(self, *, module: nn.Module, config_dict_or_path: Any) -> None:
        self.begun.append((module, config_dict_or_path))
        self.divide(list(module.parameters()))

    def divide(self, param_list: Sequence[nn.Parameter]) -> None:
        for parameter in param_list:
            assert not hasattr(parameter, "ds_id") and 0 not in parameter.stride()
            parameter.ds_id, parameter.convert_to_zero_parameters = len(self.divided), self.divide
            self.divided.append(parameter)

    @contextmanager
    def GatheredParameters(self, parameters: list[nn.Parameter]) -> Any:
        self.whole += parameters
        self.most = max(self.most, len(self.whole))
        yield
        del self.whole[-len(parameters) :]


@pytest.fixture
def zero(monkeypatch: pytest.MonkeyPatch) -> Zero:
    package, fake = ModuleType("deepspeed"), Zero()
    package.zero = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", package)
    return fake


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.Tensor, int]]:
    """The buffers that all ranks get, and from whom."""
    buffers: list[tuple[torch.Tensor, int]] = []
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, source: buffers.append((tensor, source)))
    return buffers


class Block(nn.Module):
    """A module with a parameter of its own beside those inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inside, self.norm = nn.Parameter(torch.ones(2)), nn.Linear(2, 2), nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inside(x)) * self.scale


def test_every_parameter_is_divided_once_and_buffers_are_those_of_the_first_rank(
    zero: Zero, sent: list[tuple[torch.Tensor, int]]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Block(), nn.Linear(2, 2, bias=False))
    model[2].weight = model[0].weight  # tied
    model[0].bias.data = torch.zeros(1).expand(2)  # hollow: one number in memory
    partition(model, {"stage": 3}, "cpu")
    assert {id(parameter) for parameter in zero.divided} == {id(parameter) for parameter in model.parameters()}
    ((first, config),) = zero.begun
    assert first is model[2] and config == {"stage": 3}  # the last one: nothing is inside it that `Init` would convert
    assert model[0].bias.is_contiguous() and model[0].bias.stride() == (1,)
    assert [source for _, source in sent] == [0] * 3
    assert {id(tensor) for tensor, _ in sent} == {id(buffer) for buffer in model.buffers()}


def test_a_divided_model_is_whole_module_by_module_while_it_computes(
    zero: Zero, sent: list[tuple[torch.Tensor, int]]
) -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), Block()).eval(), torch.ones(3, 2)
    expected = model(x)
    with whole_in_forward(model):
        model(x)
    assert zero.most == 0  # it is not divided
    partition(model, {}, "cpu")
    with whole_in_forward(model):
        assert torch.equal(model(x), expected)
    assert zero.most == 3 and not zero.whole  # the block's own, and one linear layer or norm inside it
    zero.most = 0
    model(x)
    assert zero.most == 0  # the engine has it from here on
