"""Whom a run will ask: of the stages that are still to come, their evaluation sets included."""

from __future__ import annotations

from launch.config.compose import compose
from launch.stages.addresses import addresses_of

HERE = ["stages.judged.reward.judge.endpoint=http://127.0.0.1:1/v1", "stages.judged.reward.judge.model=step-judge"]


def named(config: str, *keys: str, stages: int = 0) -> list[tuple[str, str | None]]:
    found = compose(config, list(keys))
    return [(each.where, each.model) for each in addresses_of(found, found.stages[stages:])]


def test_a_teacher_is_asked_while_its_stage_is_to_come() -> None:
    assert named("long_cot") == [("generate.teacher", "Qwen/QwQ-32B-Preview")]
    assert named("long_cot", stages=1) == []
    assert named("long_cot", "generate.teacher.ask_first=false") == []


def test_judges_of_evaluation_sets_are_among_them() -> None:
    found = named("research")
    sets = ("hotpotqa", "2wiki", "musique", "bamboogle")
    assert found == [(f"eval.sets.{each}.reward.judge", "gpt-4o-mini") for each in sets]
    later = [f"stages.test.eval.sets.{each}.reward.judge.ask_first=false" for each in sets]
    assert named("research", *later) == []


def test_a_judge_of_a_later_stage_is_asked_before_the_first() -> None:
    assert ("reward.judge", "step-judge") in named("swirl", *HERE)


def test_a_reward_that_asks_nobody_has_no_address() -> None:
    assert named("quickstart") == []
