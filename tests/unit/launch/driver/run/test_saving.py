"""A lost learner: the run goes back to its newest checkpoint, and nothing of the stage that was running stays."""

import asyncio
from pathlib import Path
from typing import Any

from launch.config.compose import compose
from launch.driver.run.run import OpenGroups, Run
from launch.driver.run.rundir import RunDir
from launch.driver.run.saving import is_due, rewind
from rlsys.buffer import SlotBuffer
from rlsys.config.output import CheckpointConfig
from rlsys.curriculum import make_curriculum
from rlsys.system.device import DEVICES, resolve_run
from tests.fakes.bandit import bandit_run
from tests.fakes.parts import BanditPool

RECIPE = """
extends: quickstart
wandb: {mode: disabled}
stages: [{name: first, kind: rl, steps: 2}, {name: second, kind: rl, steps: 3}]
"""


def run_of(tmp_path: Path) -> Run:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    config = resolve_run(compose(str(tmp_path / "recipe.yaml"), []), DEVICES["cpu"])
    return bandit_run(config, RunDir(tmp_path / "run"), BanditPool())


def play_a_little(run: Run) -> None:
    world, config = run.active.world, run.active.stage.config
    buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=1, total=4)
    tasks = world.tasks("train")
    curriculum = make_curriculum(config.curriculum, tasks, world.level, seed=0, state=None)
    run.active.groups = OpenGroups(buffer=buffer, curriculum=curriculum)
    run.active.groups.pending.extend([3, 5])


def test_a_checkpoint_is_due_by_steps_and_by_time_whichever_comes_first() -> None:
    def due(step: int, since_s: float, **keys: Any) -> bool:
        return is_due(CheckpointConfig(**keys), step, 200, since_s)

    assert due(20, 0.0) and not due(19, 1799.0) and due(19, 1800.0) and due(200, 0.0)
    assert not due(19, 1e9, every_s=None) and due(20, 0.0, every_s=None)
    assert not due(20, 1799.0, every=None) and due(1, 1800.0, every=None)
    assert due(200, 0.0, every=None, every_s=None)
    # a model of 7e9: 745 s a step. By time after three steps, where twenty would be four hours
    assert [step for step in range(1, 8) if due(step, 745.0 * step)][0] == 3


def test_a_stage_that_ends_leaves_its_account_and_the_next_one_begins_with_nothing_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        run = run_of(tmp_path)
        play_a_little(run)
        run.state.next_sequence, run.state.stage_step = 7, 2
        run.end_stage(1.5)
        state = run.state
        assert (state.stage_index, state.stage_step, state.next_sequence, state.open_sequences) == (1, 0, 0, [])
        assert (state.sequences, state.stage_s, list(state.curriculum)) == ({"first": 7}, {"first": 1.5}, ["first"])
        before = run.active
        run.enter_stage()
        assert run.active is not before and run.active.stage.name == "second"
        assert (run.active.groups, run.active.watch, run.active.reference) == (None, None, None)

    asyncio.run(scenario())


def test_going_back_makes_the_stage_anew_and_never_gives_a_version_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        run = run_of(tmp_path)
        play_a_little(run)
        run.state.version, before = 6, run.active
        rewind(run, type(run.state)(version=2), "a rank died")
        assert (run.state.version, run.state.step, run.before_row) == (7, 0, None)
        assert run.active is not before and run.active.groups is None

    asyncio.run(scenario())
