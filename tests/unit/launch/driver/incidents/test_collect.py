"""Evidence from real processes: a stopped one is named, the others have stacks, and no secret is in any file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.driver.incidents.collect import Request, collect
from launch.driver.incidents.facts import PARAGRAPH, Facts, read_facts, write_facts
from launch.driver.incidents.folder import list_folders, make_folder
from launch.driver.incidents.keeper import IncidentKeeper, remember
from launch.driver.incidents.now import collect_after, collect_now
from launch.driver.incidents.processes import PartProcess, kind_of, list_parts
from launch.driver.observe.phases import PhaseWatch
from rlsys.config.output import IncidentsConfig
from rlsys.errors import BadInput
from rlsys.system.incidents import Incident, warn
from rlsys.system.parts import owner_of

SECRET = "planted-9xQ2"
PART = f"""
import sys, time
def a_place_of_its_own():
    print("said last; token {SECRET} in a log", "Authorization: Bearer abcdefgh12345", flush=True)
    time.sleep(600)
a_place_of_its_own()
"""


def begin(tmp_path: Path, part: str) -> subprocess.Popen[bytes]:
    """A process that looks like a part of a run whose driver is this process."""
    environment = os.environ | {
        "RLSYS_PART_OF": f"{owner_of(os.getpid())}1",
        "RLSYS_PART": part,
        "SOME_API_KEY": SECRET,
    }
    with (tmp_path / f"{part}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-S", "-c", PART], env=environment, stdout=log)
    deadline = time.monotonic() + 20
    while not (tmp_path / f"{part}.log").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    processes = {name: begin(tmp_path, name) for name in ("rollout:0", "learner:0")}
    processes["rollout:0"].send_signal(signal.SIGSTOP)
    yield processes
    for process in processes.values():
        process.kill()
        process.wait()


def run_directory(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(f"env: {{url: 'http://u:{SECRET}@h/'}}\njudge: {{key_env: JUDGE}}\n")
    (run / "journal.jsonl").write_text("".join(f'{{"row": {number}}}\n' for number in range(300)))
    return run


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_stopped_part_is_named_and_nothing_secret_is_written(
    tmp_path: Path, parts: dict[str, subprocess.Popen[bytes]]
) -> None:
    run = run_directory(tmp_path)
    known = tuple(list_parts(owner_of(os.getpid())))
    assert [part.part for part in known] == ["learner:0", "rollout:0"]
    parts["learner:0"].kill()
    parts["learner:0"].wait()
    folder = make_folder(run, 3, "stall", "wait_rollout", 5)
    text = f"waiting with {SECRET}"
    write_facts(folder, Facts(kind="stall", who="wait_rollout", text="waits", time=1.0, phase={
        "name": "wait_rollout", "since_s": 9.0, "usual_s": None}))  # fmt: skip
    facts = collect(Request(folder=folder, run=run, driver=os.getpid(), known=known, named=("JUDGE",)))
    by_name = {part.part: part for part in facts.parts}
    assert by_name["rollout:0"].state == "stopped" and facts.gone == ("learner:0",)
    if not by_name["rollout:0"].problem:  # where the system lets us read another process
        assert "a_place_of_its_own" in by_name["rollout:0"].at
    written = texts(folder)
    assert "rollout:0" in written[PARAGRAPH] and "is stopped" in written[PARAGRAPH]
    assert any("said last" in content for name, content in written.items() if name.startswith("logs/learner-0"))
    assert json.loads(written["journal-tail.jsonl"].splitlines()[-1]) == {"row": 299}
    assert {"config.yaml", "gpu.txt", "machine.txt"} <= written.keys()
    assert not [name for name, content in written.items() if SECRET in content or "abcdefgh12345" in content], text


def test_the_driver_collects_what_is_logged_and_its_end_has_a_folder(
    tmp_path: Path, parts: dict[str, subprocess.Popen[bytes]]
) -> None:
    run, log = run_directory(tmp_path), logging.getLogger("rlsys.test")
    phases = PhaseWatch(6.0, 60.0)

    async def go() -> Path | None:
        keeper = IncidentKeeper(
            run, IncidentsConfig(keep=5), lambda: (7, "rl"), phases, lines=lambda: ["[0:01] a line"]
        )
        keeper.start(asyncio.get_running_loop())
        phases.enter("update")
        warn(log, Incident(kind="lost", who="rollout:0", text="rollout:0 is dead (x)"))
        folder = await asyncio.to_thread(keeper.collect_failure, f"it failed with {SECRET}")
        warn(log, Incident(kind="restart", who="rollout:0", text="rollout:0 serves again", recovered_s=1.0))
        await asyncio.sleep(0.1)
        keeper.close()
        return folder

    failed = asyncio.run(go())
    assert [incident.name for incident in list_folders(run)] == ["000007-lost-rollout-0", "000007-failed-run"]
    assert failed == run / "incidents" / "000007-failed-run"
    lost = read_facts(run / "incidents" / "000007-lost-rollout-0")
    assert lost.phase["name"] == "update" and lost.seconds is not None and "serves again" in lost.also[0]
    written = texts(failed)
    assert "to_thread" in written["stacks/driver-tasks.txt"] and "[0:01] a line" in written["logs/driver.txt"]
    assert SECRET not in "".join(written.values()) and "it failed with ***" in written[PARAGRAPH]


HOLDER = """
import sys, time
lock = open(sys.argv[1], "wb")
print("ready", flush=True)
time.sleep(600)
"""


def test_a_run_is_looked_at_from_outside_by_who_holds_its_lock(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    (run / "metrics.jsonl").write_text('{"step": 4, "stage": "rl", "time": 1.0}\n')
    with pytest.raises(BadInput, match="no process"):
        collect_now(run)
    holder = subprocess.Popen([sys.executable, "-S", "-c", HOLDER, str(run / ".lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        folder = collect_now(run)
        facts = read_facts(folder)
        assert folder.name == "000004-asked-run" and [part.pid for part in facts.parts] == [holder.pid]
        after = collect_after(run, holder.pid, "the driver was killed (SIGKILL).")
        assert after is not None and "was killed" in read_facts(after).text
    finally:
        holder.kill()
        holder.communicate()


def test_processes_are_named_by_what_they_are() -> None:
    assert kind_of("ray::RolloutWorker.play") == "RolloutWorker.play"
    assert kind_of("VLLM::EngineCore") == "engine" and kind_of("/usr/bin/python3 -c x") == "python3"


def test_a_part_that_is_gone_is_remembered_until_it_is_there_again() -> None:
    pids = (("a", 1), ("b", 2), ("a", 3))
    old, other, new = (PartProcess(part=part, pid=pid, title="", log="") for part, pid in pids)
    gone = remember((old, other), (other,))
    assert gone == (other, old)
    assert remember(gone, (other, new)) == (other, new)


def test_none_is_kept_where_none_is_asked_for(tmp_path: Path) -> None:
    async def go() -> Path | None:
        keeper = IncidentKeeper(tmp_path, IncidentsConfig(keep=0), lambda: (0, ""), PhaseWatch(6.0, 60.0))
        keeper.start(asyncio.get_running_loop())
        folder = await asyncio.to_thread(keeper.collect_failure, "x")
        keeper.close()
        return folder

    assert asyncio.run(go()) is None and not (tmp_path / "incidents").exists()


def test_cards_that_do_not_answer_are_asked_once_and_last(
    tmp_path: Path, parts: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\ncp {tmp_path}/run/incidents/*/incident.md {tmp_path}\nsleep 60\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr("launch.driver.incidents.collect.GPU_S", 0.5)
    run = run_directory(tmp_path)
    folder = make_folder(run, 3, "lost", "rollout:0", 5)
    write_facts(folder, Facts(kind="lost", who="rollout:0", text="it is gone", time=1.0))
    collect(Request(folder=folder, run=run, driver=os.getpid()))
    assert (tmp_path / "asked").read_text() == "asked\n"
    assert "no answer" in (folder / "gpu.txt").read_text()
    assert "rollout:0" in (tmp_path / "incident.md").read_text()  # it was there before the question
