"""A policy that searches, with every part real: its retriever is killed, then its engine, and no prompt is lost."""

import contextlib
import threading
import time
from pathlib import Path

import psutil
import pytest

from rlsys.journal import Dispatched, ledger, read_journal, surviving_rows
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary, trajectories

CONFIG = "worlds/search"
SHORT = ["stages.sft.steps=30", "stages.rl.steps=6", "stages.rl.loop.groups_per_step=8", "eval.tasks=4"]


def begun(run: Path, stage: str) -> bool:
    """Whether a group of it was sent out."""
    journal = run / "journal.jsonl"
    return journal.is_file() and f'"{stage}"' in journal.read_text()


def kill_in_turn(run: Path, killed: list[psutil.Process]) -> None:
    """The retriever while the first groups of reinforcement learning are played, the rollout worker after the third
    step, in mid-generation.

    Those of this run alone: other runs on the machine have actors of the same names.
    """
    for actor, due in (
        ("ToolService", lambda: begun(run, "rl")),
        ("RolloutWorker", lambda: steps_of(run, "rl") >= 3),
    ):
        while not due():
            time.sleep(0.05)
        # The command's process and the driver under it have one command line.
        pair = [proc for proc in psutil.process_iter(["cmdline"]) if str(run) in (proc.info["cmdline"] or [])]
        command = min(pair, key=psutil.Process.create_time)
        for process in command.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
                if actor in " ".join(process.cmdline()):
                    killed += [process, *process.children(recursive=True)]
                    process.kill()


@pytest.mark.slow
def test_a_searching_policy_trains_through_the_death_of_its_retriever_and_of_its_engine(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed: list[psutil.Process] = []
    threading.Thread(target=kill_in_turn, args=(run, killed), daemon=True).start()
    result = rlsys("train", CONFIG, "--run-dir", str(run), *SHORT, "env.retriever.guard.cache_size=0")
    assert result.code == 0, result.output[-3000:]
    assert len(killed) >= 3 and not any(process.is_running() for process in killed)  # the worker has an engine process
    run_summary = summary(run)
    assert sorted(run_summary["restarts"].values()) == [0, 1, 1]  # not the learner
    assert (run_summary["prompts"]["failed"], run_summary["prompts"]["in_flight"]) == (0, 0)
    journal = surviving_rows(read_journal(run / "journal.jsonl"))
    assert ledger(journal).problems == ()
    assert any(isinstance(row, Dispatched) and row.attempt == 1 for row in journal), "no group was played again"
    assert all(row["mismatch/probe_max"] < 1e-3 for row in rows(run) if row["stage"] == "rl")  # the new engine's too
    felt = [row["tool/search/retries"] for row in rows(run) if "tool/search/retries" in row]
    assert max(felt) > 0  # the outage was felt, and outlasted; a new worker counts from nothing

    played = trajectories(run)
    searched = [t for t in played if any("<result>" in message["content"] for message in t["messages"])]
    assert searched, "no episode searched"
    for trajectory in searched:
        results = [m for m in trajectory["messages"] if m["role"] == "tool"]
        written = "".join(m["content"] for m in trajectory["messages"] if m["role"] == "assistant")
        assert all(m["content"].startswith(" <result>\n") for m in results) and results[0]["content"] not in written
    assert left_behind() == []
