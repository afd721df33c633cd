"""envs.papers.swirl.step_rules: which step is good, by whoever made the task up."""

import pytest

from envs.papers.swirl.protocol import OVER_LIMIT
from envs.papers.swirl.reward import SwirlReward, SwirlRewardConfig
from envs.papers.swirl.step_rules import judge_by_rules
from rlsys.types import Message, Task, Transcript
from tests.refused import refused

QUESTION = Task(
    task_id="q",
    question="What is the ruler of the birthplace of Zokami?",
    answers=("Bikano",),
    record={"start": "Zokami", "relations": ["birthplace", "ruler"]},
)
PROBLEM = Task(task_id="p", question="6 boxes ..", answers=("43",), record={"steps": [["6 * 8", 48], ["48 - 5", 43]]})
TOWN = (
    "<search_query>birthplace of Zokami</search_query>",
    "birthplace of Zokami -> The birthplace of Zokami is Lutera.",
)
RULER = "<search_query>ruler of Lutera</search_query>", "ruler of Lutera -> The ruler of Lutera is Bikano."
TWIN = "<search_query>twin of Lutera</search_query>", "twin of Lutera -> The twin of Lutera is Kalu."
MADE = (
    "<search_query>The ruler of Lutera is Bikano.\n</search_query>",
    "The ruler of Lutera is Bikano. -> The rival of Bikano is Kalu.",
)
BOXES = "<math_exp>6 * 8</math_exp>", "6 * 8 -> 48.0"
REST = "<math_exp>48.0 - 5</math_exp>", "48.0 - 5 -> 43.0"


def talk(*said: str) -> list[Message]:
    """Actions and results in turn; the last is the action to judge."""
    return [Message(role="user" if at % 2 else "assistant", content=text) for at, text in enumerate(said)]


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ((TOWN[0],), True),
        (("<search_query>the birthplace of ZOKAMI?</search_query>",), True),
        ((RULER[0],), False),  # nobody can know yet that it is Lutera
        (("<search_query>birthplace of Lutera</search_query>",), False),
        (("<answer>Bikano</answer>",), False),  # right, and not in the results
        ((*TOWN, RULER[0]), True),
        ((*TOWN, TOWN[0]), False),  # asked before
        ((*TWIN, TOWN[0]), True),  # what came before counts against nobody
        ((*TOWN, *RULER, "<answer>bikano.</answer>"), True),
        ((*TOWN, *RULER, "<answer>Lutera</answer>"), False),
        ((*TOWN, *RULER, TWIN[0]), False),  # nothing is left to look up
        ((*TOWN, *TWIN, "<answer>Bikano</answer>"), False),
        ((*TOWN, *MADE, "<answer>Bikano</answer>"), False),  # the model wrote that, and no tool
        ((*TOWN, "no tag"), False),
        ((*TWIN, TWIN[0], OVER_LIMIT, TOWN[0]), False),
    ],
)
def test_steps_of_a_search(said: tuple[str, ...], good: bool) -> None:
    assert judge_by_rules(QUESTION, talk(*said)).endswith("GOOD" if good else "BAD")


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ((BOXES[0],), True),
        (("<math_exp>8*6.0</math_exp>",), True),
        (("<math_exp>6 + 8</math_exp>",), False),
        ((REST[0],), False),
        ((*BOXES, REST[0]), True),
        ((*BOXES, "<math_exp>5 - 48</math_exp>"), False),
        ((*BOXES, "<answer>43</answer>"), False),
        ((*BOXES, *REST, "<answer>43.0</answer>"), True),
        ((*BOXES, *REST, "<answer>48</answer>"), False),
        ((*BOXES, *REST, REST[0]), False),
    ],
)
def test_steps_of_a_calculation(said: tuple[str, ...], good: bool) -> None:
    assert judge_by_rules(PROBLEM, talk(*said)).endswith("GOOD" if good else "BAD")


def test_only_made_up_tasks_have_rules() -> None:
    for record in ({}, {"steps": 2}):
        with refused("reward.judged_by", where="task t", found="rules"):
            judge_by_rules(Task(task_id="t", question="Who?", record=record), talk("<answer>a</answer>"))


def test_verdicts_by_rules_are_kept_with_the_reward() -> None:
    reward = SwirlReward(SwirlRewardConfig(judged_by="rules", outcome="exact"))
    conversation = Transcript(task=QUESTION, messages=tuple(talk(*TOWN, TOWN[0], "t", "<answer>Bikano</answer>")))
    score = reward(conversation)
    assert score.value == pytest.approx(1 / 3) and score.correct is True
    assert [text.split()[-1] for text in score.judgements or ()] == ["GOOD", "BAD", "BAD"]
    assert reward.pooled(conversation) == {"outcome": (1.0, 1.0)}
    assert not reward.judging(conversation) and not reward.always_judged
    silent = SwirlReward(SwirlRewardConfig(judged_by="rules"))
    assert silent(conversation).correct is None and silent.pooled(conversation) == {}


def test_a_share_of_the_verdicts_is_turned_round_and_each_stays_as_it_is() -> None:
    errs, always = (SwirlReward(SwirlRewardConfig(judged_by="rules", rules_err=share)) for share in (0.15, 1.0))
    values = []
    for at in range(400):
        asked = Transcript(task=Task(task_id=f"q-{at}", question="", record=QUESTION.record, answers=("Bikano",)),
                           messages=tuple(talk(TOWN[0])))  # fmt: skip
        values.append(errs(asked).value)
        assert errs(asked).value == values[-1] and always(asked).value == 0.0
    assert 1 - sum(values) / len(values) == pytest.approx(0.15, abs=0.055)  # 3 deviations
    with refused("reward.rules_err", found=0.1, expected="judged_by=judge"):
        SwirlRewardConfig(rules_err=0.1)
