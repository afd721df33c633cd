"""What the episodes of one play came to: every number of its reward and its environment, with its interval.

A failure is not a wrong answer: all numbers are over the episodes that were graded. There are none where none was, and
where more failed than `loop.max_failed_share` allows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from envs.rewards import Measure, counts_as_solved, make_reward, metric_name_of
from envs.rewards.qa import answer_metrics
from launch.driver.evaluation.sets import Play
from launch.driver.observe.held_out import SAME_TEXT
from launch.run_dir.played import EvalResult, Number, content_of
from launch.run_dir.significance import bootstrap_interval, mean_and_spread, pass_at_k, share_interval
from rlsys.curriculum import by_number
from rlsys.errors import BadInput
from rlsys.metrics import Mean
from rlsys.records import TrajectoryRecord, task_of
from rlsys.summaries import REPLIES
from rlsys.types import EpisodeEnd, Failure, Reward, Transcript

RESAMPLES = 1_000
UNBOUNDED = {"mean_reward", "tokens", "response_tokens", "turns"}  # with parts of rewards and what environments count
V = TypeVar("V", int, str)
Numbers = dict[str, Mean]  # of one episode, by metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Metric(value=0.62, low=0.55, high=0.69): the mean over tasks and its 95 % interval."""

    value: float
    low: float  # over tasks, whose samples stay together; low = high = value where nothing is known of it
    high: float
    count: float  # of how many it is the mean: episodes; of a pooled share, constraints
    spread: float | None = None  # standard deviation of the mean over seeds, where there are several


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Of one play of one set."""

    measure: Measure  # which of its metrics stands for the whole
    metrics: Mapping[str, Metric]
    planned: int  # episodes that were to be played
    episodes: int  # that were
    failed: Sequence[Failure]
    limit: float  # loop.max_failed_share
    ends: Mapping[str, int]  # {"answered": 180, "turn_limit": 20}
    tokens: int  # that the model sampled in them
    by_turns: Mapping[int, Metric]  # the measure, over the episodes of so many messages of the model
    episodes_by_turns: Mapping[int, int]
    by: str | None  # eval.by
    by_value: Mapping[str, Metric]  # the measure, over the episodes of tasks with this value in that field
    episodes_by_value: Mapping[str, int]
    answered_by: Mapping[int, float]  # share of the episodes that had answered with this message or before
    versions: Mapping[int, int]  # tokens by the weights that sampled them
    tasks: Mapping[str, float]  # the measure, by task
    contents: Mapping[str, str]  # of these tasks
    group: str = ""  # of its set

    @property
    def failures(self) -> int:
        return len(self.failed)

    @property
    def partial(self) -> bool:
        return self.episodes < self.planned

    @property
    def key(self) -> str:
        """Of `metrics`."""
        return "accuracy" if self.measure == "accuracy" else "mean_reward"

    @property
    def value(self) -> float | None:
        return self.metrics[self.key].value if self.key in self.metrics else None

    @property
    def played(self) -> EvalResult:
        """What of it is compared with other evaluations."""
        numbers = {name: Number(value=metric.value, count=metric.count) for name, metric in self.metrics.items()}
        return EvalResult(
            measure=self.measure,
            numbers=numbers,
            tasks=self.tasks,
            group=self.group,
            contents=self.contents,
        )

    @property
    def bounds(self) -> tuple[float, float]:
        """Of an accuracy of which a part is missing: had all the rest been wrong, and had it been right."""
        graded = self.episodes - self.failures
        right, missing = (self.value or 0.0) * graded, self.planned - self.episodes
        return right / (graded + missing), (right + missing) / (graded + missing)

    def row(self) -> dict[str, float]:
        """For evaluations.jsonl and the tracker."""
        row = {name: metric.value for name, metric in self.metrics.items()}
        if self.key in self.metrics:
            row |= {f"{self.key}_low": self.metrics[self.key].low, f"{self.key}_high": self.metrics[self.key].high}
        row |= {f"{self.key}_by_{self.by}/{value}": metric.value for value, metric in self.by_value.items()}
        row |= {"episodes": self.episodes, "failures": self.failures}
        return row | ({"planned": self.planned} if self.partial else {})


def result_of(records: Sequence[TrajectoryRecord], play: Play, planned: int | None = None) -> Result:
    """Of the episodes of one play. planned: how many there were to be; None: these."""
    reward, limit = play.of.recipe.reward, play.of.recipe.loop.max_failed_share
    graded = [record for record in records if record.reward is not None]
    failed = [record.failure for record in records if record.failure is not None]
    sound = bool(graded) and len(failed) <= limit * len(records)
    rows = _numbers(graded, reward) if sound else []
    measure = metric_name_of(reward)
    key = "accuracy" if measure == "accuracy" else "mean_reward"
    turns = [len(_assistant_texts(record)) for record in graded] if sound else []
    by = play.of.recipe.eval.by
    values = [play.of.values[str(record.task["task_id"])] for record in graded] if sound and by is not None else []
    by_turns, by_value = _indices_by_value(turns), _indices_by_value(values, by_number)

    def measured(places: Sequence[int]) -> Metric:
        return _metric_with_interval(
            [graded[at] for at in places], [rows[at][key] for at in places], share=key == "accuracy"
        )

    most = max(turns, default=0)
    answered = [n if record.end is EpisodeEnd.ANSWERED else most + 1 for n, record in zip(turns, graded, strict=False)]
    return Result(
        measure=measure,
        metrics=_metrics(graded, rows, play, key) if sound else {},
        planned=len(records) if planned is None else planned,
        episodes=len(records),
        failed=failed,
        limit=limit,
        ends=dict(Counter(str(record.end) for record in records)),
        tokens=sum(record.num_tokens or 0 for record in records),
        by_turns={n: measured(places) for n, places in by_turns.items()},
        episodes_by_turns={n: len(places) for n, places in by_turns.items()},
        by=by,
        by_value={value: measured(places) for value, places in by_value.items()},
        episodes_by_value={value: len(places) for value, places in by_value.items()},
        answered_by={n: sum(turn <= n for turn in answered) / len(answered) for n in range(1, most + 1)},
        versions=_count_weight_versions(records),
        tasks={name: math.fsum(values) / len(values) for name, values in _values_by_task(graded, rows, key).items()},
        contents={str(record.task["task_id"]): content_of(task_of(record.task)) for record in graded} if sound else {},
        group=play.of.group,
    )


def _indices_by_value(values: Sequence[V], order: Callable[[V], Any] | None = None) -> dict[V, list[int]]:
    """The indices of each distinct value."""
    return {value: [at for at, v in enumerate(values) if v == value] for value in sorted(set(values), key=order)}


def _numbers(graded: Sequence[TrajectoryRecord], config: Any) -> list[Numbers]:
    """Of each episode. What the environment counted in some of them, the others have 0 of."""
    reward, right = make_reward(config), metric_name_of(config) == "accuracy"
    counted = sorted({name for episode in graded for name in episode.metrics})
    texts = ["\n".join(_assistant_texts(record)) for record in graded]
    commonest = Counter(texts).most_common(1)[0][0] if texts else ""
    rows: list[Numbers] = []
    for record, text in zip(graded, texts, strict=True):
        outcome = Reward(value=record.reward or 0.0, parts=record.parts)
        numbers: Numbers = {"accuracy": Mean(float(counts_as_solved(config, outcome)))} if right else {}
        numbers["mean_reward"] = Mean(outcome.value)
        numbers |= _numbers_of_episode(reward, record)
        numbers |= {f"part/{name}": Mean(value) for name, value in record.parts.items()}
        tokens = float(record.num_tokens or 0)
        numbers |= {"tokens": Mean(tokens), "response_tokens": Mean(tokens + record.metrics.get(REPLIES, 0.0))}
        numbers |= {"turns": Mean(float(len(_assistant_texts(record)))), "truncated": Mean(float(record.truncated))}
        numbers[SAME_TEXT] = Mean(float(text == commonest))
        rows.append(numbers | {name: Mean(record.metrics.get(name, 0.0)) for name in counted})
    return rows


def _numbers_of_episode(reward: Any, record: TrajectoryRecord) -> Numbers:
    transcript = Transcript(
        task=task_of(record.task),
        messages=record.messages,
        truncated=record.truncated,
        correct=record.correct,
        judgements=record.judgements or None,
    )
    try:
        return answer_metrics(reward, transcript)
    except BadInput:  # a key that only the reward's own verdict could do without
        return {}


def _metrics(graded: Sequence[TrajectoryRecord], rows: Sequence[Numbers], play: Play, key: str) -> dict[str, Metric]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    counted = {name for record in graded for name in record.metrics}
    metrics: dict[str, Metric] = {}
    for name in names:
        having = [(record, row[name]) for record, row in zip(graded, rows, strict=True) if name in row]
        episodes, numbers = [record for record, _ in having], [number for _, number in having]
        share = name not in counted | UNBOUNDED and not name.startswith("part/")
        metrics[name] = _metric_with_interval(episodes, numbers, share=share, samples=play.samples, seeds=play.seeds)
    if key == "accuracy" and play.samples * play.seeds > 1:
        metrics |= _pass_at_k_metrics(_values_by_task(graded, rows, key).values(), play.samples * play.seeds)
        metrics[f"mean@{play.samples * play.seeds}"] = metrics["accuracy"]
    return metrics


def _metric_with_interval(
    episodes: Sequence[TrajectoryRecord], numbers: Sequence[Mean], *, share: bool, samples: int = 1, seeds: int = 1
) -> Metric:
    """Pooled over all; the interval over tasks; the spread over seeds. share: each lies within 0 and 1."""
    totals: dict[int, Mean] = {}
    by_seed: dict[int, Mean] = {}
    for episode, number in zip(episodes, numbers, strict=True):
        for key, sums in ((episode.sequence, totals), (episode.sibling // samples, by_seed)):
            sums[key] = sums[key].merge(number) if key in sums else number
    values, weights = [mean.total for mean in totals.values()], [mean.weight for mean in totals.values()]
    interval = share_interval if share else bootstrap_interval
    low, high = interval(values, weights=weights, resamples=RESAMPLES)
    spread = mean_and_spread([mean.value for mean in by_seed.values()])[1] if seeds > 1 and len(by_seed) > 1 else None
    count = math.fsum(weights)
    return Metric(value=math.fsum(values) / count, low=low, high=high, count=count, spread=spread)


def _pass_at_k_metrics(by_task: Iterable[Sequence[float]], most: int) -> dict[str, Metric]:
    """pass@1, 2, 4 ... and of all samples; a task of which fewer were graded is in no pass@k that needs more."""
    tasks = [(len(values), int(math.fsum(values))) for values in by_task]
    metrics: dict[str, Metric] = {}
    for k in sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most}):
        values = [pass_at_k(samples, right, k) for samples, right in tasks if samples >= k]
        if values:
            low, high = share_interval(values, resamples=RESAMPLES)
            mean = math.fsum(values) / len(values)
            metrics[f"pass@{k}"] = Metric(value=mean, low=low, high=high, count=len(values))
    return metrics


def _values_by_task(graded: Sequence[TrajectoryRecord], rows: Sequence[Numbers], key: str) -> dict[str, list[float]]:
    """The measure of each sample, by task."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for record, row in zip(graded, rows, strict=False):  # no rows where there are no numbers
        by_task[str(record.task["task_id"])].append(row[key].value)
    return by_task


def _assistant_texts(record: TrajectoryRecord) -> list[str]:
    return [message.content for message in record.messages if message.role == "assistant"]


def _count_weight_versions(records: Sequence[TrajectoryRecord]) -> dict[int, int]:
    tokens: Counter[int] = Counter()
    for record in records:
        for turn in record.weight_versions:
            for version, start, end in turn:
                tokens[version] += end - start
    return dict(sorted(tokens.items()))
