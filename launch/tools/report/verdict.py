"""Did it learn? One sentence, from the same held-out tasks before and after, or why none can be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launch.driver.evaluation.against import Paired, pair_settings
from launch.driver.observe.held_out import is_one_text
from launch.run_dir.directory import Evaluation, RunDirectory
from launch.run_dir.played import EvalResult
from launch.tools.report.facts import Stage, main_stage
from launch.tools.report.words import is_number, mean, number, p_value, plural, round_count, score, signed
from rlsys.untrusted import visible

Level = Literal["good", "flat", "bad", "unknown"]
SHOWN = 0.03  # of a share of right answers: the difference that a number of tasks is named for
POWER = (1.96 + 0.84) / 1.96  # of an interval's half: what 80 % of such comparisons would show
ERROR = 0.05  # share of differences that are chance
OTHERS = 3  # plays that are named next to the one that is shown
UNKNOWN = "It cannot be told whether it learned"
NO_PROOF = "which is no proof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One play of one evaluation, with the number that stands for it."""

    of: Evaluation
    play: str
    result: EvalResult

    @property
    def value(self) -> float:
        return self.result.numbers[self.result.key].value

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %, over tasks, as the run has computed it."""
        return metric_interval(self.of.row, self.play, self.result.key)

    def describe(self) -> str:
        interval = self.interval
        return score(self.value) + (f" [{score(interval[0])}, {score(interval[1])}]" if interval else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Of one play, between two evaluations of the same prompts."""

    before: Point
    after: Point
    paired: Paired

    @property
    def direction(self) -> int:
        """-1 or 1 where the interval does not contain 0, else 0."""
        return (self.paired.low > 0) - (self.paired.high < 0)

    def proven_direction(self, plays: int) -> int:
        """`direction` where it is no chance, else 0. plays: of how many this is one (Bonferroni's correction)."""
        return self.direction if self.paired.p < ERROR / plays else 0

    def describe(self) -> str:
        return f"{signed(self.paired.difference)} [{signed(self.paired.low)}, {signed(self.paired.high)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    level: Level
    text: str
    before: Point | None = None
    after: Point | None = None
    paired: Paired | None = None


def metric_interval(row: Mapping[str, Any], play: str, key: str) -> tuple[float, float] | None:
    low, high = row.get(f"{play}/{key}_low"), row.get(f"{play}/{key}_high")
    return (float(low), float(high)) if is_number(low) and is_number(high) else None


def points_by_play(run: RunDirectory) -> dict[str, list[Point]]:
    """By play, of every evaluation that has results by task; greedy plays first."""
    by_play: dict[str, list[Point]] = {}
    for evaluation in run.evaluations:
        for play, result in evaluation.plays.items():
            if result.number is not None and result.tasks:
                by_play.setdefault(play, []).append(Point(of=evaluation, play=play, result=result))
    return dict(sorted(by_play.items(), key=lambda item: item[0].rpartition("/")[2] != "greedy"))


def compare_ends(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The last evaluation of a play, and the first one that had the same prompts."""
    after = points[-1]
    same = [point for point in points[:-1] if point.result.prompts == after.result.prompts]
    return (same[0], after) if same else None


def judge_learning(run: RunDirectory) -> Verdict:
    """Of the first play, greedy ones first, that shows a difference; else of the first that can be compared."""
    stage, by_play = main_stage(run), points_by_play(run)
    changes = []
    for points in by_play.values():
        ends = compare_ends(points)
        paired = pair_settings([ends[1].result], [ends[0].result]) if ends else None
        if ends and isinstance(paired, Paired):
            changes.append(Change(before=ends[0], after=ends[1], paired=paired))
    if not changes:
        return Verdict(
            level="unknown", text=f"{UNKNOWN}: {_describe_why_unknown(run, by_play)}{_describe_training_reward(stage)}"
        )
    main = next((change for change in changes if change.proven_direction(len(changes))), changes[0])
    return _verdict_of_change(run, main, [change for change in changes if change is not main], main is changes[0])


def _verdict_of_change(run: RunDirectory, main: Change, others: Sequence[Change], usual: bool) -> Verdict:
    """usual: the play that is shown is the first, and not one that shows more than the first."""
    before, after, paired = main.before, main.after, main.paired
    subject = f"{before.result.measure}, {after.play}, {paired.tasks:,} tasks"
    ends = f"Held-out {subject}, step {before.of.step} to {after.of.step}: {before.describe()} → {after.describe()}"
    way = main.proven_direction(len(others) + 1)
    if way == 0:
        level: Level = "flat"
        more = _describe_tasks_needed(paired) if after.result.is_share else ""
        decided = f"; the test decides, not the interval: {paired.test}, {p_value(paired.p)}" if main.direction else ""
        text = (
            f"No difference can be shown with {plural(paired.tasks, 'task')} ({main.describe()})"
            f"{decided}{more}. {ends}."
        )
    else:
        level = "good" if way > 0 else "bad"
        begin = "It learned" if level == "good" else "It got worse"
        begin += "" if usual else f", in {after.play} answers alone"
        text = f"{begin}. {ends}; on the same tasks {main.describe()}, {p_value(paired.p)}."
    text += _comparison_caveats(run, before, after) + _describe_other_plays(main, others)
    return Verdict(level=level, text=text, before=before, after=after, paired=paired)


def _describe_other_plays(main: Change, others: Sequence[Change]) -> str:
    """Plays that went another way than the one that is shown."""
    way = main.proven_direction(len(others) + 1)
    odd = [change for change in others if change.direction != way]
    names = {-1: "worse", 0: "no difference shown", 1: "better"}
    texts = [f"{change.after.play}: {names[change.direction]} ({change.describe()})" for change in odd[:OTHERS]]
    more = f" and {len(odd) - OTHERS} more" if len(odd) > OTHERS else ""
    return f" But {'; '.join(texts)}{more}." if texts else ""


def tasks_needed(paired: Paired, difference: float = SHOWN) -> int:
    """Tasks with which 80 % of comparisons would show this difference, if it spreads over tasks as it does here."""
    half = (paired.high - paired.low) / 2
    return round_count(paired.tasks * (half * POWER / difference) ** 2)


def _describe_tasks_needed(paired: Paired) -> str:
    num_tasks = tasks_needed(paired)
    points = f"{100 * SHOWN:.0f} points"
    return f"; {num_tasks:,} would show {points}" if num_tasks > paired.tasks else f"; they are enough to show {points}"


def _comparison_caveats(run: RunDirectory, before: Point, after: Point) -> str:
    """What makes the comparison less than that of the first and the last weights."""
    remarks = []
    last = int(run.rows.step[-1]) if len(run.rows) else after.of.step
    if after.of.step < last:
        remarks.append(f"evaluated after step {after.of.step} of {last}")
    if any(is_number(point.of.row.get(f"{point.play}/planned")) for point in (before, after)):
        remarks.append("one of the two evaluations is partial")
    if is_one_text(after.of.row, after.play):
        remarks.append("nearly all tasks are answered with one text, so that what is right is chance")
    failures = (point.of.row.get(f"{point.play}/failures") for point in (before, after))
    failed = sum(float(count) for count in failures if is_number(count))
    if failed:
        remarks.append(f"{plural(failed, 'episode')} of the two evaluations failed and are not in it")
    return f" ({'; '.join(remarks)})" if remarks else ""


def _describe_why_unknown(run: RunDirectory, by_play: Mapping[str, Sequence[Point]]) -> str:
    if not len(run.rows):
        return "it has taken no step. "
    if not run.evaluations:
        return "nothing was evaluated on held-out tasks. "
    if not by_play:
        return "evaluations/ holds no results by task, and without them nothing is paired. "
    play, points = next(iter(by_play.items()))
    at = f"{points[-1].result.measure}, {play}: {points[-1].describe()} after step {points[-1].of.step}"
    if len(points) == 1:
        return f"there is one evaluation, and no other to compare it with ({at}). "
    ends = compare_ends(points)
    if ends is None:
        return f"its evaluations played other tasks, or played them in another way ({at}). "
    reason = pair_settings([ends[1].result], [ends[0].result])
    return f"{visible(reason) if isinstance(reason, str) else ''} ({at}). "


def _describe_training_reward(stage: Stage | None) -> str:
    """In words, for want of something better."""
    if stage is None:
        return ""
    first, last = (mean(rows.known("reward/mean")) for rows in stage.ends)
    if first is None or last is None:
        return ""
    if abs(last - first) < 0.005:
        return f"The training reward stayed at {number(last)}."
    verb = "rose" if last > first else "fell"
    return f"The training reward {verb} from {score(first)} to {score(last)}, {NO_PROOF}."
