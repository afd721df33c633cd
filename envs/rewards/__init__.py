"""Rewards: pure functions of a transcript, chosen by a recipe's `reward.name`.

A reward is the sum of its findings. `reward(transcript)` gives the value, `reward.findings(transcript)` each rule that
fired with the text that it fired on; `reward.inline` says how the recipe writes the environment's text into one string.
Rewards that need more than the text have `grading` or `judging`: see `envs.rewards.asks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, runtime_checkable

from envs.rewards.findings import Explains as Explains
from envs.services.judge.config import JudgeConfig
from rlsys.choices import Table, choose, construct
from rlsys.types import Reward, Task, Transcript

RewardFunction = Callable[[Transcript], Reward]
Measure = Literal["accuracy", "mean reward"]


@runtime_checkable
class Compares(Protocol):
    """A reward that looks at the siblings of a group together, after each was scored alone."""

    def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]: ...


@runtime_checkable
class ChecksTask(Protocol):
    """A reward that can say of a task alone that it could never score it."""

    def check_task(self, task: Task) -> None: ...


REWARDS: Table = {
    "answer": "envs.rewards.answer.AnswerReward",
    "blocksworld": "envs.papers.graph_rl.blocks.reward.BlocksworldReward",
    "functions": "envs.rewards.functions.FunctionsReward",
    "games": "envs.rewards.games.GamesReward",
    "graph_rl": "envs.papers.graph_rl.reward.GraphRLReward",
    "icrl": "envs.papers.icrl.reward.IcrlReward",
    "judged": "envs.rewards.judged.JudgedReward",
    "long_cot": "envs.papers.long_cot.reward.LongCotReward",
    "multiple_choice": "envs.rewards.multiple_choice.MultipleChoiceReward",
    "proscript": "envs.papers.graph_rl.proscript.ProscriptReward",
    "reasoning_gym": "envs.rewards.reasoning_gym.ReasoningGymReward",
    "research": "envs.papers.research.reward.ResearchReward",
    "summary": "envs.papers.graph_rl.summary.SummaryReward",
    "swirl": "envs.papers.swirl.reward.SwirlReward",
    "agent": "envs.rewards.agent.AgentReward",
}

# What a part of a reward must exceed for the task to count as solved: nothing, or, where the part is a share (F1,
# steps, constraints), all but rounding of the whole. Format and partial credit solve no task.
RIGHT, WHOLE = 0.0, 1 - 1e-9


def solved_thresholds(config: Any) -> Mapping[str, float] | None:
    """{part: what it must exceed} for a task to count as solved, as the reward's class says, or its config where it has
    `solving`. config: the reward's.

    None where neither says: its numbers alone then do not separate what is right from what is format.
    """
    thresholds: Mapping[str, float] | None = getattr(config, "solving", None)
    if thresholds is not None:
        return thresholds or None
    name = getattr(config, "name", None)
    return getattr(choose("reward", REWARDS, name).build, "solved_by", None) if isinstance(name, str) else None


def metric_name_of(config: Any) -> Measure:
    """What a number over many of its rewards is called."""
    return "mean reward" if solved_thresholds(config) is None else "accuracy"


def counts_as_solved(config: Any, reward: Reward) -> bool:
    """Whether the task counts as solved. Never, with a reward that does not say what is."""
    return any(reward.parts.get(part, 0.0) > least for part, least in (solved_thresholds(config) or {}).items())


def judge_config_of(config: Any) -> JudgeConfig | None:
    """The judge of this config's reward, which may be a user's own class; None for a reward that asks no judge."""
    judge = getattr(config, "judge", None)
    return judge if isinstance(judge, JudgeConfig) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTraits:
    """What a run asks of a reward's config, by attributes of these names; the default holds where there is none."""

    streams: Mapping[str, str] = field(default_factory=dict)  # per-token reward streams: {name: override without it}
    why_evaluation_only: str = ""  # why nothing may be trained on it
    length_limit: int | None = None  # `max_length` in tokens, where the reward looks at how near a response comes
    env_problem: Callable[[Any], str] = lambda env: ""  # why it cannot score the episodes of this environment's config


def traits_of(config: Any) -> RewardTraits:
    """The traits of a reward's config, which may be of a user's own class."""
    traits = {trait.name: getattr(config, trait.name) for trait in fields(RewardTraits) if hasattr(config, trait.name)}
    return RewardTraits(**traits)


def make_reward(config: Any) -> RewardFunction:
    """The reward that `config.name` picks, built from `config`. Raises BadInput for a name that is not in REWARDS."""
    reward: RewardFunction = construct("reward", REWARDS, config)
    return reward
