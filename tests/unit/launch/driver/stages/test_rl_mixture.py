"""The real driver with a bandit for a model, on two environments: each is played by its own plan and counted apart."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import compose
from launch.config.extend import refuse_other_config
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.evaluation.sets import recipes_of
from launch.driver.run import wire
from launch.driver.run.tasks import StopRequested
from launch.driver.stages.addresses import judge_and_teacher_endpoints
from launch.driver.stages.train import arithmetic, check
from rlsys.config.envs import env_of
from rlsys.errors import BadInput
from rlsys.journal import Dispatched, ledger, read_journal, surviving_rows
from rlsys.rollout import RolloutPlan
from rlsys.types import Group, Ticket
from tests.fakes.parts import BanditPool
from tests.unit.launch.driver.stages import test_rl

HEAD = """
name: bandits
seed: 3
envs:
  - name: calculator
    weight: 1
    train_tasks: 16
    held_out_tasks: 4
    curriculum: {name: difficulty}
  - name: questions
    label: sums
    weight: 2
    train_tasks: 8
    held_out_tasks: 3
    style: answer_tag
reward: {name: answer}
loop: {groups_per_step: 6, group_size: 4, max_policy_lag: 1}
learner: {lr: 2.0}
eval: {samples: 8}
checkpoint: {every: 2}
wandb: {mode: disabled}
"""


class WatchedPool(BanditPool):
    """Which groups were played, and by which plans."""

    def __init__(self) -> None:
        super().__init__()
        self.played: list[tuple[Ticket, RolloutPlan]] = []

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Any) -> Group:
        self.played.append((ticket, plan))
        return await super().group(ticket, plan, on_retry)


@pytest.fixture(autouse=True)
def two_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_rl, "HEAD", HEAD)


def journal(tmp_path: Path) -> list[Any]:
    return read_journal(tmp_path / "run" / "journal.jsonl")


def test_each_group_is_played_in_its_own_environment_and_each_environment_is_counted(tmp_path: Path) -> None:
    pool = WatchedPool()
    outcome = test_rl.play(tmp_path, steps=6, pool=pool)
    assert outcome.error is None
    training = [(ticket, plan) for ticket, plan in pool.played if plan.purpose == "rl"]
    names = {"calculator": "calculator", "sums": "questions"}
    for ticket, plan in training:
        assert plan.env.name == names[env_of(ticket.task.task_id)]
        assert len(plan.together) == 2
    assert Counter(env_of(ticket.task.task_id) for ticket, _ in training) == {"calculator": 12, "sums": 24}
    assert {ticket.level for ticket, _ in training if env_of(ticket.task.task_id) == "sums"} == {""}
    for row in test_rl.rows(tmp_path):
        for key in ("episode/count", "groups/trained", "groups/filtered", "tokens/generated", "failures/infra"):
            assert row[f"by_env/calculator/{key}"] + row[f"by_env/sums/{key}"] == row[key]
        assert any(key.startswith("by_env/calculator/curriculum/share/") for key in row)
        assert not any(key.startswith(("by_env/sums/curriculum", "curriculum/")) for key in row)
    state = outcome.run.state
    assert state.eval_after.keys() == {f"{name}/{way}" for name in names for way in ("greedy", "sampled")}
    assert all(state.eval_after[f"{name}/sampled"] > state.eval_before[f"{name}/sampled"] for name in names)
    counted = outcome.summary["eval"]["episodes"]["after"]
    assert (counted["calculator/sampled"], counted["sums/sampled"]) == (4 * 8, 3 * 8)
    index = (tmp_path / "run" / "trajectories" / "index.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in index]
    assert {env_of(episode["task_id"]) for episode in episodes if episode["play"] is None} == set(names)


def test_a_resumed_run_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    for name in ("stopped", "through"):
        (tmp_path / name).mkdir()
    for step in (3, 5):
        stopped = test_rl.play(tmp_path / "stopped", steps=6, on_row=stop_at(step))
        assert isinstance(stopped.error, StopRequested)
    assert test_rl.play(tmp_path / "stopped", steps=6).error is None
    for row in (entry for entry in journal(tmp_path / "stopped") if isinstance(entry, Dispatched)):
        assert env_of(row.task) == ("sums", "calculator", "sums")[row.sequence % 3]
    book = ledger(surviving_rows(journal(tmp_path / "stopped")))
    assert (book.dispatched, book.in_flight, book.problems) == (36, 0, ())

    test_rl.play(tmp_path / "through", steps=6)
    drawn: list[dict[int, str]] = []
    for run in ("stopped", "through"):
        rows = [entry for entry in surviving_rows(journal(tmp_path / run)) if isinstance(entry, Dispatched)]
        drawn.append({entry.sequence: entry.task for entry in rows if env_of(entry.task) == "sums"})
    assert drawn[0] == drawn[1] and len(drawn[0]) == 24


def stop_at(step: int) -> Any:
    return lambda run, row: run.tasks.stop.set() if row["step"] == step else None


def test_a_stage_that_has_begun_is_continued_with_its_weights(tmp_path: Path) -> None:
    assert test_rl.play(tmp_path, steps=4).error is None
    (tmp_path / "run" / "config.yaml").write_text((tmp_path / "recipe.yaml").read_text())
    begun = compose(str(tmp_path / "recipe.yaml"), [])
    refuse_other_config(tmp_path / "run", begun, DriverState(stage_step=1))
    for change, named in (("envs.sums.weight=3", "envs.sums.weight"), ("envs.sums.seed=4", "env.parts")):
        other = compose(str(tmp_path / "recipe.yaml"), [change])
        with pytest.raises(BadInput, match=named):
            refuse_other_config(tmp_path / "run", other, DriverState(stage_step=1))


def test_a_dry_run_shows_each_environment_and_a_start_looks_at_each(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(HEAD + "stages: [{name: sft, kind: sft, steps: 3}, {kind: rl, steps: 4}]\n")
    config = compose(str(tmp_path / "recipe.yaml"), [])
    lines, problem = arithmetic(config)
    assert problem is None
    of_rl = [line for line in lines if line.startswith("rl (rl)")]
    assert [line for line in of_rl if "envs.calculator = calculator, reward answer: 8 of 24, 33% (0.50 epochs" in line]
    assert [line for line in of_rl if "envs.sums = questions, reward answer: 16 of 24, 67% (2.00 epochs of 8" in line]
    assert [line for line in of_rl if "envs.calculator.curriculum = difficulty, of the levels" in line]
    check(config, print)
    broken = compose(str(tmp_path / "recipe.yaml"), ["envs.sums.data=nowhere.jsonl"])
    with pytest.raises(BadInput, match=r"nowhere\.jsonl"):
        check(broken, print)


def test_the_services_judges_and_addresses_of_every_environment_are_known(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(HEAD + "stages: [{kind: rl, steps: 4}]\n")
    searching = "envs=[{name: search_qa, label: a, protocol: swirl, train_tasks: 20, held_out_tasks: 2},"
    judged = "{name: questions, label: b, style: answer_tag, reward: {name: judged, judge: {model: m, endpoint: 'http://h/v1'}}}]"
    config = compose(str(tmp_path / "recipe.yaml"), [searching + judged])
    (stage,) = config.stages
    served = [spec.name for recipe in recipes_of(stage.config) for spec in wire.list_services(recipe)]
    assert served and all("retriever" in name for name in served)
    assert [address.where for address in judge_and_teacher_endpoints(config, config.stages)] == ["envs.b.reward.judge"]
