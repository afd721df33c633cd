"""Rewards: pure functions of a transcript, chosen by a recipe's `reward.name`.

A reward is the sum of its findings. `reward(transcript)` gives the value, `reward.findings(transcript)` each rule that
fired with the text that it fired on; `reward.inline` says how the recipe writes the environment's text into one string.
Rewards that need more than the text have `grading` or `judging`: see `envs.rewards.asks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from envs.rewards.findings import Finding
from envs.services.judge.config import JudgeConfig
from rlsys.choices import Table, choose, construct
from rlsys.errors import BadInput
from rlsys.types import Reward, Transcript

RewardFunction = Callable[[Transcript], Reward]
Measure = Literal["accuracy", "mean reward"]


@runtime_checkable
class Explains(Protocol):
    """A reward that can say why. All of ours can; one from elsewhere need not."""

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]: ...


@runtime_checkable
class Compares(Protocol):
    """A reward that looks at the siblings of a group together, after each was scored alone."""

    def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]: ...


REWARDS: Table = {
    "answer": "envs.rewards.answer.AnswerReward",
    "blocksworld": "envs.rewards.blocksworld.BlocksworldReward",
    "graph_rl": "envs.rewards.graph_rl.GraphRLReward",
    "icrl": "envs.rewards.icrl.IcrlReward",
    "judged": "envs.rewards.judged.JudgedReward",
    "long_cot": "envs.rewards.long_cot.LongCotReward",
    "multiple_choice": "envs.rewards.multiple_choice.MultipleChoiceReward",
    "proscript": "envs.rewards.proscript.ProscriptReward",
    "research": "envs.rewards.research.ResearchReward",
    "summary": "envs.rewards.summary.SummaryReward",
    "swirl": "envs.rewards.swirl.SwirlReward",
}

# What a part of a reward must exceed for the task to count as solved: nothing, or, where the part is a share (F1,
# steps, constraints), all but rounding of the whole. Format and partial credit solve no task.
RIGHT, WHOLE = 0.0, 1 - 1e-9


def solved_by(config: Any) -> Mapping[str, float] | None:
    """{part: what it must exceed} for a task to count as solved, as the reward's class says. config: the reward's.

    None where it does not say: nobody can tell then from its numbers what is right, and what is format.
    """
    name = getattr(config, "name", None)
    return getattr(choose("reward", REWARDS, name).build, "solved_by", None) if isinstance(name, str) else None


def measure_of(config: Any) -> Measure:
    """What a number over many of its rewards is called."""
    return "mean reward" if solved_by(config) is None else "accuracy"


def solved(config: Any, reward: Reward) -> bool:
    """Whether the task counts as solved. Never, with a reward that does not say what is."""
    return any(reward.parts.get(part, 0.0) > least for part, least in (solved_by(config) or {}).items())


def judge_of(config: Any) -> JudgeConfig | None:
    """Who judges for the reward of this config, which may be of somebody else's; None for one that asks nobody."""
    judge = getattr(config, "judge", None)
    return judge if isinstance(judge, JudgeConfig) else None


def token_streams(config: Any) -> Mapping[str, str]:
    """The streams of single tokens, with discounts of their own, that rewards come with: by name, what leaves it out.

    A reward's config says so in `streams`: {"repetition": "reward.repetition_penalty=0"}; without it there are none.
    """
    streams: Mapping[str, str] = getattr(config, "streams", {})
    return streams


def evaluates_only(config: Any) -> str:
    """`evaluates_only` of a reward's config: why nothing may be trained on it; "" where it may."""
    reason: str = getattr(config, "evaluates_only", "")
    return reason


def length_limit(config: Any) -> int | None:
    """`length_limit` of a reward's config: the tokens of `max_length`, where the reward looks at how near they are."""
    limit: int | None = getattr(config, "length_limit", None)
    return limit


def check_env(where: str, config: Any, env: Any) -> None:
    """Let the reward's config refuse, by a method `check_env(env)`, an environment whose episodes it cannot read."""
    try:
        getattr(config, "check_env", lambda _: None)(env)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def make_reward(config: Any) -> RewardFunction:
    """The reward that `config.name` picks, built from `config`. Raises BadInput for a name that is not in REWARDS."""
    reward: RewardFunction = construct("reward", REWARDS, config)
    return reward
