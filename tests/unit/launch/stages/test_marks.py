"""A reward that cannot read the answer that the prompt asks for is refused before the run."""

from __future__ import annotations

import pytest

from envs.protocols.styles import STYLES
from envs.rewards import make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.rewards.judged import JudgedRewardConfig
from envs.rewards.long_cot import LongCotRewardConfig
from launch.config.compose import compose
from launch.stages.marks import READ
from rlsys.errors import BadInput
from rlsys.types import Message, Task, Transcript


@pytest.mark.parametrize(
    ("config", "overrides", "says"),
    [
        ("worlds/sums", ["reward.name=answer"], "reads an answer in <answer>.*expected env.style=answer_tag or"),
        ("worlds/sums", ["env.style=answer_tag"], r"reward.name='long_cot' reads an answer in \\boxed\{, .*=boxed"),
        ("worlds/sums", ["reward.name=research"], "reads an answer in <answer>.*: expected another reward"),
    ],
)
def test_what_no_answer_could_satisfy_is_refused(config: str, overrides: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=rf"stages.rl: .*{says}"):
        compose(config, [*overrides, "env.instruction=null"])


def test_what_fits_is_not() -> None:
    assert compose("worlds/sums", ["reward.name=answer", "env.style=answer_tag"])
    assert compose("worlds/sums", ["reward.name=long_cot", "reward.kind=classic", "env.style=boxed"])


@pytest.mark.parametrize("style", [name for name in STYLES if name != "free"])
def test_the_table_says_what_the_rewards_do(style: str) -> None:
    """A right answer as a style writes it is right exactly where the table says that the reward can read it."""
    text = STYLES[style].write("yes")
    transcript = Transcript(
        task=Task(task_id="a", question="?", answers=("yes",)),
        messages=(Message(role="assistant", content=text),),
        num_tokens=3,
    )
    for config in (AnswerRewardConfig(), LongCotRewardConfig(kind="classic")):
        reward = make_reward(config)(transcript)
        seen = all(mark in text for mark in READ[config.name](config))
        assert (reward.value >= 1) is seen, (config.name, reward)
    assert READ["judged"](JudgedRewardConfig(answer="message")) == ()
