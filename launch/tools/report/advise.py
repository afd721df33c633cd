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
    advice = [entry for rule in RULES if (entry := rule(situation)) is not None]
    divided = "lopsided" in situation.found and any(entry.rule == "move_gpus" for entry in advice)
    for several in rules.MANY:
        for entry in several(situation):
            if not (divided and entry.rule == "health: lopsided"):  # the rule says it with the division to take
                yield entry
    yield from advice
