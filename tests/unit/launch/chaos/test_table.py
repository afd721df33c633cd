"""What the lines of a run say of each fault: whose event it is, and when the next row was written."""

from __future__ import annotations

from typing import Any

from launch.chaos.disturb import Disturbed, Done
from launch.chaos.faults import parse_fault
from launch.chaos.table import Cost, count_costs

BEGAN = 1000.0  # since 1970


def hit(kind: Any, text: str) -> Done:
    """At the time that is in its text, in seconds since the first row."""
    fault = parse_fault(kind, text)
    return Done(fault=fault, time=BEGAN + fault.at, processes=1)


def event(at: float, kind: str, who: str) -> dict[str, Any]:
    return {"time": BEGAN + at, "kind": kind, "who": who}


def row(at: float, step: int) -> dict[str, Any]:
    """In the journal, as it stands there for a row of metrics."""
    return {"event": "seal", "name": f"metrics.jsonl {step}", "time": BEGAN + at}


def costs(
    *done: Done,
    events: list[dict[str, Any]] | None = None,
    journal: list[dict[str, Any]] | None = None,
    starts: tuple[float, ...] = (-50.0,),
) -> list[Cost]:
    found = Disturbed(code=0, began=BEGAN, ended=BEGAN + 999, done=list(done), starts=[BEGAN + at for at in starts])
    return count_costs(found, events or [], journal or [])


def test_the_next_step_is_the_next_one_written_though_a_later_fault_takes_it_back() -> None:
    """A row at 123 s, 3 s after the first fault; the rank's death at 130 s takes it back, and it is there at 160 s."""
    journal = [row(110, 7), row(123, 8), {"event": "seal", "name": "evaluations.jsonl 1", "time": BEGAN + 131}]
    first, second = costs(hit("kill", "rollout:0@120s"), hit("kill", "learner:0@130s"), journal=[*journal, row(160, 8)])
    assert (first.next_step_s, second.next_step_s) == (3.0, 30.0)
    assert (first.steps_again, second.steps_again) == (0, 1)
