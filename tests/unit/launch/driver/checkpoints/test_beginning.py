"""The model that a stage is compared with outlives the checkpoint that the stage began with."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from launch.cli import run as rlsys
from launch.config.compose import compose, to_yaml
from launch.config.extend import changed_midway, refuse_other_config
from launch.driver.checkpoints.beginning import KEPT, LEARNER, describe_division
from launch.driver.checkpoints.checkpoint import file_digests, read_state, step_of, write_state
from launch.driver.checkpoints.proof import checkpoint_seal
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from learners.layout import FILE, layout_of
from learners.meeting import RankSpec
from learners.stage import Loading, Reference
from rlsys.config.learner import LearnerConfig
from rlsys.errors import LearnerLost
from rlsys.system.device import DEVICES
from tests.fakes import bandit
from tests.fakes.parts import BanditLearner
from tests.makers.run_directory import seal_again
from tests.refused import refused
from tests.unit.launch.driver.stages.test_rl import play

TINY = Qwen3Config(
    vocab_size=4, hidden_size=2, intermediate_size=2, num_hidden_layers=1, num_attention_heads=1,
    num_key_value_heads=1, head_dim=2, tie_word_embeddings=False,
)  # fmt: skip
SPEC = RankSpec(
    rank=0, world_size=1, master_addr="", master_port=0, device=DEVICES["cpu"], dtype="float32",
    gradient_checkpointing=False, seed=0,
)  # fmt: skip
LOADING = Loading(learner=LearnerConfig(), spec=SPEC, torch_device=torch.device("cpu"))


def save_model(folder: Path, value: float) -> None:
    model = Qwen3ForCausalLM(TINY)
    with torch.no_grad():
        next(model.parameters()).fill_(value)
    model.save_pretrained(folder)


class Learner(BanditLearner):
    """Beside its logits it saves a real model, and compares with a real reference."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[float] = []  # of each `begin`: the number in the model that was loaded

    async def begin(self, model_path: str, *arguments: Any, reference_path: str | None = None, **stage: Any) -> None:
        await super().begin(model_path, *arguments, reference_path=reference_path, **stage)
        if "reference" in self.algorithm.needs:
            with Reference(str(reference_path), LOADING).ready() as model:
                self.references.append(float(next(model.parameters())[0, 0]))

    async def update(self, version: int) -> Any:
        rows = [replace(row, reference_logprobs=torch.zeros_like(row.loss_mask)) for row in self.built.rows]
        self.built = replace(self.built, rows=tuple(rows))
        return await super().update(version)

    async def write(self) -> None:
        folder, logits = self.copied
        await super().write()
        save_model(folder / "hf", logits[0])
        (folder / LEARNER / FILE).parent.mkdir(exist_ok=True)
        (folder / LEARNER / FILE).write_text(json.dumps(layout_of(LearnerConfig(), self.algorithm, 1)))


@pytest.fixture(autouse=True)
def _learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandit, "BanditLearner", Learner)


def stages(steps: int, *, kl_coef: float = 0.01, keep: int = 2) -> str:
    slow = "learner: {lr: 0.3}"  # every step has something to learn
    compared = f"algorithm: {{kl_coef: {kl_coef}}}, checkpoint: {{every: 1, keep: {keep}}}"
    two = [f"{{name: a, kind: rl, steps: 2, {slow}}}", f"{{name: b, kind: rl, steps: {steps}, {slow}, {compared}}}"]
    return f"stages: [{', '.join(two)}]\n"


def with_config(tmp_path: Path) -> Path:
    """The run directory, with the configuration that a real command writes."""
    (tmp_path / "run" / "config.yaml").write_text(to_yaml(compose(str(tmp_path / "recipe.yaml"), [])))
    return tmp_path / "run"


def references(outcome: Any) -> list[float]:
    values: list[float] = outcome.run.learner.references
    return values


def stop_at(step: int) -> Callable[[Run, dict[str, Any]], None]:
    return lambda run, row: run.tasks.stop.set() if row["step"] == step else None


@pytest.mark.parametrize("keep", [1, 2])
def test_it_is_there_in_every_checkpoint_that_is_kept(tmp_path: Path, keep: int) -> None:
    """Five checkpoints in one process, a rank that dies after the fourth, a resume from each one that is kept."""
    left = [7]  # the fifth step of the second stage

    def die(run: Run, row: dict[str, Any]) -> None:
        if row["step"] in left:
            left.clear()

            async def dead(*given: Any) -> None:
                del run.learner.snapshot
                raise LearnerLost("learner copying a checkpoint: a rank died")

            run.learner.snapshot = dead  # type: ignore[method-assign]

    outcome = play(tmp_path, stages=stages(5, keep=keep), on_row=die)
    assert outcome.error is None and not left
    assert outcome.summary["restarts"]["learner"] == 1
    began_with, after_the_death = references(outcome)
    assert began_with == after_the_death != 0.0
    assert outcome.run.learner.logits.tolist()[0] != pytest.approx(began_with)  # type: ignore[attr-defined]
    directory = RunDir(tmp_path / "run")
    checkpoints = directory.checkpoints()
    assert len(checkpoints) == keep
    for checkpoint in checkpoints:
        assert directory.verify(checkpoint, print)
    names = {checkpoint / KEPT / "model.safetensors" for checkpoint in checkpoints}
    assert len({os.stat(name).st_ino for name in names}) == 1  # one file, whatever the number of checkpoints
    directory.close()
    for checkpoint in checkpoints:
        copied = tmp_path / checkpoint.name / "run"
        shutil.copytree(with_config(tmp_path), copied)
        for newer in checkpoints[checkpoints.index(checkpoint) + 1 :]:
            shutil.rmtree(copied / "checkpoints" / newer.name)
        more = {"stages": stages(7), "extended": True} if checkpoint == checkpoints[-1] else {"stages": stages(5)}
        resumed = play(tmp_path / checkpoint.name, **more)  # type: ignore[arg-type]
        assert resumed.error is None and references(resumed) == [began_with]


def test_stages_that_take_no_step_between_change_nothing(tmp_path: Path) -> None:
    """The checkpoint that an eval stage ends with is the one of the stage before it."""
    three = stages(5).replace("}, {name: b", "}, {name: look, kind: eval}, {name: b")
    outcome = play(tmp_path, stages=three, on_row=stop_at(6))
    resumed = play(tmp_path, stages=three)
    assert resumed.error is None and references(resumed) == references(outcome) != [0.0]


def test_a_first_stage_is_compared_with_the_model_of_the_run(tmp_path: Path) -> None:
    """`bandit_run` gives the folder of the test as the run's model. Nothing of it is kept twice."""
    save_model(tmp_path, 0.25)
    text = "stages: [{name: b, kind: rl, steps: 5, algorithm: {kl_coef: 0.01}, checkpoint: {every: 1}}]\n"
    outcome = play(tmp_path, stages=text, on_row=stop_at(4))
    resumed = play(tmp_path, stages=text)
    assert references(outcome) == references(resumed) == [0.25]
    assert not list((tmp_path / "run" / "checkpoints").glob(f"*/{KEPT}"))
    two = stages(5).replace("steps: 5, learner: {", "steps: 5, learner: {reference: run, ")
    shutil.rmtree(tmp_path / "run")
    assert references(play(tmp_path, stages=two)) == [0.25]


def save_again(checkpoint: Path) -> None:
    """As if the run had saved it as it is now."""
    write_state(checkpoint, read_state(checkpoint), file_digests(checkpoint))
    run = checkpoint.parents[1]
    seal_again(
        run, f"checkpoints/{checkpoint.name}", checkpoint_seal(step_of(checkpoint), file_digests(checkpoint) or {})
    )


def test_a_checkpoint_that_lost_it_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = play(tmp_path, stages=stages(5), on_row=stop_at(6))
    recipe, run = tmp_path / "recipe.yaml", with_config(tmp_path)
    *_, older, newest = outcome.run.dir.checkpoints()
    shutil.rmtree(newest / KEPT)
    save_again(newest)
    assert rlsys(["train", str(recipe), "--run-dir", str(run)]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{newest}: it does not hold the reference model of stage b" in line
    assert f"--resume-from {older.name}" in line and "stages.b.learner.reference=run" in line
    with refused(says="reference model of stage b"):
        play(tmp_path, stages=stages(5))
    resumed = play(tmp_path, stages=stages(5, kl_coef=0.0))
    assert resumed.error is None and references(resumed) == []


def test_another_algorithm_in_the_middle_of_a_stage_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, stages=stages(5, kl_coef=0.0), on_row=stop_at(6))
    run, other = with_config(tmp_path), "stages.b.algorithm.name=ppo"
    assert rlsys(["train", str(tmp_path / "recipe.yaml"), "--run-dir", str(run), other]) == 2
    assert "algorithm.name" in capsys.readouterr().err.strip().splitlines()[-1]


def test_what_changes_in_how_a_stage_learns_that_has_begun_is_named(tmp_path: Path) -> None:
    outcome = play(tmp_path, stages=stages(5, kl_coef=0.0), on_row=stop_at(6))
    run, state, recipe = with_config(tmp_path), outcome.run.state, str(tmp_path / "recipe.yaml")
    more = ["stages.b.algorithm.kl_coef=0.1", "stages.b.rollout.temperature=0.5", "rollout.workers=2", "tracker=none"]
    (change,) = changed_midway(run, compose(recipe, more), state)
    assert (
        "algorithm.kl_coef 0.0 -> 0.1" in change
        and "rollout.temperature 1.0 -> 0.5" in change
        and "tracker" not in change
    )
    assert changed_midway(run, compose(recipe, []), state) == []
    assert changed_midway(run, compose(recipe, more), replace(state, stage_step=0)) == []
    (change,) = changed_midway(run, compose(recipe, ["engine.max_num_seqs=3", "eval.tasks=3"]), state)
    assert "engine.max_num_seqs" in change and "eval.tasks" in change
    (change,) = changed_midway(run, compose(recipe, ["stages.a.learner.lr=0.5"]), state)
    assert "a has ended" in change and "learner.lr" in change


@pytest.mark.parametrize("override", ["learner.ranks=2", "stages.b.learner.zero_stage=3"])
def test_a_run_continues_on_other_ranks_and_under_another_zero_stage(tmp_path: Path, override: str) -> None:
    outcome = play(tmp_path, stages=stages(5, kl_coef=0.0), on_row=stop_at(6))
    run, state = with_config(tmp_path), outcome.run.state
    newest = RunDir(run).checkpoints()[-1]
    before, now = (compose(str(tmp_path / "recipe.yaml"), overrides) for overrides in ([], [override]))
    refuse_other_config(run, now, state)
    assert describe_division(before.stages[1], state, newest) == ""
    division = describe_division(now.stages[1], state, newest)
    assert (
        "saved with learner.ranks=1 learner.zero_stage=2" in division and override.removeprefix("stages.b.") in division
    )


def test_moments_that_a_stage_cannot_take_over_are_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = stages(5, kl_coef=0.0).replace("learner: {lr", "learner: {optimizer: run, lr")
    play(tmp_path, stages=two, on_row=stop_at(2))
    run = with_config(tmp_path)
    (layout,) = run.glob(f"checkpoints/*/{LEARNER}/{FILE}")
    layout.write_text(json.dumps(json.loads(layout.read_text()) | {"critic": True}))
    checkpoint = layout.parents[1]
    save_again(checkpoint)
    assert rlsys(["train", str(tmp_path / "recipe.yaml"), "--run-dir", str(run)]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{layout.parent}: saved with a critic" in line
