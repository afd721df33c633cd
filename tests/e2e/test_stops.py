"""Stopped, terminated and killed: the run goes on where it was, and no process outlives it."""

import contextlib
import json
import signal
from pathlib import Path

import psutil
import pytest

from launch.driver.run import cleanup
from rlsys.journal import ledger, read_journal, surviving_rows
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary
from tests.makers.made import records

SHORT = ["stages.sft.steps=6", "stages.rl.steps=20", "loop.groups_per_step=8", "loop.group_size=4", "eval.tasks=8"]
SHORT += ["checkpoint.every=2", "stages.sft.loop.groups_per_step=8", "stages.rl.loop.groups_per_step=8"]


def test_a_run_that_is_terminated_while_ray_starts_leaves_nothing(tmp_path: Path) -> None:
    """Ray takes the signal's handler away."""
    command = ["train", "quickstart", "--run-dir", str(tmp_path / "run"), *SHORT]
    terminated = rlsys(*command, send=signal.SIGTERM, marker="starting Ray")
    assert terminated.code == 143, terminated.output[-2000:]
    assert left_behind() == []


@pytest.mark.slow
def test_a_run_that_is_terminated_killed_and_interrupted_comes_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["train", "quickstart", "--run-dir", str(run), *SHORT]

    # SIGTERM while Ray starts, which takes the signal's handler away
    terminated = rlsys(*command, send=signal.SIGTERM, marker="starting Ray")
    assert terminated.code == 143, terminated.output[-2000:]
    assert left_behind() == []

    # SIGTERM in the supervised stage, while the engines are still starting
    stopped = rlsys(*command, send=signal.SIGTERM, when=lambda: steps_of(run, "sft") >= 2)
    assert stopped.code == 143, stopped.output[-2000:]
    assert summary(run)["status"] == "stopped"
    assert left_behind() == []

    # SIGKILL in the loop: nobody could tidy up, the next run does
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: steps_of(run, "rl") >= 3)
    assert killed.code == -signal.SIGKILL, killed.output[-2000:]

    # Ctrl-C
    interrupted = rlsys(*command, "--resume", send=signal.SIGINT, when=lambda: steps_of(run, "rl") >= 7)
    assert interrupted.code == 130, interrupted.output[-2000:]
    assert "continuing from step-" in interrupted.output
    assert left_behind() == []

    # a byte flipped in the newest checkpoint: found before anything starts, and the one before it is offered
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    damaged = next(newest.rglob("*optim_states.pt"))
    original = damaged.read_bytes()
    damaged.write_bytes(original[:-1000] + bytes([original[-1000] ^ 1]) + original[-999:])
    refused = rlsys(*command)
    assert refused.code == 2, refused.output[-2000:]
    assert f"error: {damaged}: damaged" in refused.output
    assert "--resume-from step-" in refused.output
    damaged.write_bytes(original)

    result = rlsys(*command)
    assert result.code == 0, result.output[-2000:]
    assert left_behind() == []
    assert [row["step"] for row in rows(run)] == list(range(1, 27))
    book = ledger(surviving_rows(read_journal(run / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (160, 0, ())
    assert summary(run)["status"] == "done"
    audited = rlsys("audit", str(run))
    assert audited.code == 0, audited.output

    # what the run says of itself: each process, also the one that never got to Ray, and where it was killed
    attempts = json.loads((run / "run.json").read_text())["attempts"]
    steps = [attempt["from_step"] for attempt in attempts]
    assert len(steps) == 5 and steps == sorted(steps) and steps[:2] == [0, 0] < steps[-1:]
    assert all(attempt["commit"] or attempt["source"] for attempt in attempts)
    events = records(run / "events.jsonl")
    kinds = [event["kind"] for event in events if event["kind"] in ("begin", "stop", "end")]
    assert kinds == ["begin", "stop", "end", "begin", "begin", "stop", "end", "begin", "end"]
    assert [event["from_step"] for event in events if event["kind"] == "begin"] == steps[1:]
    index = records(run / "trajectories" / "index.jsonl")
    assert len({(row["file"], row["offset"]) for row in index}) == len(index)
    for file in {row["file"] for row in index}:
        content = (run / "trajectories" / file).read_bytes()
        places = [(row["offset"], row["length"]) for row in index if row["file"] == file]
        assert b"".join(content[offset : offset + length] for offset, length in places) == content
    assert {path.name for path in (run / "trajectories").iterdir()} == {row["file"] for row in index} | {"index.jsonl"}


LOOKS = 10  # at a row, each a twentieth of a second after the other: then the next update has begun


@pytest.mark.slow
def test_a_stop_in_an_update_leaves_it_and_the_run_comes_to_the_weights_of_one_that_was_not_stopped(
    tmp_path: Path,
) -> None:
    """Supervised, of two ranks, which is the same each time; an update has hundreds of rows."""
    keys = ["stages.rl=null", "stages.sft.steps=3", "stages.sft.loop.groups_per_step=256", "learner.tokens_per_row=32"]
    keys += ["learner.ranks=2", "learner.threads=1", "stages.sft.eval.every=0", "wandb.mode=disabled"]
    run, reference, looks = tmp_path / "run", tmp_path / "whole", list[int]()

    def in_update() -> bool:
        looks.extend([1] * steps_of(run, "sft"))
        return len(looks) >= LOOKS

    command = ["train", "quickstart", *keys, "--run-dir"]
    stopped = rlsys(*command, str(run), send=signal.SIGTERM, when=in_update)
    assert stopped.code == 143, stopped.output[-2000:]
    steps = summary(run)["steps"]
    assert f"the update of step {steps + 1} was left" in stopped.output
    assert 1 <= steps < 3 and [path.name for path in (run / "checkpoints").glob("step-*")] == [f"step-{steps:06d}"]
    assert rlsys(*command, str(run)).code == rlsys(*command, str(reference)).code == 0
    assert [row["step"] for row in rows(run)] == [1, 2, 3]
    weights = [
        (path / "checkpoints" / "step-000003" / "hf" / "model.safetensors").read_bytes() for path in (run, reference)
    ]
    assert weights[0] == weights[1]
    assert left_behind() == []


@pytest.mark.slow
def test_a_finished_run_goes_on_with_more_steps(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["train", "quickstart", "--run-dir", str(run), "stages.rl=null", "stages.sft.loop.groups_per_step=8"]
    command += ["stages.sft.learner.warmup_steps=0"]
    assert rlsys(*command, "stages.sft.steps=4").code == 0
    longer = rlsys(*command, "--resume", "stages.sft.steps=+3")
    assert longer.code == 0, longer.output[-2000:]
    assert "continuing from step-000004: stage sft, step 4" in longer.output
    assert [row["stage_step"] for row in rows(run)] == list(range(1, 8))
    assert (summary(run)["status"], summary(run)["steps"]) == ("done", 7)
    rerun = rlsys(*command, "stages.sft.steps=7")
    assert (rerun.code, "is finished after 7 steps" in rerun.output) == (0, True)


def end_rank(run: Path) -> None:
    """SIGKILL to the learner's only rank."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, KeyError):
            driver = psutil.Process(int(process.environ()[cleanup.VARIABLE].split(":")[1]))
            if "LearnerActor" in " ".join(process.cmdline()) and str(run) in driver.cmdline():
                process.kill()


@pytest.mark.slow
def test_a_stage_with_a_reference_outlives_its_first_checkpoint_and_its_rank(tmp_path: Path) -> None:
    """Five checkpoints in one process, of which two are kept; the rank dies after the fourth; then five steps more."""
    run, fourth = tmp_path / "run", "step-000042"
    died: list[str] = []
    command = ["train", "quickstart", "--run-dir", str(run), "algorithm.kl_coef=0.01", "checkpoint.every=3"]
    command += ["checkpoint.keep=2", "stages.sft.steps=30", "stages.rl.loop.groups_per_step=8", "eval.tasks=4"]

    def kill_once() -> bool:
        if not died and (run / "checkpoints" / fourth).is_dir():
            died.append(fourth)
            end_rank(run)
        return False

    result = rlsys(*command, "stages.rl.steps=15", send=signal.SIGTERM, when=kill_once)
    assert result.code == 0, result.output[-3000:]
    assert died and summary(run)["restarts"]["learner"] == 1
    events = records(run / "events.jsonl")
    lost, back = (next(event for event in events if event["kind"] == kind) for kind in ("lost", "restart"))
    assert lost["who"] == back["who"] == "learner" and lost["time"] < back["time"] and back["recovered_s"] > 0
    origin = (run / "checkpoints" / "step-000045" / "learner" / "reference" / "model.safetensors").stat()
    assert origin.st_nlink == 2  # in each checkpoint that is kept, and one file
    longer = rlsys(*command, "--resume", "stages.rl.steps=+5")
    assert longer.code == 0, longer.output[-3000:]
    assert [row["step"] for row in rows(run)] == list(range(1, 51))
    assert all(row["kl/reference"] >= 0 for row in rows(run) if row["stage"] == "rl" and row["tokens/trained"])
    assert left_behind() == []


def end_node_manager(run: Path) -> None:
    """SIGKILL to the raylet of a run's own cluster."""
    for driver in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(run) in driver.cmdline():
                for child in driver.children():
                    if child.name() == "raylet":
                        child.kill()


@pytest.mark.slow
def test_the_death_of_rays_node_manager_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["train", "quickstart", "--run-dir", str(run), *SHORT]
    killed: list[int] = []

    def kill_once() -> bool:
        if not killed and steps_of(run, "rl") >= 3:
            killed.append(steps_of(run, "rl"))
            end_node_manager(run)
        return False

    result = rlsys(*command, send=signal.SIGTERM, when=kill_once)
    assert killed and result.code == 1, result.output[-3000:]
    assert "rlsys: failed: " in result.output and "the same command continues" in result.output
    assert (summary(run)["status"], "raylet" in summary(run)["reason"]) == ("failed", True)
    assert left_behind() == []
