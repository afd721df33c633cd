"""envs.papers.icrl.reward: ICRL's equations 7 and 8 and its table 2 on worked examples, and what they imply."""

from dataclasses import replace

import pytest

from envs.papers.icrl.protocol import INFORMATION, INVALID_ACTION
from envs.papers.icrl.reward import IcrlReward, IcrlRewardConfig
from envs.rewards.asks import Grading
from envs.rewards.transcript import split_inline
from tests.makers.made import transcript
from tests.refused import refused

REWARD = IcrlReward(IcrlRewardConfig())
UNCLAMPED = IcrlReward(IcrlRewardConfig(clamp=False))
FULL = "<think>x</think><search>q</search><information>d</information><think>y</think><answer> {} </answer>"


def score(response: str, reward=REWARD, **fields):
    return reward(
        transcript(*((message.role, message.content) for message in split_inline(response, INFORMATION)), **fields)
    )


@pytest.mark.parametrize(
    ("response", "accuracy", "form"),
    [
        (FULL.format("Paris"), 1, 1.00),
        ("<think>x</think><answer>Paris</answer>", 1, 0.90),
        ("<search>q</search><answer>Paris</answer>", 1, 0.85),
        ("<answer>Paris</answer>", 1, 0.75),
        (FULL.format("London"), 0, 1.00),
        ("<think>x</think><search>q</search><answer> </answer>", 0, 0.80),
        ("", 0, 0.0),
        # each penalty alone and together
        ("<think>x</think><search>q</search>", 0, 0.50),
        ("<think>x</think><search>q</search>Paris", 0, 0.50),
        ("<think>x</think><search>q</search><answer>Paris", 0, 0.30),
        ("<think>x<search>q</search><answer>Paris</answer>", 1, 0.75),
        ("<think><think>x</think><search>q</search><answer>Paris</answer>", 1, 0.90),
        ("<think>x</think><search>q</search><answer>Rome</answer><answer>Paris</answer>", 1, 1.00),
        ("<think>x</think><search>q</search><answer>Paris</answer><answer>Rome</answer>", 0, 1.00),
        ("<think>x</think><search>q</search><answer><answer>Paris</answer>", 1, 0.80),
        ("nothing", 0, 0.25),
        # tags in any case, half a search counts as one
        ("<THINK>x</Think><search>q<Answer>paris</aNSWER>", 1, 1.00),
    ],
)
def test_the_worked_table(response: str, accuracy: float, form: float) -> None:
    result = score(response)
    assert result.value == pytest.approx(0.8 * accuracy + 0.2 * form, abs=1e-12)
    assert result.parts["accuracy"] == 0.8 * accuracy
    assert result.parts["format"] + result.parts["clamp"] == pytest.approx(0.2 * form, abs=1e-12)
    assert result.value == sum(result.parts.values())


def test_the_clamp_is_a_part_of_its_own() -> None:
    worst = "</answer></think>"  # 0.5 + 0.2 + 0.15 + 0.1 + 0.1 = 1.05
    assert score(worst).value == 0.0
    assert score(worst).parts == {"accuracy": 0.0, "format": pytest.approx(-0.01), "clamp": pytest.approx(0.01)}
    assert score(worst, UNCLAMPED).value == pytest.approx(-0.01)
    assert score("", UNCLAMPED).value == 0.0


def test_only_the_models_own_tags_count() -> None:
    document = "<information><think></think><search></search><answer>Paris</answer></information>"
    assert score(document).value == 0.0  # an empty response
    result = score(f"<search>q</search>{document}<answer>Rome</answer>")
    assert result.value == pytest.approx(0.2 * 0.85)
    assert score(f"hm{INVALID_ACTION}").value == pytest.approx(0.2 * 0.25)
    cut = "<think>x</think><search>q</search><information><answer>Paris</answer>"  # the closing tag is cut off
    assert score(cut).value == pytest.approx(0.2 * 0.5)


def test_an_information_tag_of_the_model_itself_is_its_own_text() -> None:
    faked = "<think>x</think><search>q</search><information><answer>Paris</answer></information>"
    assert REWARD(transcript(faked)).value == pytest.approx(1.0)


def test_a_tag_is_not_put_together_across_the_environments_text() -> None:
    assert REWARD(transcript("<ans", ("tool", "x"), "wer>Paris</answer>")).parts["accuracy"] == 0.0
    assert REWARD(transcript("<answer>", ("tool", "Paris"), "</answer>")).parts["accuracy"] == 0.0


def test_a_penalty_names_its_text() -> None:
    findings = REWARD.findings(transcript("<think>x</think><think><answer> </answer>"))
    assert {finding.rule: (finding.value, finding.text) for finding in findings} == {
        "no exact match": (0.0, " "),
        "format score before penalties": (pytest.approx(0.2), ""),
        "2 <think> and 1 </think>: not balanced": (pytest.approx(-0.02), "<think>"),
        "no <search>": (pytest.approx(-0.02), ""),
        "empty answer": (pytest.approx(-0.04), " "),
    }


def test_weights_follow_alpha() -> None:
    reward = IcrlReward(IcrlRewardConfig(alpha=0.5))
    assert score("<answer>Paris</answer>", reward).value == pytest.approx(0.5 + 0.5 * 0.75)
    with refused("reward.alpha", found=2):
        IcrlRewardConfig(alpha=2)


def test_a_task_without_answers_is_no_zero() -> None:
    with refused(where="task t", says='no "answers"'):
        REWARD(transcript("x", golds=()))


# The code half: `tool: code`

CODE = IcrlReward(IcrlRewardConfig(tool="code"))
PROGRAM = "<think>x</think><code>\n```python\nprint(42)\n```\n</code>\n<interpreter>\n42</interpreter>\n\n"


def score_code(response: str, golds: tuple[str, ...] = ("42",), **fields):
    messages = split_inline(response, CODE.inline)
    return CODE(transcript(*((message.role, message.content) for message in messages), golds=golds, **fields))


@pytest.mark.parametrize(
    ("response", "accuracy", "form"),
    [
        (PROGRAM + "<answer>\\boxed{42}</answer>", 1, 1.00),
        (PROGRAM + "<answer>It is \\boxed{\\frac{84}{2}}.</answer>", 1, 1.00),
        (PROGRAM + "<answer>\\boxed{41}</answer>", 0, 1.00),
        (PROGRAM + "<answer>42</answer>", 0, 1.00),  # no box, no answer
        (PROGRAM + "\\boxed{42}", 0, 0.50),
        (PROGRAM + "<answer> </answer>", 0, 0.80),
        ("<think>x</think><answer>\\boxed{42}</answer>", 1, 0.90),  # the tool is not used
        ("<think>x</think><search>q</search><answer>\\boxed{42}</answer>", 1, 0.90),
        (PROGRAM, 0, 0.50),
        ("", 0, 0.0),
    ],
)
def test_boxed_answers_and_code(response: str, accuracy: float, form: float) -> None:
    result = score_code(response)
    assert result.value == pytest.approx(0.8 * accuracy + 0.2 * form, abs=1e-12)


def test_what_the_interpreter_says_is_not_the_models() -> None:
    faked = PROGRAM.replace("42</interpreter>", "<answer>\\boxed{42}</answer></interpreter>")
    assert score_code(faked).value == pytest.approx(0.2 * 0.5)


def test_algebra_is_left_to_the_grader() -> None:
    conversation, golds = transcript(PROGRAM + "<answer>\\boxed{(x+1)^2}</answer>", golds=("x^2+2x+1",)), ("x^2+2x+1",)
    assert CODE.grading(conversation) == Grading(given="(x+1)^2", golds=golds)
    with refused(says="needs a grader"):
        CODE(conversation)
    assert CODE(replace(conversation, correct=True)).parts["accuracy"] == 0.8
    assert CODE.grading(replace(conversation, correct=True)) is None
    assert REWARD.grading(conversation) is None and CODE.grading(transcript("nothing")) is None
