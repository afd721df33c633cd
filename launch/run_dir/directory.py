"""A run directory with all that its files say, for reports and lists. What is missing or damaged is named, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.run_dir.lenient import decode_lenient
from launch.run_dir.lines import DamageLog, read_lines_if_there, read_object
from launch.run_dir.names import EVALUATIONS, EVENTS, METRICS, evaluation_name
from launch.run_dir.played import EvalResult, read_played
from launch.run_dir.rows import Event
from launch.run_dir.runs import read_config
from launch.run_dir.starts import Start
from launch.run_dir.state import State, find_state, is_locked
from launch.run_dir.table import Rows, read_rows
from rlsys.errors import BadInput
from rlsys.untrusted import visible

ABSENT = object()  # no value of a configuration, where null is one
MOST_EVENTS = 10_000  # of the newest that are kept: a run that restarts its workers for days has more


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A line of evaluations.jsonl, with the results by task that evaluations/NAME.json has of it."""

    step: int
    stage: str
    when: str  # before, during, after, eval
    row: Mapping[str, Any]
    plays: Mapping[str, EvalResult]  # empty where there is no such file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunDirectory:
    path: Path
    config: Mapping[str, Any]
    record: Mapping[str, Any]  # run.json; empty of a run of an earlier version
    summary: Mapping[str, Any]  # empty where no process has written one
    rows: Rows
    evaluations: tuple[Evaluation, ...]  # by step
    events: tuple[Mapping[str, Any], ...]  # the newest, oldest first
    state: State
    damage: tuple[str, ...]  # one line for each damaged file

    @property
    def stages(self) -> tuple[str, ...]:
        """In the order of the recipe."""
        return tuple(visible(str(stage["name"])) for stage in self.config["stages"])

    def setting(self, key: str, stage: str | None = None) -> Any:
        """`loop.group_size` of a stage, which its own section may change, to null too; None where the configuration has
        no such key.

        A section comes with what the stage changes in it.
        """
        section: Mapping[str, Any] = next(
            (entry for entry in self.config["stages"] if visible(str(entry["name"])) == stage), {}
        )
        base, changed = _look_up(self.config, key), _look_up(section, key)
        if isinstance(base, Mapping) and isinstance(changed, Mapping):
            return {**base, **changed}
        changed = base if changed is ABSENT else changed
        return None if changed is ABSENT else changed

    def events_of(self, *kinds: str) -> list[Event]:
        """The events of these kinds, or of all where none is named, oldest first."""
        return [decode_lenient(Event, event) for event in self.events if not kinds or event.get("kind") in kinds]

    @property
    def starts(self) -> list[Start]:
        """Of run.json, oldest first: one for the start, and one for each time that the run was continued."""
        attempts = self.record.get("attempts")
        listed = attempts if isinstance(attempts, list) else []
        return [decode_lenient(Start, attempt) for attempt in listed if isinstance(attempt, dict)]

    @property
    def newest_start(self) -> Start:
        """Without anything in it where the run has no record."""
        return next(reversed(self.starts), Start())


def _look_up(values: Mapping[str, Any], key: str) -> Any:
    """ABSENT where nothing is said of the key; below null, or another value that is no section, all is null."""
    value: Any = values
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return value if value is ABSENT else None
        value = value.get(part, ABSENT)
    return value


def read_directory(path: Path) -> RunDirectory:
    """Raises BadInput only for what is no run directory."""
    damage = DamageLog()
    config = read_config(path)
    locked = is_locked(path)  # before the rest is read: what ends meanwhile is read again by the next look
    rows = read_rows(read_lines_if_there(path / METRICS, damage), damage)
    events = _read_events(path, damage)
    summary = read_object(path / "summary.json", damage)
    last = int(rows.step[-1]) if len(rows) else None
    return RunDirectory(
        path=path if path.name not in ("", "..") else path.resolve(),  # `.` has no name
        config=config,
        record=read_object(path / "run.json", damage),
        summary=summary,
        rows=rows,
        evaluations=_read_evaluations(path, damage),
        events=events,
        state=find_state(locked=locked, summary=summary, events=events, last_step=last),
        damage=damage.lines(),
    )


def _read_events(path: Path, damage: DamageLog) -> tuple[Mapping[str, Any], ...]:
    lines = read_lines_if_there(path / EVENTS, damage)
    return tuple(deque((event for event in lines if isinstance(event.get("kind"), str)), MOST_EVENTS))


def _read_evaluations(path: Path, damage: DamageLog) -> tuple[Evaluation, ...]:
    evaluations = []
    for row in read_lines_if_there(path / EVALUATIONS, damage):
        step, stage, when = row.get("step"), row.get("stage"), row.get("when")
        if type(step) is not int or not isinstance(stage, str) or not isinstance(when, str):
            damage.note("evaluations", "evaluations.jsonl: a line without step, stage and when")
            continue
        plays = _read_plays(path, stage, when, step, damage)
        evaluations.append(Evaluation(step=step, stage=visible(stage), when=visible(when), row=row, plays=plays))
    return tuple(sorted(evaluations, key=lambda evaluation: evaluation.step))


def _read_plays(path: Path, stage: str, when: str, step: int, damage: DamageLog) -> Mapping[str, EvalResult]:
    """The stage's name is another's: it may not lead out of the folder."""
    file = path / "evaluations" / f"{evaluation_name(stage, when, step)}.json"
    try:
        if file.parent == path / "evaluations" and file.is_file():
            return read_played(str(file), f"evaluations/{file.name}")
    except (BadInput, OSError, ValueError) as error:  # ValueError: no name of a file
        damage.note(file.name, error)
    return {}
