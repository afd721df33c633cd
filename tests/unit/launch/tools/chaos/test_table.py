"""What the lines of a run say of each fault: whose event it is, and when the next row was written."""

from __future__ import annotations

from typing import Any

from launch.run_dir.rows import Event
from launch.tools.chaos.disturb import Disturbed, Done
from launch.tools.chaos.faults import parse_fault
from launch.tools.chaos.table import Cost, Outcome, Timed, count_costs, describe
from rlsys.journal import Dispatched, Sealed

BEGAN = 1000.0  # since 1970


def hit(kind: Any, text: str) -> Done:
    """At the time that is in its text, in seconds since the first row."""
    fault = parse_fault(kind, text)
    return Done(fault=fault, time=BEGAN + fault.at, processes=1)


def event(at: float, kind: str, who: str) -> Event:
    return Event(time=BEGAN + at, kind=kind, who=who)


def row(at: float, step: int, file: str = "metrics.jsonl") -> Timed:
    """In the journal, as it stands there for a row of metrics."""
    return Timed(BEGAN + at, Sealed(name=f"{file} {step}", digest=""))


def costs(
    *done: Done,
    events: list[Event] | None = None,
    journal: list[Timed] | None = None,
    starts: tuple[float, ...] = (-50.0,),
) -> list[Cost]:
    record = Disturbed(code=0, began=BEGAN, ended=BEGAN + 999, done=list(done), starts=[BEGAN + at for at in starts])
    return count_costs(record, events or [], journal or [])


def test_the_next_step_is_the_next_one_written_though_a_later_fault_takes_it_back() -> None:
    """A row at 123 s, 3 s after the first fault; the rank's death at 130 s takes it back, and it is there at 160 s."""
    journal = [row(110, 7), row(123, 8), row(131, 1, "evaluations.jsonl")]
    first, second = costs(hit("kill", "rollout:0@120s"), hit("kill", "learner:0@130s"), journal=[*journal, row(160, 8)])
    assert (first.next_step_s, second.next_step_s) == (3.0, 30.0)
    assert (first.steps_again, second.steps_again) == (0, 1)


def test_an_event_is_of_the_last_hit_on_its_part() -> None:
    """The environments die together with their worker at 89 s, which nobody says; their death at 122 s is noticed."""
    worlds = "rollout:0 environments"
    events = [event(89.5, "lost", "rollout:0"), event(103, "restart", "rollout:0"), event(124, "lost", worlds)]
    killed = [hit("kill", f"{text}s") for text in ("worlds:0@89", "rollout:0@89", "worlds:1@90", "worlds:0@122")]
    rows = costs(*killed, events=events)
    assert [cost.detected_s for cost in rows] == [None, 0.5, None, 2.0]
    assert [cost.replaced_s for cost in rows] == [None, 14.0, None, None]
    engine, worker = costs(hit("kill", "engine:0@10s"), hit("kill", "rollout:0@89s"), events=events)
    assert (engine.detected_s, engine.replaced_s, worker.detected_s) == (None, None, 0.5)


def test_a_driver_that_went_on_is_not_known_by_the_start_after_its_death() -> None:
    begin = event(150, "begin", "driver")
    hung, killed = costs(
        hit("hang", "driver@30s+20s"), hit("kill", "driver@130s"), events=[begin], starts=(-50.0, 134.0)
    )
    assert (hung.detected_s, hung.replaced_s) == (None, None)
    assert (killed.detected_s, killed.replaced_s) == (4.0, 20.0)


def test_what_is_said_of_a_part_that_was_hit_itself_is_not_of_a_full_disk() -> None:
    events = [event(40, "lost", "rollout:0"), event(70, "refused", "learner")]
    full, killed = costs(hit("fill", "disk@20s"), hit("kill", "rollout:0@39s"), events=events)
    assert (full.detected_s, killed.detected_s) == (50.0, 1.0)
    killed, full = costs(hit("kill", "rollout:0@30s"), hit("fill", "disk@39s"), events=events)
    assert killed.detected_s == 10.0


def test_prompts_are_counted_once_in_the_table_and_below_it() -> None:
    """Three starts that were not the first, of which a return to a checkpoint took one back."""
    journal = [
        Timed(BEGAN + at, Dispatched(stage="rl", sequence=sequence, attempt=0, epoch=0, task="t", version=0))
        for at, sequence in ((1, 0), (1, 1), (11, 0), (21, 0), (22, 1), (23, 2))
    ]
    rows = costs(hit("kill", "rollout:0@10s"), hit("kill", "learner:0@20s"), journal=journal)
    outcome = Outcome(
        code=0, costs=rows, starts=1, wall_s=30.0, steps=3, steps_again=1, again=2, lost=0, repeated=0, effective=0.5,
        audit=[],
    )  # fmt: skip
    lines = describe(outcome)
    assert [cost.prompts_again for cost in rows] == [1, 2]
    assert "started again 3 times (2 in the lineage that survives)" in lines[-2]
