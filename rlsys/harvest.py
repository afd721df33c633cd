"""Advantages of a batch, by group, and weighted references to its samples. What failed is left out and counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlsys.config.envs import by_name, env_of
from rlsys.errors import RunFailed
from rlsys.journal import Outcome
from rlsys.metrics import Max, Mean, Metric, Metrics, Min, Sum, merge
from rlsys.reductions import Reduction, weigh
from rlsys.samples import SampleRef, sample_refs
from rlsys.summaries import GroupRef, TrajectorySummary, Truncated, credit_group, rewards_of, use_metrics
from rlsys.types import EpisodeEnd, Failure, FailureKind, Reward
from rlsys.untrusted import visible

DETAIL = 600  # characters of a failure's reason
ENDS = [end for end in EpisodeEnd if end is not EpisodeEnd.FAILED]


class Credits(Protocol):
    """The part of an algorithm that is needed here: see `learners.algorithms.base.Algorithm`."""

    @property
    def reduction(self) -> Reduction: ...
    @property
    def truncated(self) -> Truncated: ...
    def advantages(self, rewards: Sequence[float]) -> list[float] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What a step's groups gave."""

    samples: list[SampleRef]  # those that are trained
    discounts: tuple[float, ...]  # of the reward streams, of the value first
    advantages: dict[tuple[int, int], float]  # by (sequence, sibling)
    outcomes: dict[int, Outcome]  # by sequence
    signals: dict[
        int, bool | None
    ]  # by sequence: `rlsys.summaries.credit_group`, also of tokens that are too old to train
    means: dict[int, float]  # by sequence: of the graded trajectories' rewards, where there are any
    rewards: list[float]  # of the graded trajectories
    lags: list[int]  # of each trajectory with tokens: versions from its oldest one to the weights trained on it
    failures: Mapping[str, int]  # trajectories by kind; `retried`: broke, tried again
    sampled: int  # tokens of all trajectories
    discarded: int  # tokens of their attempts that broke
    metrics: Metrics


def harvest_groups(
    groups: Sequence[GroupRef], algorithm: Credits, longest: int, *, version: int = 0, max_token_lag: int | None = None
) -> Harvest:
    """Advantages within each group, then references to samples. A failed sibling is left out of its group's baseline.

    longest: tokens that a response can have, the constant of Dr. GRPO's reduction.
    version: the weights that are trained. Tokens more than `max_token_lag` versions older become context. A trajectory
    of such tokens alone still counts in the baseline but gives no sample; a group without samples is "filtered".
    """
    trained: list[list[list[SampleRef]]] = []  # by group and trajectory
    advantages: dict[tuple[int, int], float] = {}
    outcomes: dict[int, Outcome] = {}
    signals: dict[int, bool | None] = {}
    means: dict[int, float] = {}
    left_out = dict.fromkeys(("stale", "truncated", "ungraded", "without_signal"), 0)  # tokens
    for group in groups:
        sequence = group.ticket.sequence
        rewards = rewards_of(group)
        graded = [reward for reward in rewards if not math.isnan(reward)]
        if graded:
            means[sequence] = sum(graded) / len(graded)
        signals[sequence], credit = credit_group(algorithm, group)
        if credit is None:
            outcomes[sequence] = "filtered" if graded else "failed"
            left_out["without_signal"] += sum(summary.num_sampled for summary in group.summaries) if graded else 0
            continue
        refs: list[list[SampleRef]] = []
        for summary, advantage in zip(group.summaries, credit, strict=True):
            if math.isnan(advantage):
                masked = algorithm.truncated != "train" and summary.end.truncates
                left_out["truncated" if masked else "ungraded"] += summary.num_sampled
                continue
            advantages[sequence, summary.sibling] = advantage
            fresh, stale = sample_refs(
                summary, group_id=sequence, advantage=advantage, version=version, max_token_lag=max_token_lag
            )
            left_out["stale"] += stale
            refs.append(fresh)
        outcomes[sequence] = "trained" if any(refs) else "filtered"
        trained.append(refs)
    fates: Metrics = {f"tokens/{fate}": Sum(count) for fate, count in left_out.items()}
    trajectories = [summary for group in groups for summary in group.summaries]
    all_rewards = [summary.reward for summary in trajectories if isinstance(summary.reward, Reward)]
    return Harvest(
        samples=weigh(trained, algorithm.reduction, length=longest),
        discounts=next((reward.discounts for reward in all_rewards), (1.0,)),
        advantages=advantages,
        outcomes=outcomes,
        signals=signals,
        means=means,
        rewards=[reward.value for reward in all_rewards],
        lags=[version - summary.oldest_version for summary in trajectories if summary.oldest_version is not None],
        failures=failure_counts(trajectories),
        sampled=sum(summary.num_sampled for summary in trajectories),
        discarded=sum(summary.discarded_tokens for summary in trajectories),
        metrics=merge([*step_metrics(groups, outcomes, version), fates]),
    )


def step_metrics(groups: Sequence[GroupRef], outcomes: Mapping[int, Outcome], version: int) -> list[Metrics]:
    """What a step's trajectories and groups say, whatever of them is trained. version: the weights that are trained."""
    trajectories = [summary for group in groups for summary in group.summaries]
    graded = [trajectory.reward.value for trajectory in trajectories if isinstance(trajectory.reward, Reward)]
    metrics: list[Metrics] = [trajectory_metrics(trajectory) for trajectory in trajectories]
    metrics += [lag_metrics(trajectory, version) for trajectory in trajectories]
    metrics += [{f"failures/{kind}": Sum(float(count)) for kind, count in failure_counts(trajectories).items()}]
    metrics += [group_metrics(groups, outcomes), use_metrics(trajectories)]
    metrics += [{"episode/count": Sum(len(trajectories))}]
    return metrics + ([{"reward/std": Mean(deviation(graded))}] if graded else [])


def metrics_by_env(
    groups: Sequence[GroupRef], outcomes: Mapping[int, Outcome], envs: Collection[str], version: int
) -> Metrics:
    """`step_metrics` of each of several environments, under keys such as `by_env/sums/reward/mean`."""
    metrics: dict[str, Metric] = {}
    for name in envs:
        env_groups = [group for group in groups if env_of(group.ticket.task.task_id) == name]
        merged = merge(step_metrics(env_groups, outcomes, version))
        metrics |= {by_name(name, key): metric for key, metric in merged.items()}
    return metrics


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of these values themselves: divided by how many there are."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))


def trajectory_metrics(trajectory: TrajectorySummary) -> Metrics:
    reward, timings = trajectory.reward, trajectory.timings
    row: dict[str, Metric] = {
        "tokens/generated": Sum(trajectory.num_sampled),
        "episode/tokens": Mean(trajectory.num_sampled),
        "episode/tokens_max": Max(trajectory.num_sampled),
        "episode/turns": Mean(len(trajectory.turns)),
        "time/episode_generate": Mean(timings.generate_s),
        "time/episode_tool": Mean(timings.tool_s),
        "time/episode_score": Mean(timings.score_s),
        "tokens/discarded": Sum(float(trajectory.discarded_tokens)),
    }
    row |= {f"episode/{end}": Mean(float(trajectory.end is end)) for end in ENDS}
    row["episode/raised"] = Mean(float(first_exception([trajectory]) is not None))
    if isinstance(reward, Reward):
        row |= {"reward/mean": Mean(reward.value), "reward/max": Max(reward.value), "reward/min": Min(reward.value)}
        row |= {f"reward/part/{name}": Mean(value) for name, value in reward.parts.items()}
        row |= {f"reward/stream/{stream.name}": Mean(sum(stream.values)) for stream in reward.streams}
    return row


def first_exception(trajectories: Sequence[TrajectorySummary]) -> Failure | None:
    """What the environment, reward, task, template or agent of one of them raised, whether it was played again or not.

    An agent's error ends its episode and counts with the reward: what the policy said may be its cause, or not.
    """
    for trajectory in trajectories:
        for outcome in (*trajectory.retried, trajectory.reward):
            if isinstance(outcome, Failure) and outcome.kind is FailureKind.DATA:
                return outcome
        if trajectory.agent_error:
            return Failure(kind=FailureKind.DATA, where="agent", detail=visible(trajectory.agent_error))
    return None


def lag_metrics(trajectory: TrajectorySummary, version: int) -> Metrics:
    """Versions between a trajectory's oldest token and the weights trained on it."""
    versions = trajectory.versions
    if not versions:
        return {}
    lag = float(version - min(versions))
    return {"lag/mean": Mean(lag), "lag/max": Max(lag), "lag/mixed_versions": Mean(float(len(versions) > 1))}


def group_metrics(groups: Sequence[GroupRef], outcomes: Mapping[int, Outcome]) -> Metrics:
    """Groups and their tokens by what became of them; the three add up to `tokens/generated`."""
    row: dict[str, Metric] = {}
    for name in ("trained", "filtered", "failed"):
        of_kind = [group for group in groups if outcomes[group.ticket.sequence] == name]
        sampled = sum(summary.num_sampled for group in of_kind for summary in group.summaries)
        row |= {f"groups/{name}": Sum(len(of_kind)), f"tokens/in_{name}_groups": Sum(sampled)}
    return row


def failure_counts(trajectories: Sequence[TrajectorySummary]) -> dict[str, int]:
    kinds = Counter(trajectory.reward.kind for trajectory in trajectories if isinstance(trajectory.reward, Failure))
    return {kind.value: kinds[kind] for kind in FailureKind} | {"retried": sum(len(t.retried) for t in trajectories)}


def check_failures(groups: Sequence[GroupRef], limit: float) -> None:
    trajectories = [summary for group in groups for summary in group.summaries]
    failures = [t.reward for t in trajectories if isinstance(t.reward, Failure)]
    check_failure_share(failures, len(trajectories), limit, "trajectories of this step")


def refuse_unread_streams(groups: Sequence[GroupRef], *, read: bool) -> None:
    """Raises RunFailed for rewards per token that no algorithm would read, of a reward that did not declare them."""
    rewards = [summary.reward for group in groups for summary in group.summaries if isinstance(summary.reward, Reward)]
    stream = next((stream for reward in rewards for stream in reward.streams), None)
    if stream is not None and not read:
        raise RunFailed(
            f"the reward comes with the token stream {stream.name!r}, and the algorithm reads none: "
            "expected one that does, such as ppo, or no stream"
        )


def check_failure_share(failures: Sequence[Failure], of: int, limit: float, subject: str) -> None:
    """Raises RunFailed where more than this share of them failed."""
    if len(failures) > limit * of:
        many = f"{len(failures)} of {of} {subject} failed (limit loop.max_failed_share={limit:g})"
        raise RunFailed(f"{many}; {why_failed(failures)}")


def why_failed(failures: Sequence[Failure]) -> str:
    """Why, in one line: the detail may be a text of many, from a model or a library."""
    first = failures[0]
    return f"the first: {first.kind} in {first.where}: {visible(' '.join(first.detail.split())[:DETAIL])}"
