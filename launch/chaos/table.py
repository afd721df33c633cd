"""What a disturbed run came to: of each fault how soon it was known and the training went on, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.audit.files import read_run
from launch.audit.properties import Property, audit
from launch.chaos.disturb import Disturbed, Done
from launch.observe.events import EVENTS
from launch.run.rundir import METRICS
from rlsys.journal import Dispatched, read_journal, surviving

NOTICED = ("lost", "stall", "refused", "delivery_late", "begin")  # kinds of events that say of a fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one fault. None where nothing says it: it hit no process, or the run ended before."""

    fault: str
    at_s: float  # after the first step of a stage that plays
    hit: bool
    detected_s: float | None  # until an event of the run said so
    next_step_s: float | None  # until the next row of metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    costs: Sequence[Cost]
    starts: int
    again: int  # groups of the surviving lineage that were started more than once
    steps_again: int  # steps that were taken, and taken back
    effective: float  # share of the time between the first row and the last that went into steps that survive
    audit: Sequence[Property]

    @property
    def holds(self) -> bool:
        return self.code == 0 and all(each.holds for each in self.audit)


def settle(found: Disturbed, run_dir: Path) -> Outcome:
    looked = read_run(run_dir)
    rows = [each.row for each in looked.metrics]
    journal = read_journal(run_dir / "journal.jsonl")
    begun = [(row.stage, row.sequence) for row in surviving(journal) if isinstance(row, Dispatched)]
    taken = [float(row["time"]) for row in rows]
    during = [row for row in rows if float(row["time"]) > found.began]
    spent = sum(float(row["time/step"]) for row in during)
    return Outcome(
        code=found.code,
        costs=_costs(found, taken, _events(run_dir)),
        starts=len(found.starts),
        again=len(begun) - len(set(begun)),
        steps_again=_seals(journal) - len(rows),
        effective=spent / max(1e-9, max(taken, default=found.began) - found.began) if during else 0.0,
        audit=audit(looked),
    )


def _seals(journal: Sequence[Any]) -> int:
    """Rows of metrics that were ever written."""
    return sum(getattr(row, "name", "").startswith(METRICS) for row in journal)


def _events(run_dir: Path) -> list[Mapping[str, Any]]:
    path = run_dir / EVENTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _costs(found: Disturbed, taken: Sequence[float], events: Sequence[Mapping[str, Any]]) -> list[Cost]:
    noticed = [float(each["time"]) for each in events if each["kind"] in NOTICED]
    return [
        Cost(
            fault=done.fault.describe(),
            at_s=round(done.time - found.began, 1),
            hit=done.processes > 0,
            detected_s=_after(noticed, done),
            next_step_s=_after(taken, done),
        )
        for done in found.done
    ]


def _after(times: Sequence[float], done: Done) -> float | None:
    later = [each - done.time for each in times if each >= done.time]
    return round(min(later), 2) if later and done.processes else None


def as_json(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"holds": outcome.holds}


def describe(outcome: Outcome) -> list[str]:
    """The table, and a line of what all of it cost."""
    lines = [f"{'at':>8}  {'fault':<28} {'known after':>12} {'next step after':>16}"]
    for each in outcome.costs:
        known, after = (f"{s:.1f} s" if s is not None else "-" for s in (each.detected_s, each.next_step_s))
        fault = each.fault if each.hit else f"{each.fault} (not there)"
        lines.append(f"{each.at_s:>6.1f} s  {fault:<28} {known:>12} {after:>16}")
    lines.append(
        f"{len(outcome.costs)} faults, {outcome.starts} starts; {outcome.again} groups were started again, "
        f"{outcome.steps_again} steps taken again; {outcome.effective:.0%} of the time went into steps that survive"
    )
    for held in outcome.audit:
        lines += [f"audit: {held.name}: {offender}" for offender in held.offenders]
    if all(each.holds for each in outcome.audit):
        lines.append("audit: nothing was lost, trained twice or changed")
    return lines
