"""What a disturbed run came to: of each fault how soon it was known and the training went on, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from launch.run_dir.lenient import decode_lenient
from launch.run_dir.lines import read_lines
from launch.run_dir.names import EVENTS, METRICS
from launch.run_dir.rows import Event
from launch.tools.audit.files import JOURNAL, read_run
from launch.tools.audit.properties import audit
from launch.tools.audit.property import Property
from launch.tools.chaos.disturb import Disturbed, Done, Phase
from launch.tools.chaos.faults import DRIVER, PLACES
from rlsys.files import whole_lines
from rlsys.journal import Dispatched, Finished, Row, Sealed, read_row, surviving_rows
from rlsys.jsonl import json_object

NOTICED = ("lost", "stall", "refused", "delivery_late")  # kinds of events that say of a fault
SECONDS = ("detected_s", "replaced_s", "next_step_s")  # of a cost
REPLACED = ("restart", "begin")
# In what events call the parts of these roles; of the others it is their own name.
SAID = {"engine": "rollout:{number}", "worlds": "rollout:{number} environments", "learner": "learner",
        "weights": "the weight store"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one fault. None where nothing says it: it hit no process, or the run ended before."""

    fault: str
    role: str
    at_s: float  # after the first step of a stage that plays
    hit: bool
    during: Phase
    # Until an event of the run said so, before the part was hit again; of a driver: until it was started again.
    detected_s: float | None
    replaced_s: float | None  # until an event said that the part serves again; of a driver: that the run begins
    next_step_s: float | None  # until the next row of metrics
    prompts_again: int  # started once more before the next fault, in a lineage that was taken back later too
    steps_again: int  # taken once more before the next fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    costs: Sequence[Cost]
    starts: int
    wall_s: float  # from the first row of a stage that plays to the last
    steps: int  # that survive, of this time
    steps_again: int  # that were taken, and taken back
    again: int  # starts of prompts in the surviving lineage beyond the first of each; steps taken back add none
    lost: int  # prompts of the surviving lineage without an outcome
    repeated: int  # prompts of the surviving lineage with more than one
    effective: float  # share of wall_s that went into steps that survive
    audit: Sequence[Property]

    @property
    def holds(self) -> bool:
        return self.code == 0 and all(check.holds for check in self.audit)


@dataclass(frozen=True, slots=True)
class Timed:
    """A row of the journal, and when it was written, since 1970."""

    time: float
    row: Row


def settle(record: Disturbed, run_dir: Path) -> Outcome:
    looked, events = read_run(run_dir), run_dir / EVENTS
    journal = read_timed(run_dir / JOURNAL)
    surviving = surviving_rows([entry.row for entry in journal])
    started = Counter((row.stage, row.sequence) for row in surviving if isinstance(row, Dispatched))
    ended = Counter((row.stage, row.sequence) for row in surviving if isinstance(row, Finished))
    during = [line.row for line in looked.metrics if line.row.time > record.began > 0]
    wall_s = max((row.time for row in during), default=record.began) - record.began
    notes = [decode_lenient(Event, line) for line in (read_lines(events) if events.exists() else ())]
    return Outcome(
        code=record.code,
        costs=count_costs(record, notes, journal),
        starts=len(record.starts),
        wall_s=wall_s,
        steps=len(during),
        steps_again=len(_written(journal)) - len(looked.metrics),
        again=started.total() - len(started),
        lost=len(started.keys() - ended.keys()),
        repeated=ended.total() - len(ended),
        effective=sum(row.number("time/step") for row in during) / wall_s if wall_s else 0.0,
        audit=audit(looked),
    )


def read_timed(path: Path) -> list[Timed]:
    """All rows of a journal, those that were taken back too. Raises BadInput for a damaged one."""
    rows = []
    for number, line in whole_lines(path):
        where = f"{path} line {number}"
        row, time = read_row(line, where), json_object(line, where).get("time")
        rows.append(Timed(float(time) if isinstance(time, int | float) else 0.0, row))
    return rows


def count_costs(record: Disturbed, events: Sequence[Event], journal: Sequence[Timed]) -> list[Cost]:
    """events, journal: all that the run has written. The rows of metrics are those that survive: when all were written
    the journal knows."""
    hits = [injection for injection in record.done if injection.processes]
    starts = [Event(time=time, kind="begin", who=DRIVER) for time in record.starts]
    repeats, written = _repeat_times(journal), [time for time, _ in _written(journal)]
    costs = []
    for injection in record.done:
        part_events = _events_of(injection, events, hits)
        noticed = [event for event in part_events if event.kind in NOTICED]
        if injection.fault.target == DRIVER:
            noticed = _events_of(injection, starts, hits)
        end = min((hit.time for hit in hits if hit.time > injection.time), default=float("inf"))
        prompts, steps = (
            [time for time in times if injection.time <= time < end] if injection.processes else [] for times in repeats
        )
        costs.append(
            Cost(
                fault=injection.fault.describe(),
                role=role_of(injection.fault.target),
                at_s=round(injection.time - record.began, 1),
                hit=injection.processes > 0,
                during=injection.during,
                detected_s=_seconds_until(_times(noticed), injection),
                replaced_s=_seconds_until(_times(event for event in part_events if event.kind in REPLACED), injection),
                next_step_s=_seconds_until(written, injection),
                prompts_again=len(prompts),
                steps_again=len(steps),
            )
        )
    return costs


def _repeat_times(journal: Sequence[Timed]) -> tuple[list[float], list[float]]:
    """When prompts were started that had been started before, and rows written of steps that had one."""
    prompts: set[tuple[str, int]] = set()
    rows: set[str] = set()
    times: tuple[list[float], list[float]] = ([], [])
    for entry in journal:
        if isinstance(entry.row, Dispatched):
            prompt = (entry.row.stage, entry.row.sequence)
            if prompt in prompts:
                times[0].append(entry.time)
            prompts.add(prompt)
    for time, name in _written(journal):
        if name in rows:
            times[1].append(time)
        rows.add(name)
    return times


def _written(journal: Sequence[Timed]) -> list[tuple[float, str]]:
    """When each row of metrics was written, and its name in the journal; those that were taken back later, too."""
    seals = [(entry.time, entry.row.name) for entry in journal if isinstance(entry.row, Sealed)]
    return [(time, name) for time, name in seals if name.startswith(METRICS)]


def role_of(target: str) -> str:
    return target.partition(":")[0]


def _is_of(event: Event, target: str) -> bool:
    """Whether an event says something of a part. A disk or a node that is cut off concerns all of them."""
    role, _, number = target.partition(":")
    if _is_place(target):
        return True
    if role == DRIVER:
        return event.kind == "begin"
    part_name = SAID.get(role, target).format(number=number)
    return event.who == part_name if number else event.who.startswith(part_name)


def _events_of(injection: Done, events: Iterable[Event], hits: Sequence[Done]) -> list[Event]:
    """Events of the part that a fault hit, up to the next hit of that part. Of a disk or a node: events of any part,
    up to the next hit of that part itself."""
    target, place = injection.fault.target, _is_place(injection.fault.target)
    later = [hit for hit in hits if hit.time > injection.time and (place or not _is_place(hit.fault.target))]
    return [
        event
        for event in events
        if _is_of(event, target)
        and not any(hit.time <= event.time and _is_of(event, hit.fault.target) for hit in later)
    ]


def _is_place(target: str) -> bool:
    return role_of(target) in PLACES.values()


def _times(events: Iterable[Event]) -> list[float]:
    return [event.time for event in events]


def _seconds_until(times: Sequence[float], injection: Done) -> float | None:
    later = [time - injection.time for time in times if time >= injection.time]
    return round(min(later), 2) if later and injection.processes else None


def as_json(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"holds": outcome.holds, "roles": by_role(outcome.costs)}


def by_role(costs: Sequence[Cost]) -> dict[str, dict[str, Any]]:
    """Of the faults that hit: how many, medians of the seconds, sums of what was done again."""
    rows: dict[str, dict[str, Any]] = {}
    for role in sorted({cost.role for cost in costs if cost.hit}):
        hits = [cost for cost in costs if cost.hit and cost.role == role]
        seconds = {name: [s for cost in hits if (s := getattr(cost, name)) is not None] for name in SECONDS}
        rows[role] = {"faults": len(hits)}
        rows[role] |= {name: round(median(values), 2) if values else None for name, values in seconds.items()}
        rows[role] |= {name: sum(getattr(cost, name) for cost in hits) for name in ("prompts_again", "steps_again")}
    return rows


def describe(outcome: Outcome) -> list[str]:
    """A line for each fault, a line for each role, and what all of it cost."""
    lines = [
        f"{'at':>8}  {'fault':<28} {'known after':>12} {'serves after':>13} {'next step after':>16} {'prompts':>8}"
    ]
    for cost in outcome.costs:
        noticed, serves, after = (_seconds(getattr(cost, name)) for name in SECONDS)
        fault = cost.fault if cost.hit else f"{cost.fault} (not there)"
        lines.append(f"{cost.at_s:>6.1f} s  {fault:<28} {noticed:>12} {serves:>13} {after:>16} {cost.prompts_again:>8}")
    roles = by_role(outcome.costs)
    if len(outcome.costs) > len(roles):
        lines.append("medians, and sums of prompts:")
        for role, row in roles.items():
            noticed, serves, after = (_seconds(row[name]) for name in SECONDS)
            name = f"{role}, {row['faults']} faults"
            lines.append(f"{'':>8}  {name:<28} {noticed:>12} {serves:>13} {after:>16} {row['prompts_again']:>8}")
    repeats = sum(cost.prompts_again for cost in outcome.costs)
    lines.append(
        f"{len(outcome.costs)} faults, {outcome.starts} starts; prompts were started again {repeats} times "
        f"({outcome.again} in the lineage that survives), "
        f"{outcome.lost} prompts lost, {outcome.repeated} trained twice, {outcome.steps_again} steps taken again; "
        f"{outcome.effective:.0%} of the time went into steps that survive"
    )
    for check in outcome.audit:
        lines += [f"audit: {check.name}: {offender}" for offender in check.offenders]
    if all(check.holds for check in outcome.audit):
        lines.append("audit: nothing was lost, trained twice or changed")
    return lines


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
