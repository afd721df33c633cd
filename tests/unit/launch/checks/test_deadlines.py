"""What a recipe's deadlines are: as it says, else by its work."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs import make_world
from launch.checks.deadlines import (
    at_once,
    attempt_s,
    evaluated_at_once,
    generated_at_once,
    load_deadline,
    short_timeout,
    shortest_episode_s,
    start_of_engine,
    start_of_rank,
)
from launch.config.compose import compose
from launch.driver.evaluation.limits import check_evaluation_deadline, evaluation_deadline
from launch.driver.evaluation.sets import plays_of
from launch.driver.run import wire
from launch.driver.run.playing import rollout_plan
from launch.tools.plan.deadlines import Expected, deadline_warnings, lines_of, list_expected
from launch.tools.plan.plan import time_recipe
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, resolve

SEVEN, TIME_S = "gpu/qwen2.5-7b-8xa100", 1792.0
TWO = ["rollout.max_turn_tokens=2048", "reward.max_length=2048"]


@pytest.fixture(autouse=True)
def no_model_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """Overrides that name 400 problems in the place of the recipe's."""
    for name, first in (("train", 0), ("held_out", 1000)):
        lines = [json.dumps({"question": f"What is {first + index} + 1?", "answer": "1"}) for index in range(400)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return [f"env.data={tmp_path / 'train.jsonl'}", f"env.eval_data={tmp_path / 'held_out.jsonl'}"]


def seven(data: list[str], *overrides: str) -> RunConfig:
    return compose(SEVEN, [*data, *overrides])


def rl(config: RunConfig) -> RecipeConfig:
    return next(stage.config for stage in config.stages if stage.kind == "rl")


def test_the_time_of_an_episode_follows_its_tokens_and_its_tools(data: list[str]) -> None:
    recipe = rl(seven(data))
    assert attempt_s(recipe).value == TIME_S
    plan = rollout_plan(recipe, "rl", group_size=8, temperature=1.0)
    assert (plan.timeout_s, plan.priority) == (TIME_S, False)
    fixed = rl(seven(data, "rollout.episode_timeout_s=900"))
    assert attempt_s(fixed).value == 900.0 == shortest_episode_s([recipe, fixed])
    quick = compose("quickstart", []).stages[-1].config
    assert attempt_s(quick).value == 300.0
    tools = compose("worlds/search", ["engine.max_model_len=32768", "rollout.max_turn_tokens=4096"]).stages[-1].config
    messages = 32768 // 4096  # at most: the window ends it
    assert attempt_s(tools).value >= 4096 / 8 + 30 and messages == 8


def test_an_evaluation_with_its_own_limits_has_its_own_time(data: list[str]) -> None:
    longer = rl(seven(data, "eval.max_turn_tokens=4096", "eval.samples=2"))
    plans = {name: play.plan() for name, play in plays_of(longer).items()}
    assert {plan.timeout_s for plan in plans.values()} == {4096 / 8}
    assert {plan.max_turn_tokens for plan in plans.values()} == {4096}
    assert all(plan.priority for plan in plans.values())  # before training's


def test_an_evaluation_beside_training_ends_after_its_longest_answers(data: list[str]) -> None:
    recipe = rl(seven(data, "eval.every=20"))
    assert evaluated_at_once(recipe, [recipe]) == 384
    # 200 greedy and 200 sampled answers on 384 seats: two waves after those under way
    assert evaluation_deadline(recipe, plays_of(recipe)).value == 3 * TIME_S
    assert (
        evaluation_deadline(rl(seven(data, "eval.every=20", "eval.deadline_s=4000")), plays_of(recipe)).value == 4000.0
    )


@pytest.mark.parametrize(("every", "deadline_s", "fits"), [(20, 900, False), (20, 1792, True), (0, 900, True)])
def test_a_limit_that_one_episode_may_outlast_is_refused(
    every: int, deadline_s: int, fits: bool, data: list[str]
) -> None:
    recipe = rl(seven(data, f"eval.every={every}", f"eval.deadline_s={deadline_s}"))
    if fits:
        return check_evaluation_deadline("stages.rl", recipe)
    with pytest.raises(BadInput, match=r"stages.rl: eval.deadline_s=900.0.*rollout.episode_timeout_s=1792"):
        check_evaluation_deadline("stages.rl", recipe)


def test_what_is_played_at_once_fills_the_engines_that_there_are(data: list[str]) -> None:
    recipe = rl(seven(data))
    assert generated_at_once(recipe) == 384 and evaluated_at_once(recipe, [recipe], served=True) == 256
    assert at_once(recipe, 7, [recipe]).value == 7
    taught = replace(recipe.generate.teacher, endpoint="http://127.0.0.1:1/v1", model="m")
    by_teacher = replace(recipe, generate=replace(recipe.generate, teacher=taught))
    assert generated_at_once(by_teacher) == 256
    tools = compose("worlds/search", ["rollout.workers=3", "engine.max_num_seqs=128"]).stages[-1].config
    assert evaluated_at_once(tools, [tools]) == 480


def test_a_start_has_the_time_that_its_models_take(data: list[str], tmp_path: Path) -> None:
    gpu = DEVICES["cuda"]
    recipe = seven(data).recipe
    assert start_of_engine(recipe, gpu).value == pytest.approx(300 + 3 * 152.3, abs=3)
    assert start_of_rank(recipe, gpu).value == pytest.approx(300 + 3 * 304.6, abs=6)  # its reference too
    large = compose("gpu/qwen2.5-32b-32xa100", data).recipe
    assert start_of_engine(large, gpu).value == pytest.approx(300 + 3 * 655, abs=10)
    taught = start_of_rank(recipe, gpu, ["Qwen/Qwen2.5-32B"])
    assert taught.value == pytest.approx(300 + 3 * (152.3 + 655), abs=12)
    assert load_deadline(77.0, 10**12).value == 77.0
    options = wire.learner(resolve(recipe, gpu), gpu).options
    assert options.start_timeout_s == start_of_rank(recipe, gpu).value


def test_a_time_that_cuts_long_answers_off_is_said(data: list[str]) -> None:
    short = rl(seven(data, "rollout.episode_timeout_s=300"))
    warning = short_timeout(short)
    assert warning is not None and "48 tokens a second" in warning and "1,792 s" in warning  # 14,336 / 300
    assert [
        short_timeout(rl(seven(data, f"rollout.episode_timeout_s={seconds}"))) for seconds in (1792, 3600, "null")
    ] == [None] * 3


def test_replies_take_their_share_of_the_time_and_a_short_limit_is_one_too(data: list[str]) -> None:
    """2,048 tokens at 8 a second are 256 s. Three replies of 30 s leave 60 of 150 s for 4 x 256 = 1,024 tokens."""
    short = rl(seven(data, *TWO, "rollout.episode_timeout_s=60"))
    warning = short_timeout(short)
    assert warning is not None and "34 tokens a second" in warning
    assert short_timeout(rl(seven(data, *TWO, "rollout.episode_timeout_s=256"))) is None
    keys = ["rollout.max_turn_tokens=256", "engine.max_model_len=2048", "rollout.episode_timeout_s=150"]
    turns = compose("quickstart", keys).stages[-1].config
    warning, world = short_timeout(turns), make_world(turns.env)
    assert (world.max_turns, world.reply_s) == (4, 30.0)
    assert warning is not None and "17 tokens a second" in warning


def test_the_plays_of_an_evaluation_have_to_fit_too(data: list[str]) -> None:
    keys = [*TWO, "rollout.episode_timeout_s=300", "eval.max_turn_tokens=15000"]
    warnings = [warning for warning in deadline_warnings(seven(data, *keys), None) if "cuts off" in warning]
    assert (
        len(warnings) == 1 and warnings[0].startswith("greedy: ") and "50 tokens a second" in warnings[0]
    )  # 15,000 / 300


def warned(config: RunConfig) -> dict[str, str]:
    """By the key that each names first."""
    warnings = deadline_warnings(config, time_recipe(config))
    keys = (re.search(r"\w+\.\w+_s\b", warning) for warning in warnings)
    return {key[0]: warning for key, warning in zip(keys, warnings, strict=True) if key is not None}


def test_a_forecast_that_comes_near_to_a_deadline_is_said_with_its_key(data: list[str]) -> None:
    keys = ["engine.max_model_len=40960", "rollout.max_turn_tokens=32768"]
    long = seven(data, *keys, "learner.update_timeout_s=1800")  # 33.5 million tokens
    assert "learner.update_timeout_s" in warned(long) and "rollout.episode_timeout_s" not in warned(long)
    assert warned(seven(data, "learner.update_timeout_s=7200")) == {}
    late = warned(seven(data, *keys, "learner.update_timeout_s=72000", "rollout.episode_timeout_s=900"))
    assert set(late) == {"rollout.episode_timeout_s"}
    timed = time_recipe(long)
    assert timed is not None
    expected = {entry.key: entry for entry in list_expected(rl(long), timed, 15_200_000_000)}
    assert expected["learner.update_timeout_s"].seconds == timed.forecast.update_s
    assert expected["rollout.episode_timeout_s"].deadline_s == 32768 / 8


def test_a_warning_says_what_would_be_safe() -> None:
    warning = Expected("an update", 3050.0, "learner.update_timeout_s", 1800.0).warning
    assert warning is not None and "3,050" in warning and "1,800" in warning and "6,100" in warning
    assert Expected("an update", 900.0, "learner.update_timeout_s", 1800.0).warning is None


def test_a_dry_run_shows_each_with_its_arithmetic(data: list[str]) -> None:
    config = seven(data, "eval.every=20")
    lines = dict(line.split(" = ", 1) for line in lines_of(config, time_recipe(config)) if " = " in line)
    assert lines["rollout.episode_timeout_s"] == "1,792: 14,336 tokens / 8 a second"
    assert lines["eval.concurrency"] == "384: 3 engines x 128 seats"
    assert lines["eval.deadline_s"].startswith("5,376: 3 x 1792 s")
    assert {"rollout.start_timeout_s", "learner.start_timeout_s"} <= lines.keys()
    deadlines: Any = dict(line.split(" = ", 1) for line in lines_of(seven(data, "rollout.start_timeout_s=99"), None))
    assert deadlines["rollout.start_timeout_s"] == "99: given"
