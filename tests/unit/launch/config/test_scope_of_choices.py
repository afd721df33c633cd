"""Keys go to the choices that have them, and what is left out or fits elsewhere is said."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from envs.rewards.answer import AnswerReward, AnswerRewardConfig
from envs.worlds.calculator import CalculatorConfig, CalculatorWorld
from launch.config.compose import compose, to_yaml
from rlsys.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class FlakyConfig(CalculatorConfig):
    name: str = f"{__name__}.Flaky"
    faults: int = 0


class Flaky(CalculatorWorld):
    def __init__(self, config: FlakyConfig) -> None:
        super().__init__(config)


@dataclass(frozen=True, kw_only=True)
class PlainConfig:
    name: str = f"{__name__}.Plain"
    held_out_tasks: int = 7


class Plain:
    def __init__(self, config: PlainConfig) -> None: ...


@dataclass(frozen=True, kw_only=True)
class MineConfig(AnswerRewardConfig):
    name: str = f"{__name__}.Mine"


class Mine(AnswerReward):
    def __init__(self, config: MineConfig) -> None:
        super().__init__(config)


def test_an_environment_of_ones_own_keeps_the_recipes_keys_that_it_has(caplog: pytest.LogCaptureFixture) -> None:
    own = compose("quickstart", [f"env.name={__name__}.Flaky", "env.faults=3"]).recipe.env
    ours: Any = compose("quickstart", []).recipe.env
    assert isinstance(own, FlakyConfig) and own.faults == 3
    changed = [
        field.name for field in fields(CalculatorConfig) if getattr(own, field.name) != getattr(ours, field.name)
    ]
    assert changed == ["name"] and ours != CalculatorConfig()
    assert caplog.messages == []


def test_what_it_has_not_is_said(caplog: pytest.LogCaptureFixture) -> None:
    own = compose("quickstart", [f"env.name={__name__}.Plain", "seed=0"]).recipe.env
    ours: Any = compose("quickstart", []).recipe.env
    assert isinstance(own, PlainConfig) and own.held_out_tasks == ours.held_out_tasks != 7
    (message,) = caplog.messages
    assert "left out of configs/quickstart.yaml" in message and "env.max_turns" in message and "held_out" not in message


def test_one_of_ours_begins_with_its_own_defaults_and_what_is_left_out_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env: Any = compose("quickstart", ["env.name=questions", "env.style=answer_tag"]).recipe.env
    assert env == type(env)(style="answer_tag")
    (message,) = caplog.messages
    assert message.startswith("env.name=questions: left out of configs/quickstart.yaml, which names another: env.demo")


def test_a_reward_of_ones_own_keeps_them_too(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("reward: {name: answer, correct: 2.0, overlong_penalty: -0.5}\n" + STAGES)
    reward: Any = compose(str(recipe), [f"reward.name={__name__}.Mine"]).stages[-1].config.reward
    assert isinstance(reward, MineConfig) and (reward.correct, reward.overlong_penalty) == (2.0, -0.5)


STAGES = "stages: [{name: rl, kind: rl, steps: 1}]\n"


@pytest.mark.parametrize(
    ("config", "override", "says"),
    [
        (
            "swirl",
            "reward.aggregate=last",
            "in stage tries reward.name='answer' has no such key, expected .*stages.swirl.reward.aggregate=last",
        ),
        ("swirl", "reward.judge.prompts=null", "in stage tries .* stages.swirl.reward.judge.prompts=null"),
        ("swirl/tiny", "reward.judged_by=judge", "reward.judged_by: in stage tries"),
        ("quickstart", "reward.judge.endpoint=z", "reward.name='answer' has none, reward.name=judged, .*swirl has it"),
    ],
)
def test_a_key_that_fits_elsewhere_is_said_with_the_way(config: str, override: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as error:
        compose(config, [override])
    assert "did you mean" not in str(error.value)


def test_a_key_that_fits_every_stage_is_taken() -> None:
    assert compose("quickstart", ["reward.format=0.2"]).stages[-1].config.reward.format == 0.2
    assert compose("swirl/tiny", ["stages.swirl.reward.aggregate=last"])


@pytest.mark.parametrize("other", ["questions, style: answer_tag", f"{__name__}.Flaky", f"{__name__}.Plain"])
def test_a_stage_with_another_environment_reads_back_to_the_same(other: str, tmp_path: Path) -> None:
    """A value that both environments have is written for both: what is left of it is not the default."""
    recipe = tmp_path / "r.yaml"
    stage = f"name: rl, kind: rl, steps: 1, env: {{name: {other}, held_out_tasks: 200}}"
    recipe.write_text(f"env: {{name: calculator, held_out_tasks: 200}}\nstages: [{{{stage}}}]\n")
    first = compose(str(recipe), [])
    recipe.write_text(to_yaml(first))
    assert compose(str(recipe), [], saved=True).stages == first.stages
