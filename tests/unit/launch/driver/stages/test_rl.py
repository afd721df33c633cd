"""The real driver with a bandit for a model: it learns, accounts for every prompt once, and resumes where it was."""

import asyncio
import gzip
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.config.compose import compose, to_yaml
from launch.config.extend import has_more_steps, with_more_steps
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.observe.progress import Progress
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from launch.driver.run.saving import end_writing, save_at_stop
from launch.driver.run.session import closing_line
from launch.driver.run.session import summary as summary_of
from launch.driver.run.tasks import StopRequested
from launch.driver.stages.train import has_trained_nothing, train
from launch.run_dir.names import metrics_line_name
from rlsys.batch import UpdateReport
from rlsys.errors import BadInput, LearnerLost, RunFailed
from rlsys.journal import Dispatched, HealthNote, Sealed, ledger, read_journal, surviving_rows
from rlsys.system.device import DEVICES, resolve_run
from tests.fakes.bandit import bandit_run
from tests.fakes.parts import BanditLearner, BanditPool
from tests.makers.made import records

HEAD = """
name: bandit
seed: 3
env: {name: calculator, train_tasks: 16, held_out_tasks: 4}
loop: {groups_per_step: 4, group_size: 4, max_policy_lag: 1}
learner: {lr: 2.0}
eval: {samples: 8}
checkpoint: {every: 2}
wandb: {mode: disabled}
"""


@dataclass
class Outcome:
    run: Run
    pool: BanditPool
    error: BaseException | None
    summary: dict[str, Any]


def play(
    tmp_path: Path,
    *,
    steps: int = 12,
    pool: BanditPool | None = None,
    on_row: Callable[[Run, dict[str, Any]], None] | None = None,
    stages: str = "",
    stop_after_s: float | None = None,
    extended: bool = False,
    losing: set[int] | None = None,
) -> Outcome:
    """One process's worth of a run: resumes when the directory has a checkpoint."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(HEAD + (stages or f"stages: [{{name: rl, kind: rl, steps: {steps}}}]\n"))
    config = resolve_run(compose(str(recipe), []), DEVICES["cpu"])
    with closing(RunDir(tmp_path / "run")) as directory:  # also where it is refused: an error keeps its frames
        newest = directory.checkpoints()[-1:]
        state = directory.load_state(newest[0]) if newest else DriverState()
        assert not extended or has_more_steps(state, directory.path, config)
        directory.rewind_metrics(state.step)
        pool = pool or BanditPool()
        error: BaseException | None = None

        async def go() -> Run:
            nonlocal error
            run = bandit_run(config, directory, pool, state, state.mark if newest else 0)
            run.learner.losing = losing or set()  # type: ignore[attr-defined]
            run.tasks.pool_start = asyncio.create_task(pool.start())
            if stop_after_s is not None:
                asyncio.get_running_loop().call_later(stop_after_s, run.tasks.stop.set)
            if on_row is not None:
                record = run.dir.log

                def log(row: Any) -> str:
                    digest = record(row)
                    on_row(run, row)
                    return digest

                run.dir.log = log  # type: ignore[method-assign]
            try:
                async with asyncio.timeout(20):
                    await train(run)
            except StopRequested as caught:
                error = caught
                await save_at_stop(run)
                await run.tasks.cancel_background()
            except RunFailed as caught:
                error = caught
                await end_writing(run)
                await run.tasks.cancel_background()
            summary.update(summary_of(run, "done"))
            run.journal.close()
            return run

        summary: dict[str, Any] = {}
        run = asyncio.run(go())
    return Outcome(run, pool, error, summary)


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return records(tmp_path / "run" / "metrics.jsonl")


def test_the_driver_learns_within_the_staleness_bound_and_the_account_closes(tmp_path: Path) -> None:
    outcome = play(tmp_path)
    assert outcome.error is None
    state = outcome.run.state
    assert state.eval_after["sampled"] > 0.9 > state.eval_before["sampled"]
    logged = rows(tmp_path)
    assert [row["step"] for row in logged] == list(range(1, 13))
    assert max(row["lag/max"] for row in logged if "lag/max" in row) <= 1
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (48, 0, ())
    assert book.trained + book.filtered == 48
    assert outcome.summary["prompts"]["dispatched"] == 48
    for row in logged:  # seconds close to 100 %
        parts = sum(
            value
            for key, value in row.items()
            if key.startswith("time/")
            and key not in ("time/step", "time/episode_generate", "time/episode_tool", "time/episode_score")
        )
        assert parts == pytest.approx(row["time/step"])


def test_a_stopped_run_resumes_without_losing_or_repeating_a_prompt(tmp_path: Path) -> None:
    def stop_at(step: int) -> Callable[[Run, dict[str, Any]], None]:
        return lambda run, row: run.tasks.stop.set() if row["step"] == step else None

    for step in (3, 5, 8):  # between checkpoints of every second step: what follows them is lost and done again
        assert isinstance(play(tmp_path, on_row=stop_at(step)).error, StopRequested)
    assert play(tmp_path).error is None
    journal = read_journal(tmp_path / "run" / "journal.jsonl")
    assert {row.lineage for row in journal} == {0, 1, 2, 3}
    book = ledger(surviving_rows(journal))
    assert (book.dispatched, book.in_flight, book.problems) == (48, 0, ())
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))


def test_a_learner_that_dies_comes_back_from_its_checkpoint_and_the_account_closes(tmp_path: Path) -> None:
    """In an export, in an update, and in the writing of a checkpoint; before the first checkpoint and later."""
    dies = {1: "export", 2: "update", 8: "write", 12: "write"}  # once each, after the rows of these steps

    def die(run: Run, row: dict[str, Any]) -> None:
        method = dies.pop(row["step"], None)
        if method is not None:
            works = getattr(run.learner, method)

            async def broken(*given: Any, **named: Any) -> Any:
                setattr(run.learner, method, works)
                raise LearnerLost(f"learner in {method}: a rank died")

            setattr(run.learner, method, broken)

    outcome = play(tmp_path, on_row=die)
    assert outcome.error is None and not dies
    assert outcome.summary["restarts"]["learner"] == 4
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))
    published = [version for version in outcome.pool.published if version > 0]
    assert all(a < b for a, b in zip(published, published[1:], strict=False))
    journal = read_journal(tmp_path / "run" / "journal.jsonl")
    book = ledger(surviving_rows(journal))
    assert (book.dispatched, book.in_flight, book.problems) == (48, 0, ())
    noted = [row.says for row in journal if isinstance(row, HealthNote) and "a rank died" in row.says]
    died_in = ["learner in export", "learner in update", "learner in write", "learner in write"]
    assert [says.split(": ")[0] for says in noted] == died_in
    assert (
        noted[0].endswith("back to step 0") and max(row["lag/max"] for row in rows(tmp_path) if "lag/max" in row) <= 1
    )


@pytest.mark.parametrize("most", [0, 2])
def test_a_learner_that_dies_again_and_again_ends_the_run(tmp_path: Path, most: int) -> None:
    def die(run: Run, row: dict[str, Any]) -> None:
        async def broken(batch: Any) -> Any:
            raise LearnerLost("learner updating: a rank died")

        run.learner.update = broken  # type: ignore[method-assign]
        run.learner.life.max_restarts = most

    outcome = play(tmp_path, on_row=die)
    assert type(outcome.error) is RunFailed and outcome.run.learner.restarts == most
    assert ("started again 2 times" in str(outcome.error)) == (most == 2)


@pytest.mark.parametrize("alive", [False, True])
def test_weights_that_went_with_the_node_of_their_rank_are_sent_anew_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    async def nowhere(*given: Any) -> Any:
        monkeypatch.undo()
        raise RunFailed("version 7 reaches no rollout worker")

    async def dead(what: str) -> None:
        raise LearnerLost(f"learner {what}: its node is gone")

    def die(run: Run, row: dict[str, Any]) -> None:
        if row["step"] == 5 and not run.learner.restarts:
            monkeypatch.setattr(run.pool, "publish", nowhere)
            if not alive:
                run.learner.check = dead  # type: ignore[method-assign]

    outcome = play(tmp_path, steps=8, on_row=die)
    if alive:
        assert type(outcome.error) is RunFailed and "reaches no rollout worker" in str(outcome.error)
    else:
        assert outcome.error is None and outcome.summary["restarts"]["learner"] == 1
        assert [row["step"] for row in rows(tmp_path)] == list(range(1, 9))


def test_a_stop_between_an_update_and_its_row_loses_neither(tmp_path: Path) -> None:
    def stop_in_update(run: Run, row: dict[str, Any]) -> None:
        if row["step"] == 4:
            update = run.learner.update

            async def update_then_stop(version: int) -> Any:
                report = await update(version)
                run.tasks.stop.set()
                return report

            run.learner.update = update_then_stop  # type: ignore[method-assign]

    outcome = play(tmp_path, on_row=stop_in_update)
    assert isinstance(outcome.error, StopRequested)
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, outcome.run.state.step + 1))


def stop_in_update(run: Run, left: int | None) -> None:
    """The next update is stopped in its middle, and hears of it: it is left, or finished where it cannot be."""
    update, heard = run.learner.update, asyncio.Event()

    async def long_update(version: int) -> Any:
        run.learner.on_rows(17, 64)
        run.tasks.request_stop()
        await heard.wait()
        return await update(version) if left is None else None

    async def leave() -> int | None:
        heard.set()
        if left is not None:
            await asyncio.Event().wait()  # the update that is left may be there before the answer
        return left

    run.learner.update, run.learner.leave = long_update, leave  # type: ignore[method-assign]


@pytest.mark.parametrize("left", [17, None])
def test_a_stop_in_an_update_leaves_it_and_its_groups_are_trained_once_by_the_next_process(
    tmp_path: Path, left: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = play(tmp_path, on_row=lambda run, row: stop_in_update(run, left) if row["step"] == 4 else None)
    assert isinstance(outcome.error, StopRequested) and not outcome.run.tasks.gave_up
    taken = outcome.run.state.step
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, taken + 1))
    out = capsys.readouterr().out
    assert ("was left" in out, "past its first" in out) == (left is not None, left is None) and "None" not in out
    newest = outcome.run.dir.newest()
    assert newest is not None and newest.name == f"step-{taken:06d}"
    logits = json.loads((newest / "hf" / "logits.json").read_text())
    assert logits == outcome.run.learner.logits.tolist()  # type: ignore[attr-defined]
    assert play(tmp_path).error is None
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (48, 0, ())
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))


def test_what_has_come_in_for_a_step_is_counted_while_it_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int, str]] = []
    tell = Progress.within_step

    def within_step(self: Progress, *told: Any) -> None:
        seen.append(told)
        tell(self, *told)

    built: list[str] = []

    def look_at_builds(run: Run, row: dict[str, Any]) -> None:
        build = run.learner.build

        async def look(plan: Any) -> Any:
            built.append(str(run.progress.clock()))
            return await build(plan)

        if row["step"] == 1:
            run.learner.build = look  # type: ignore[method-assign]

    monkeypatch.setattr(Progress, "within_step", within_step)
    outcome = play(tmp_path, on_row=look_at_builds)
    assert outcome.error is None and outcome.run.active.long  # the first groups have the time of their episodes
    assert {(total, unit) for _, total, unit in seen} == {(4, "groups")}
    assert built and not any("of 4 groups," in text for text in built)  # they have all come
    assert {done for done, _, _ in seen} >= {1, 4} and all(0 <= done <= 4 for done, _, _ in seen)


def test_an_update_does_not_wait_for_the_episodes_of_the_step_before_and_its_row_does(tmp_path: Path) -> None:
    """Those of step 3 are written once the update of step 4 is under way. Before a checkpoint all are."""
    updating, order = threading.Event(), list[str]()

    def hold(run: Run, row: dict[str, Any]) -> None:
        order.append(f"row {row['step']}")
        if row["step"] == 1:
            begin, update = run.dir.episodes.begin, run.learner.update

            async def tell(version: int) -> Any:
                if run.state.step == 3:
                    updating.set()
                return await update(version)

            def hold_back(name: str, *given: Any) -> Any:
                writer = begin(name, *given)
                finish = writer.finish

                def wait_then_finish() -> str:  # in a thread
                    assert name != "step-000003" or updating.wait(60), "the update waits for the files"
                    digest = finish()
                    order.append(name)
                    return digest

                writer.finish = wait_then_finish  # type: ignore[method-assign]
                return writer

            run.dir.episodes.begin, run.learner.update = hold_back, tell  # type: ignore[method-assign]

    outcome = play(tmp_path, steps=4, on_row=hold)
    assert outcome.error is None
    for step in (2, 3, 4):
        assert order.index(f"step-{step:06d}") < order.index(f"row {step}")
    names = [row.name for row in read_journal(tmp_path / "run" / "journal.jsonl") if isinstance(row, Sealed)]
    sealed = [name for name in names if name.startswith(("trajectories/step", "metrics"))]
    assert sealed == [
        name for step in (1, 2, 3, 4) for name in (f"trajectories/step-{step:06d}", metrics_line_name(step))
    ]


def test_a_stop_after_the_last_step_waits_for_its_row(tmp_path: Path) -> None:
    def stop_before_the_last_row(run: Run, row: dict[str, Any]) -> None:
        if row["step"] == 11:
            begin, loop = run.dir.episodes.begin, asyncio.get_running_loop()

            def stop_then_write(*what: Any) -> Any:
                writer = begin(*what)
                finish = writer.finish

                def stop_then_finish() -> str:  # in a thread
                    loop.call_soon_threadsafe(run.tasks.stop.set)
                    time.sleep(0.02)
                    return finish()

                writer.finish = stop_then_finish  # type: ignore[method-assign]
                return writer

            run.dir.episodes.begin = stop_then_write  # type: ignore[method-assign]

    assert isinstance(play(tmp_path, on_row=stop_before_the_last_row).error, StopRequested)
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))


def test_a_kill_in_the_final_evaluation_repeats_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def killed(run: Run, recipe: Any, when: str) -> dict[str, float]:
        if when == "after":
            raise RunFailed("killed")
        return {"greedy": 0.0}

    stages = "stages: [{name: rl, kind: rl, steps: 5}]\n"
    with monkeypatch.context() as patched:
        patched.setattr("launch.driver.evaluation.evaluate.evaluate", killed)
        assert isinstance(play(tmp_path, stages=stages).error, RunFailed)
    assert [path.name for path in RunDir(tmp_path / "run").checkpoints()] == ["step-000004", "step-000005"]
    again = play(tmp_path, stages=stages)
    assert again.error is None
    assert again.run.learner.updates == 0  # type: ignore[attr-defined]
    assert again.run.state.eval_after
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 6))
    assert ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl"))).problems == ()
    assert play(tmp_path, stages=stages).run.state.stage_index == 1  # its end was saved too


def patience(attempt: int) -> float:
    """A busy machine comes to its end too, if only it is let go on for longer each time."""
    return 1.1**attempt


@pytest.mark.parametrize("seed", range(4))
def test_stops_at_any_moment_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for attempt in range(60):
        lag = f"stages: [{{name: rl, kind: rl, steps: 12, loop: {{max_policy_lag: {rng.choice([0, 1, 3])}}}}}]\n"
        pool = BanditPool(publish_s=rng.choice([0.0, 0.003]))
        outcome = play(tmp_path, pool=pool, stages=lag, stop_after_s=rng.uniform(0.002, 0.12) * patience(attempt))
        if outcome.error is None:
            break
        assert isinstance(outcome.error, StopRequested)
    assert outcome.error is None, "it never came to its end"
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (48, 0, ())
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, 13))


def play_with_stops(tmp_path: Path, stages: str, seed: int) -> Outcome:
    """One process after another, each stopped at some moment, until the run comes to its end."""
    rng = random.Random(seed)
    for attempt in range(60):
        outcome = play(tmp_path, stages=stages, stop_after_s=rng.uniform(0.01, 0.08) * patience(attempt))
        if outcome.error is None:
            return outcome
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("seed", range(2))
def test_a_curriculum_goes_on_where_it_stopped(tmp_path: Path, seed: int) -> None:
    """Each sequence keeps its task, whenever the run is stopped, and what was learned of the levels is kept."""
    stages = "stages: [{name: rl, kind: rl, steps: 12, curriculum: {name: difficulty}}]\n"
    outcome = play_with_stops(tmp_path, stages, seed)
    journal = surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl"))
    assert ledger(journal).problems == ()
    drawn = [row for row in journal if isinstance(row, Dispatched)]
    assert {row.level for row in drawn} <= {"1", "2", "3"}
    assert len({(row.sequence, row.task) for row in drawn}) == 48  # one task each, however often it was begun
    row = rows(tmp_path)[-1]
    assert row["curriculum/share/2"] > 0
    assert outcome.run.state.curriculum["rl"]["open"] == {}


@pytest.mark.parametrize("seed", range(2))
def test_groups_without_signal_give_their_places_away_and_the_account_closes(tmp_path: Path, seed: int) -> None:
    """Whenever it is stopped: every step has its groups, and none of the others is lost or counted twice."""
    stages = "stages: [{name: rl, kind: rl, steps: 12, loop: {oversample: 2.5}}]\n"
    play_with_stops(tmp_path, stages, seed)
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.in_flight, book.problems) == (0, ())
    assert book.dispatched > 48
    metrics = rows(tmp_path)
    assert [row["step"] for row in metrics] == list(range(1, 13))
    assert all(row["groups/trained"] + row["groups/filtered"] == 4 + row["groups/oversampled"] for row in metrics)
    (tmp_path / "run" / "config.yaml").write_text((tmp_path / "recipe.yaml").read_text())
    more = play(tmp_path, stages=stages.replace("12", "13"), extended=True)
    assert more.error is None
    assert ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl"))).problems == ()


def test_more_steps_continue_a_finished_stage(tmp_path: Path) -> None:
    play(tmp_path, steps=4, on_row=lambda run, row: run.tasks.stop.set() if row["step"] == 2 else None)
    assert play(tmp_path, steps=6).error is None
    assert ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl"))).dispatched == 24


def test_a_finished_run_goes_on_with_more_steps(tmp_path: Path) -> None:
    play(tmp_path, steps=4)
    (tmp_path / "run" / "config.yaml").write_text((tmp_path / "recipe.yaml").read_text())
    assert play(tmp_path, steps=6).run.state.step == 4  # as a checkpoint says it
    assert with_more_steps(["seed=1", "stages.rl.steps=+3"], str(tmp_path / "run")) == ["seed=1", "stages.rl.steps=7"]
    assert play(tmp_path, steps=7, extended=True).run.state.step == 7
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (7 * 4, 0, ())
    assert [row["stage_step"] for row in rows(tmp_path)] == list(range(1, 8))
    folder = tmp_path / "run"
    checkpoint = RunDir(folder)
    newest, state = checkpoint.newest(), checkpoint.load_state(checkpoint.newest())
    config = compose(str(tmp_path / "recipe.yaml"), ["stages.rl.steps=10"])
    (folder / "config.yaml").write_text(to_yaml(compose(str(tmp_path / "recipe.yaml"), ["stages.rl.steps=7"])))
    assert has_more_steps(state, folder, config) and (state.stage_index, state.stage_step) == (0, 7)
    checkpoint.renew_checkpoint(newest, state)  # as the command does, before it saves the new steps
    checkpoint.write("config.yaml", to_yaml(config))
    checkpoint.close()  # killed here: the same command again adds nothing, and nothing is skipped
    assert with_more_steps(["stages.0.steps=+3"], str(folder)) == ["stages.0.steps=10"]
    assert play(tmp_path, steps=10).run.state.step == 10
    assert ledger(surviving_rows(read_journal(folder / "journal.jsonl"))).dispatched == 10 * 4


@pytest.mark.parametrize(
    ("override", "run_dir", "part"),
    [
        ("stages.rl.steps=+3", None, "expected the --run-dir of a run to continue"),
        ("stages.rl.steps=+3", "/no/such", "expected the --run-dir of a run to continue"),
        ("stages.a.steps=+3", "", "extend only the last stage: stages.b.steps"),
    ],
)
def test_more_steps_need_a_run_and_its_last_stage(
    tmp_path: Path, override: str, run_dir: str | None, part: str
) -> None:
    (tmp_path / "config.yaml").write_text(
        HEAD + "stages: [{name: a, kind: sft, steps: 1}, {name: b, kind: rl, steps: 1}]\n"
    )
    with pytest.raises(BadInput, match=part):
        with_more_steps([override], str(tmp_path) if run_dir == "" else run_dir)


def test_failures_are_left_out_and_counted(tmp_path: Path) -> None:
    failing = BanditPool(fail=lambda ticket: ticket.sequence % 8 == 3)
    outcome = play(tmp_path, pool=failing)
    assert outcome.error is None
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.failed, book.dispatched) == (6, 48)
    assert sum(row["failures/infra"] for row in rows(tmp_path)) == 24
    assert outcome.run.state.failures == {"infra": 24, "timeout": 0, "data": 0, "retried": 0}
    assert outcome.run.state.eval_after["sampled"] > 0.9


def test_too_many_failures_stop_the_run_with_the_reason(tmp_path: Path) -> None:
    outcome = play(tmp_path, pool=BanditPool(fail=lambda ticket: ticket.sequence >= 8 and ticket.task.task_id != ""))
    assert isinstance(outcome.error, RunFailed)
    assert "trajectories of this step failed" in str(outcome.error)
    assert "it died" in str(outcome.error)


def test_an_engine_that_keeps_its_weights_is_caught_before_the_first_step(tmp_path: Path) -> None:
    outcome = play(tmp_path, pool=BanditPool(deaf=True))
    assert isinstance(outcome.error, RunFailed)
    assert outcome.run.state.step == 0


def test_a_step_without_signal_publishes_nothing(tmp_path: Path) -> None:
    outcome = play(tmp_path, steps=30)
    filtered = [row for row in rows(tmp_path) if row["groups/filtered"] == 4]
    assert filtered, "a learned bandit gives groups without signal"
    assert len(outcome.run.state.publish_s) == 30 - len(filtered)
    assert outcome.run.state.version == 1 + 30 - len(filtered)


def test_a_share_of_the_episodes_is_written_and_the_rest_is_counted(tmp_path: Path) -> None:
    keep = "trajectories: {keep: 8, compress_mb: 0}\nstages: [{name: rl, kind: rl, steps: 2}]\n"
    outcome = play(tmp_path, stages=keep)
    assert outcome.error is None
    files = sorted((tmp_path / "run" / "trajectories").glob("*.gz"))
    lines = {
        file.name: [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()] for file in files
    }
    assert {name: len(episodes) for name, episodes in lines.items()} == {
        "eval-rl-after-greedy.jsonl.gz": 4,
        "eval-rl-after-sampled.jsonl.gz": 32,
        "eval-rl-before-greedy.jsonl.gz": 4,
        "eval-rl-before-sampled.jsonl.gz": 32,
        "step-000001.jsonl.gz": 8,
        "step-000002.jsonl.gz": 8,
    }
    assert len({line["sequence"] for line in lines["step-000001.jsonl.gz"]}) == 2  # whole groups
    assert outcome.summary["tokens"]["generated"] == 2 * 16 + 2 * 4 * (1 + 8)


def test_groups_that_are_lost_with_their_node_are_played_again_and_trained_once(tmp_path: Path) -> None:
    outcome = play(tmp_path, steps=6, losing={2, 3, 9, 17})
    assert outcome.error is None
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.problems) == (24, 0, ())
    again = [
        row for row in read_journal(tmp_path / "run" / "journal.jsonl") if isinstance(row, Dispatched) and row.attempt
    ]
    assert {row.sequence for row in again} == {2, 3, 9, 17} and all(row.attempt == 1 for row in again)
    assert outcome.summary["prompts"]["dispatched"] == 24


def test_groups_that_are_lost_again_and_again_end_the_run(tmp_path: Path) -> None:
    class Losing(set[int]):
        def __isub__(self, other: Any) -> Any:  # what was lost is lost the next time too
            return self

    outcome = play(tmp_path, losing=Losing(range(48)))
    assert isinstance(outcome.error, RunFailed)
    assert str(outcome.error) == "step 1: groups are lost again and again, 4 the last time"


def test_no_token_past_its_lag_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lags: list[int] = []
    update = BanditLearner.update

    async def watched(learner: BanditLearner, version: int) -> UpdateReport:
        rows = learner.built.rows
        lags.extend(version - int(number) for row in rows for number in row.versions[row.loss_mask.bool()])
        return await update(learner, version)

    monkeypatch.setattr(BanditLearner, "update", watched)
    stages = "stages: [{name: rl, kind: rl, steps: 12, loop: {max_policy_lag: 3, max_token_lag: 1}}]\n"
    assert play(tmp_path, stages=stages).error is None
    logged = rows(tmp_path)
    assert max(row["lag/max"] for row in logged) > 1 == max(lags)
    assert sum(row["tokens/stale"] for row in logged) > 0
    book = ledger(surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")))
    assert (book.dispatched, book.in_flight, book.failed, book.problems) == (48, 0, 0, ())


def test_tickets_are_journalled_with_the_version_they_started_under(tmp_path: Path) -> None:
    play(tmp_path, steps=4)
    starts = [row.version for row in read_journal(tmp_path / "run" / "journal.jsonl") if isinstance(row, Dispatched)]
    assert starts[:8] == [1] * 8
    assert starts == sorted(starts)


# -- what a run says of itself -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SilentConfig:
    name: str = ""


class SilentReward:
    """A reward from elsewhere, which does not say what counts as solved. (The bandit's pool scores.)"""

    def __init__(self, config: SilentConfig) -> None: ...


def evaluations(tmp_path: Path) -> list[dict[str, Any]]:
    return records(tmp_path / "run" / "evaluations.jsonl")


def sampled_tokens(tmp_path: Path) -> int:
    files = (tmp_path / "run" / "trajectories").glob("[!i]*.jsonl")  # not the index
    return sum(json.loads(line)["num_tokens"] for file in files for line in file.read_text().splitlines())


def test_evaluations_count_their_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Breaking(BanditPool):
        def _fails(self, ticket: Any, plan: Any) -> bool:
            return plan.purpose == "eval-greedy" and ticket.sequence == 1

    outcome = play(tmp_path, pool=Breaking())
    evaluation = outcome.summary["eval"]
    assert evaluation["episodes"] == {"before": {"greedy": 4, "sampled": 32}, "after": {"greedy": 4, "sampled": 32}}
    assert evaluation["failures"] == {"before": {"greedy": 1, "sampled": 0}, "after": {"greedy": 1, "sampled": 0}}
    assert evaluation["measure"] == {"before": "accuracy", "after": "accuracy"}
    before, after = evaluations(tmp_path)
    assert (before["step"], before["when"], before["greedy/failures"]) == (0, "before", 1)
    assert (after["step"], after["stage"], after["sampled/accuracy"]) == (12, "rl", evaluation["after"]["sampled"])
    tracked = [row for row in outcome.run.tracker.rows if "held_out/greedy/failures" in row]  # type: ignore[attr-defined]
    assert [(row["step"], row["held_out/greedy/failures"]) for row in tracked] == [(0, 1), (12, 1)]
    out = capsys.readouterr().out
    assert out.count("greedy: 3 of 4 graded, 1 failed; the first: infra in fake: it died") == 2
    assert "2 of 72 evaluation episodes failed and are not in it" in closing_line(outcome.run, "done")


def test_an_evaluation_of_which_most_failed_has_no_number_and_is_not_taken_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Breaking(BanditPool):
        def _fails(self, ticket: Any, plan: Any) -> bool:
            return bool(plan.purpose.startswith("eval"))

    stages = "stages: [{name: rl, kind: rl, steps: 3}, {name: again, kind: rl, steps: 3}]\n"
    outcome = play(tmp_path, pool=Breaking(), stages=stages)
    assert outcome.error is None
    assert (outcome.summary["eval"]["before"], outcome.summary["eval"]["after"]) == ({}, {})
    assert [row["when"] for row in evaluations(tmp_path)] == ["before", "after", "after"]
    assert "0 of 4 graded, 4 failed, above loop.max_failed_share=0.5" in capsys.readouterr().out
    assert "->" not in closing_line(outcome.run, "done")


def test_the_number_of_a_reward_that_says_nothing_is_a_mean_reward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = f"reward: {{name: {__name__}.SilentReward}}\nstages: [{{name: rl, kind: rl, steps: 12}}]\n"
    outcome = play(tmp_path, stages=stages)
    out = capsys.readouterr().out + closing_line(outcome.run, "done")
    assert "held-out mean reward before: greedy" in out and "held-out mean reward after: greedy" in out
    assert "; held-out mean reward greedy" in out and "accuracy" not in out
    assert set(outcome.summary["eval"]["measure"].values()) == {"mean reward"}
    assert {"greedy/mean_reward", "sampled/mean_reward"} <= set(evaluations(tmp_path)[1])


def test_the_account_of_sampled_tokens_closes_through_stops(tmp_path: Path) -> None:
    for step in (3, 8):
        stopped = play(
            tmp_path, on_row=lambda run, row, step=step: run.tasks.stop.set() if row["step"] == step else None
        )
        assert isinstance(stopped.error, StopRequested)
        assert stopped.summary["tokens"]["generated"] == sampled_tokens(tmp_path)
    done = play(tmp_path)
    assert done.summary["tokens"]["generated"] == sampled_tokens(tmp_path) == 12 * 16 + 2 * 4 * (1 + 8)
    assert done.summary["tokens"]["discarded"] == 0
    assert [row["when"] for row in evaluations(tmp_path)] == ["before", "after"]


@pytest.mark.parametrize("what", ["export", "publish"])
def test_a_run_that_fails_between_an_update_and_its_row_sums_up_its_rows(tmp_path: Path, what: str) -> None:
    """That step is taken again by whoever continues the run."""

    def fail_later(run: Run, row: dict[str, Any]) -> None:
        if row["step"] == 5:

            async def full(*given: Any, **named: Any) -> None:
                raise RunFailed("no room")

            setattr(run.learner if what == "export" else run.pool, what, full)

    outcome = play(tmp_path, on_row=fail_later)
    logged, summary = rows(tmp_path), outcome.summary
    assert str(outcome.error) == "no room" and outcome.run.state.step == len(logged) + 1
    assert summary["steps"] == len(logged)
    assert summary["tokens"]["trained"] == sum(row["tokens/trained"] for row in logged)
    assert summary["tokens"]["generated"] == sampled_tokens(tmp_path)
    prompts = summary["prompts"]
    assert prompts["trained"] + prompts["filtered"] == 4 * len(logged)
    assert prompts["dispatched"] == 4 * len(logged) + prompts["in_flight"]
    assert play(tmp_path).summary["tokens"]["generated"] == sampled_tokens(tmp_path)


@pytest.mark.timeout(300)  # an error that is lost is waited for without end
def test_an_error_of_a_background_task_ends_what_is_awaited(tmp_path: Path) -> None:
    def broken(run: Run, row: dict[str, Any]) -> None:
        async def raises() -> None:
            raise RunFailed("a bug in the background")

        run.tasks.spawn(raises())

    assert str(play(tmp_path, on_row=broken).error) == "a bug in the background"


def test_what_is_wrong_is_said_once_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bandit answers at once and learns its task: no tool was called, and soon no group has signal."""
    stop = lambda run, row: run.tasks.stop.set() if row["step"] == 9 else None  # noqa: E731
    assert isinstance(play(tmp_path, steps=30, on_row=stop).error, StopRequested)
    outcome = play(tmp_path, steps=30)
    out = capsys.readouterr().out
    assert out.count("health: 3 steps in a row: no tool was called") == 1  # the second process knows of it
    silent, easy = outcome.summary["health"]
    assert (silent["what"], silent["stage"], silent["steps"], silent["of"]) == ("silent", "rl", 30, 30)
    assert easy["what"] == "untrained" and "every episode solved its task; give harder tasks" in easy["says"]
    noted = [
        row for row in surviving_rows(read_journal(tmp_path / "run" / "journal.jsonl")) if isinstance(row, HealthNote)
    ]
    assert [row.step for row in noted][0] == 3 and noted[-1].says.endswith(easy["says"])
    events = [event for event in records(tmp_path / "run" / "events.jsonl") if event["kind"] == "health"]
    assert [(event["sign"], event["stage"]) for event in events] == [("silent", "rl"), ("untrained", "rl")]


def test_a_run_that_has_not_begun_has_done_nothing_and_may_yet_train() -> None:
    assert not any(asdict(DriverState()).values())
    assert not has_trained_nothing(DriverState())
    assert has_trained_nothing(DriverState(step=1)) and not has_trained_nothing(DriverState(step=2, trained=1))


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_run_that_never_trained_is_not_done_and_says_why(
    tmp_path: Path, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Deaf(BanditPool):
        """Whatever the policy does: all siblings the same."""

        async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
            return await super().group(ticket, replace(plan, temperature=0.0), on_retry)

    outcome = play(tmp_path, steps=steps, pool=Deaf())
    assert isinstance(outcome.error, RunFailed)
    begin = f"none of the {steps} steps trained anything: all 4 groups are without signal"
    assert str(outcome.error).startswith(begin) and "loop.group_size (now" in str(outcome.error)
    assert capsys.readouterr().out.count("health: 2 steps in a row: nothing was trained") == (steps > 1)
    assert [finding["what"] for finding in outcome.summary["health"]] == ["untrained", "silent"][: 1 + (steps > 2)]
    assert outcome.run.dir.newest().name == f"step-{steps:06d}"  # nothing is lost
    (tmp_path / "run" / "config.yaml").write_text(to_yaml(outcome.run.config))
    assert rlsys(["train", str(tmp_path / "recipe.yaml"), "--run-dir", str(tmp_path / "run")]) == 1


@pytest.mark.parametrize(("kept", "loaded"), [("run", [True]), ("stage", [])])
def test_the_optimizer_of_a_stage_is_new_or_that_of_the_one_before(
    tmp_path: Path, kept: str, loaded: list[bool]
) -> None:
    two = "stages: [{name: a, kind: rl, steps: 2}, {name: b, kind: rl, steps: 2, learner: {optimizer: %s}}]\n"
    outcome = play(tmp_path, stages=two % kept)
    assert outcome.error is None
    assert outcome.run.learner.loaded == loaded  # type: ignore[attr-defined]
