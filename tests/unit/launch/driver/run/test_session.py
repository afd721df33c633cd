"""However a run ends, it leaves a summary, and says what was saved."""

import asyncio
import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.checks.machine import advise_stop_deadline
from launch.config.compose import compose
from launch.driver.checkpoints.checkpoint import RESERVE, DriverState
from launch.driver.run import session
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from launch.driver.run.session import closing_line, go_through, write_summary
from launch.driver.run.tasks import Tasks
from launch.driver.stages.train import train
from rlsys.errors import BadInput, RunFailed, describe_error, last_line
from rlsys.journal import ledger, read_journal, surviving_rows
from rlsys.seals import own_digest
from rlsys.system.device import DEVICES, resolve_run
from tests.fakes.bandit import bandit_run
from tests.fakes.parts import BanditPool
from tests.makers.made import records


@pytest.fixture(autouse=True)
def _no_long_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process holds far more than a driver: half a second each."""
    monkeypatch.setattr(session, "keep_imports", lambda: None)


RECIPE = """
name: bandit
env: {name: calculator, train_tasks: 16, held_out_tasks: 4}
loop: {groups_per_step: 4, group_size: 4}
learner: {lr: 2.0}
checkpoint: {every: 2}
wandb: {mode: disabled}
incidents: {keep: 0}
stages: [{name: rl, kind: rl, steps: 7}]
"""


class Pool(BanditPool):
    async def stop(self) -> None: ...


def bandit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Run:
    """A run whose parts are started by `go_through`."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    config = resolve_run(compose(str(tmp_path / "recipe.yaml"), list(overrides)), DEVICES["cpu"])
    directory = RunDir(tmp_path / "run")
    directory.keep_reserve()
    pool = Pool()

    async def start_parts(run: Run, *, engines: bool) -> None:
        run.tasks.pool_start = asyncio.create_task(pool.start())

    monkeypatch.setattr(session, "start_parts", start_parts)
    return bandit_run(config, directory, pool)


def summary(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run.dir.path / "summary.json").read_text())
    return content


def test_a_run_that_is_done_leaves_a_summary_and_no_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    assert (run.dir.path / RESERVE).stat().st_size == 2**16
    assert asyncio.run(go_through(run, train, engines=True)) == 0
    assert summary(run)["status"] == "done" and summary(run)["sha256"] == own_digest(summary(run))
    assert summary(run)["wall_s"] == round(run.wall_s, 1)  # which the closing line has
    assert not (run.dir.path / RESERVE).exists()
    events = records(run.dir.path / "events.jsonl")
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-1]) == ("begin", "end") and events[-1]["text"] == closing_line(run, "done")
    assert kinds.count("stage") == 1 and kinds.count("evaluation") == 2
    saved = [event["step"] for event in events if event["kind"] == "checkpoint"]
    assert saved == sorted(saved) and len(saved) == 4  # of steps 2, 4, 6 and 7, when they were written
    rows = records(run.dir.path / "metrics.jsonl")
    times = [row["time"] for row in rows]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 600


@pytest.mark.parametrize("room", [True, False], ids=["the reserve is enough", "not even that"])
def test_a_full_disk_is_one_line_with_its_file_and_leaves_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: bool
) -> None:
    run = bandit(tmp_path, monkeypatch)
    fsync = os.fsync

    def full(file: int) -> None:
        saved = "checkpoints" in os.readlink(f"/proc/self/fd/{file}")  # that of step 4 is written beside step 5
        if run.state.step >= 5 and not saved and not (room and not (run.dir.path / RESERVE).exists()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        asyncio.run(go_through(run, train, engines=True))
    line = f"{run.dir.journal}: No space left on device"
    assert describe_error(caught.value) == line
    newest = run.dir.newest()
    assert newest is not None
    assert newest.name in ("step-000002", "step-000004")  # that of step 4 where its seal was written by then
    if room:
        assert (summary(run)["status"], summary(run)["reason"]) == ("failed", line)
        assert ledger(surviving_rows(read_journal(run.dir.journal))).problems == ()
    else:
        assert not (run.dir.path / "summary.json").exists()
        assert f"no summary was written: {run.dir.journal}" in capsys.readouterr().out


def test_a_failure_names_the_folder_of_what_was_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch, "incidents.keep=2")

    async def broken() -> None:
        raise RunFailed("the ranks are gone")

    monkeypatch.setattr(run.learner, "write", broken)
    with pytest.raises(RunFailed) as caught:
        asyncio.run(go_through(run, train, engines=True))
    (folder,) = (run.dir.path / "incidents").iterdir()
    assert last_line(caught.value) == f"the ranks are gone; what was collected of it: {folder}"
    assert "the ranks are gone" in (folder / "incident.md").read_text()
    assert summary(run)["reason"] == "the ranks are gone"


def test_a_signal_from_before_the_loop_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    monkeypatch.setattr(session.cleanup, "pending_signals", lambda: [signal.SIGTERM])
    assert asyncio.run(go_through(run, train, engines=True)) == 143
    assert summary(run)["status"] == "stopped"
    assert run.state.step == 0


@pytest.mark.parametrize("when", ["snapshot", "write"])
@pytest.mark.parametrize(("free", "found"), [(100, "step-000002.tmp: No space left on device"), (2**30, "torch says")])
def test_a_half_written_checkpoint_ends_the_run_and_leaves_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, found: str, when: str
) -> None:
    run = bandit(tmp_path, monkeypatch)

    async def broken(*_: Any) -> None:
        next((run.dir.path / "checkpoints").glob(".step*")).joinpath("hf").mkdir()
        raise RunFailed("torch says: unexpected pos 5781888 vs 5781776")

    monkeypatch.setattr(run.learner, when, broken)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises((OSError, RunFailed)) as caught:
        asyncio.run(go_through(run, train, engines=True))
    assert found in describe_error(caught.value) and found in summary(run)["reason"]
    assert list((run.dir.path / "checkpoints").iterdir()) == []


def test_steps_are_taken_while_a_checkpoint_is_written_and_the_next_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bandit(tmp_path, monkeypatch)
    write, beside, at_work = run.learner.write, [], [0]

    async def slow() -> None:
        begun, at_work[0] = run.state.step, at_work[0] + 1
        assert at_work[0] == 1
        while run.state.step == begun < 6:  # after six steps there is one left, which has its own checkpoint
            await asyncio.sleep(0)
        beside.append(run.state.step - begun)
        await write()
        at_work[0] -= 1

    monkeypatch.setattr(run.learner, "write", slow)
    assert asyncio.run(go_through(run, train, engines=True)) == 0
    assert beside == [1, 1, 0, 0]  # of steps 2, 4, 6 and 7
    newest = [run.dir.load_state(path) for path in run.dir.checkpoints()]
    assert [(state.step, state.stage_index) for state in newest] == [(6, 0), (7, 1)]


@pytest.mark.parametrize("in_time", [True, False])
def test_a_stop_ends_the_checkpoint_that_is_written_and_saves_what_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_time: bool
) -> None:
    run = bandit(tmp_path, monkeypatch)
    monkeypatch.setattr(Tasks, "grace_s", 20.0 if in_time else 0.01)
    write = run.learner.write

    async def slow() -> None:
        while run.state.step < 3:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await (write() if in_time else asyncio.Event().wait())

    monkeypatch.setattr(run.learner, "write", slow)
    assert asyncio.run(go_through(run, train, engines=True)) == 143
    assert summary(run)["status"] == "stopped"
    saved = [path.name for path in (run.dir.path / "checkpoints").iterdir() if not path.name.startswith(".")]
    assert sorted(saved) == (["step-000002", f"step-{run.state.step:06d}"] if in_time else [])
    late = "no checkpoint was written within 30 s of the stop (checkpoint.stop_deadline_s)"
    assert (late in capsys.readouterr().out) == (not in_time)


def test_a_job_that_would_be_killed_before_its_last_checkpoint_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert advise_stop_deadline(30) is None  # no job
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    advice = advise_stop_deadline(30)
    assert advice is not None and "after 3 s" in advice and '"RAY_JOB_STOP_WAIT_TIME_S": "50"' in advice
    monkeypatch.setenv("RAY_JOB_STOP_WAIT_TIME_S", "50")
    assert advise_stop_deadline(30) is None


def test_the_closing_line_counts_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    run.state.step = 3
    assert closing_line(run, "stopped").endswith("; the same command continues it from the beginning")
    run.dir.commit_checkpoint(run.dir.begin_checkpoint(30), DriverState(step=30), keep=2)
    run.state.step = 32  # and the stop gave up on saving it
    assert "stopped after 32 steps" in closing_line(run, "stopped")
    assert closing_line(run, "stopped").endswith("; the same command continues it from step 30")
    assert "continues" not in closing_line(run, "done")


def test_a_run_that_got_worse_does_not_end_in_plain_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    for step, now in ((0, 0.95), (12, 0.0)):
        numbers = {"greedy/accuracy": now, "greedy/accuracy_low": now - 0.02, "greedy/accuracy_high": now + 0.02}
        place = {"step": step, "stage": "rl", "when": "after" if step else "before", "prompts": {"greedy": "p"}}
        run.dir.save_evaluation(place | numbers)
    run.state.step = 12
    assert ", but held-out accuracy fell from 0.950 to 0.000 (greedy, from step 0 to 12)" in closing_line(run, "done")
    write_summary(run, "done", None)
    (finding,) = summary(run)["health"]
    assert (finding["what"], finding["first_step"], finding["last_step"]) == ("held_out", 0, 12)
    assert "learner.lr (now 2)" in finding["says"]


def test_errors_of_files_are_told_with_their_name() -> None:
    assert describe_error(OSError(errno.ENOSPC, "No space left on device", "/a/b")) == "/a/b: No space left on device"
    assert describe_error(ConnectionError("refused")) == "ConnectionError: refused"
    assert describe_error(BadInput("seed=x")) == "seed=x"
