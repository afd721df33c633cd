"""A plan as lines, and as one JSON object."""

from __future__ import annotations

from typing import Any

from launch.checks.gpu_memory import GIGA
from launch.checks.memory_table import MemoryRow, format_rows
from launch.plan.plan import Offer, Plan


def plan_lines(plan: Plan) -> list[str]:
    lines = [_headline(plan), "", *format_rows(plan.memory.rows, plan.memory.unit)]
    if not plan.fits:
        lines += ["", f"does not fit: {plan.memory.problem}", *map(_offer, plan.offers)]
        if not plan.offers:
            lines.append("  no division of these machines fits: take larger cards, more nodes or a smaller model")
        return lines
    return [*lines, "", f"  {plan.command()}"]


def _headline(plan: Plan) -> str:
    known = plan.parameters / GIGA
    size = f"{known:.1f} G" if known >= 1 else f"{plan.parameters / 1e6:.1f} M"
    loops = [stage for stage in plan.config.stages if stage.kind == "rl"]
    answers = ""
    if loops:
        loop = loops[-1].config.loop
        answers = f", {loop.groups_per_step * loop.group_size:,} answers a step"
    assumed = " (assumed; --nodes gives others)" if plan.nodes.assumed else ""
    stand_in = f", of the sizes of {plan.request.shape}" if plan.request.shape else ""
    name = plan.config.stages[-1].config.algorithm.name
    return f"{size} parameters{stand_in} in {plan.dtype}, {name}{answers}, on {plan.nodes.describe()}{assumed}"


def _offer(offer: Offer) -> str:
    rank = f"   {offer.rank.needed / GIGA:.1f} GB a rank" if offer.rank else ""
    return f"  fits: {' '.join(offer.keys)}{rank}"


def plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "format": 1,
        "config": plan.request.config,
        "overrides": list(plan.request.overrides),
        "nodes": {"text": plan.nodes.describe(), "assumed": plan.nodes.assumed},
        "parameters": plan.parameters,
        "dtype": plan.dtype,
        "memory": [_row(row) for row in plan.memory.rows],
        "fits": plan.fits,
        "problem": plan.memory.problem,
        "offers": [{"keys": list(offer.keys)} for offer in plan.offers],
        "command": plan.command(),
    }


def _row(row: MemoryRow) -> dict[str, Any]:
    parts = [{"what": what, "bytes": size} for what, size in row.parts]
    return {"name": row.name, "bytes": row.needed, "of_bytes": row.of, "parts": parts, "note": row.note}
