"""Faults as they are written and drawn, whom they hit, and the table of what they cost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from launch.cli import run as rlsys
from launch.config.compose import to_yaml
from launch.tools.chaos import hand as machine_hand
from launch.tools.chaos.disturb import Disturbed, Disturber, Done, was_stopped
from launch.tools.chaos.faults import (
    ROLES,
    Fault,
    Kind,
    Members,
    check_targets,
    draw_faults,
    parse_fault,
    parse_rate,
    parse_roles,
)
from launch.tools.chaos.hand import Hand
from launch.tools.chaos.processes import find_target, signal_all
from launch.tools.chaos.rows import Rows
from launch.tools.chaos.table import by_role, describe, settle
from rlsys.system import parts
from rlsys.system.parts import owner_of
from tests.refused import refused
from tests.unit.launch.driver.stages.test_rl import play


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("kill", "rollout:1@30s", Fault(kind="kill", target="rollout:1", at=30.0)),
        ("kill", "driver@1.5s", Fault(kind="kill", target="driver", at=1.5)),
        ("hang", "retriever@60s+20s", Fault(kind="hang", target="retriever", at=60.0, lasts_s=20.0)),
        ("slow", "engine:0@5s", Fault(kind="slow", target="engine:0", at=5.0, lasts_s=20.0)),
        ("cut", "node:2@60s+30s", Fault(kind="cut", target="node:2", at=60.0, lasts_s=30.0)),
        ("cut", "node:2@60s", Fault(kind="cut", target="node:2", at=60.0)),
        ("fill", "disk@5s+3s", Fault(kind="fill", target="disk", at=5.0, lasts_s=3.0)),
    ],
)
def test_a_fault_is_what_and_when(kind: Kind, text: str, fault: Fault) -> None:
    assert parse_fault(kind, text) == fault


@pytest.mark.parametrize(
    ("kind", "text"),
    [("kill", "rollout:1"), ("kill", "rollout:1@30"), ("kill", "rollout:1@30s+5s"), ("fill", "driver@3s"),
     ("kill", "disk@3s"), ("hang", "@3s"), ("slow", "rollout:x@3s"), ("cut", "rollout:0@3s"), ("kill", "node:2@3s")],
)  # fmt: skip
def test_what_is_no_fault_is_refused(kind: Kind, text: str) -> None:
    with refused(f"--{kind}", found=text):
        parse_fault(kind, text)


MEMBERS = Members(workers=2, ranks=2, services=["retriever"])


def drawn(rate: str, seed: int, *roles: str, count: int = 2000) -> list[Fault]:
    return list(islice(draw_faults(parse_rate(rate), seed, MEMBERS, roles or tuple(ROLES)), count))


def test_drawn_faults_come_at_their_rate_hit_every_role_and_are_those_of_the_seed() -> None:
    faults = drawn("30/h", 3)
    gaps = [after.at - before.at for before, after in pairwise(faults)]
    assert sum(gaps) / len(gaps) == pytest.approx(120.0, rel=0.1) and min(gaps) >= 0
    roles = Counter(fault.target.split(":")[0] for fault in faults)
    assert roles.keys() == {"rollout", "engine", "worlds", "learner", "weights", "retriever", "driver"}
    assert max(roles.values()) - min(roles.values()) <= 1
    assert faults == drawn("30/h", 3) != drawn("30/h", 4)
    assert parse_rate("2/min") == parse_rate("120/h")
    assert {fault.target for fault in drawn("30/h", 3, "driver", count=9)} == {"driver"}
    with refused("--roles", found="services"):
        draw_faults(parse_rate("1/h"), 0, Members(workers=1, ranks=1, services=[]), ["services"])
    with refused("--roles", found="ranks"):
        parse_roles("driver,ranks")


def test_a_target_that_the_run_does_not_have_is_refused_with_those_it_has() -> None:
    for target in ("rollout:1", "engine:0", "worlds:1", "learner:1", "weights", "retriever", "driver"):
        check_targets([parse_fault("kill", f"{target}@1s")], MEMBERS)
    check_targets([parse_fault("cut", "node:7@1s"), parse_fault("fill", "disk@1s")], MEMBERS)
    for target in ("rolout:0", "rollout:2", "rollout", "learner:9", "driver:0", "judge", "weights:0"):
        with refused("--hang", found=target, says="rollout:0 to rollout:1"):
            check_targets([parse_fault("hang", f"{target}@1s")], MEMBERS)
    with refused("--fill", found="disk:1"):
        check_targets([parse_fault("fill", "disk:1@1s")], MEMBERS)


def test_agents_are_a_target_of_a_run_that_has_some_and_are_found_below_their_worlds() -> None:
    fault = parse_fault("kill", "agents:1@1s")
    check_targets([fault], replace(MEMBERS, agents=True))
    with refused("--kill", found="agents:1"):
        check_targets([fault], MEMBERS)
    code = "print('up', flush=True); import time; time.sleep(60)  # from keeping import keeper"
    world = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], env={})"
    environment = os.environ | {parts.VARIABLE: "rollout:1", parts.DRIVER: f"{owner_of(os.getpid())}2"}
    words = [sys.executable, "-c", world, code, "actors.env_server"]
    with subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        agents = find_target(f"{owner_of(os.getpid())}2", "agents:1")
        assert [agent.ppid() for agent in agents] == [process.pid] and find_target("elsewhere:", "agents:1") == []
        assert signal_all(agents, signal.SIGKILL) == 1


def test_a_share_of_steps_counts_steps_that_are_taken_again_and_waits_where_none_is_taken(tmp_path: Path) -> None:
    steps = [fault.at for fault in drawn("10%", 3)]
    assert steps[-1] / len(steps) == pytest.approx(10.0, rel=0.1)
    written: list[dict[str, object]] = []

    def write(step: int, at: float, keep: int | None = None) -> None:
        del written[slice(len(written) if keep is None else keep, None)]
        written.append({"step": step, "stage": "sft" if step < 3 else "rl", "time": at, "time/step": 4.0})
        (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in written))
        rows.look()

    rows = Rows(tmp_path, "rl")
    fault = Fault(kind="kill", target="driver", at=2.25, unit="step")
    rows.look()
    assert not rows.is_due(fault, 1e9)
    for step in (1, 2, 3, 4):
        write(step, 100.0 + step)
    assert (rows.began, rows.after) == (103.0, 1) and not rows.is_due(fault, 1e9)
    assert rows.is_due(Fault(kind="kill", target="driver", at=2.0), 105.0)
    write(4, 150.0, keep=3)  # after a return to step 3
    assert (rows.began, rows.after) == (103.0, 2)
    assert not rows.is_due(fault, 150.9) and rows.is_due(fault, 151.0)
    write(5, 154.0)
    assert rows.is_due(fault, 154.0)


def test_a_part_is_found_by_what_its_processes_inherit() -> None:
    """And neither that of another run, nor what another part has started."""
    owner = f"{owner_of(os.getpid())}1"
    code = "import sys, time; print('up', flush=True); time.sleep(60)"

    def start(part: str, *words: str, of: str = owner) -> subprocess.Popen[str]:
        env = os.environ | {parts.VARIABLE: part, parts.DRIVER: of}
        process = subprocess.Popen([sys.executable, "-c", code, *words], env=env, text=True, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    started = {
        "engine": start("rollout:1", "EngineCore"),
        "other number": start("rollout:0", "EngineCore"),
        "other run": start("rollout:1", "EngineCore", of="machine:1:1"),
        "worlds": start("rollout:1", "actors.env_server"),
    }
    try:
        assert [part.pid for part in find_target(owner_of(os.getpid()), "engine:1")] == [started["engine"].pid]
        assert [part.pid for part in find_target(owner_of(os.getpid()), "worlds:1")] == [started["worlds"].pid]
        assert find_target(owner_of(os.getpid()), "learner:0") == []
        processes = find_target(owner_of(os.getpid()), "engine:1")
        assert signal_all(processes, signal.SIGKILL) == 1 and started["engine"].wait(60) == -signal.SIGKILL
        assert signal_all(processes, signal.SIGKILL) == 0
        assert [part.pid for part in find_target(owner_of(os.getpid()), "driver")] == [os.getpid()]
        assert find_target(f"elsewhere:{os.getpid()}:", "driver") == []
        assert started["other run"].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_the_table_says_what_each_fault_cost(tmp_path: Path) -> None:
    play(tmp_path, steps=8, on_row=lambda run, row: run.tasks.stop.set() if row["step"] == 4 else None)
    outcome = play(tmp_path, steps=8)
    run = tmp_path / "run"
    (run / "config.yaml").write_text(to_yaml(outcome.run.config))
    rows, none = Rows(run, "rl"), Rows(run, "sft")
    rows.look()
    none.look()
    began = rows.began
    assert time.time() - 60 < began < time.time() and none.began == 0.0
    hit, missed = (Done(fault=Fault(kind="kill", target=target, at=0.0), time=began - 0.5, processes=count)
                   for target, count in (("rollout:0", 1), ("weights", 0)))  # fmt: skip
    result = settle(Disturbed(code=0, began=began, ended=began + 9, done=[hit, missed], starts=[began, began]), run)
    assert (result.costs[0].next_step_s or 0.0) >= 0.5 and result.costs[1].next_step_s is None
    assert result.holds and result.starts == 2 and result.steps_again == 0
    lines = describe(result)
    assert (result.lost, result.repeated, result.steps) == (0, 0, 7)
    assert by_role(result.costs)["rollout"]["next_step_s"] == result.costs[0].next_step_s
    assert "kill rollout:0" in lines[1] and "weights (not there)" in lines[2]
    assert lines[-1] == "audit: nothing was lost, trained twice or changed"
    path = run / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 5', '"step": 6', 1))
    assert not settle(Disturbed(code=0, began=began, ended=began + 9), run).holds


def test_a_run_that_is_refused_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(self: Disturber, *_: object) -> Disturbed:
        (tmp_path / "run.log").write_text("rlsys: looking\nrlsys: error: env.data: no such file\n")
        return Disturbed(code=2, began=0.0, ended=0.0)

    monkeypatch.setattr(Disturber, "play", play)
    assert rlsys(["chaos", "quickstart", "--kill", "driver@1s", "--run-dir", str(tmp_path / "run")]) == 2
    assert "run.log: the run was refused: env.data: no such file" in capsys.readouterr().err


def test_bad_input_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for words, says in (
        ([], "no fault was asked for"),
        (["--kill", "rollout:0@1s", "--run-dir", str(tmp_path / "used")], "it is not empty"),
        (["--kill", "rollout:0@1s", "--run-dir", str(tmp_path / "used" / "file")], "it is no folder"),
        (["--kill", "rollout:0@1s", "--json", str(tmp_path / "none" / "x.json")], "there is no folder for it"),
        (["--kill", "rollout:0@1s", "--starts", "0"], "at least 1"),
        (["--kill", "rolout:0@1s"], "no such part"),
        (["--slow", "rollout:9@1s"], "rollout:9"),
        (["--random", "often"], "--random often"),
        (["--random", "10%", "--roles", "services"], "no such part"),
        (["--cut", "node:2@1s"], "a Ray of its own"),
        (["--cut", "node:2@1s", "cluster.address=127.0.0.1:9"], "no Ray cluster answers at 127.0.0.1:9"),
        (["--kill", "rollout:0@1s", "stages.rl=null"], "no stage of it plays"),
    ):
        assert rlsys(["chaos", "quickstart", *words]) == 2
        assert says in capsys.readouterr().err
    assert not [process for process in psutil.Process().children(recursive=True) if "launch" in process.cmdline()]


def test_a_fault_may_wait_for_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    rows, second = Rows(tmp_path, "rl"), parse_fault("kill", "driver@checkpoint:2")
    assert second == Fault(kind="kill", target="driver", at=2.0, unit="checkpoint")
    first, later = (tmp_path / "checkpoints" / name for name in (".step-000005", ".step-000010"))
    row = {"step": 1, "stage": "rl", "time": 100.0, "time/step": 4.0}

    def due() -> bool:
        rows.look()
        return rows.is_due(second, 200.0)

    first.mkdir(parents=True)
    assert not due() and rows.checkpoints == 0  # before the first step that counts
    first.rmdir()
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(row)}\n")
    assert not due()
    first.mkdir()
    assert not due() and rows.saving and rows.is_due(parse_fault("kill", "driver@checkpoint"), 200.0)
    first.rmdir()
    assert not due() and not rows.saving
    later.mkdir()
    assert due() and due()
    rows.leave()  # the process is gone, and what it had begun lies there
    assert not due()


def test_a_driver_that_hangs_has_somebody_who_lets_it_go_on() -> None:
    check_targets([parse_fault("hang", "driver@3s+2s"), parse_fault("stop", "driver@3s")], MEMBERS)
    with refused("--hang", found="driver"):
        check_targets([parse_fault("hang", "driver@3s")], MEMBERS)
    with refused("--stop", found="driver@3s+2s"):
        parse_fault("stop", "driver@3s+2s")


def test_a_run_that_was_stopped_in_order_is_started_again_and_one_that_is_done_is_not() -> None:
    record = Disturbed(code=0, began=1.0, ended=9.0, starts=[1.0])
    record.done.append(Done(fault=Fault(kind="stop", target="driver", at=1.0), time=3.0, processes=1))
    assert was_stopped(record)
    record.starts.append(5.0)
    assert not was_stopped(record)


def test_a_run_that_never_played_has_no_time_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "run" / "config.yaml").write_text(to_yaml(play(tmp_path).run.config))
    outcome = settle(Disturbed(code=1, began=0.0, ended=9.0, starts=[1.0]), tmp_path / "run")
    assert (outcome.wall_s, outcome.steps, outcome.effective) == (0.0, 0, 0.0)


def test_a_disk_or_a_link_that_cannot_be_disturbed_is_no_hit(tmp_path: Path) -> None:
    hand = Hand()
    assert hand.fill(tmp_path / "missing", 1.0) == 0
    assert hand.cut("192.0.2.1", 1.0) == 0  # of no link of this machine
    hand.end()


def test_a_disk_is_full_for_a_while_and_empty_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_hand, "find_room", lambda folder: (2**16 + 4096, 0))
    hand = Hand()
    assert hand.fill(tmp_path, 600.0) == 1
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [4096]
    hand.end()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("user", "gives", "pages"), [(1000, 10, 20), (0, 10, 30), (0, 9, 20)])
def test_a_disk_is_full_for_root_too_as_far_as_it_gives_what_it_keeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, gives: int, pages: int
) -> None:
    """20 pages are free for everybody, 10 for root; ext4 keeps some of those back even from root."""
    allocate = os.posix_fallocate

    def give(file: int, offset: int, size: int) -> None:
        if offset and size > gives * 4096:
            raise OSError(errno.ENOSPC, "full")
        allocate(file, offset, size)

    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_frsize=4096, f_bfree=30, f_bavail=20))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "posix_fallocate", give)
    filling = Hand()
    assert filling.fill(tmp_path, 600.0) == 1
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [pages * 4096 - 2**16]
    filling.end()


def test_a_disk_that_is_being_filled_when_the_command_is_stopped_has_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(folder: Path) -> tuple[int, int]:
        raise SystemExit(143)

    monkeypatch.setattr(machine_hand, "find_room", stop)
    with pytest.raises(SystemExit):
        Hand().fill(tmp_path, 600.0)
    assert not list(tmp_path.iterdir())


def test_a_command_that_is_stopped_as_it_begins_to_wait_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(thread: threading.Thread) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(machine_hand, "find_room", lambda folder: (2**16 + 4096, 0))
    monkeypatch.setattr(threading.Thread, "start", stop)
    hand = Hand()
    with pytest.raises(SystemExit):
        hand.fill(tmp_path, 600.0)
    hand.end()
    assert not list(tmp_path.iterdir())


def test_a_part_that_hangs_for_good_goes_on_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    process = psutil.Popen(["sleep", "600"])
    monkeypatch.setattr("launch.tools.chaos.hand.find_target", lambda owner, target: [process])
    hand = Hand()
    assert hand.disturb("", Fault(kind="hang", target="engine:0", at=0.0)) == 1
    os.waitpid(process.pid, os.WUNTRACED)
    assert process.status() == psutil.STATUS_STOPPED
    hand.end()
    os.waitpid(process.pid, os.WCONTINUED)
    process.kill()
    process.wait()


def test_a_slow_part_stands_and_goes_on_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    process = psutil.Popen(["sleep", "600"])
    monkeypatch.setattr("launch.tools.chaos.hand.find_target", lambda owner, target: [process])
    hand, seen = Hand(), set[str]()
    assert hand.disturb("", Fault(kind="slow", target="engine:0", at=0.0, lasts_s=600.0)) == 1
    deadline = time.monotonic() + 30
    while len(seen) < 2 and time.monotonic() < deadline:
        seen.add(process.status())
        time.sleep(0.02)
    hand.end()
    assert psutil.STATUS_STOPPED in seen and len(seen) > 1 and process.status() != psutil.STATUS_STOPPED
    process.kill()
    process.wait()
