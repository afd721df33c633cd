"""What an evaluation says of an answer beside its reward, and the reward that is a judge's verdict."""

import asyncio

import pytest

from envs.rewards import make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.rewards.asks import resolve_requests
from envs.rewards.icrl import IcrlRewardConfig
from envs.rewards.judged import JudgedReward, JudgedRewardConfig
from envs.rewards.measures import measures
from envs.rewards.proscript import ProscriptRewardConfig
from envs.rewards.research import ResearchRewardConfig
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import Judged, Verdict
from rlsys.errors import BadInput
from rlsys.metrics import merge, values
from rlsys.types import Transcript
from tests.made import transcript

BOXED = "<think>x</think><answer>It is \\boxed{Paris, France}.</answer>"


def numbers(config: object, one: Transcript) -> dict[str, float]:
    return values(measures(make_reward(config), one))


def test_a_short_answer_is_compared_in_every_way_of_the_papers() -> None:
    found = numbers(ResearchRewardConfig(), transcript(BOXED))
    # one of two words is right: precision 1/2, recall 1
    third = pytest.approx(2 / 3)
    assert found == {"exact_match": 0.0, "cover_match": 1.0, "f1": third, "f1_musique": third, "f1_icrl": third}
    found = numbers(IcrlRewardConfig(), transcript("<ANSWER> the paris paris </answer>"))
    assert (found["f1"], found["f1_icrl"], found["exact_match"]) == (third, 1.0, 0.0)
    assert set(numbers(ResearchRewardConfig(), transcript("Paris")).values()) == {0.0}  # in no box: no answer
    assert numbers(AnswerRewardConfig(), transcript("<answer>Paris</answer>")) == {}


def test_constraints_are_pooled_over_the_set_and_not_averaged() -> None:
    reward = make_reward(ProscriptRewardConfig())
    steps = {"steps": ["step1", "step2", "step3"], "constraints": [["step1", "step2"]]}
    one = transcript("step2 -> step1", record=steps)  # 0 of 1
    other = transcript("step1 -> step2 -> step3", record=steps | {"constraints": [["step1", "step2"]] * 3})  # 3 of 3
    assert values(merge([measures(reward, one), measures(reward, other)])) == {"constraints_pooled": 3 / 4}


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
    judge, one = Says("Paris"), transcript(said, golds=("Paris", "Paname"))
    known = asyncio.run(resolve_requests(reward, one, None, lambda config: judge))  # type: ignore[arg-type, return-value]
    assert reward(known).value == (judged is not None)
    assert [(each.kind, each.fields["answer"]) for each in judge.asked] == [("research", judged)] * (judged is not None)
    if judged is not None:
        assert judge.asked[0].fields["answers"] == '["Paris", "Paname"]'
        with pytest.raises(BadInput, match="no verdict on the answer"):
            reward(one)
    wrong = asyncio.run(resolve_requests(reward, one, None, lambda config: Says("Rome")))  # type: ignore[arg-type, return-value]
    assert reward(wrong).parts == {"judge": 0.0}
