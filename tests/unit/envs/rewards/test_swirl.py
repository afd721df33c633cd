"""envs.rewards.swirl: verdicts, per-step rewards, aggregation and the four filters (arXiv 2504.04736)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.rewards.swirl import (
    SwirlReward,
    SwirlRewardConfig,
    equalised,
    kept,
    step_rewards,
)
from envs.text.words import outcome_verdict, step_verdict
from rlsys.errors import BadInput
from tests.made import transcript


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The query helps. GOOD", "GOOD"),
        ("**BAD**", "BAD"),
        ("It is GOOD at first, but BAD.", "BAD"),
        ("BAD? No: GOOD", "GOOD"),
        ("a good query", None),
        ("GOODNESS and BADLY", None),
        ("GOOD_ENOUGH", None),
        ('"GOOD".', "GOOD"),
        ("", None),
    ],
)
def test_the_last_whole_word_is_the_verdict(text: str, verdict: str | None) -> None:
    assert step_verdict(text) == verdict


def test_outcomes_are_yes_or_no() -> None:
    assert [outcome_verdict(text) for text in ("YES", "I say NO, not YES, so NO", "NOT", "yes")] == [
        "YES",
        "NO",
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("judgements", "right", "steps", "passes"),
    [
        ("GGG", True, (1, 1, 1), {"none", "process", "outcome", "both"}),
        ("GBG", True, (1, 0, 1), {"none", "outcome"}),
        ("GGG", False, (1, 1, 1), {"none", "process"}),
        ("GBG", False, (1, 0, 1), {"none"}),
        ("G?G", True, (1, 0, 1), {"none", "outcome"}),
    ],
)
def test_step_rewards_and_filters(judgements: str, right: bool, steps: tuple[int, ...], passes: set[str]) -> None:
    said = [{"G": "so GOOD", "B": "so BAD", "?": "hm"}[each] for each in judgements]
    assert step_rewards(said) == steps
    filters = ("none", "process", "outcome", "both")
    assert {each for each in filters if kept(each, judgements=said, right=right)} == passes


def test_a_trajectory_without_judgements_is_not_sound() -> None:
    assert not kept("process", judgements=[], right=True)


@pytest.mark.parametrize(("aggregate", "value"), [("mean", 2 / 3), ("last", 1.0), ("all", 0.0)])
def test_aggregation_of_good_bad_good(aggregate: str, value: float) -> None:
    reward = SwirlReward(SwirlRewardConfig(aggregate=aggregate))
    scored = transcript("a", ("user", "r"), "b", ("user", "r"), "c", judgements=("GOOD", "BAD", "GOOD"))
    given = reward(scored)
    assert given.value == given.parts["process"] == pytest.approx(value)
    spoken = [(finding.rule, finding.text) for finding in reward.findings(scored)]
    assert spoken == [("step 1: GOOD", "a"), ("step 2: BAD", "b"), ("step 3: GOOD", "c")]


def test_all_good_is_one_in_every_aggregation() -> None:
    for aggregate in ("mean", "last", "all"):
        reward = SwirlReward(SwirlRewardConfig(aggregate=aggregate))
        assert reward(transcript("a", ("user", "r"), "b", judgements=("GOOD",) * 2)).value == 1.0
        assert reward(transcript("one text of three steps", judgements=("GOOD",) * 3)).value == pytest.approx(1.0)


def test_a_missing_judge_is_no_bad_step() -> None:
    reward = SwirlReward(SwirlRewardConfig())
    for judgements in (None, ()):
        with pytest.raises(BadInput, match="task t: no judgements"):
            reward(transcript("a", judgements=judgements))
    with pytest.raises(BadInput, match="1 judgements, expected 2"):
        reward(transcript("a", ("user", "r"), "b", judgements=("GOOD",)))


def test_compared_sets_are_of_one_size_and_in_order() -> None:
    sets = {"none": list(range(100)), "process": list(range(40)), "both": list(range(0, 40, 2))}
    drawn = equalised(sets, seed=1)
    assert {name: len(members) for name, members in drawn.items()} == {"none": 20, "process": 20, "both": 20}
    assert all(members == sorted(set(members)) for members in drawn.values())
    assert drawn == equalised(sets, seed=1) and drawn != equalised(sets, seed=2)
    assert equalised({"none": [1], "process": []}, seed=0) == {"none": [], "process": []}


@given(st.lists(st.text(), min_size=1, max_size=5), st.sampled_from(["mean", "last", "all"]))
def test_any_judgement_is_read(judgements: list[str], aggregate: str) -> None:
    given = SwirlReward(SwirlRewardConfig(aggregate=aggregate))(transcript("a", judgements=tuple(judgements)))
    assert 0 <= given.value <= 1 + 1e-12
