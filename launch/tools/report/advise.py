"""All rules over a run, in the order in which a reader should hear of them."""

from __future__ import annotations

from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.tools.report import rules, split
from launch.tools.report.advice import Advice, make_situation, sort_advice
from launch.tools.report.verdict import Verdict

RULES = (*rules.RULES, *split.RULES)


def advise(run: RunDirectory, verdict: Verdict, episodes: Episodes | None) -> list[Advice]:
    """Empty before the first step."""
    situation = make_situation(run, verdict, episodes)
    if situation is None:
        return []
    advice = [entry for rule in RULES for entry in rule(situation)]
    if "lopsided" in situation.found and any(entry.rule == "move_gpus" for entry in advice):
        advice = [entry for entry in advice if entry.rule != "health: lopsided"]  # said with the division to take
    return sort_advice(advice)
