"""Twenty steps of reinforcement learning with all parts real, and a death in the middle: of an engine, of a rank."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from rlsys.journal import HealthNote, Published, ledger, read_journal, surviving_rows
from tests.conftest import SESSION_KEY
from tests.device import name, need_gpus
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary

SHORT = ["stages.sft.steps=40", "stages.sft.loop.groups_per_step=16", "stages.rl.steps=20", "checkpoint.every=10"]
SHORT += ["stages.rl.loop.groups_per_step=8", "stages.rl.loop.group_size=4", "eval.tasks=8"]


def started_here(part: str) -> list[psutil.Process]:
    """Processes of this session's runs whose command line names the part."""
    processes = []
    for process in psutil.process_iter():
        try:
            if part in " ".join(process.cmdline()) and (of_session(process) or of_session(process.parent())):
                processes.append(process)
        except psutil.Error:  # gone, or not ours to read
            continue
    return processes


def of_session(process: psutil.Process | None) -> bool:
    """By its environment; a process that gives itself a name may have written over it, and its parent has not."""
    return process is not None and process.environ().get(SESSION_KEY) == os.environ[SESSION_KEY]


def killed(part: str) -> bool:
    """Kill the processes of this session that the part names; returns whether there were any."""
    victims = started_here(part)
    for victim in victims:
        victim.kill()
    return bool(victims)


@pytest.mark.slow
def test_twenty_steps_go_through_the_death_of_an_engine(tmp_path: Path) -> None:
    need_gpus(2)
    run = tmp_path / "run"
    command = ["train", "quickstart", "--run-dir", str(run), *SHORT, f"cluster.device={name()}"]
    # the signal does nothing: what matters is what happens before it is sent
    result = rlsys(*command, send=signal.SIGCONT, when=lambda: steps_of(run, "rl") >= 5 and killed("EngineCore"))
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    assert [row["step"] for row in rows(run)] == list(range(1, 61))
    run_summary = summary(run)
    assert (run_summary["status"], sum(run_summary["restarts"].values())) == ("done", 1)
    assert ledger(surviving_rows(read_journal(run / "journal.jsonl"))).problems == ()
    agreed(run)


def agreed(run: Path) -> None:
    gaps = [row["mismatch/probe_mean"] for row in rows(run) if "mismatch/probe_mean" in row]
    assert len(gaps) == 20 and max(gaps) < {"cpu": 1e-4, "cuda": 0.5}[name()]
    print(f"mean gap between engine and learner over 20 deliveries: {max(gaps):.2g} at most")


@pytest.mark.slow
def test_twenty_steps_go_through_the_death_of_a_learner_rank(tmp_path: Path) -> None:
    """One of two: the other hears of it in a collective. Both come back with the weights of step 10 of the stage."""
    need_gpus(3)
    run = tmp_path / "run"
    command = ["train", "quickstart", "--run-dir", str(run), *SHORT, f"cluster.device={name()}", "learner.ranks=2"]
    result = rlsys(*command, send=signal.SIGCONT, when=lambda: steps_of(run, "rl") >= 13 and one_rank_killed())
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    assert "its ranks are started again and continue from step 50" in result.output
    assert [row["step"] for row in rows(run)] == list(range(1, 61))
    run_summary = summary(run)
    assert (run_summary["status"], run_summary["restarts"]["learner"]) == ("done", 1)
    journal = read_journal(run / "journal.jsonl")
    book = ledger(surviving_rows(journal))
    assert (book.dispatched, book.in_flight, book.problems) == (20 * 8, 0, ())
    published = [row.version for row in journal if isinstance(row, Published)]
    assert published == sorted(set(published))  # no number twice
    assert any(isinstance(row, HealthNote) and row.says.endswith("back to step 50") for row in journal)
    agreed(run)


def one_rank_killed() -> bool:
    """Kill the last learner rank of this session; returns whether there was one."""
    ranks = started_here("ray::learner rank") or started_here("ray::LearnerActor")
    for victim in ranks[-1:]:
        victim.kill()
    return bool(ranks)
