"""What an accuracy counts: the right answer, and never the format or partial credit."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest

from envs.rewards import REWARDS, RewardTraits, counts_as_solved, metric_name_of, solved_thresholds, traits_of
from rlsys.choices import choose
from rlsys.types import Reward

IN_ITS_CONFIG = "functions"  # of the user's own: which of them says it is a key


@dataclass(frozen=True)
class ElsewhereConfig:
    name: str = ""


class Elsewhere:
    """A reward outside of the table, which says nothing about what is right."""

    def __init__(self, config: ElsewhereConfig) -> None: ...


class SaysSo(Elsewhere):
    solved_by: ClassVar[dict[str, float]] = {"style": 0.5}

    def __init__(self, config: ElsewhereConfig) -> None: ...


@pytest.mark.parametrize(
    ("name", "parts", "expected"),
    [
        ("answer", {"correct": 0.0, "format": 0.1}, False),
        ("answer", {"correct": 1.0, "format": 0.0}, True),
        ("icrl", {"accuracy": 0.0, "format": 0.2, "clamp": 0.0}, False),
        ("icrl", {"accuracy": 0.8, "format": -0.05, "clamp": 0.0}, True),
        ("research", {"f1": 0.0, "format": 0.1}, False),
        ("research", {"f1": 2 / 3, "format": 0.0}, False),
        ("research", {"f1": 1.0, "format": 0.0}, True),
        ("graph_rl", {"format": 0.1, "process_format": 0.1, "steps": 0.05, "answer": 0.0}, False),
        ("graph_rl", {"format": 0.0, "process_format": 0.0, "steps": -2.0, "answer": 1.0}, True),
        ("long_cot", {"outcome": -10.0}, False),
        ("long_cot", {"outcome": 1.5}, True),
        ("blocksworld", {"valid": 0.0, "steps": 0.3, "goal": 0.2, "verdict": 0.0}, False),
        ("blocksworld", {"valid": 0.0, "steps": 0.0, "goal": 0.0, "verdict": 1.0}, True),
        ("games", {"won": 0.0, "points": 7.0}, False),
        ("games", {"won": 1.0, "points": -7.0}, True),
        ("proscript", {"constraints": 0.75}, False),
        ("swirl", {"process": 1 / 3 + 1 / 3 + 1 / 3}, True),
        (f"{__name__}.Elsewhere", {"correct": 1.0, "style": 0.5}, False),  # it does not say so: nothing is solved
        (f"{__name__}.Elsewhere", {"correct": 0.0, "style": 0.5}, False),
        (f"{__name__}.SaysSo", {"correct": 1.0, "style": 0.5}, False),
        (f"{__name__}.SaysSo", {"style": 0.6}, True),
    ],
)
def test_only_the_right_answer_solves_a_task(name: str, parts: dict[str, float], expected: bool) -> None:
    reward = Reward(value=sum(parts.values()), parts=parts)
    assert counts_as_solved(SimpleNamespace(name=name), reward) is expected


def test_a_number_is_an_accuracy_only_where_the_reward_says_what_is_right() -> None:
    silent, says_so = (SimpleNamespace(name=f"{__name__}.{name}") for name in ("Elsewhere", "SaysSo"))
    assert (solved_thresholds(silent), metric_name_of(silent)) == (None, "mean reward")
    assert (solved_thresholds(says_so), metric_name_of(says_so)) == ({"style": 0.5}, "accuracy")
    assert {metric_name_of(SimpleNamespace(name=name)) for name in REWARDS if name != IN_ITS_CONFIG} == {"accuracy"}


def test_every_reward_says_which_part_is_right() -> None:
    silent = [name for name in REWARDS if not getattr(choose("reward", REWARDS, name).build, "solved_by", None)]
    assert silent == [IN_ITS_CONFIG] and hasattr(choose("reward", REWARDS, IN_ITS_CONFIG).schema, "solving")


def test_a_config_of_any_class_says_what_it_will_and_has_the_defaults_of_the_rest() -> None:
    assert traits_of(SimpleNamespace(name="mine.Own")) == RewardTraits()
    assert traits_of(SimpleNamespace(length_limit=7, judge="x")) == RewardTraits(length_limit=7)
