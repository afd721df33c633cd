"""Steps that others have published: their facts are whole, and what the planner says of itself is what it does."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from launch.tools.plan.published import (
    ACCURACY,
    CLOSE,
    FIVE,
    HELD_OUT,
    PARTS,
    PublishedStep,
    describe_accuracy,
    fit_bandwidth,
    plan_published,
)
from launch.tools.plan.rates import RATES
from rlsys.system.datasheets import find_card

ALL = (*FIVE, *HELD_OUT)


@pytest.fixture(scope="module")
def errors() -> Mapping[str, float]:
    return {step.name: plan_published(step).seconds / step.seconds - 1 for step in ALL}


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_a_step_has_its_facts_and_where_they_are(step: PublishedStep) -> None:
    assert re.search(r"https://\S+ \(20\d\d-\d\d-\d\d", step.source) and step.setting.startswith("https://github.com/")
    assert step.shape.parameters > 1e9 and find_card(step.card).flops
    assert step.answer_tokens + (step.prompt_tokens or 0) < step.max_tokens <= step.row_tokens
    assert not step.in_turn or step.ranks == step.engines * step.ways
    assert step.parts.keys() <= set(PARTS) and sum(step.parts.values()) <= step.seconds


def test_names_are_those_of_different_steps() -> None:
    assert len(FIVE) == 5 and len({step.name for step in ALL}) == len({step.seconds for step in ALL}) == len(ALL)


def test_four_of_five_are_planned_within_a_quarter(errors: Mapping[str, float]) -> None:
    assert sum(abs(errors[step.name]) <= CLOSE for step in FIVE) >= 4


def test_the_plan_says_its_own_error(errors: Mapping[str, float]) -> None:
    assert describe_accuracy(list(errors.values())) == ACCURACY


def test_an_accuracy_is_counted_by_hand() -> None:
    assert describe_accuracy([0.1, -0.25]) == "within 25% of 2 of 2 published steps"
    assert describe_accuracy([0.1, -0.4, 0.3]) == "within 25% of 1 of 3 published steps (the others: -40% to +30%)"


def test_the_parts_of_a_step_of_8b_are_the_published_ones() -> None:
    """No rate of the learner was taken from this page: it is the profile of another model, of another system."""
    step = next(step for step in FIVE if "Megatron" in step.name)
    planned = plan_published(step).parts
    for part in ("generation", "training", "log-probabilities"):
        assert planned[part] == pytest.approx(step.parts[part], rel=0.1)
    assert planned["delivery"] == pytest.approx(step.parts["delivery"], abs=3)


def test_the_share_of_the_bandwidth_is_the_one_that_fits_best() -> None:
    share = RATES["H100"].of_bandwidth.value
    assert fit_bandwidth(FIVE, (share - 0.1, share, share + 0.1)) == share
