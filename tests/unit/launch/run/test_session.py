"""However a run ends, it leaves a summary, and says what was saved."""

import asyncio
import errno
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.services import Services
from envs import make_world
from launch.config.compose import compose
from launch.run import session
from launch.run.checkpoints import DriverState
from launch.run.progress import Progress
from launch.run.run import Run
from launch.run.rundir import RESERVE, RunDir
from launch.run.session import closing_line, go_through
from launch.stages.train import train
from rlsys.channels.shm import SharedMemory
from rlsys.device import DEVICES, resolved_run
from rlsys.errors import BadInput, RunFailed, told
from rlsys.journal import Journal, ledger, read, surviving
from tests.fakes import BanditLearner, BanditPool

RECIPE = """
name: bandit
env: {name: calculator, train_tasks: 16, held_out_tasks: 4}
loop: {groups_per_step: 4, group_size: 4}
learner: {lr: 2.0}
checkpoint: {every: 2}
wandb: {mode: disabled}
stages: [{name: rl, kind: rl, steps: 7}]
"""


class Renderer:
    def prompt_ids(self, messages: Any) -> tuple[int, ...]:
        return (7, 7)


class NoTracker:
    def log(self, row: Any) -> None: ...
    def set(self, row: Any) -> None: ...
    def evaluated(self, step: int, name: str, values: Any) -> None: ...
    def episodes(self, step: int, groups: Any) -> None: ...
    def finish(self) -> None: ...


class Pool(BanditPool):
    async def stop(self) -> None: ...


def bandit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose parts are started by `go_through`."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    config = resolved_run(compose(str(tmp_path / "recipe.yaml"), []), DEVICES["cpu"])
    directory = RunDir(tmp_path / "run")
    directory.keep_reserve()
    pool = Pool()

    async def start_parts(run: Run, *, engines: bool) -> None:
        run.pool_start = asyncio.create_task(pool.start())

    monkeypatch.setattr(session, "start_parts", start_parts)
    return Run(
        config=config,
        dir=directory,
        state=DriverState(),
        journal=Journal(directory.journal, keep=0),
        world=make_world(config.recipe.env),
        renderer=Renderer(),  # type: ignore[arg-type]
        device=None,  # type: ignore[arg-type]
        learner=BanditLearner(),  # type: ignore[arg-type]
        pool=pool,  # type: ignore[arg-type]
        services=Services([], env_vars={}, start_timeout_s=1),
        progress=Progress(),
        tracker=NoTracker(),  # type: ignore[arg-type]
        gauges=NoTracker(),  # type: ignore[arg-type]
        weights=SharedMemory(tmp_path / "weights"),
        model_path=str(tmp_path),
    )


def summary(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.dir.path / "summary.json").read_text())
    return found


def test_a_run_that_is_done_leaves_a_summary_and_no_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    assert (run.dir.path / RESERVE).stat().st_size == 2**16
    assert asyncio.run(go_through(run, train, engines=True)) == 0
    assert summary(run)["status"] == "done"
    assert not (run.dir.path / RESERVE).exists()


@pytest.mark.parametrize("room", [True, False], ids=["the reserve is enough", "not even that"])
def test_a_full_disk_is_one_line_with_its_file_and_leaves_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: bool
) -> None:
    run = bandit(tmp_path, monkeypatch)
    fsync = os.fsync

    def full(file: int) -> None:
        if run.state.step >= 5 and not (room and not (run.dir.path / RESERVE).exists()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        asyncio.run(go_through(run, train, engines=True))
    line = f"{run.dir.journal}: No space left on device"
    assert told(caught.value) == line
    newest = run.dir.newest()
    assert newest is not None
    assert newest.name == "step-000004"
    if room:
        assert (summary(run)["status"], summary(run)["reason"]) == ("failed", line)
        assert ledger(surviving(read(run.dir.journal))).problems == ()
    else:
        assert not (run.dir.path / "summary.json").exists()
        assert f"no summary was written: {run.dir.journal}" in capsys.readouterr().out


def test_a_signal_from_before_the_loop_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    monkeypatch.setattr(session.cleanup, "noted", lambda: [signal.SIGTERM])
    assert asyncio.run(go_through(run, train, engines=True)) == 143
    assert summary(run)["status"] == "stopped"
    assert run.state.step == 0


@pytest.mark.parametrize(("free", "found"), [(100, "step-000000.tmp: No space left on device"), (2**30, "torch says")])
def test_a_half_written_checkpoint_leaves_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, found: str
) -> None:
    run = bandit(tmp_path, monkeypatch)

    async def save(folder: Path, tokenizer_from: str) -> None:
        (folder / "hf").mkdir()
        raise RunFailed("torch says: unexpected pos 5781888 vs 5781776")

    run.learner.save = save  # type: ignore[method-assign]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises((OSError, RunFailed)) as caught:
        asyncio.run(run.checkpoint(run.config.stages[0]))
    assert found in told(caught.value)
    assert list((run.dir.path / "checkpoints").iterdir()) == []


def test_the_closing_line_counts_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(tmp_path, monkeypatch)
    run.state.step = 3
    assert closing_line(run, "stopped").endswith("; the same command continues it from the beginning")
    run.dir.commit_checkpoint(run.dir.begin_checkpoint(30), DriverState(step=30), keep=2)
    run.state.step = 32  # and the stop gave up on saving it
    assert "stopped after 32 steps" in closing_line(run, "stopped")
    assert closing_line(run, "stopped").endswith("; the same command continues it from step 30")
    assert "continues" not in closing_line(run, "done")


def test_errors_of_files_are_told_with_their_name() -> None:
    assert told(OSError(errno.ENOSPC, "No space left on device", "/a/b")) == "/a/b: No space left on device"
    assert told(ConnectionError("refused")) == "ConnectionError: refused"
    assert told(BadInput("seed=x")) == "seed=x"
