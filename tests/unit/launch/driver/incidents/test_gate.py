"""One cause is one folder: what follows from it, and what happens again, is added to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.driver.incidents.gate import Gate, Trigger


@pytest.fixture
def first(tmp_path: Path) -> Path:
    folder = tmp_path / "000003-lost-rollout-0"
    folder.mkdir()
    return folder


@pytest.fixture
def gate(first: Path) -> Gate:
    incident_gate = Gate()
    incident_gate.opened(Trigger("lost", "rollout:0", "x", 100.0), first)
    return incident_gate


def test_the_same_again_is_counted_for_ten_minutes(gate: Gate, first: Path) -> None:
    assert gate.belongs_to(Trigger("lost", "rollout:0", "x", 650.0)) == (first, True)
    assert gate.belongs_to(Trigger("lost", "rollout:0", "x", 701.0)) == (None, False)


def test_what_follows_within_half_a_minute_belongs_to_it(gate: Gate, first: Path) -> None:
    assert gate.belongs_to(Trigger("delivery_late", "rollout:1", "x", 129.0)) == (first, False)
    assert gate.belongs_to(Trigger("lost", "learner", "x", 131.0)) == (None, False)


def test_good_news_is_added_to_its_own_incident_and_makes_none(gate: Gate, first: Path) -> None:
    assert gate.belongs_to(Trigger("restart", "rollout:0", "x", 9000.0, recovered=True)) == (first, False)
    assert gate.belongs_to(Trigger("restart", "retriever", "x", 101.0, recovered=True)) == (None, False)


def test_a_failure_has_a_folder_of_its_own(gate: Gate, first: Path) -> None:
    assert gate.belongs_to(Trigger("failed", "run", "x", 101.0)) == (None, False)


def test_a_folder_that_was_removed_takes_nothing_more(gate: Gate, first: Path) -> None:
    first.rmdir()
    assert gate.belongs_to(Trigger("lost", "rollout:0", "x", 650.0)) == (None, False)
    assert gate.belongs_to(Trigger("delivery_late", "rollout:1", "x", 129.0)) == (None, False)
    assert gate.belongs_to(Trigger("restart", "rollout:0", "x", 130.0, recovered=True)) == (None, False)
