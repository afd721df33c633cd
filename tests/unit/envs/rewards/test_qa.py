"""envs.rewards.qa: what HotpotQA's, MuSiQue's and ICRL's scripts give, and where they differ."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.papers.graph_rl.proscript import ProscriptRewardConfig
from envs.papers.icrl.reward import IcrlRewardConfig
from envs.papers.research.reward import ResearchRewardConfig
from envs.rewards import make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.rewards.asks import resolve_requests
from envs.rewards.judged import JudgedReward, JudgedRewardConfig
from envs.rewards.qa import answer_metrics, best_f1, cover_match, exact_match, f1
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import Judged, Verdict
from envs.text.words import normalize_answer
from rlsys.errors import BadInput
from rlsys.metrics import merge, values
from rlsys.types import Transcript
from tests.makers.made import transcript

BOXED = "<think>x</think><answer>It is \\boxed{Paris, France}.</answer>"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat!", "cat"),
        ("An apple, a pear", "apple pear"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("\u00c9cole\u00a0normale", "\u00e9cole normale"),
        ("the", ""),
        ("\u201cParis\u201d", "\u201cparis\u201d"),  # only ASCII punctuation, as the official scripts
    ],
)
def test_normalised(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_exact_match_of_any_gold() -> None:
    assert exact_match("The Cat", ["cat"])
    assert exact_match("nyc", ["New York City", "NYC"])
    assert not exact_match("", ["Paris"])
    assert not exact_match("Paris, France", ["Paris"])
    assert not exact_match("P", "Paris")


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        ("A", "A", True),
        ("a.", "A", True),
        ("the", "A", False),
        ("an", "A", False),
        (".", "A", False),
        (".", ".", True),
        ("!", ".", False),
        ("the", "Paris", False),
        ("Paris\u3002", "Paris", True),
        ("\u300cParis\u300d", "Paris", True),
        ("\u201cParis\u201d", "paris", True),
        ("1914\u20131918", "1914-1918", True),
        ("10\u201312", "1012", False),
        ("e\u0301cole", "\u00e9cole", True),
        ("ecole", "\u00e9cole", False),
        ("\u3002", "\u3001", False),
        ("5\u20ac", "5", False),  # no mark, a currency
    ],
)
def test_an_answer_of_which_nothing_is_left_and_marks_of_other_scripts(given: str, gold: str, same: bool) -> None:
    assert exact_match(given, [gold]) is exact_match(gold, [given]) is same


def test_f1_leaves_out_the_marks_that_exact_match_does() -> None:
    for style in ("hotpotqa", "musique", "icrl"):
        assert f1("Paris\u3002", "Paris", style=style) == f1("1914\u20131918", "1914-1918", style=style) == 1.0  # type: ignore[arg-type]
        assert f1("\u201cParis\u201d, France", "Paris", style=style) == pytest.approx(2 / 3)  # type: ignore[arg-type]
        assert f1("10\u201312", "1012", style=style) == 0.0  # type: ignore[arg-type]
    assert f1("yes\u3002", "yes", style="hotpotqa") == 1.0


def test_the_answer_a_is_itself_and_no_other_article() -> None:
    for style in ("hotpotqa", "icrl"):
        assert f1("A", "A", style=style) == f1("a.", "A", style=style) == 1.0  # type: ignore[arg-type]
        assert f1("the", "A", style=style) == f1("", "", style=style) == 0.0  # type: ignore[arg-type]


def test_f1_counts_words_as_a_multiset_and_icrl_as_a_set() -> None:
    assert f1("paris paris", "Paris", style="hotpotqa") == pytest.approx(2 / 3)
    assert f1("paris paris", "Paris", style="musique") == pytest.approx(2 / 3)
    assert f1("paris paris", "Paris", style="icrl") == 1.0
    assert f1("Paris, France", "Paris", style="hotpotqa") == pytest.approx(0.666667, abs=1e-6)
    assert best_f1("New York", ["NYC", "New York City"], style="hotpotqa") == pytest.approx(0.8)


def test_f1_of_yes_and_no_is_all_or_nothing_except_in_musique() -> None:
    assert f1("yes it is", "yes", style="hotpotqa") == 0.0
    assert f1("yes", "yes indeed", style="hotpotqa") == 0.0
    assert f1("Yes.", "yes", style="hotpotqa") == 1.0
    assert f1("yes it is", "yes", style="musique") == pytest.approx(0.5)
    assert f1("yes it is", "yes", style="icrl") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("prediction", "gold", "musique"), [("", "Paris", 0.0), ("", "the", 1.0), ("Paris", "the", 0.0), ("a", "the", 1.0)]
)
def test_f1_without_words(prediction: str, gold: str, musique: float) -> None:
    assert f1(prediction, gold, style="musique") == musique
    assert f1(prediction, gold, style="hotpotqa") == f1(prediction, gold, style="icrl") == 0.0


def test_cover_match_is_of_whole_words() -> None:
    assert cover_match("It is Paris, in France", ["London", "paris"])
    assert not cover_match("north", ["no"])
    assert cover_match("the answer is no", ["no"])
    assert not cover_match("anything", ["the"])  # an empty gold is in every text
    assert not cover_match("new amsterdam york", ["New York"])


@given(st.text(), st.text(), st.sampled_from(["hotpotqa", "musique", "icrl"]))
def test_f1_is_between_0_and_1_symmetric_and_1_for_an_exact_match(a: str, b: str, style: str) -> None:
    assert 0 <= f1(a, b, style=style) == f1(b, a, style=style) <= 1
    if normalize_answer(a):
        assert f1(a, a, style=style) == pytest.approx(1) and exact_match(a, [a]) and cover_match(f"{b} {a} {b}", [a])


@pytest.mark.cpu_seconds(5)
def test_megabytes_are_compared_in_one_pass() -> None:
    long = "the a an word " * 70_000
    assert exact_match(long, [long]) and cover_match(long, ["word word"]) and f1(long, long, style="hotpotqa") == 1.0


def numbers(config: object, one: Transcript) -> dict[str, float]:
    return values(answer_metrics(make_reward(config), one))


def test_a_short_answer_is_compared_in_every_way_of_the_papers() -> None:
    scores = numbers(ResearchRewardConfig(), transcript(BOXED))
    # one of two words is right: precision 1/2, recall 1
    third = pytest.approx(2 / 3)
    assert scores == {"exact_match": 0.0, "cover_match": 1.0, "f1": third, "f1_musique": third, "f1_icrl": third}
    scores = numbers(IcrlRewardConfig(), transcript("<ANSWER> the paris paris </answer>"))
    assert (scores["f1"], scores["f1_icrl"], scores["exact_match"]) == (third, 1.0, 0.0)
    assert set(numbers(ResearchRewardConfig(), transcript("Paris")).values()) == {0.0}  # in no box: no answer
    assert numbers(AnswerRewardConfig(), transcript("<answer>Paris</answer>")) == {}


def test_constraints_are_pooled_over_the_set_and_not_averaged() -> None:
    reward = make_reward(ProscriptRewardConfig())
    steps = {"steps": ["step1", "step2", "step3"], "constraints": [["step1", "step2"]]}
    wrong = transcript("step2 -> step1", record=steps)  # 0 of 1
    right = transcript("step1 -> step2 -> step3", record=steps | {"constraints": [["step1", "step2"]] * 3})  # 3 of 3
    assert values(merge([answer_metrics(reward, wrong), answer_metrics(reward, right)])) == {
        "constraints_pooled": 3 / 4
    }


class Says:
    """A judge that accepts what holds this word."""

    def __init__(self, word: str) -> None:
        self.word, self.asked = word, []

    async def ask(self, request: object, seed: int = 0) -> Judged:
        self.asked.append(request)
        right = self.word in request.fields["answer"]  # type: ignore[attr-defined]
        verdict = Verdict(value="correct" if right else "incorrect", accepted=right)
        return Judged(verdict=verdict, text="", cached=False)


@pytest.mark.parametrize(
    ("answer", "said", "judged"),
    [
        ("boxed", BOXED, "Paris, France"),
        ("tag", BOXED, "It is \\boxed{Paris, France}."),
        ("message", "In Paris.", "In Paris."),
        ("tag", "In Paris.", None),
        ("boxed", "In Paris.", None),
        ("message", "", None),
    ],
)
def test_a_judge_is_asked_about_the_answer_and_nobody_about_none(answer: str, said: str, judged: str | None) -> None:
    reward = JudgedReward(JudgedRewardConfig(answer=answer, judge=JudgeConfig(model="m", endpoint="http://h/v1")))  # type: ignore[arg-type]
    judge, conversation = Says("Paris"), transcript(said, golds=("Paris", "Paname"))
    known = asyncio.run(resolve_requests(reward, conversation, None, lambda config: judge))  # type: ignore[arg-type, return-value]
    assert reward(known).value == (judged is not None)
    assert [(request.kind, request.fields["answer"]) for request in judge.asked] == [("research", judged)] * (
        judged is not None
    )
    if judged is not None:
        assert judge.asked[0].fields["answers"] == '["Paris", "Paname"]'
        with pytest.raises(BadInput, match="no verdict on the answer"):
            reward(conversation)
    wrong = asyncio.run(resolve_requests(reward, conversation, None, lambda config: Says("Rome")))  # type: ignore[arg-type, return-value]
    assert reward(wrong).parts == {"judge": 0.0}
