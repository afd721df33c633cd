"""Evaluations of a run: before and after each stage on the same prompts, beside training, in part, and of the best."""

import asyncio
import json
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import to_yaml
from launch.driver.checkpoints.best import find_best_model, read_best
from launch.driver.evaluation import evaluate
from launch.driver.evaluation.background import BackgroundEvaluation
from launch.driver.run.rundir import RunDir
from launch.driver.run.session import closing_line
from launch.tools.audit.files import read_run
from launch.tools.audit.properties import audit
from rlsys.errors import RunFailed
from tests.fakes.parts import BanditPool
from tests.refused import refused
from tests.unit.launch.driver.stages import test_rl as driver


class Hanging(BanditPool):
    """Its evaluations beside training never end: their groups hang, but for the first `ended`."""

    def __init__(self, ended: int) -> None:
        super().__init__()
        self.ended, self.beside = ended, False

    async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
        if plan.purpose.startswith("eval") and self.beside and ticket.sequence >= self.ended:
            await asyncio.Event().wait()
        return await super().group(ticket, plan, on_retry)


class Straddling(BanditPool):
    """An episode beside training is sampled once the next weights are there, or half a second later."""

    async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
        begun, late = self.version, asyncio.get_running_loop().time() + 0.5
        if plan.purpose.startswith("eval") and 1 < begun < 6:
            while self.version == begun and asyncio.get_running_loop().time() < late:
                await asyncio.sleep(0.001)
        return await super().group(ticket, plan, on_retry)


def run(
    tmp_path: Path, evals: str, *, steps: int = 8, pool: BanditPool | None = None, more: str = ""
) -> driver.Outcome:
    stages = f"stages: [{{name: rl, kind: rl, steps: {steps}, eval: {{{evals}}}{more}}}]\n"
    outcome = driver.play(tmp_path, stages=stages, pool=pool, on_row=lambda run, row: beside(run))
    assert outcome.error is None
    return outcome


def beside(run: Any) -> None:
    run.pool.beside = run.state.stage_step < 8


def lines(tmp_path: Path, when: str = "during") -> list[dict[str, Any]]:
    return [row for row in driver.evaluations(tmp_path) if row["when"] == when]


def test_every_so_many_steps_beside_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    outcome = run(tmp_path, "every: 2, hold_weights: true")  # else one may be left out, where another is slow
    took = time.monotonic() - begun
    assert [row["step"] for row in lines(tmp_path)] == [2, 4, 6]  # 8 is the evaluation at the stage's end
    assert all(row["greedy/episodes"] == 4 and row["sampled/episodes"] == 32 for row in lines(tmp_path))
    assert all(row["newest_version"] == row["version"] > 0 for row in lines(tmp_path))
    seconds = [row["eval/seconds"] for row in driver.rows(tmp_path)]
    assert min(seconds) >= 0 and 0 < sum(seconds) <= took
    assert "held-out accuracy at step 4: greedy" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "run" / "trajectories").glob("eval-*-greedy.jsonl"))
    steps = [f"eval-rl-step-{step:06d}-greedy.jsonl" for step in (2, 4, 6)]
    assert names == ["eval-rl-after-greedy.jsonl", "eval-rl-before-greedy.jsonl", *steps]
    assert outcome.summary["tokens"]["generated"] == driver.sampled_tokens(tmp_path)
    tracked = [row for row in outcome.run.tracker.rows if "held_out/greedy/accuracy" in row]  # type: ignore[attr-defined]
    assert {row["step"] for row in tracked} == {0, 2, 4, 6, 8}


def test_the_wait_for_its_weights_is_no_second_of_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, told = BackgroundEvaluation.due, list[float]()

    def due_late(self: BackgroundEvaluation, live: Any) -> None:
        async def late() -> None:
            await live()
            await asyncio.sleep(0.1)
            told.append(self.row()["eval/seconds"])  # as a row of the next step does

        due(self, late)

    monkeypatch.setattr(BackgroundEvaluation, "due", due_late)
    run(tmp_path, "every: 4, hold_weights: true")
    assert told == [0.0]
    assert min(row["eval/seconds"] for row in driver.rows(tmp_path)) >= 0


def test_a_number_says_which_weights_it_is_of_and_they_can_be_held(tmp_path: Path) -> None:
    loose, held = (tmp_path / name for name in ("loose", "held"))
    for folder, keys in ((loose, "every: 4"), (held, "every: 4, hold_weights: true")):
        folder.mkdir()
        run(folder, keys, pool=Straddling())
    assert any(row["newest_version"] > row["version"] for row in lines(loose))
    assert all(row["newest_version"] == row["version"] for row in lines(held))
    assert [row["step"] for row in lines(held)] == [4]


def test_an_episode_leaves_the_driver_for_the_disk_as_it_ends(tmp_path: Path) -> None:
    """All groups begin at once; each ends when the tokens of the one before are gone from memory."""
    refs: list[weakref.ref[Any]] = []
    most = 0

    class Counting(BanditPool):
        async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
            nonlocal most
            group = await super().group(ticket, plan, on_retry)
            if plan.purpose.startswith("eval"):
                async with turn:
                    await asyncio.sleep(0.01)
                    most = max(most, sum(ref() is not None for ref in refs))
                    refs.append(weakref.ref(group.trajectories[0].turns[0].completion.token_ids))
            return group

    turn = asyncio.Lock()
    run(tmp_path, "samples: 2", steps=1, pool=Counting())
    assert len(refs) == 2 * 2 * 4 and most <= 2  # one that is being written, and one that has just ended
    files = (tmp_path / "run" / "trajectories").glob("eval-*.jsonl")
    assert sum(len(path.read_text().splitlines()) for path in files) == 2 * 4 * (1 + 2)
    assert not list((tmp_path / "run" / "trajectories").glob(".*"))


def test_one_that_takes_too_long_is_partial_and_keeps_training_from_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "every: 2, deadline_s: 0.3, seeds: 2", pool=Hanging(3))
    record = lines(tmp_path)[0]
    assert (record["step"], record["greedy/episodes"], record["greedy/planned"]) == (2, 3, 4)
    assert (record["sampled/episodes"], record["sampled/planned"]) == (48, 64)
    out = capsys.readouterr().out
    assert "greedy: partial, 3 of 4 episodes" in out and "with the rest" in out
    assert "no evaluation at step 4: the one of step 2 is still under way" in out
    assert [row["step"] for row in driver.rows(tmp_path)] == list(range(1, 9))


def test_a_budget_ends_it_too(tmp_path: Path) -> None:
    run(tmp_path, "every: 4, budget_tokens: 1, concurrency: 1")
    (row,) = lines(tmp_path)
    assert (row["greedy/episodes"], row["greedy/planned"], row["sampled/episodes"]) == (1, 4, 0)


def test_the_best_model_by_an_evaluation_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "every: 2, hold_weights: true", more=", checkpoint: {every: 2, keep: 1, best: sampled/accuracy}")
    values = {row["step"]: row["sampled/accuracy"] for row in driver.evaluations(tmp_path) if row["step"]}
    best = find_best_model(tmp_path / "run")
    first = min(step for step, value in values.items() if value == max(values.values()))
    assert best is not None and read_best(best) == {
        "number": "sampled/accuracy",
        "value": pytest.approx(values[first]),
        "step": first,
    }
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-000008"]
    assert "the best model so far, by sampled/accuracy=" in capsys.readouterr().out
    with refused("eval.every", found=3):
        run(tmp_path / "x", "every: 3", more=", checkpoint: {every: 2, best: sampled/accuracy}")


def test_the_best_model_by_a_part_of_the_reward(tmp_path: Path) -> None:
    run(tmp_path, "", steps=2, more=", checkpoint: {every: 2, best: greedy/part/correct}")
    best = find_best_model(tmp_path / "run")
    assert best is not None
    assert read_best(best)["value"] == lines(tmp_path, "after")[0]["greedy/part/correct"]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()


def test_a_resumed_run_makes_the_evaluation_that_a_kill_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = "stages: [{name: rl, kind: rl, steps: 8, eval: {every: 4}, checkpoint: {every: 4}}]\n"
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundEvaluation, "due", lambda self, live: None)
        driver.play(tmp_path, stages=stages, on_row=lambda run, row: run.tasks.stop.set() if row["step"] == 4 else None)
    assert lines(tmp_path) == []
    driver.play(tmp_path, stages=stages)
    assert [row["step"] for row in lines(tmp_path)] == [4]


@pytest.mark.parametrize(
    ("of", "name", "done"),
    [
        (RunDir, "save_result", False),
        (evaluate, "_keep_best", False),
        (evaluate, "_keep_best", True),
        (RunDir, "save_evaluation", True),
    ],
)
def test_one_that_breaks_off_while_it_is_written_is_whole_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, done: bool
) -> None:
    """Its line, its result and the best model; `done`: with the work of `name` behind it, else before."""
    keys = "eval: {every: 4, hold_weights: true}, checkpoint: {every: 4, best: greedy/accuracy}"
    stages, folder, work = f"stages: [{{name: rl, kind: rl, steps: 8, {keys}}}]\n", tmp_path / "run", getattr(of, name)

    def break_off(*args: Any) -> Any:
        if not list((folder / "checkpoints").glob("step-000004")):  # the one before the stage
            return work(*args)
        if done:
            work(*args)
        raise RunFailed("it broke off")

    with monkeypatch.context() as patched:
        patched.setattr(of, name, break_off)
        assert driver.play(tmp_path, stages=stages).error is not None
    outcome = driver.play(tmp_path, stages=stages)
    assert outcome.error is None
    (row,) = lines(tmp_path)
    written = json.loads((folder / "evaluations" / "rl-step-000004.json").read_text())
    assert (row["step"], row["greedy/accuracy"]) == (4, written["accuracy"]["greedy"])
    values = {row["step"]: row["greedy/accuracy"] for row in driver.evaluations(tmp_path) if row["step"]}
    step, best = max(values, key=lambda at: (values[at], -at)), find_best_model(folder)
    assert best is not None and read_best(best) == {"number": "greedy/accuracy", "value": values[step], "step": step}
    (folder / "config.yaml").write_text(to_yaml(outcome.run.config))
    checks = {check.name: check.offenders for check in audit(read_run(folder))}
    assert not (*checks["journal"], *checks["rows"], *checks["files"])


@pytest.mark.parametrize(("stop", "says"), [(4, "the resumed run makes it"), (5, "it is not made again")])
def test_a_stop_says_what_becomes_of_the_one_that_is_under_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stop: int, says: str
) -> None:
    class Waiting(BanditPool):
        async def group(self, ticket: Any, plan: Any, on_retry: Any) -> Any:
            if plan.purpose.startswith("eval") and self.version > 1:
                await asyncio.Event().wait()
            return await super().group(ticket, plan, on_retry)

    stages = "stages: [{name: rl, kind: rl, steps: 8, eval: {every: 4}, checkpoint: {every: 4}}]\n"

    def on_row(run: Any, row: dict[str, Any]) -> None:
        if row["step"] == stop:
            run.tasks.stop.set()

    driver.play(tmp_path, stages=stages, pool=Waiting(), on_row=on_row)
    assert f"the evaluation of step 4 was under way and is cut off: {says}" in capsys.readouterr().out


STAGED = """stages:
  - {name: shown, kind: rl, steps: 3, env: {max_turns: 3}}
  - {name: same, kind: rl, steps: 3, env: {max_turns: 3}}
  - {name: bare, kind: rl, steps: 3, env: {max_turns: 2}}
"""


def test_before_and_after_are_of_the_same_prompts(tmp_path: Path) -> None:
    outcome = driver.play(tmp_path, stages=STAGED)
    evaluations = [(row["stage"], row["when"], row["step"]) for row in driver.evaluations(tmp_path)]
    assert evaluations == [
        ("shown", "before", 0),
        ("shown", "after", 3),
        ("same", "after", 6),  # what it begins with was just measured
        ("bare", "before", 6),
        ("bare", "after", 9),
    ]
    stages = outcome.summary["eval"]["stages"]
    assert stages["same"]["before"] == stages["shown"]["after"]
    assert outcome.summary["eval"]["before"] == stages["shown"]["before"]
    files = {path.name for path in (tmp_path / "run" / "trajectories").glob("eval-*-greedy.jsonl")}
    assert files == {f"eval-{stage}-{when}-greedy.jsonl" for stage, when, _ in evaluations}
    before, after = (stages["bare"][when]["greedy"] for when in ("before", "after"))
    assert f"held-out accuracy of stage bare greedy {before:.3f} -> {after:.3f}" in closing_line(outcome.run, "done")


def test_an_eval_stage_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = "eval: {samples: 0, sets: {small: {tasks: 2}, all: {split: all, tasks: 9}}}"
    stages = f"stages: [{{name: rl, kind: rl, steps: 3}}, {{name: test, kind: eval, {sets}}}]\n"
    outcome = driver.play(tmp_path, stages=stages)
    assert outcome.error is None and outcome.run.state.step == 3
    (row,) = lines(tmp_path, "eval")
    assert (row["stage"], row["small/greedy/episodes"], row["all/greedy/episodes"]) == ("test", 2, 9)
    assert set(outcome.summary["eval"]["stages"]["test"]["eval"]) == {"small/greedy", "all/greedy"}
    assert "held-out accuracy in stage test: small/greedy" in capsys.readouterr().out
    written = [json.loads(line) for line in (tmp_path / "run/trajectories/eval-test-eval-all-greedy.jsonl").open()]
    assert len(written) == 9
    with refused(says="an eval stage trains nothing"):
        driver.play(tmp_path / "x", stages="stages: [{name: test, kind: eval, steps: 3}]\n")
