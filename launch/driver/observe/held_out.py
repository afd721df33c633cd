"""Whether a run's weights do worse on held-out tasks than earlier ones of it did, from the lines of evaluations.jsonl.

Two evaluations are compared where they played the same prompts in the same way. The best of many is lucky: intervals
are widened for the number of earlier ones (Bonferroni's correction). Where they still do not meet, the difference is
not the draw of the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from launch.driver.observe import thresholds
from launch.driver.observe.cures import now, slower
from launch.driver.observe.health import Finding, finding_at
from launch.driver.observe.signs import Severity
from rlsys.config.recipe import RecipeConfig, StageConfig

LOW = "_low"
ERROR = 0.05  # share of the draws that an interval of evaluations.jsonl leaves out


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutDrop:
    """From the best evaluation of a play to the newest one."""

    play: str  # "greedy", "hotpotqa/greedy"
    measure: str  # "accuracy", "mean reward"
    best: float
    best_step: int
    now: float
    step: int
    stage: str  # of the newest

    def describe(self) -> str:
        at = f"{self.best:.3f} to {self.now:.3f} ({self.play}, from step {self.best_step} to {self.step})"
        return f"held-out {self.measure} fell from {at}"


def largest_drop(rows: Sequence[Mapping[str, Any]]) -> HeldOutDrop | None:
    """Of the newest row: the play that has lost most. rows: in the order in which they were made."""
    if not rows:
        return None
    newest = rows[-1]
    drops = [_drop_of(key.removesuffix(LOW), newest, rows[:-1]) for key in newest if key.endswith(LOW)]
    return max((drop for drop in drops if drop is not None), key=lambda drop: drop.best - drop.now, default=None)


def _drop_of(key: str, newest: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]) -> HeldOutDrop | None:
    play, _, name = key.rpartition("/")
    prompts = newest.get("prompts", {}).get(play)
    same = [row for row in earlier if key in row and prompts and row.get("prompts", {}).get(play) == prompts]
    best = max(same, key=lambda row: float(row[key]), default=None)
    if best is None:
        return None
    wider = _deviations(ERROR / len(same)) / _deviations(ERROR)
    least = best[key] - wider * (best[key] - best[f"{key}{LOW}"])
    if least <= newest[key] + wider * (newest[f"{key}_high"] - newest[key]):
        return None
    return HeldOutDrop(
        play=play,
        measure=name.replace("_", " "),
        best=best[key],
        best_step=best["step"],
        now=newest[key],
        step=newest["step"],
        stage=newest["stage"],
    )


def _deviations(error: float) -> float:
    """How many standard deviations to either side leave out this share of a normal distribution."""
    return NormalDist().inv_cdf(1 - error / 2)


def find_drop(rows: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig]) -> list[Finding]:
    """The held-out drop of the newest evaluation, if any, as a finding with the key to change in its stage."""
    drop = largest_drop(rows)
    stage = _find_stage(stages, drop.stage if drop is not None else None)
    if drop is None or stage is None:
        return []
    return [
        Finding(
            stage=stage.name,
            what=HELD_OUT,
            says=f"{drop.describe()}: {slower(stage.config, stage.name)}",
            first_step=drop.best_step,
            last_step=drop.step,
            steps=0,
            of=0,
        )
    ]


def find_cut_off(rows: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig]) -> list[Finding]:
    """Of the newest row, where it is of weights that a stage has trained: plays of which many were cut off."""
    newest = rows[-1] if rows and rows[-1].get("when") != "before" else {}
    stage = _find_stage(stages, newest.get("stage"))
    cut_shares = {key.removesuffix(CUT_KEY): share for key, share in newest.items() if key.endswith(CUT_KEY)}
    cut = {
        play: share
        for play, share in cut_shares.items()
        if share >= (thresholds.CUT_GREEDY if play.rpartition("/")[2] == "greedy" else thresholds.CUT)
        and newest.get(f"{play}/episodes", 0) >= thresholds.CUT_LEAST
    }
    if stage is None or not cut:
        return []
    shares = ", ".join(f"{share:.0%} of {play}" for play, share in cut.items())
    limits = {limit: None for play in cut for limit in _limits(stage.config, play)}
    says = f"answers were cut off by a token limit and count as they are ({shares}): raise {' or '.join(limits)}"
    return [finding_at(newest["step"], stage=stage.name, what=CUT_EVALUATION, says=says)]


def is_one_text(row: Mapping[str, Any], play: str) -> bool:
    """Whether a policy wrote one text for nearly all tasks, which have more than one answer."""
    numbers: list[Any] = [row.get(f"{play}/{name}") for name in (SAME_TEXT, "accuracy", "episodes")]
    if not all(isinstance(number, int | float) for number in numbers):  # of an earlier rlsys, without accuracy, damaged
        return False
    same, right, episodes = numbers
    return bool(episodes >= thresholds.CUT_LEAST and right < thresholds.NEARLY_ALL <= same)


def find_one_text(rows: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig]) -> list[Finding]:
    """Of the newest row: plays in which nearly all that was written is one text, and not what most tasks ask for."""
    newest = rows[-1] if rows else {}
    stage = _find_stage(stages, newest.get("stage"))
    plays = [play for play in newest.get("prompts", {}) if is_one_text(newest, play)]
    if stage is None or not plays:
        return []
    shares = ", ".join(f"{newest[f'{p}/{SAME_TEXT}']:.0%} of {p}, {newest[f'{p}/accuracy']:.0%} right" for p in plays)
    cure = f", or {slower(stage.config, stage.name)}" if newest.get("when") in ("during", "after") else ""
    says = (
        f"nearly all tasks are answered with one text ({shares}): what is right is how often it happens to be the "
        f"answer; give tasks whose answers are more even{cure}"
    )
    return [finding_at(newest["step"], stage=stage.name, what=ONE_TEXT, says=says)]


def _find_stage(stages: Sequence[StageConfig], name: str | None) -> StageConfig | None:
    """None where the recipe of today has no stage of this name."""
    return next((stage for stage in stages if stage.name == name), None)


def find_in_evaluations(rows: Sequence[Mapping[str, Any]], stages: Sequence[StageConfig]) -> list[Finding]:
    """All that the newest evaluation shows."""
    return [finding for find in (find_drop, find_cut_off, find_one_text) for finding in find(rows, stages)]


def _limits(recipe: RecipeConfig, play: str) -> list[str]:
    """The limits of tokens that a play had, each by the key that it comes from."""
    name, limits = play.rpartition("/")[0], []
    sections = {f"eval.sets.{name}": recipe.eval.sets.get(name), "eval": recipe.eval, "rollout": recipe.rollout}
    for key in ("max_turn_tokens", "max_response_tokens"):
        values = ((whose, getattr(section, key, None)) for whose, section in sections.items())
        limits += [now(f"{whose}.{key}", value) for whose, value in values if value is not None][:1]
    return [*limits, now("engine.max_model_len", recipe.engine.max_model_len)]


CUT_KEY = "/truncated"
SAME_TEXT = "same_text"  # share of the episodes in which the policy wrote what it wrote in most of them
HELD_OUT, CUT_EVALUATION, ONE_TEXT = "held_out", "held_out_cut", "held_out_one_text"
OF_EVALUATIONS: Mapping[str, Severity] = {  # signs of no row of a stage
    HELD_OUT: "broken",
    CUT_EVALUATION: "wrong",
    ONE_TEXT: "broken",
}
