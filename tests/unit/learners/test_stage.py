"""What a rank does with its rows and its clock, and numbers that every rank has a part of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import learners.stage
from learners import stage, zero
from learners.algorithms.base import REFERENCE, VALUES
from learners.meeting import RankSpec
from learners.stage import Loading, Phases, Reference, Stage, to_device
from rlsys.batch import make_row
from rlsys.config.learner import LearnerConfig
from rlsys.system.device import DEVICES
from tests.makers import made

HOST, CARD = torch.device("cpu"), torch.device("cuda", 0)


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
    ops: list[object] = []

    def all_reduce(tensor: torch.Tensor, op: object) -> None:
        """Another rank has the same numbers less one."""
        ops.append(op)
        tensor.copy_(2 * tensor - 1 if op == torch.distributed.ReduceOp.SUM else tensor)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    exact = 2.0**53 - 2  # not in float32
    assert stage_of(1).sum_over_ranks([1.0, 3.0]) == stage_of(1).max_over_ranks([1.0, 3.0]) == [1.0, 3.0]
    assert not ops
    assert stage_of(2).sum_over_ranks([1.0, 3.0]) == [1.0, 5.0]
    assert stage_of(2).max_over_ranks([1.0, exact]) == [1.0, exact]
    assert ops == [torch.distributed.ReduceOp.SUM, torch.distributed.ReduceOp.MAX]


class Module:
    """A policy that notes where it is taken to."""

    def __init__(self, path: str, **options: Any) -> None:
        self.path, self.options, self.places = path, options, [options["device"]]
        self.frozen = self.evaluated = False

    def requires_grad_(self, trained: bool) -> Module:
        self.frozen = not trained
        return self

    def eval(self) -> Module:
        self.evaluated = True
        return self

    def to(self, place: Any) -> None:
        self.places.append(torch.device(place))


class Engine(SimpleNamespace):
    closed = False

    def destroy(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners.stage, "load_policy", Module)
    monkeypatch.setattr(learners.stage, "CriticModel", lambda policy: SimpleNamespace(body=policy))
    monkeypatch.setattr(zero, "make_engine", lambda model, learner, device, *, dtype, lr: Engine(model=model, lr=lr))
    monkeypatch.setattr(zero, "frozen", lambda model, learner, *, dtype: Engine(model=model))


def loading(**learner: Any) -> Loading:
    spec = RankSpec(
        rank=0, world_size=1, master_addr="", master_port=0, device=DEVICES["cuda"], dtype="bfloat16",
        gradient_checkpointing=True, seed=0,
    )  # fmt: skip
    return Loading(learner=LearnerConfig(**learner), spec=spec, torch_device=CARD)


@pytest.mark.parametrize(
    ("learner", "policy_away", "reference_away"),
    [
        ({}, False, False),
        ({"offload": "optimizer"}, False, False),
        ({"offload": "all"}, True, False),
        ({"offload_reference": True}, False, True),
    ],
)
def test_under_zero_3_the_parts_of_a_model_lie_where_its_own_key_says(
    learner: dict[str, Any], policy_away: bool, reference_away: bool
) -> None:
    loader = loading(zero_stage=3, **learner)
    for frozen, away in ((False, policy_away), (True, reference_away)):
        config: Any = loader.policy("p", frozen=frozen)
        assert ("offload_param" in config.options["zero_3"]["zero_optimization"]) == away
    assert loading(zero_stage=2).policy("p").options["zero_3"] is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("compile", [False, True])
def test_policy_and_reference_are_compiled_where_the_key_says_so(compile: bool) -> None:
    for frozen in (False, True):
        model: Any = loading(compile=compile).policy("p", frozen=frozen)
        assert model.options["compiled"] is compile


@pytest.mark.parametrize(("away", "places"), [(True, [CARD, HOST, CARD, HOST]), (False, [CARD])])
def test_an_offloaded_reference_is_on_the_device_while_it_is_asked(away: bool, places: list[torch.device]) -> None:
    reference = Reference("frozen", loading(offload_reference=away))
    with pytest.raises(ZeroDivisionError), reference.ready() as model:
        assert model.places[0] == model.places[-1] == CARD  # first of all: its packing is proved where it will be asked
        assert model.frozen and model.evaluated
        raise ZeroDivisionError  # a pass that fails leaves no model on the device
    assert model.places == places
    reference.destroy()


def test_a_partitioned_reference_is_an_engine_that_stays() -> None:
    reference = Reference("frozen", loading(zero_stage=3, offload_reference=True))
    with reference.ready() as engine:
        assert isinstance(engine, Engine) and engine.model.places == [CARD]
    reference.destroy()
    assert engine.closed


def test_a_stage_has_the_models_that_its_algorithm_needs_each_with_its_own_rate() -> None:
    loader = loading(lr=1e-6, critic_lr=1e-5)
    plain = stage.load_models("run", loader, frozenset(), "first")
    assert plain.critic_engine is plain.reference is None
    plain.destroy()
    assert plain.policy_engine.closed
    all_of_them = stage.load_models("run", loader, frozenset({VALUES, REFERENCE}), "first")
    assert all_of_them.reference is not None and all_of_them.critic_engine is not None
    with all_of_them.reference.ready() as reference:
        assert reference.path == "first"
    assert all_of_them.policy_engine.model is all_of_them.policy
    assert all_of_them.critic_engine.model.body.path == "run"
    assert (all_of_them.policy_engine.lr, all_of_them.critic_engine.lr) == (1e-6, 1e-5)
    all_of_them.destroy()
    assert all_of_them.policy_engine.closed and all_of_them.critic_engine.closed


def test_a_stage_that_ends_closes_its_reference_too() -> None:
    loaded = stage.load_models("run", loading(zero_stage=3), frozenset({REFERENCE}), "first")
    assert loaded.reference is not None
    with loaded.reference.ready() as engine:
        assert not engine.closed
    loaded.destroy()
    assert engine.closed
