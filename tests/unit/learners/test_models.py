"""Which models a stage has, from where, and where they lie. Loading itself is the policy's and DeepSpeed's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import learners.models
from learners import models, zero
from learners.algorithms.base import REFERENCE, VALUES
from learners.meeting import RankSpec
from learners.models import Loading, Reference
from rlsys.config.learner import LearnerConfig
from rlsys.system.device import DEVICES

HOST, CARD = torch.device("cpu"), torch.device("cuda", 0)


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
    monkeypatch.setattr(learners.models, "load_policy", Module)
    monkeypatch.setattr(learners.models, "CriticModel", lambda policy: SimpleNamespace(body=policy))
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
    given = loading(zero_stage=3, **learner)
    for frozen, away in ((False, policy_away), (True, reference_away)):
        config: Any = given.policy("p", frozen=frozen)
        assert ("offload_param" in config.options["zero_3"]["zero_optimization"]) == away
    assert loading(zero_stage=2).policy("p").options["zero_3"] is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("away", "places"), [(True, [HOST, CARD, HOST]), (False, [CARD])])
def test_an_offloaded_reference_is_on_the_device_while_it_is_asked(away: bool, places: list[torch.device]) -> None:
    reference = Reference("frozen", loading(offload_reference=away))
    with pytest.raises(ZeroDivisionError), reference.ready() as model:
        assert model.places == places[:2]
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
    given = loading(lr=1e-6, critic_lr=1e-5)
    plain = models.load("run", given, frozenset(), "first")
    assert plain.critic_engine is plain.reference is None
    plain.destroy()
    assert plain.policy_engine.closed
    all_of_them = models.load("run", given, frozenset({VALUES, REFERENCE}), "first")
    assert all_of_them.reference is not None and all_of_them.critic_engine is not None
    with all_of_them.reference.ready() as reference:
        assert reference.path == "first"
    assert all_of_them.policy_engine.model is all_of_them.policy
    assert all_of_them.critic_engine.model.body.path == "run"
    assert (all_of_them.policy_engine.lr, all_of_them.critic_engine.lr) == (1e-6, 1e-5)
    all_of_them.destroy()
    assert all_of_them.policy_engine.closed and all_of_them.critic_engine.closed


def test_a_stage_that_ends_closes_its_reference_too() -> None:
    stage = models.load("run", loading(zero_stage=3), frozenset({REFERENCE}), "first")
    assert stage.reference is not None
    with stage.reference.ready() as engine:
        assert not engine.closed
    stage.destroy()
    assert engine.closed
