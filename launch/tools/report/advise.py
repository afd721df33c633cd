"""All rules over a run, in the order in which a reader should hear of them."""

from __future__ import annotations

from collections.abc import Iterator

from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.tools.report import rules, split
from launch.tools.report.advice import Advice, Situation, situation_of, sort_advice
from launch.tools.report.verdict import Verdict

RULES = (*rules.RULES, *split.RULES)


def advise(run: RunDirectory, verdict: Verdict, episodes: Episodes | None) -> list[Advice]:
    """Empty before the first step."""
    situation = situation_of(run, verdict, episodes)
    return sort_advice(_all(situation)) if situation is not None else []


def _all(situation: Situation) -> Iterator[Advice]:
    for several in rules.MANY:
        yield from several(situation)
    for rule in RULES:
        advice = rule(situation)
        if advice is not None:
            yield advice
