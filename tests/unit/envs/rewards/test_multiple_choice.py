"""envs.rewards.multiple_choice: which letter a response ends on."""

import pytest

from envs.rewards.multiple_choice import MultipleChoiceReward, MultipleChoiceRewardConfig
from envs.text.choice import TRUE_FALSE, YES_NO, find_stated
from rlsys.errors import BadInput
from tests.makers.made import transcript

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
        ("**A. Rome** is wrong. **B. Paris**", "B"),
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
        ("answer: b", "B"),
        ("Answer: (b)", "B"),
        ("(b)", "B"),
        ("B)", "B"),
        ("[B]", "B"),
        ("The answer is \\text{B}.", "B"),
        ("**Answer:** B", "B"),
        ("the answer is Paris", "B"),
        ("**Paris**", "B"),
        ("The answer is (B) Rome", None),
        ("The answer is B or Rome", None),
        ("I'd choose option B, since A is false.", "B"),
        ("The answer is B, not A.", "B"),
        ("The answer is B, A is wrong.", "B"),
        ("Not A but B", "B"),
        ("I choose B. It fits.", "B"),
        ("**A** is tempting. The answer is B.", "B"),
        ("The answer is B. **A** is tempting.", None),
        ("Answer: A\nWait, B", None),
        ("Answer: A\nB", None),
        ("The answer is not B.", None),
        ("The answer isn't B", None),
        ("I would not pick B.", None),
        ("It cannot be B", None),
        ("**B** is wrong", None),
        ("B is incorrect.", None),
        ("B is not the answer", None),
        ("B is ruled out", None),
        ("Neither A nor B", None),
        ("Anything but B", None),
        ("If B, then it rains", None),
        ("B? No.", None),
        ("Not Paris", None),
        ("The answer is not Paris", None),
        ("The answer is a city", None),
        ("<answer>B: or A, C, D</answer>", None),
        ("<answer>B (or A)</answer>", None),
        ("<answer>B: Rome</answer>", None),
        ("<answer>B (not A)</answer>", "B"),
        ("<answer>not B</answer>", None),
        ("<answer>B: wrong</answer>", None),
        ("<answer>A city</answer>", None),
        ("<answer>[B]</answer>", "B"),
        ("<answer>\\textbf{(B)} Paris</answer>", "B"),
        ("\\boxed{\\mathsf{B}}", "B"),
        ("\\boxed{\\text{Paris}}", "B"),
        ("\\boxed{B - Paris}", "B"),
        ("\\boxed{B - Rome}", None),
        ("The answer is 'B'.", "B"),
        ("The answer is __B__.", "B"),
        ("Answer: `B`", "B"),
        ("Answer: \uff22", "B"),
        ('{"answer": "B"}', "B"),
        ('```json\n{"answer": "B"}\n```', "B"),
        ('{"answer": "B or C"}', None),
        ("答案是B。", "B"),
        ("A不对，故选B", "B"),
        ("答案不是B", None),
        ("选B、C", None),
        ("The answer is B/C", None),
        ("The answer is B & C", None),
        ("Answer: B C", None),
        ("Answer: 'B' or 'C'", None),
        ("The answer is (B)(C)", None),
        ("The answer is B. Or maybe C.", None),
        ("The answer is B. A is the capital of Italy.", "B"),
        ("Take vitamin B12", None),
        ("<think>The answer is B.</think>", None),
        ("<think>The answer is B", None),
        ("<think><answer>B</answer></think> Rome or Oslo", None),
        ("<think>The answer is A.</think> The answer is B.", "B"),
        ("[THINK]B[/THINK]", None),
    ],
)
def test_the_letter_that_is_chosen(text: str, letter: str | None) -> None:
    assert chose(text) == letter


DENYING = {
    "A": "Wrong, Not wrong",
    "B": "None of the above",
    "C": "Both A and B",
    "D": "Never",
    "E": "It cannot be said",
}


@pytest.mark.parametrize("letter", DENYING)
@pytest.mark.parametrize(
    "form",
    [
        "{letter}",
        "{letter}. {words}",
        "{words}",
        "**{letter}. {words}**",
        "The answer is {letter}: {words}.",
        "The answer is ({letter}) {words}",
        "The answer is {words}.",
        "\\boxed{{\\text{{{words}}}}}",
        "\\boxed{{{letter}. {words}}}",
    ],
)
def test_words_of_an_option_deny_nothing(form: str, letter: str) -> None:
    text = form.format(letter=letter, words=DENYING[letter])
    (finding,) = REWARD.findings(transcript(text, golds=(letter,), record={"options": DENYING}))
    assert finding.value == 1.0, finding
    other = transcript(f"It is not true that the answer is {letter}", golds=(letter,), record={"options": DENYING})
    assert REWARD.findings(other)[0].value == 0.0


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


@pytest.mark.parametrize("flood", ["**A** ", "answer is A ", "wait B ", "A? ", "not A ", "(A) or ", "if "])
def test_what_decides_stands_in_the_last_claims(flood: str) -> None:
    assert chose(flood * 2_000 + "\nThe answer is C.") == "C"


@pytest.mark.parametrize("text", ["not yes", "No evidence says yes.", "<answer>not yes</answer>", "I do not think yes"])
def test_a_denied_word_is_not_stated(text: str) -> None:
    assert find_stated(text, YES_NO) is None


def test_words_are_stated() -> None:
    for text, word in [
        ("Yes", "yes"),
        ("So: no.", "no"),
        ("There is nothing wrong: yes", "yes"),
        ("not now. no", "no"),
    ]:
        assert (find_stated(text, YES_NO) or ("",))[0] == word
    assert (find_stated("That is not true", TRUE_FALSE) or ("",))[0] == "false"
