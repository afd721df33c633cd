"""Whom a run will ask: of the stages that are still to come, their evaluation sets included."""

from __future__ import annotations

from launch.config.compose import compose
from launch.driver.stages.addresses import (
    judge_and_teacher_endpoints,
    judge_endpoints_of_eval_sets,
    judge_endpoints_of_recipe,
    teacher_endpoints,
)

HERE = ["stages.judged.reward.judge.endpoint=http://127.0.0.1:1/v1", "stages.judged.reward.judge.model=step-judge"]


def named(config: str, *keys: str, stages: int = 0) -> list[tuple[str, str | None]]:
    run = compose(config, list(keys))
    return [(address.where, address.model) for address in judge_and_teacher_endpoints(run, run.stages[stages:])]


def test_a_teacher_is_asked_while_its_stage_is_to_come() -> None:
    assert named("long_cot") == [("generate.teacher", "Qwen/QwQ-32B-Preview")]
    assert named("long_cot", stages=1) == []
    assert named("long_cot", "generate.teacher.ask_first=false") == []


def test_judges_of_evaluation_sets_are_among_them() -> None:
    assert named("research") == []  # the run serves its judge by itself
    elsewhere = [f"stages.test.eval.judge.{key}" for key in ("endpoint=https://h/v1", "model=j", "key_env=K")]
    sets = ("hotpotqa", "2wiki", "musique", "bamboogle")
    assert named("research", *elsewhere) == [(f"eval.sets.{name}.reward.judge", "j") for name in sets]
    assert named("research", *elsewhere, "stages.test.eval.judge.ask_first=false") == []


def test_a_judge_of_a_later_stage_is_asked_before_the_first() -> None:
    assert ("reward.judge", "step-judge") in named("swirl", *HERE)


def test_a_reward_without_a_judge_has_no_address() -> None:
    assert named("quickstart") == []


def test_an_evaluation_asks_the_judges_that_it_plays_with() -> None:
    keys = [
        "reward.name=judged",
        "reward.kind=outcome_math",
        "reward.answer=boxed",
        "reward.judge.endpoint=http://h/v1",
        "reward.judge.model=j",
    ]
    alone = compose("worlds/sums", keys).recipe
    assert [address.where for address in judge_endpoints_of_eval_sets(alone)] == ["reward.judge"]
    recipe = compose("worlds/sums", [*keys, "eval.sets={a: {reward: {judge: {model: k}}}}"]).recipe
    assert [(address.where, address.model) for address in judge_endpoints_of_eval_sets(recipe)] == [
        ("eval.sets.a.reward.judge", "k")
    ]
    assert [address.where for address in judge_endpoints_of_recipe(recipe)] == [
        "reward.judge",
        "eval.sets.a.reward.judge",
    ]


def test_a_teacher_is_asked_as_it_will_be() -> None:
    keys = ["generate.teacher.endpoint=http://h/v1", "generate.teacher.model=m", "generate.temperature=0.7"]
    (teacher,) = teacher_endpoints(compose("worlds/sums", keys).recipe)
    assert (teacher.question.temperature, teacher.deadline_s) == (0.7, 600.0)
