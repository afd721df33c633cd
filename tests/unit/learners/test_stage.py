"""What a rank does with its rows and its clock, and numbers that every rank has a part of."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners import stage
from learners.stage import Phases, Stage, to_device
from rlsys.batch import make_row
from tests import made


def test_a_row_is_taken_to_a_device_whole_and_on_the_host_stays_where_it_is() -> None:
    row = make_row([made.sample((0, 1, 1), reward=1.0)])
    assert to_device(row, torch.device("cpu")) is row
    moved = to_device(row, torch.device("meta"))
    tensors = {name: value for name in row.__slots__ if torch.is_tensor(value := getattr(moved, name))}
    assert len(tensors) > 5 and {value.device.type for value in tensors.values()} == {"meta"}
    assert (moved.minibatch, moved.discounts, moved.share) == (row.minibatch, row.discounts, row.share)


@pytest.mark.parametrize(("device", "waits"), [("cpu", 0), ("cuda", 3)])
def test_a_phase_that_comes_again_adds_up_and_ends_when_the_card_has_finished(
    device: str, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[object] = []
    times = iter([10.0, 12.0, 20.0, 20.5, 30.0, 31.0])
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(stage, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    phases = Phases(torch.device(device))
    for name in ("credit", "optimizer", "credit"):
        with phases.phase(name):
            pass
    assert phases.seconds == {"credit": 3.0, "optimizer": 0.5} and len(waited) == waits


def stage_of(world_size: int) -> Any:
    none: Any = None
    return Stage(
        models=none, learner=none, algorithm=none, temperature=1.0, total_steps=1, dtype="float32",
        torch_device=torch.device("cpu"), world_size=world_size,
    )  # fmt: skip


def test_numbers_of_several_ranks_are_reduced_and_those_of_one_stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def all_reduce(tensor: torch.Tensor, op: object) -> None:
        """Another rank has the same numbers less one."""
        asked.append(op)
        tensor.copy_(2 * tensor - 1 if op == torch.distributed.ReduceOp.SUM else tensor)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    exact = 2.0**53 - 2  # not in float32
    assert stage_of(1).sum_over_ranks([1.0, 3.0]) == stage_of(1).max_over_ranks([1.0, 3.0]) == [1.0, 3.0]
    assert not asked
    assert stage_of(2).sum_over_ranks([1.0, 3.0]) == [1.0, 5.0]
    assert stage_of(2).max_over_ranks([1.0, exact]) == [1.0, exact]
    assert asked == [torch.distributed.ReduceOp.SUM, torch.distributed.ReduceOp.MAX]
