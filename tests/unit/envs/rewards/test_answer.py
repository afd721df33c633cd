"""envs.rewards.answer: hand-computed rewards, exact numbers, hostile texts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.rewards import make_reward
from envs.rewards.answer import AnswerReward, AnswerRewardConfig, same_answer
from envs.text.amounts import read_amount
from rlsys.types import Reward
from tests.makers.made import transcript
from tests.refused import refused


def scored(*messages: tuple[str, str], gold: str = "24", truncated: bool = False) -> Reward:
    return AnswerReward(AnswerRewardConfig())(transcript(*messages, golds=(gold,), truncated=truncated))


@pytest.mark.parametrize(
    ("text", "correct", "form"),
    [
        ("<answer>24</answer>", 1.0, 0.1),
        ("<answer> 24.0 </answer>", 1.0, 0.1),
        ("<answer>25</answer>", 0.0, 0.1),
        ("<answer></answer>", 0.0, 0.1),
        ("24", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("<answer>24", 0.0, 0.0),
        ("<answer>3</answer><answer>24</answer>", 1.0, 0.0),
        ("<answer>24</answer><answer>3</answer>", 0.0, 0.0),
        ("<think>So <answer>24</answer></think> I do not know.", 0.0, 0.0),
        ("<think>So <answer>24</answer>", 0.0, 0.0),
        ("It was <answer>24</answer></think>", 0.0, 0.0),
        ("[THINK]<answer>24</answer>[/THINK]", 0.0, 0.0),
        ("<think>They want <answer>the answer</answer>.</think><answer>24</answer>", 1.0, 0.1),
    ],
)
def test_parts_of_a_last_message(text: str, correct: float, form: float) -> None:
    score = scored(("assistant", "<math_exp>48 / 2</math_exp>"), ("user", "48 / 2 -> 24.0"), ("assistant", text))
    assert score == Reward(value=correct + form, parts={"correct": correct, "format": form})


@pytest.mark.parametrize(
    ("text", "gold", "correct", "form"),
    [
        ("1. Add 12 and 12.\n2. So it is 24.", "24", 1.0, 0.1),
        ("12 + 12 = 24", "24", 1.0, 0.1),
        ("24 and not 25", "24", 0.0, 0.1),
        ("It is 24, I think", "24", 1.0, 0.1),
        ("1,2 or 24.", "24", 1.0, 0.1),
        ("It costs $1,080.50, all told.", "1080.5", 1.0, 0.1),
        ("3 - 5 is -2", "-2", 1.0, 0.1),
        ("3-5", "5", 1.0, 0.1),  # a difference, and no sign
        ("x24", "24", 0.0, 0.0),
        ("<think>It is 24", "24", 0.0, 0.0),
        ("<think>It is 24</think>I cannot say.", "24", 0.0, 0.0),
        ("<think>Not 25</think>It is 24", "24", 1.0, 0.1),
        ("<answer>twenty-four</answer>", "24", 0.0, 0.0),
        ("", "24", 0.0, 0.0),
    ],
)
def test_the_last_number_of_a_message_that_knows_no_form(text: str, gold: str, correct: float, form: float) -> None:
    reward = AnswerReward(AnswerRewardConfig(reads="last_number"))
    score = reward(transcript(("assistant", "24"), ("user", "go on"), ("assistant", text), golds=(gold,)))
    assert score == Reward(value=correct + form, parts={"correct": correct, "format": form})
    cut = reward(transcript(("assistant", text), golds=(gold,), truncated=True))
    assert cut.parts == {"correct": correct, "format": 0.0}


def test_only_the_model_and_only_its_last_message_count() -> None:
    right = "<answer>24</answer>"
    assert scored(("user", right)).value == 0.0
    assert scored(("assistant", "hm"), ("user", right)).value == 0.0
    assert scored(("assistant", right), ("user", "go on"), ("assistant", "hm")).value == 0.0
    assert scored(("assistant", right), ("tool", "x")).value == 1.1
    assert scored().value == 0.0


def test_a_cut_off_episode_is_not_well_formed() -> None:
    assert scored(("assistant", "<answer>24</answer>"), truncated=True).parts == {"correct": 1.0, "format": 0.0}


def test_weights_are_the_configured_ones() -> None:
    conversation = transcript("<answer>24</answer>", golds=("no", "24"))
    score = make_reward(AnswerRewardConfig(correct=0.7, format=0.2))(conversation)
    assert score.parts == {"correct": 0.7, "format": 0.2} and score.value == sum(score.parts.values())


def test_a_task_without_answers_is_not_a_zero() -> None:
    with refused(where="task t", says='no "answers"'):
        AnswerReward(AnswerRewardConfig())(transcript(golds=()))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("24", Fraction(24)),
        ("24.", Fraction(24)),
        (" +24.50 ", Fraction(49, 2)),
        ("-.5", Fraction(-1, 2)),
        ("$1,080.00", Fraction(1080)),
        ("-$5", Fraction(-5)),
        ("$-5", Fraction(-5)),
        ("--5", None),
        ("15%", Fraction(15)),
        ("15 %.", Fraction(15)),
        ("1,234,567", Fraction(1234567)),
        ("1,2", None),
        ("1e3", Fraction(1000)),
        ("1e999999999", None),
        ("1e9999", None),
        ("48/2", None),
        ("0x18", None),
        ("1_000", None),
        ("\u0662\u0664", None),
        ("\uff13\uff19\uff11", Fraction(391)),
        ("\u22125", Fraction(-5)),
        ("5\u00b2", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("9" * 65, None),
    ],
)
def test_numbers_are_read_exactly_or_not_at_all(text: str, value: Fraction | None) -> None:
    amount = read_amount(text)
    assert (amount and amount.value) == value


def test_texts_compare_without_case_and_numbers_without_rounding() -> None:
    assert same_answer(" Paris ", ["paris"])
    assert same_answer("**Paris.**", ["paris"]) and same_answer("'yes'!", ["Yes"])
    assert not same_answer("Paris, France", ["paris"])
    assert not same_answer("supports", ["support"]) and not same_answer("no", ["yes"])
    assert same_answer("...", ["..."]) and not same_answer("...", ["!"]) and not same_answer("", ["."])
    assert not same_answer("0.30000000000000004", ["0.3"])
    assert same_answer("0.1e1", ["1"])
    assert same_answer("9" * 100, ["9" * 100])
    assert not same_answer("1e999999999", ["24"])


@given(st.text(), st.booleans())
def test_any_text_is_scored_and_its_parts_sum_to_the_value(text: str, truncated: bool) -> None:
    for content in (text, f"<answer>{text}</answer>"):
        score = scored(("assistant", content), truncated=truncated)
        assert score.value == sum(score.parts.values())
        assert set(score.parts) == {"correct", "format"}


def test_reward_is_picked_by_name() -> None:
    with refused("reward.name", found="awnser"):
        make_reward(AnswerRewardConfig(name="awnser"))


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (r"\boxed{Paris}", "paris"),
        (r"$\text{Paris}$", "Paris"),
        ("The answer is Paris.", "Paris"),
        ("\u201cParis\u201d", "Paris"),
        ("New\nYork", "New York"),
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("_Paris_", "Paris"),
    ],
)
def test_what_is_around_a_text_says_nothing(text: str, gold: str) -> None:
    assert same_answer(text, [gold]) and not same_answer(text, ["London"])


def test_an_exclamation_mark_is_no_factorial() -> None:
    assert same_answer("Paris!", ("Paris",)) and same_answer("yes!", ("Yes.",))
    assert not same_answer("5!", ("5",)) and not same_answer("n!", ("n",))


@pytest.mark.parametrize(
    "text",
    [
        "391 dollars",
        "$391$",
        "$$391$$",
        r"\(391\)",
        r"\[391\]",
        r"\boxed{391}",
        r"$\boxed{391}$",
        "x = 391",
        "$x = 391$",
        "= 391",
    ]
    + [
        "The answer is 391.",
        "Answer: **391**",
        "the final answer is $391",
        "391.0",
        "391%",
        r"\$391",
        "`391`",
        "391 USD",
        "€391",
        "USD 391",
        "US$391",
        r"\text{391}",
        r"391 \text{ dollars}",
        r"\boxed{\mathbf{391}}",
        "\u201c391\u201d",
        "391 percent",
    ],
)
def test_forms_of_a_right_number(text: str) -> None:
    assert same_answer(text, ["391"])


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (text, "391")
        for text in ["391 cents", "391 thousand", "391 or 392", "391 dozen", "391k", "391!", "391^2", "782/2"]
    ]
    + [(text, "391") for text in ["17*23", "x > 391", "-391", "3.91e1", "391/1", "391 392", "391 apples", "391 half"]]
    + [("0.5%", "0.5"), ("0.5", "0.5%"), ("1%", "0.1"), ("50 cents", "50"), ("391 euros", "$391"), ("$5", "5%")]
    + [("1 3/2", "2.5"), ("1 2/4", "1.5"), (r"\frac24", "0.5"), ("1 080", "1080"), ("USD 5", "€5"), ("5\u20133", "2")]
    + [("x = 3", "y = 3"), ("4/8", "0.5"), ("1/0", "0"), ("1/2", "2"), ("50%", "$50")],
)
def test_a_wrong_or_doubtful_amount_is_not_paid(text: str, gold: str) -> None:
    assert not same_answer(text, [gold])


def test_fractions_and_per_cent() -> None:
    for text, gold in [
        ("1/2", "0.5"),
        (r"\frac{1}{2}", "0.5"),
        ("-3/4", "-0.75"),
        ("0.5", "1/2"),
        ("50%", "0.5"),
        ("50", "50%"),
        (r"\frac12", "0.5"),
        ("\u00bd", "0.5"),
        ("1\u00bd", "1.5"),
        ("1 1/2", "3/2"),
        ("-1 1/2", "-1.5"),
        ("1\u202f080", "1080"),
        (r"1\,080", "1080"),
        ("1{,}080", "1080"),
        ("\u20133", "-3"),
    ]:
        assert same_answer(text, [gold])
    assert same_answer("4/8", ["4/8"]) and same_answer("391 apples", ["391 apples"])


def test_the_last_number_is_read_whole() -> None:
    for text, gold in [("so 1/2", "2"), ("it is 3e5", "3"), ("is 0.5%", "0.5"), ("is \u2212391", "391")]:
        reward = AnswerReward(AnswerRewardConfig(reads="last_number"))
        assert reward(transcript(("assistant", text), golds=(gold,))).parts["correct"] == 0
