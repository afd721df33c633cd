"""envs.rewards.multiple_choice: which letter a response ends on."""

import pytest

from envs.rewards.multiple_choice import MultipleChoiceReward, MultipleChoiceRewardConfig
from rlsys.errors import BadInput
from tests.made import transcript

REWARD = MultipleChoiceReward(MultipleChoiceRewardConfig())
OPTIONS = {"A": "Rome", "B": "Paris", "C": "Oslo", "D": "Bern, the city"}


def chose(*said) -> str | None:
    (finding,) = REWARD.findings(transcript(*said, golds=("B",), record={"options": OPTIONS}))
    assert finding.value == float(finding.rule == "chose B")
    return finding.rule.removeprefix("chose ") if finding.rule.startswith("chose ") else None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("**B**", "B"),
        ("It could be **A**, but no: **B**.", "B"),
        ("The answer is C.", "C"),
        ("Answer: (D)", "D"),
        ("The correct answer is option B", "B"),
        ("the answer is: B. Paris", "B"),
        ("**B. Paris**", "B"),
        ("It rains.\n(B. Paris)", "B"),
        ("**A. Rome** is wrong. **B. Paris**", None),
        ("\\boxed{B}", "B"),
        ("\\boxed{\\text{B}}", "B"),
        ("<answer>b</answer>", "B"),
        ("<answer>(B)</answer>", "B"),
        ("<answer>B. Paris</answer>", "B"),
        ("<answer>Paris</answer>", "B"),
        ("<answer>the bern city</answer>", "D"),
        ("<answer>A or B</answer>", None),
        ("<answer>E</answer>", None),
        ("<answer></answer> B", None),
        ("<answer>A</answer> so <answer>B</answer>", "B"),
        ("A and C are wrong.\nB", "B"),
        ("A fits no blank. So I take B.", "B"),
        ("A or B", None),
        ("**A** or **B**", None),
        ("The answer is A or B.", None),
        ("The answer is A, B", None),
        ("The answer is B, Paris.", "B"),
        ("A good choice cannot be made", None),
        ("So it must be A", "A"),
        ("UNKNOWN", None),
        ("I do not know", None),
        ("", None),
        ("**Z**", None),
        ("B is right. C", "C"),
    ],
)
def test_the_letter_that_is_chosen(text: str, letter: str | None) -> None:
    assert chose(text) == letter


def test_the_environment_chooses_nothing() -> None:
    assert chose("hm", ("user", "**B**")) is None
    assert chose("**B**", ("user", "**A**"), "") == "B"


def test_several_answers_may_be_right() -> None:
    assert REWARD(transcript("**C**", golds=("B", "C"), record={"options": OPTIONS})).value == 1.0


@pytest.mark.parametrize(
    ("record", "golds", "message"),
    [
        ({}, ("B",), '"options" is missing'),
        ({"options": []}, ("B",), '"options" is missing'),
        ({"options": {"1": "x"}}, ("1",), "expected a capital letter"),
        ({"options": {"A": 1}}, ("A",), "expected a capital letter"),
        ({"options": OPTIONS}, ("Paris",), "one of A, B, C, D"),
        ({"options": OPTIONS}, (), 'no "answers"'),
    ],
)
def test_a_broken_task_is_no_zero(record, golds, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        REWARD(transcript("**B**", golds=golds, record=record))
