"""A policy that searches, with the real retriever as a supervised service: the service is killed and nobody loses."""

import threading
from pathlib import Path

import psutil

from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary, trajectories

CONFIG = "worlds/search"
SHORT = ["stages.sft.steps=30", "stages.rl.steps=6", "stages.rl.loop.groups_per_step=8", "eval.tasks=4"]


def kill_the_service(run: Path, killed: list[int]) -> None:
    """As soon as the first reinforcement step is taken."""
    stop = threading.Event()
    while not stop.wait(0.05):
        if steps_of(run, "rl") >= 1:
            for process in psutil.process_iter(["cmdline"]):
                if "ToolService" in " ".join(process.info["cmdline"] or []):
                    process.kill()
                    killed.append(process.pid)
            return


def test_a_searching_policy_trains_through_the_death_of_its_retriever(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed: list[int] = []
    killer = threading.Thread(target=kill_the_service, args=(run, killed), daemon=True)
    killer.start()
    result = rlsys("train", CONFIG, "--run-dir", str(run), *SHORT, "env.retriever.guard.cache_size=0")
    assert result.code == 0, result.output[-3000:]
    assert len(killed) == 1 and not psutil.pid_exists(killed[0])
    done = summary(run)
    (restarts,) = (count for name, count in done["restarts"].items() if name.startswith("retriever-"))
    assert restarts == 1
    assert done["prompts"]["failed"] == 0
    last = rows(run)[-1]
    assert last["tool/search/calls"] > 0 and last["tool/search/retries"] > 0  # the outage was felt, and outlasted

    played = trajectories(run)
    searched = [t for t in played if any("<result>" in message["content"] for message in t["messages"])]
    assert searched, "no episode searched"
    for trajectory in searched:
        said = [m for m in trajectory["messages"] if m["role"] == "tool"]
        written = "".join(m["content"] for m in trajectory["messages"] if m["role"] == "assistant")
        assert all(m["content"].startswith(" <result>\n") for m in said) and said[0]["content"] not in written
    assert left_behind() == []
