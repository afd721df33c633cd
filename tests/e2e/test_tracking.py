"""wandb in earnest, offline: its file is decoded, its service is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launch.config.compose import compose, to_yaml
from launch.observe.tracking import SERVICE, Tracker, flatten_config
from rlsys.config.output import WandbConfig
from rlsys.types import EpisodeEnd, Group, Message, Reward, Task, Ticket, Timings, Trajectory
from tests.e2e.runs import ROOT
from tests.wandb_file import exit_codes, pairs, rows, run_record

CONFIG = WandbConfig(
    mode="offline",
    group="seeds",
    tags=("a", "b"),
    notes="try",
    name="seed 3",
    entity="us",
    samples=2,
    samples_every=3,
)
TASK = Task(task_id="t:1", question="q")


def group(*values: float) -> Group:
    ticket = Ticket(sequence=0, epoch=0, task=TASK, attempt=0, start_version=0)
    said = (Message(role="user", content="q"), Message(role="assistant", content="caf\u00e9 \ud800"))
    episodes = [
        Trajectory(
            task=TASK,
            sibling=sibling,
            turns=(),
            messages=said,
            end=EpisodeEnd.ANSWERED,
            reward=Reward(value=value, parts={"found": value}),
            timings=Timings(generate_s=0.0, tool_s=0.0, score_s=0.0),
            num_prompt=1,
        )
        for sibling, value in enumerate(values)
    ]
    return Group(ticket=ticket, trajectories=tuple(episodes), worker="w")


def tell_episodes(tracker: Tracker, step: int, group: Group) -> None:
    chosen = tracker.choose_episodes(step, [each.reward for each in group.trajectories])
    tracker.episodes(step, [group.trajectories[place] for place in chosen])


def test_what_reaches_wandb(tmp_path: Path) -> None:
    tracker = Tracker(CONFIG, tmp_path, "recipe", flatten_config(to_yaml(compose("quickstart", []))))
    for step in range(1, 6):
        tracker.log({"step": step, "reward/mean": step / 2, "stage": "rl"})
        tell_episodes(tracker, step, group(0.5, 1.0, 0.0))
    tracker.log_evaluation(5, "greedy", {"accuracy": 0.25, "reward": None})
    tracker.finish()

    run = run_record(tmp_path)
    assert (run.run_group, list(run.tags), run.notes) == ("seeds", ["a", "b"], "try")
    assert (run.display_name, run.entity, run.project) == ("seed 3", "us", "rlsys")
    config = pairs(run.config.update)
    assert config["learner"]["lr"] == 1e-6 and config["stages"]["rl"]["kind"] == "rl"
    logged = rows(tmp_path)
    assert [row["reward/mean"] for row in logged if "reward/mean" in row] == [0.5, 1.0, 1.5, 2.0, 2.5]
    evaluations = [row for row in logged if "held_out/greedy/accuracy" in row]
    assert [(row["step"], row["held_out/greedy/accuracy"]) for row in evaluations] == [(5, 0.25)]
    tables = sorted((tmp_path / "wandb").glob("offline-run-*/files/media/table/*.json"))
    assert len(tables) == 2  # at steps 1 and 4
    table = json.loads(tables[0].read_text())
    shown = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["reward"], row["end"], row["prompt"]) for row in shown] == [
        (0.0, "answered", "user: q"),
        (1.0, "answered", "user: q"),
    ]
    assert shown[0]["messages"] == "assistant: caf\u00e9 \\ud800" and json.loads(shown[1]["parts"]) == {"found": 1.0}
    assert exit_codes(tmp_path) == [0]


def test_wandb_obeys_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"PROJECT": "mine", "NAME": "x", "ENTITY": "us", "RUN_GROUP": "g", "TAGS": "a,b", "MODE": "offline"}
    for name, value in given.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    Tracker(WandbConfig(), tmp_path, "quickstart seed 3", {}).finish()
    run = run_record(tmp_path)
    assert (run.project, run.display_name, run.entity, run.run_group) == ("mine", "x", "us", "g")
    assert list(run.tags) == ["a", "b"]


SCRIPT = """
import sys, signal, psutil, time
from pathlib import Path
from launch.observe.tracking import Tracker
from rlsys.config.output import WandbConfig
tracker = Tracker(WandbConfig(mode="offline"), Path(sys.argv[1]), "r", {})
tracker.log({"step": 1})
for child in psutil.Process().children(recursive=True):
    child.send_signal(signal.SIGTERM)
    child.wait(30)
tracker.log({"step": 2})
tracker.finish()
"""


def test_a_stopped_ray_job_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sends SIGTERM to all that descends from the job's command; the run then writes its last step."""
    for name in ("RAY_JOB_ID", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.setenv(name, os.environ.get(name, "{}"))
    monkeypatch.setenv("RLSYS_OWNER", f"test:{os.getpid()}")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    left = [each for each in psutil.process_iter() if each.name() == "wandb-core" and owned(each)]
    for each in left:
        each.kill()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [row["step"] for row in rows(tmp_path)] == [1, 2] and exit_codes(tmp_path) == [0]
    assert len(left) == 1  # `launch.run.cleanup` ends what bears the run's tag


def owned(process: psutil.Process) -> bool:
    try:
        return process.environ().get("RLSYS_OWNER") == f"test:{os.getpid()}"
    except psutil.Error:
        return False


def test_a_service_that_died_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != SERVICE}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wandb stopped taking rows: Connection lost\n"


def test_no_samples_no_table(tmp_path: Path) -> None:
    tracker = Tracker(replace(CONFIG, samples=0), tmp_path, "recipe", {})
    tell_episodes(tracker, 1, group(1.0))
    tracker.finish()
    assert not list(tmp_path.glob("wandb/**/*.table.json"))


pytestmark = pytest.mark.e2e
