"""The trackers in earnest: wandb offline, whose file is decoded and whose service is killed; TensorBoard's event files,
read by TensorBoard; trackio, where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from launch.config.compose import compose, to_yaml
from launch.driver.observe.trackers.base import TrackedRun, flatten_config
from launch.driver.observe.trackers.feed import Trackers
from launch.driver.observe.trackers.table import make_trackers
from launch.driver.observe.trackers.wandb_tracker import SERVICE
from rlsys.config.output import WandbConfig
from rlsys.types import EpisodeEnd, Message, Reward, Task, Timings, Trajectory
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


def made(folder: Path, *overrides: str, step: int = 0, settings: WandbConfig = CONFIG) -> Trackers:
    config = compose("quickstart", overrides)
    run = TrackedRun(
        directory=folder, name="quickstart seed 0", config=flatten_config(to_yaml(config)), step=step, settings=settings
    )
    return make_trackers(replace(config.recipe, wandb=settings), run)[0]


def play(trackers: Trackers, steps: range) -> None:
    """A table of two episodes every three steps, and an evaluation at the end."""
    episodes = [episode(value) for value in (0.5, 1.0, 0.0)]
    for step in steps:
        trackers.log({"step": step, "reward/mean": step / 2, "stage": "rl", "version": step})
        picks = trackers.choose_episodes(step, [[trajectory.reward] for trajectory in episodes])
        trackers.episodes(step, [episodes[place] for place, _ in picks])
    trackers.log_evaluation(steps[-1], "greedy", {"accuracy": 0.25, "reward": None})
    trackers.finish()


def episode(value: float) -> Trajectory:
    messages = (
        Message(role="user", content="q"),
        Message(role="assistant", content="caf\u00e9 \ud800\n<script>alert(1)</script>"),
    )
    return Trajectory(
        task=TASK,
        sibling=0,
        turns=(),
        messages=messages,
        end=EpisodeEnd.ANSWERED,
        reward=Reward(value=value, parts={"found": value}),
        timings=Timings(generate_s=0.0, tool_s=0.0, score_s=0.0),
        num_prompt=1,
    )


@pytest.fixture(scope="module")
def in_wandb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory after five steps."""
    folder = tmp_path_factory.mktemp("wandb")
    play(made(folder), range(1, 6))
    return folder


def test_what_reaches_wandb(in_wandb: Path) -> None:
    run = run_record(in_wandb)
    assert (run.run_group, list(run.tags), run.notes) == ("seeds", ["a", "b"], "try")
    assert (run.display_name, run.entity, run.project) == ("seed 3", "us", "rlsys")
    config = pairs(run.config.update)
    assert config["learner"]["lr"] == 1e-6 and config["stages"]["rl"]["kind"] == "rl"
    logged = rows(in_wandb)
    assert [row["reward/mean"] for row in logged if "reward/mean" in row] == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert [row["run/version"] for row in logged if "run/version" in row] == [1, 2, 3, 4, 5]
    evaluations = [row for row in logged if "held_out/greedy/accuracy" in row]
    assert [(row["step"], row["held_out/greedy/accuracy"]) for row in evaluations] == [(5, 0.25)]
    assert exit_codes(in_wandb) == [0]


def test_the_table_in_wandb_keeps_the_rows_of_earlier_steps(in_wandb: Path) -> None:
    first, second = [row for row in rows(in_wandb) if "samples._type" in row]  # at steps 1 and 4
    assert {row["samples._type"] for row in (first, second)} == {"incremental-table-file"}
    assert second["samples.previous_increments_paths"] == [first["samples.artifact_path"]]
    assert (first["samples.nrows"], second["samples.nrows"]) == (2, 4)
    files = [next((in_wandb / "wandb").glob(f"offline-run-*/files/{row['samples.path']}")) for row in (first, second)]
    tables = [json.loads(file.read_text()) for file in files]
    contents = [[dict(zip(table["columns"], row, strict=True)) for row in table["data"]] for table in tables]
    assert [[row["step"] for row in table] for table in contents] == [[1, 1], [4, 4]]
    assert [(row["reward"], row["end"], row["prompt"]) for row in contents[0]] == [
        (0.0, "answered", "user: q"),
        (1.0, "answered", "user: q"),
    ]
    assert contents[0][0]["messages"].startswith("assistant: caf\u00e9 \\ud800")
    assert json.loads(contents[0][1]["parts"]) == {"found": 1.0}


def test_a_continued_run_is_the_same_run_in_wandb(tmp_path: Path) -> None:
    run_ids = []
    for step in (0, 2):
        made(tmp_path, step=step).finish()
        (folder,) = (tmp_path / "wandb").glob("offline-run-*")
        run_ids.append(run_record(tmp_path).run_id)
        folder.rename(tmp_path / f"attempt-{step}")
    assert run_ids[0] == run_ids[1] == (tmp_path / "wandb_id").read_text()


def test_wandb_obeys_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"PROJECT": "mine", "NAME": "x", "ENTITY": "us", "RUN_GROUP": "g", "TAGS": "a,b", "MODE": "offline"}
    for name, value in variables.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    made(tmp_path, settings=WandbConfig()).finish()
    run = run_record(tmp_path)
    assert (run.project, run.display_name, run.entity, run.run_group) == ("mine", "x", "us", "g")
    assert list(run.tags) == ["a", "b"]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    play(made(tmp_path, "tracker=tensorboard"), range(1, 6))
    events = read_events(tmp_path / "tensorboard")
    points = [(event.step, event.value) for event in events.Scalars("reward/mean")]
    assert points == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0), (5, 2.5)]
    assert [(event.step, event.value) for event in events.Scalars("held_out/greedy/accuracy")] == [(5, 0.25)]
    assert "stage" not in events.Tags()["scalars"] and "run/version" in events.Tags()["scalars"]
    config, samples = (events.Tensors(f"{tag}/text_summary") for tag in ("config", "samples"))
    assert json.loads(text_of(config[0]))["learner"]["lr"] == 1e-6
    assert [sample.step for sample in samples] == [1, 4]  # of all steps, not the newest alone
    assert "task: t:1" in text_of(samples[0]) and "caf\u00e9" in text_of(samples[0])


def test_what_a_model_wrote_is_no_markup_in_tensorboard(tmp_path: Path) -> None:
    play(made(tmp_path, "tracker=tensorboard"), range(1, 2))
    (table,) = read_events(tmp_path / "tensorboard").Tensors("samples/text_summary")
    html = plugin_util.markdown_to_safe_html(text_of(table))
    assert "&lt;script&gt;alert(1)" in html and "<script" not in html


def test_steps_that_are_taken_again_are_one_line_in_tensorboard(tmp_path: Path) -> None:
    play(made(tmp_path, "tracker=tensorboard"), range(1, 6))
    play(made(tmp_path, "tracker=tensorboard", step=3), range(4, 7))  # continued from a checkpoint of step 3
    points = [(event.step, event.value) for event in read_events(tmp_path / "tensorboard").Scalars("reward/mean")]
    assert points == [(step, step / 2) for step in range(1, 7)]


def read_events(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    return events.Reload()


def text_of(event: Any) -> str:
    (text,) = event.tensor_proto.string_val
    return str(text.decode())


TRACKIO = """
import sys
from pathlib import Path
from tests.e2e.test_tracking import made, play
play(made(Path(sys.argv[1]), "tracker=trackio"), range(1, 6))
from trackio.sqlite_storage import SQLiteStorage
(name,) = SQLiteStorage.get_runs("rlsys")
play(made(Path(sys.argv[1]), "tracker=trackio", step=5), range(6, 7))
assert SQLiteStorage.get_runs("rlsys") == [name]
import json
print(json.dumps([name, SQLiteStorage.get_logs("rlsys", name)]))
"""


def test_trackio_keeps_a_run_in_its_own_database(tmp_path: Path) -> None:
    if find_spec("trackio") is None:
        pytest.skip("trackio is not installed: pip install -e .[trackio]")
    result = subprocess.run(
        [sys.executable, "-c", TRACKIO, str(tmp_path)],
        cwd=ROOT, env={**os.environ, "TRACKIO_DIR": str(tmp_path / "db")}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    name, logged = json.loads(result.stdout)  # nothing else was printed
    assert name == f"seed 3 {(tmp_path / 'trackio_id').read_text()}"
    assert [(row["step"], row["reward/mean"]) for row in logged if "reward/mean" in row] == [
        (step, step / 2) for step in range(1, 7)
    ]
    assert [row["held_out/greedy/accuracy"] for row in logged if "held_out/greedy/accuracy" in row] == [0.25, 0.25]
    assert [row["step"] for row in logged if "samples" in row] == [1, 4, 6]


SCRIPT = """
import sys, signal, psutil, time
from pathlib import Path
from launch.driver.observe.trackers.base import TrackedRun
from launch.driver.observe.trackers.feed import Trackers
from launch.driver.observe.trackers.wandb_tracker import WandbTracker
from rlsys.config.output import WandbConfig
settings = WandbConfig(mode="offline")
run = TrackedRun(directory=Path(sys.argv[1]), name="r", config={}, step=0, settings=settings)
tracker = Trackers({"wandb": WandbTracker(run)})
tracker.log({"step": 1})
for child in psutil.Process().children(recursive=True):
    child.send_signal(signal.SIGTERM)
    child.wait(60)
tracker.log({"step": 2})
tracker.finish()
"""


def test_a_stopped_ray_job_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sends SIGTERM to all that descends from the job's command; the run then writes its last step."""
    for name in ("RAY_JOB_ID", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.setenv(name, os.environ.get(name, "{}"))
    monkeypatch.setenv("RLSYS_OWNER", f"test:{os.getpid()}")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    survivors = [proc for proc in psutil.process_iter() if proc.name() == "wandb-core" and owned(proc)]
    for process in survivors:
        process.kill()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert [row["step"] for row in rows(tmp_path)] == [1, 2] and exit_codes(tmp_path) == [0]
    assert len(survivors) == 1  # `launch.driver.run.cleanup` ends what bears the run's tag


def owned(process: psutil.Process) -> bool:
    try:
        return process.environ().get("RLSYS_OWNER") == f"test:{os.getpid()}"
    except psutil.Error:
        return False


def test_a_service_that_died_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != SERVICE}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "")
    assert len(result.stderr.splitlines()) == 1 and "wandb stopped taking rows" in result.stderr


pytestmark = pytest.mark.e2e
