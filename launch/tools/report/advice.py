"""What should I do? Rules about a run: facts in, sentences out, each with its numbers, its key, its steps and a link.

What is broken comes before what is wrong, and that before what is slow or costs more than it must: advice on speed is
given only where nothing stands above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.driver.observe.health import Finding, finding_at
from launch.driver.observe.held_out import OF_EVALUATIONS
from launch.driver.observe.signs import SIGNS, Severity
from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.run_dir.rows import Event
from launch.run_dir.state import OVER
from launch.tools.report.facts import Stage, holds_gpus, main_stage
from launch.tools.report.verdict import Verdict
from rlsys.untrusted import visible

ORDER: Sequence[Severity] = ("broken", "wrong", "slow", "cheap")
SPEED: Sequence[Severity] = ("slow", "cheap")
MOST = 100  # pieces of advice
LONGEST = 2_000  # characters of what another file says


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    rule: str
    level: Severity
    text: str
    key: str | None = None  # as it is typed: curriculum.name=difficulty
    label: str = ""  # of the link
    href: str = ""  # episodes, or a chart
    steps: tuple[int, int] | None = None  # first and last in which it held
    numbers: Mapping[str, float] = field(default_factory=dict)  # that the sentence has, unrounded

    def to_json(self) -> dict[str, Any]:
        link = {"label": self.label, "href": self.href} if self.href else None
        return {
            "rule": self.rule,
            "level": self.level,
            "text": self.text,
            "key": self.key,
            "link": link,
            "steps": list(self.steps) if self.steps else None,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a rule may look at."""

    run: RunDirectory
    stage: Stage  # the one that is looked at
    verdict: Verdict
    episodes: Episodes | None
    gpus: bool
    found: frozenset[str]  # names of health findings of the stage: what they say is not said again


Rule = Callable[[Situation], Iterator[Advice]]


def make_situation(run: RunDirectory, verdict: Verdict, episodes: Episodes | None) -> Situation | None:
    """None before the first step."""
    stage = main_stage(run)
    if stage is None:
        return None
    kinds = frozenset(finding.what for finding in read_findings(run) if finding.stage == stage.name)
    return Situation(run=run, stage=stage, verdict=verdict, episodes=episodes, gpus=holds_gpus(run), found=kinds)


def read_findings(run: RunDirectory) -> list[Finding]:
    """Of the summary, whose numbers are 0 where it lacks them.

    Without one, or with that of an earlier process, of the health events too. They name no sign (`what` is "") in a run
    of an earlier rlsys.
    """
    rows = run.summary.get("health")
    summed_up = [_read_finding(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if isinstance(rows, list) and run.state in OVER:
        return summed_up
    noted = [_finding_of(event) for event in run.events_of("health") if event.sign or not summed_up]
    by_sign = {(finding.stage, finding.what or finding.says): finding for finding in [*noted, *summed_up]}
    evaluated = max((evaluation.step for evaluation in run.evaluations), default=0)  # it may be well by now
    return [
        finding for finding in by_sign.values() if finding.what not in OF_EVALUATIONS or finding.last_step >= evaluated
    ]


def _finding_of(event: Event) -> Finding:
    what = event.sign if event.sign in SIGNS or event.sign in OF_EVALUATIONS else ""  # the file may be another's
    stage, says = map(bounded_text, (event.stage, event.text.removeprefix("health: ")))
    return finding_at(event.step or 0, stage=stage, what=what, says=says)


def _read_finding(row: Mapping[str, Any]) -> Finding:
    keys = ("first_step", "last_step", "steps", "of")
    numbers = {key: row[key] if type(row.get(key)) is int else 0 for key in keys}
    what, says, stage = str(row.get("what")), bounded_text(row.get("says")), bounded_text(row.get("stage"))
    return Finding(what=what, says=says, stage=stage, **numbers)


def bounded_text(value: object) -> str:
    """What another file says: bounded, and nothing in it drives a terminal."""
    return visible(str(value))[:LONGEST]


def sort_advice(advice: Iterable[Advice]) -> list[Advice]:
    """By level, in the order of the rules; speed only where nothing stands above it."""
    ordered = sorted(advice, key=lambda entry: ORDER.index(entry.level))[:MOST]
    serious = [entry for entry in ordered if entry.level not in SPEED]
    return serious or ordered
