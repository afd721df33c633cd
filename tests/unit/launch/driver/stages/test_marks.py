"""A reward that cannot read the answer that the prompt asks for is refused before the run."""

from __future__ import annotations

import pytest

from envs.papers.long_cot.reward import LongCotRewardConfig
from envs.protocols import PROTOCOLS
from envs.protocols.styles import STYLES
from envs.rewards import make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.rewards.judged import JudgedRewardConfig
from launch.config.compose import compose
from launch.driver.stages.rl import READ, finds_answer
from rlsys.errors import BadInput
from rlsys.types import Message, Task, Transcript
from tests.refused import refused


@pytest.mark.parametrize(
    ("config", "overrides", "says"),
    [
        ("worlds/sums", ["reward.name=answer"], "reads an answer in <answer>.*expected env.style=answer_tag or"),
        ("worlds/sums", ["env.style=answer_tag"], r"reward.name='long_cot' reads an answer in \\boxed\{, .*=boxed"),
        ("worlds/sums", ["reward.name=research"], "reads an answer in <answer>.*, expected another reward"),
        (
            "worlds/calculator",
            ["reward.name=long_cot", "reward.max_length=32", "reward.repetition_penalty=0"],
            r"in \\boxed\{, and env.name='calculator' \(protocol swirl_math\).*, expected reward.name=answer",
        ),
    ],
)
def test_what_no_answer_could_satisfy_is_refused(config: str, overrides: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=rf"stages.rl: .*{says}"):
        compose(config, [*overrides, *FEW, "env.instruction=null"])


FEW = ["env.train_tasks=8", "env.held_out_tasks=8"]


def test_words_of_the_users_own_may_ask_for_a_box() -> None:
    own = ["reward.name=long_cot", "reward.kind=classic", "reward.max_length=32", "reward.repetition_penalty=0", *FEW]
    assert compose("worlds/calculator", [*own, "env.instruction='End with <answer>\\boxed{5}</answer>.'"])
    with refused(says="reads an answer in"):
        compose("worlds/calculator", [*own, "env.instruction=''"])


def test_what_fits_is_not() -> None:
    assert compose("worlds/python", ["reward.name=answer", *FEW, "env.instruction=null"])  # <answer>\\boxed{x}</answer>
    assert compose("worlds/sums", ["reward.name=answer", "env.style=answer_tag"])
    assert compose("worlds/sums", ["reward.name=long_cot", "reward.kind=classic", "env.style=boxed"])
    for style in ("free", "boxed", "answer_tag"):
        assert compose("worlds/sums", ["reward.name=answer", "reward.reads=last_number", f"env.style={style}"])


WRITTEN = {name: style.write("yes") for name, style in STYLES.items() if name != "free"}
WRITTEN |= {f"protocol {name}": protocol.write_answer("yes") for name, protocol in PROTOCOLS.items()}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_the_table_says_what_the_rewards_do(text: str) -> None:
    """A right answer as a style or a protocol writes it is right exactly where the table says that it is seen."""
    transcript = Transcript(
        task=Task(task_id="a", question="?", answers=("yes",)),
        messages=(Message(role="assistant", content=text),),
        num_tokens=3,
    )
    for config in (AnswerRewardConfig(), LongCotRewardConfig(kind="classic")):
        reward = make_reward(config)(transcript)
        assert (reward.value >= 1) is finds_answer(config, text), (config.name, reward)
    assert READ["judged"](JudgedRewardConfig(answer="message")) == ()
