"""incident.md says who waits for whom, since when, and what to try, from given facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.driver.incidents.facts import Facts, PartFacts, read_facts, write_facts
from launch.driver.incidents.paragraph import ADVICE, advice, culprit, describe

STALL = Facts(
    kind="stall", who="wait_rollout", text="step 13 of stage rl: wait_rollout has taken 75 s so far", time=1e9, step=12,
    stage="rl", phase={"name": "wait_rollout", "stage": "rl", "since_s": 75.2, "usual_s": 2.1, "known": 12},
    parts=(
        PartFacts(part="driver", pid=1, state="sleeping", at="run_once (asyncio/base_events.py:1884)"),
        PartFacts(part="rollout:0", pid=2, state="stopped", at="play (actors/worker.py:90)"),
        PartFacts(part="learner:0", pid=3, state="sleeping", at="wait (learners/rank.py:12)"),
    ),
)  # fmt: skip


def test_a_stopped_worker_is_named_with_what_waits_for_it() -> None:
    text = describe(STALL)
    assert (
        "waits for groups of episodes from the rollout workers (wait_rollout), for 75 s so far, usually 2.1 s" in text
    )
    assert "rollout:0 (pid 2) is stopped (SIGSTOP)" in text and "kill -CONT" in text
    assert "| learner:0 |  | 3 | sleeping | wait (learners/rank.py:12) |" in text
    assert culprit(STALL) == "rollout:0 stopped"


def test_without_a_culprit_the_places_of_the_awaited_stand_in_it() -> None:
    parts = tuple(replace(part, state="sleeping") for part in STALL.parts)
    text = describe(replace(STALL, parts=parts))
    assert "rollout:0 is in play (actors/worker.py:90)" in text and "No process is stopped" not in text
    assert "learner:0 is in" not in text
    nothing = describe(replace(STALL, parts=parts[:1]))
    assert "No process is stopped" in nothing and culprit(replace(STALL, parts=parts)) == ""


def test_a_part_without_a_process_is_gone() -> None:
    facts = Facts(kind="lost", who="learner", text="the learner is dead (SIGKILL)", time=0.0, gone=("learner:1",))
    text = describe(facts)
    assert "learner:1 has no process any more." in text and "| learner:1 | | | gone | |" in text
    assert any("memory" in sentence for sentence in advice(facts))


CASES = {
    "disk full": Facts(kind="failed", who="run", text="x.jsonl: No space left on device", time=0.0),
    "GPU memory": Facts(kind="failed", who="run", text="torch.OutOfMemoryError: CUDA out of memory", time=0.0),
    "node memory": Facts(
        kind="lost", who="x", text="OutOfMemoryError: killed, the node running low on memory", time=0.0
    ),
    "weights": Facts(kind="refused", who="rollout:0", text="x", time=0.0),
    "late weights": Facts(kind="delivery_late", who="rollout:0", text="x", time=0.0),
    "tool": Facts(kind="stall", who="retriever", text="the retriever does not answer (x)", time=0.0),
    "ranks": replace(STALL, parts=(), phase={**STALL.phase, "name": "update"}),
    "episodes": replace(STALL, parts=()),
    "failed": Facts(kind="failed", who="run", text="x", time=0.0),
    "restart": Facts(kind="lost", who="rollout:0", text="x", time=0.0),
}


@pytest.mark.parametrize("cause", CASES)
def test_each_cause_has_its_advice(cause: str) -> None:
    sentences = advice(CASES[cause])
    assert next(entry.text for entry in ADVICE if entry.cause == cause) in sentences
    assert len([text for text in sentences if "memory" in text]) == ("memory" in cause)  # one place is named, not three


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    facts = replace(STALL, also=("a",), missing=("b",), gone=("c",), times=3, last=2e9, seconds=1.5)
    write_facts(tmp_path, facts)
    assert read_facts(tmp_path) == facts
