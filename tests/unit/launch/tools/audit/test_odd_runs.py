"""Runs that went another way than straight on, and lost nothing: an audit finds nothing in them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import to_yaml
from launch.driver.run.run import Run
from rlsys.batch import UpdateReport
from rlsys.errors import LearnerLost
from rlsys.journal import Finished, read_journal, surviving_rows
from rlsys.metrics import Sum
from rlsys.types import Failure, FailureKind
from tests.fakes.parts import BanditLearner, BanditPool
from tests.makers.made import records
from tests.unit.launch.driver.stages.test_rl import Outcome, play, rows
from tests.unit.launch.tools.audit.test_audit import broken, chain_again, edited, leave_summary

OVERSAMPLE = "stages: [{name: rl, kind: rl, steps: 8, loop: {oversample: 2.5}, learner: {lr: 0.1}}]\n"
LATE = (3, 5, 6)  # steps after which groups without signal are left over


class Alike(BanditPool):
    """Every second group has no signal; the others keep theirs, with a small learning rate."""

    async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
        return await super().group(ticket, replace(plan, temperature=0.0) if ticket.sequence % 2 else plan, on_retry)


def stop_after(step: int) -> Callable[[Run, dict[str, Any]], None]:
    return lambda run, row: run.tasks.stop.set() if row["step"] == step else None


def leave(outcome: Outcome) -> Path:
    """The rest of what a process leaves. Returns the run directory."""
    folder = outcome.run.dir.path
    (folder / "config.yaml").write_text(to_yaml(outcome.run.config))
    summary = outcome.summary if outcome.error is None else outcome.summary | {"status": "stopped"}
    leave_summary(folder, summary)
    return folder


def late_outcomes(run: Path) -> list[Finished]:
    """Those of a process that did not take their step."""
    outcomes = [row for row in surviving_rows(read_journal(run / "journal.jsonl")) if isinstance(row, Finished)]
    first: dict[int, int] = {}
    return [row for row in outcomes if first.setdefault(row.step, row.lineage) != row.lineage]


def offenders(run: Path, name: str) -> tuple[str, ...]:
    """Of one property. The others say that rows were changed, where a test has changed them."""
    return broken(run).get(name, ())


# -- groups that gave their places away --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def left_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped while groups without signal waited for the next step."""
    folder = tmp_path_factory.mktemp("stopped")
    for step in LATE:
        play(folder, stages=OVERSAMPLE, pool=Alike(), on_row=stop_after(step))
    return leave(play(folder, stages=OVERSAMPLE, pool=Alike()))


def test_groups_without_signal_that_a_stop_left_over_are_no_offence(left_over: Path) -> None:
    """No step has taken them: the next process accounts for them, when the row of the last step is written."""
    late = late_outcomes(left_over)
    assert late and {row.outcome for row in late} == {"filtered"}
    assert broken(left_over) == {}


def test_groups_without_signal_that_a_rank_left_over_are_no_offence(tmp_path: Path) -> None:
    dies = {4}

    def die(run: Run, row: dict[str, Any]) -> None:
        if row["step"] in dies:
            dies.clear()
            update = run.learner.update

            async def lost(version: int) -> Any:
                run.learner.update = update  # type: ignore[method-assign]
                raise LearnerLost("learner in update: a rank died")

            run.learner.update = lost  # type: ignore[method-assign]

    outcome = play(tmp_path, stages=OVERSAMPLE, pool=Alike(), on_row=die)
    run = leave(outcome)
    assert outcome.error is None and outcome.summary["restarts"]["learner"] == 1 and late_outcomes(run)
    assert broken(run) == {}


def test_a_group_that_another_process_trained_into_a_step_is_found(left_over: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(left_over, tmp_path / "run"))
    late = late_outcomes(run)[0]
    path = run / "journal.jsonl"
    lines = records(path)
    is_late = {"event": "outcome", "sequence": late.sequence, "lineage": late.lineage}.items()
    chain_again(path, [row | {"outcome": "trained"} if is_late <= row.items() else row for row in lines])
    assert any(line.startswith(f"step {late.step}: ('rl', {late.sequence})") for line in offenders(run, "prompts"))


# -- the lag ----------------------------------------------------------------------------------------------------------


def test_a_skipped_update_makes_no_version_and_is_no_offence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row has the version that it has trained, and a lag from there."""
    update, count = BanditLearner.update, 0

    async def skipping(learner: BanditLearner, version: int) -> UpdateReport:
        nonlocal count
        count += 1
        if count not in (3, 4):
            return await update(learner, version)
        return UpdateReport(applied=False, metrics={"learner/skipped": Sum(1.0)}, seconds=0.0)

    monkeypatch.setattr(BanditLearner, "update", skipping)
    run = leave(play(tmp_path, steps=6))
    skipped = [row for row in rows(tmp_path) if row.get("learner/skipped")]
    assert [row["tokens/trained"] for row in skipped] == [0, 0] and max(row["lag/max"] for row in skipped) == 1
    assert broken(run) == {}


class Slow(BanditPool):
    """Groups 4 to 7 begin with the first weights and end with the next ones, and none of them is trained."""

    async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
        if plan.purpose.startswith("eval") or ticket.sequence not in range(4, 8):
            return await super().group(ticket, plan, on_retry)
        group = await super().group(ticket, replace(plan, temperature=0.0), on_retry)
        while self.version < 2:
            await asyncio.sleep(0.001)
        if ticket.sequence < 7:
            return group
        failed = Failure(kind=FailureKind.TIMEOUT, where="fake", detail="its scoring took too long")
        return replace(group, trajectories=tuple(replace(episode, reward=failed) for episode in group.trajectories))


def test_the_oldest_groups_of_a_step_count_if_they_were_filtered_or_failed_too(tmp_path: Path) -> None:
    run = leave(play(tmp_path, stages=OVERSAMPLE, pool=Slow()))
    second = rows(tmp_path)[1]
    assert (second["groups/trained"], second["groups/failed"], second["lag/max"]) == (3, 1, 1)
    assert second["groups/filtered"] >= 3  # and the places of these went to groups of newer weights
    assert broken(run) == {}


def lag_of(bound: int) -> str:
    return f"stages: [{{name: rl, kind: rl, steps: 8, loop: {{max_policy_lag: {bound}}}}}]\n"


def test_a_bound_that_was_lowered_is_none_of_earlier_steps(tmp_path: Path) -> None:
    play(tmp_path, stages=lag_of(3), on_row=stop_after(5))
    run = leave(play(tmp_path, stages=lag_of(0)))
    lags = {row["lag/bound"]: row["lag/max"] for row in rows(tmp_path)}
    assert lags.keys() == {3, 0} and lags[0] == 0
    assert max(row["lag/max"] for row in rows(tmp_path)) > 0
    assert broken(run) == {}


def test_a_bound_that_was_raised_hides_no_earlier_step(tmp_path: Path) -> None:
    play(tmp_path, stages=lag_of(0), on_row=stop_after(5))
    run = leave(play(tmp_path, stages=lag_of(3)))
    assert broken(run) == {}
    edited(run, "metrics.jsonl", lambda row: row.update({"lag/max": 2.0}), which=1)
    assert "step 2: 2 versions (loop.max_policy_lag=0)" in offenders(run, "lag")
