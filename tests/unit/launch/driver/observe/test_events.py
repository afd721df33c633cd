"""events.jsonl: every row whole, whatever happens to the process or the disk, and never the reason of a run's end."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from launch.driver.observe.events import Events
from rlsys.system.incidents import Incident, warn
from rlsys.system.supervisor import Supervised
from tests.makers.made import records


def test_rows_are_appended_with_step_and_stage_and_earlier_ones_stay(tmp_path: Path) -> None:
    path, where = tmp_path / "events.jsonl", [(0, "sft")]
    events = Events(path, lambda: where[0])
    events.add("begin", "the run begins", from_step=0)
    where[0] = (7, "rl")
    events.add("checkpoint", "step-000007 is written", seconds=1.23456)
    events.close()
    again = Events(path, lambda: (5, "rl"))
    again.add("begin", "continuing from step 5", from_step=5)
    again.close()
    rows = records(path)
    assert [(row["kind"], row["step"], row["stage"]) for row in rows] == [
        ("begin", 0, "sft"),
        ("checkpoint", 7, "rl"),
        ("begin", 5, "rl"),
    ]
    assert rows[1]["seconds"] == 1.235 and rows[2]["from_step"] == 5
    again.add("end", "of a run that is over")  # no error, and no row
    assert records(path) == rows


def test_a_row_that_a_crash_tore_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = Events(path)
    events.add("begin", "x" * 70_000)
    events.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"time": 1, "text": "' + b"y" * 70_000)
    Events(path).close()
    assert path.read_bytes() == whole


def test_a_full_disk_costs_rows_and_one_line_and_the_file_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    events, write = Events(path), os.write
    events.add("begin", "one")

    def half(file: int, line: bytes) -> int:
        return write(file, line[:10])

    monkeypatch.setattr(os, "write", half)
    events.add("stage", "two")
    events.add("stage", "three")
    monkeypatch.undo()
    events.add("end", "four")
    events.close()
    assert [row["text"] for row in records(path)] == ["one", "four"]
    assert caplog.text.count("lacks rows") == 1


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = Events(tmp_path / "none" / "events.jsonl")
    events.add("begin", "the run begins")
    events.close()
    assert caplog.text.count("lacks rows") == 1


def test_incidents_of_any_part_are_rows_while_it_listens(tmp_path: Path) -> None:
    path, log = tmp_path / "events.jsonl", logging.getLogger("rlsys.pool")
    events = Events(path, lambda: (3, "rl"))
    warn(log, Incident(kind="stall", who="retriever", text="before"))
    events.listen()
    warn(log, Incident(kind="lost", who="rollout:0", text="\x1b[2Jgone", detected_s=5.0))
    log.warning("a line without an incident")
    events.close()
    warn(log, Incident(kind="stall", who="retriever", text="after"))
    (row,) = records(path)
    assert (row["kind"], row["who"], row["text"], row["detected_s"]) == ("lost", "rollout:0", "\\x1b[2Jgone", 5.0)


def test_a_death_and_the_return_are_two_rows_with_their_times(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = Events(path)
    events.listen()

    async def scenario() -> None:
        async def start(handle: int) -> None: ...

        handles = iter(range(10))
        life = Supervised[int]("rollout:0", lambda: next(handles), start, lambda handle: None, announces=False)
        first = await life.ensure()
        assert life.declare_dead(first, "it was killed")
        assert not life.declare_dead(first, "a second report of the same death")
        await life.revive()
        life.announce(groups=4)
        life.announce(groups=4)
        service = Supervised[int]("retriever", lambda: next(handles), start, lambda handle: None)
        service.declare_dead(await service.ensure(), "it was killed too")
        await service.revive()

    asyncio.run(scenario())
    events.close()
    rows = records(path)
    assert [(row["kind"], row["who"], row.get("groups")) for row in rows] == [
        ("lost", "rollout:0", None),
        ("restart", "rollout:0", 4),
        ("lost", "retriever", None),
        ("restart", "retriever", None),
    ]
    assert all(row["detected_s"] >= 0 for row in rows)
    assert all(("recovered_s" in row) == (row["kind"] == "restart") for row in rows)
