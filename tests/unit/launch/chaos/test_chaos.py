"""Faults as they are written and drawn, whom they hit, and the table of what they cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from launch.chaos.disturb import Disturbed, Done, first_row
from launch.chaos.faults import Fault, Kind, draw_faults, parse_fault, parse_rate
from launch.chaos.processes import find_target, signal_all
from launch.chaos.table import describe, settle
from launch.cli import run as rlsys
from launch.config.compose import to_yaml
from rlsys.system import orphans, parts
from tests.refused import refused
from tests.unit.launch.stages.test_rl import play


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("kill", "rollout:1@30s", Fault(kind="kill", target="rollout:1", at_s=30.0)),
        ("kill", "driver@1.5s", Fault(kind="kill", target="driver", at_s=1.5)),
        ("hang", "retriever@60s+20s", Fault(kind="hang", target="retriever", at_s=60.0, lasts_s=20.0)),
        ("slow", "engine:0@5s", Fault(kind="slow", target="engine:0", at_s=5.0, lasts_s=20.0)),
        ("fill", "disk@5s+3s", Fault(kind="fill", target="disk", at_s=5.0, lasts_s=3.0)),
    ],
)
def test_a_fault_is_what_and_when(kind: Kind, text: str, fault: Fault) -> None:
    assert parse_fault(kind, text) == fault


@pytest.mark.parametrize(
    ("kind", "text"),
    [("kill", "rollout:1"), ("kill", "rollout:1@30"), ("kill", "rollout:1@30s+5s"), ("fill", "driver@3s"),
     ("kill", "disk@3s"), ("hang", "@3s"), ("slow", "rollout:x@3s")],
)  # fmt: skip
def test_what_is_no_fault_is_refused(kind: Kind, text: str) -> None:
    with refused(f"--{kind}", found=text):
        parse_fault(kind, text)


def test_drawn_faults_come_at_their_rate_hit_every_role_and_are_those_of_the_seed() -> None:
    def drawn(seed: int) -> list[Fault]:
        return list(draw_faults(parse_rate("30/h"), seed, workers=2, ranks=2, services=["retriever"], most=2000))

    found = drawn(3)
    gaps = [after.at_s - before.at_s for before, after in pairwise(found)]
    assert sum(gaps) / len(gaps) == pytest.approx(120.0, rel=0.1) and min(gaps) >= 0
    roles = Counter(each.target.split(":")[0] for each in found)
    assert roles.keys() == {"rollout", "engine", "worlds", "learner", "weights", "retriever", "driver"}
    assert found == drawn(3) != drawn(4)
    assert parse_rate("2/min") == parse_rate("120/h")


def test_a_part_is_found_by_what_its_processes_inherit() -> None:
    """And neither that of another run, nor what another part has started."""
    owner = f"machine:{os.getpid()}:1"
    code = "import sys, time; print('up', flush=True); time.sleep(60)"

    def start(part: str, *words: str, of: str = owner) -> subprocess.Popen[str]:
        env = os.environ | {parts.VARIABLE: part, orphans.VARIABLE: of}
        process = subprocess.Popen([sys.executable, "-c", code, *words], env=env, text=True, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    started = {
        "engine": start("rollout:1", "EngineCore"),
        "other number": start("rollout:0", "EngineCore"),
        "other run": start("rollout:1", "EngineCore", of="machine:1:1"),
        "worlds": start("rollout:1", "actors.world_process"),
    }
    try:
        assert [each.pid for each in find_target(os.getpid(), "engine:1")] == [started["engine"].pid]
        assert [each.pid for each in find_target(os.getpid(), "worlds:1")] == [started["worlds"].pid]
        assert find_target(os.getpid(), "learner:0") == []
        found = find_target(os.getpid(), "engine:1")
        assert signal_all(found, signal.SIGKILL) == 1 and started["engine"].wait(10) == -signal.SIGKILL
        assert signal_all(found, signal.SIGKILL) == 0
        assert [each.pid for each in find_target(os.getpid(), "driver")] == [os.getpid()]
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
    began = first_row(run, "rl")
    assert time.time() - 60 < began < time.time() and first_row(run, "sft") == 0.0
    hit, missed = (Done(fault=Fault(kind="kill", target=target, at_s=0.0), time=began - 0.5, processes=count)
                   for target, count in (("rollout:0", 1), ("weights", 0)))  # fmt: skip
    found = settle(Disturbed(code=0, began=began, ended=began + 9, done=[hit, missed], starts=[began, began]), run)
    assert found.costs[0].next_step_s == 0.5 and found.costs[1].next_step_s is None
    assert found.holds and found.starts == 2 and found.steps_again == 0
    lines = describe(found)
    assert "kill rollout:0" in lines[1] and "weights (not there)" in lines[2]
    assert lines[-1] == "audit: nothing was lost, trained twice or changed"
    path = run / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 5', '"step": 6', 1))
    assert not settle(Disturbed(code=0, began=began, ended=began + 9), run).holds


def test_bad_input_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for words, says in (
        ([], "no fault was asked for"),
        (["--kill", "rollout:0@1s", "--run-dir", str(tmp_path / "used")], "it is not empty"),
        (["--random", "often"], "--random often"),
        (["--kill", "rollout:0@1s", "stages.rl=null"], "no stage of it plays"),
    ):
        assert rlsys(["chaos", "quickstart", *words]) == 2
        assert says in capsys.readouterr().err
    assert not [each for each in psutil.Process().children(recursive=True) if "launch" in each.cmdline()]
