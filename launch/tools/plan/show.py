"""A plan as lines, and as one JSON object."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from launch.checks.gpu_memory import GIGA
from launch.checks.memory_table import MemoryRow, format_rows, plural
from launch.driver.stages.base import stage_of, stages_with_rollouts
from launch.tools.plan.plan import Offer, Plan
from launch.tools.plan.published import ACCURACY
from launch.tools.plan.schedule import Timed
from launch.tools.plan.speed import assumptions
from launch.tools.plan.split import keys_for
from launch.tools.plan.trace import Trace

WIDTH = 120
SLIGHT = 0.02  # of the step, below which no part is said to wait


def plan_lines(plan: Plan) -> list[str]:
    """At most WIDTH columns."""
    return [part for line in _lines(plan) for part in _wrap(line)]


def _wrap(line: str) -> list[str]:
    """A longer line continues below the third column of the tables. Commands are left whole, to be copied."""
    if len(line) <= WIDTH or line.lstrip().startswith(("rlsys ", "fits: ")):
        return [line]
    below = " " * (30 if line.startswith("  ") else 9)
    return textwrap.wrap(line, WIDTH, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)


def _lines(plan: Plan) -> list[str]:
    lines = [_headline(plan), "", *format_rows(plan.memory.rows, plan.memory.unit)]
    lines += _env_lines(plan)
    if plan.services:
        lines += ["", "services", *(f"  {need.describe()}" for need in plan.services)]
    if not plan.fits:
        lines += ["", f"does not fit: {plan.problem}", *map(_offer_line, plan.offers)]
        if not plan.offers and plan.memory.problem is not None:
            lines.append("  no division of these machines fits: take larger cards, more nodes or a smaller model")
        return lines
    if plan.calibration is not None:
        lines += ["", *measured_lines(plan.calibration.trace)]
    if plan.timed is None:
        lines += ["", f"seconds of a step: {plan.untimed}"]
    else:
        lines += ["", *time_lines(plan.timed)]
        lines += _split_lines(plan)
        lines.append(f"  {plan.command(_best_keys(plan))}")
        lines.append(f"assumes: {', '.join(_assumed(plan, plan.timed))}")
        lines += [] if plan.calibration is not None else [f"accuracy: {MISSES}"]
        return lines
    return [*lines, f"  {plan.command()}"]


def _env_lines(plan: Plan) -> list[str]:
    """What each of several environments gets, in the last rl stage that has more than one."""
    mixed = [stage for stage in plan.config.stages if stage.kind == "rl" and stage.config.envs]
    if not mixed:
        return []
    recipe, kind = mixed[-1].config, stage_of("rl")
    total = mixed[-1].steps * recipe.loop.groups_per_step
    return ["", "environments", *(f"  {kind.share(recipe, name, total)}" for name in recipe.envs)]


def _headline(plan: Plan) -> str:
    billions = plan.parameters / GIGA
    size = f"{billions:.1f} G" if billions >= 1 else f"{plan.parameters / 1e6:.1f} M"
    loops = stages_with_rollouts(plan.config)
    answers = ""
    if loops:
        loop = loops[-1].config.loop
        count = loop.groups_per_step * loop.group_size
        answers = f", {count:,} answers a step"
        if plan.timed is not None:
            answers += f" of {plan.timed.answers.packed:,.0f} tokens ({_large(plan.timed.forecast.packed)} tokens)"
    assumed = " (assumed; --nodes gives others)" if plan.nodes.assumed else ""
    stand_in = f", of the sizes of {plan.request.shape}" if plan.request.shape else ""
    name = (loops or plan.config.stages)[-1].config.algorithm.name
    known_by = ""
    if plan.timed is not None:
        known_by = f"; times as {plan.calibration.trace.name} measured them" if plan.calibration else ESTIMATED
    return (
        f"{size} parameters{stand_in} in {plan.dtype}, {name}{answers}, on {plan.nodes.describe()}{assumed}{known_by}"
    )


ESTIMATED = "; estimated, nothing measured on these cards"
MISSES = f"the same arithmetic is {ACCURACY}; none of them is of this system"


def time_lines(timed: Timed) -> list[str]:
    """The table of a step."""
    forecast, speed, split = timed.forecast, timed.speed, timed.split
    learner, engines = forecast.update_s - speed.export_s, forecast.full_s
    on = f"{forecast.packed / learner:,.0f} tokens/s on {split.ranks}" if learner > 0 else ""
    of_flops = f"{speed.token_flops / GIGA:.1f} GFLOP a token, " if speed.token_flops else ""
    sampled = f"{_large(forecast.engine_tokens)} tokens each at {forecast.rate:,.0f} tokens/s"
    tail = f" + {_seconds(forecast.tail_s)} of tail" if forecast.tail_s > SLIGHT * forecast.seconds else ""
    parts = [
        f"{_seconds(speed.export_s)} written (the learner waits)",
        f"{_seconds(speed.load_s)} loaded (that engine waits)",
    ]
    if speed.carry_s:
        parts.insert(1, f"{_seconds(speed.carry_s)} {'carried' if speed.token_flops else 'on its way'}")
    rows = [
        ("learner", learner, f"{of_flops}{on}", _waits("learner", forecast.learner_idle)),
        ("engines", engines, f"{sampled}{tail}", _waits("engines", forecast.engine_idle)),
        ("delivery", speed.export_s + speed.carry_s + speed.load_s, " + ".join(parts), ""),
    ]
    lines = [f"{'seconds of a step':<24}{'made of':<58}who waits"]
    lines += [f"  {name:<10}{_seconds(seconds):>9}   {note:<58}{wait}".rstrip() for name, seconds, note, wait in rows]
    summary = f"{forecast.tokens_per_s:,.0f} tokens/s; lag {forecast.lag}; {forecast.steps_a_day:,.0f} steps a day"
    lines.append(f"  {'step':<10}{_seconds(forecast.seconds):>9}   {summary}")
    if speed.start_s is not None:
        lines.append(f"  {'start':<10}{_seconds(speed.start_s):>9}   once: engines compile, without a compile cache")
    return lines


def _waits(side: str, idle: float) -> str:
    return f"{side}, {idle:.0%} of the step" if idle > SLIGHT else ""


def measured_lines(trace: Trace) -> list[str]:
    """What the run that the plan is calibrated by has taken."""
    parts = {
        "update": fmean(step.update_s for step in trace.steps),
        "waiting for rollouts": fmean(step.wait_s for step in trace.steps),
    }
    step_s = fmean(trace.seconds)
    breakdown = ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in parts.items())
    setting = trace.setting
    had = f"{setting.groups_per_step} groups x {setting.group_size}, {plural(setting.workers, 'engine')}"
    remainder = f"rest {_seconds(step_s - sum(parts.values()))}"
    return [
        f"measured   {trace.name}: {_seconds(step_s)} s a step (mean of {len(trace.steps)}; median "
        f"{_seconds(median(trace.seconds))}) with {had}: {breakdown}, {remainder}"
    ]


def _split_lines(plan: Plan) -> list[str]:
    if len(plan.splits) < 2 or plan.timed is None:
        return [""]
    current = plan.timed
    by_split = {timed.split: timed for timed in [*plan.splits[:3], current]}
    best = next((timed.split for timed in plan.splits if timed.split.placement == "split"), plan.splits[0].split)
    ordered = sorted(by_split.values(), key=lambda timed: timed.split.ranks)
    texts = [
        f"{timed.split.describe()}  {_seconds(timed.forecast.seconds)} s" + "  <- best" * (timed.split == best)
        for timed in ordered
    ]
    lines = ["", f"splits of {plan.nodes.all_gpus} GPUs (ranks + engines)    {'     '.join(texts)}"]
    in_turn = next((split for split in by_split if split.placement == "sleep"), None)
    if in_turn is not None:
        lines.append(f"  in turn: {' '.join(keys_for(plan.config.recipe, in_turn))}; untried: no GPU has run it")
    return lines


def _best_keys(plan: Plan) -> list[str]:
    """What to add to the command for the fastest split of those that GPUs have run, if it is another one and faster by
    more than noise."""
    best = next((timed for timed in plan.splits if timed.split.placement == "split"), None)
    if best is None or plan.timed is None or plan.timed.split.placement != "split":
        return []
    if best.forecast.seconds > (1 - SLIGHT) * plan.timed.forecast.seconds:
        return []
    return keys_for(plan.config.recipe, best.split)


def _assumed(plan: Plan, timed: Timed) -> list[str]:
    if plan.calibration is not None:
        return [timed.answers.said, "its machines", "no evaluations or checkpoints"]
    return [timed.answers.said, *assumptions(timed.speed, plan.request.network).values()]


def _offer_line(offer: Offer) -> str:
    rank = f"   {offer.rank.needed / GIGA:.1f} GB a rank" if offer.rank else ""
    step = f", {_seconds(offer.timed.forecast.seconds)} s a step" if offer.timed else ""
    return f"  fits: {' '.join(offer.keys)}{rank}{step}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2g}"


def _large(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,.0f}"


def plan_json(plan: Plan) -> dict[str, Any]:
    timed = plan.timed
    return {
        "format": 1,
        "config": plan.request.config,
        "overrides": list(plan.request.overrides),
        "nodes": {"text": plan.nodes.describe(), "assumed": plan.nodes.assumed},
        "parameters": plan.parameters,
        "dtype": plan.dtype,
        "memory": [_row(row) for row in plan.memory.rows],
        "fits": plan.fits,
        "problem": plan.problem,
        "services": [asdict(need) for need in plan.services],
        "offers": [{"keys": list(offer.keys)} | _timed(offer.timed) for offer in plan.offers],
        "measured_step_s": None if plan.calibration is None else fmean(plan.calibration.trace.seconds),
        "time": None if timed is None else {**_timed(timed), "assumes": _assumed(plan, timed)},
        "accuracy": MISSES if timed is not None and plan.calibration is None else None,
        "untimed": plan.untimed,
        "splits": [_timed(split) for split in plan.splits],
        "command": plan.command(_best_keys(plan)),
    }


def _timed(timed: Timed | None) -> dict[str, Any]:
    if timed is None:
        return {}
    forecast = timed.forecast
    shares = {"engine_idle": forecast.engine_idle, "learner_idle": forecast.learner_idle, "tail_s": forecast.tail_s}
    rates = {"tokens_per_s": forecast.tokens_per_s, "steps_a_day": forecast.steps_a_day}
    return {"split": asdict(timed.split), "speed": asdict(timed.speed), "forecast": asdict(forecast) | shares | rates}


def _row(row: MemoryRow) -> dict[str, Any]:
    parts = [{"what": part, "bytes": size} for part, size in row.parts]
    return {"name": row.name, "bytes": row.needed, "of_bytes": row.of, "parts": parts, "note": row.note}
