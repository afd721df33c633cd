"""Shares are kept to one draw, what teaches nothing rests, and a resumed run draws what it would have drawn."""

import json
from collections import Counter
from typing import Any

import pytest

from rlsys.config import CurriculumConfig
from rlsys.curriculum import Curriculum, make_curriculum
from rlsys.errors import BadInput
from rlsys.order import Epochs
from rlsys.types import Task

# 8 easy tasks, 4 hard ones
TASKS = [
    Task(task_id=f"{level}{n}", question="?", record={"hops": level})
    for level in (1, 10)
    for n in range(8 // level + 3 * (level > 1))
]


def level_of(task: Task) -> str:
    return str(task.record["hops"])


def made(state: dict[str, Any] | None = None, **config: Any) -> Curriculum:
    return make_curriculum(CurriculumConfig(**config), TASKS, level_of, seed=0, state=state)


def test_uniform_is_every_task_once_per_epoch_whatever_is_seen() -> None:
    curriculum, order = made(), Epochs(TASKS, seed=0)
    for sequence in range(30):
        drawn = curriculum.draw(sequence)
        assert (drawn.epoch, drawn.task) == order.draw(sequence)
        curriculum.seen(sequence, "filtered", 1.0)
    assert curriculum.state() == {}


def test_mixed_keeps_the_shares_to_one_draw_and_leaves_out_what_is_not_named() -> None:
    curriculum = made(name="mixed", weights={"10": 3, "1": 1})
    counts: Counter[str] = Counter()
    for sequence in range(41):
        counts[curriculum.draw(sequence).level] += 1
        assert abs(counts["10"] - 0.75 * (sequence + 1)) <= 1
    only = made(name="mixed", weights={"10": 1})
    assert {only.draw(sequence).level for sequence in range(12)} == {"10"}


def test_in_a_level_every_task_comes_once_per_epoch() -> None:
    curriculum = made(name="mixed", weights={"10": 1, "1": 1})
    drawn = [curriculum.draw(sequence) for sequence in range(2 * len(TASKS))]
    for level in ("1", "10"):
        size = sum(level_of(task) == level for task in TASKS)
        first = [each.task.task_id for each in drawn if each.level == level][:size]
        assert len(set(first)) == size


def test_difficulty_follows_the_signal_down_to_the_floor() -> None:
    curriculum = made(name="difficulty", floor=0.1)
    for sequence in range(400):
        level = curriculum.draw(sequence).level
        curriculum.seen(sequence, "trained" if level == "10" else "filtered", 0.5 if level == "10" else 1.0)
    row = curriculum.row()
    easy, hard = 8 * 0.1, len(TASKS) - 8
    assert row["curriculum/share/1"] == pytest.approx(easy / (easy + hard), abs=0.01)
    assert row["curriculum/signal/10"] == pytest.approx(1.0)
    assert row["curriculum/reward/1"] == pytest.approx(1.0)
    late = Counter(curriculum.draw(sequence).level for sequence in range(400, 500))
    assert 0 < late["1"] < late["10"] / 3  # revisited, seldom


def test_a_task_without_signal_rests_twice_as_long_each_time_and_comes_back() -> None:
    one = [Task(task_id="dull", question="?"), Task(task_id="keen", question="?")]
    curriculum = make_curriculum(CurriculumConfig(name="difficulty", max_rest=4), one, lambda _: "all", seed=0)
    epochs: list[int] = []
    for sequence in range(40):
        drawn = curriculum.draw(sequence)
        if drawn.task.task_id == "dull":
            epochs.append(drawn.epoch)
        curriculum.seen(sequence, "filtered" if drawn.task.task_id == "dull" else "trained", 0.0)
    gaps = [after - before for before, after in zip(epochs, epochs[1:], strict=False)]
    assert gaps[:4] == [2, 3, 5, 5]  # 1, 2, 4 epochs of rest, then never more


def test_where_everything_rests_something_is_drawn_all_the_same() -> None:
    curriculum = made(name="difficulty")
    for sequence in range(100):
        curriculum.draw(sequence)
        curriculum.seen(sequence, "filtered", 0.0)


def test_failures_say_nothing_about_a_task() -> None:
    curriculum = made(name="difficulty")
    before = curriculum.row()
    for sequence in range(20):
        curriculum.draw(sequence)
        curriculum.seen(sequence, "failed", None)
    assert curriculum.row() == before


def test_staged_adds_a_level_when_the_last_one_is_passed_and_never_goes_back() -> None:
    curriculum = made(name="staged", pass_at=0.5, pass_groups=4)
    for sequence in range(4):
        assert curriculum.draw(sequence).level == "1"
        curriculum.seen(sequence, "trained", 0.6)
    levels = set()
    for sequence in range(4, 30):
        levels.add(curriculum.draw(sequence).level)
        curriculum.seen(sequence, "trained", 0.0)
    assert levels == {"1", "10"}


def test_staged_waits_for_the_reward() -> None:
    curriculum = made(name="staged", order=("10", "1"), pass_at=0.5, pass_groups=4)
    for sequence in range(20):
        assert curriculum.draw(sequence).level == "10"
        curriculum.seen(sequence, "trained", 0.4)


@pytest.mark.parametrize("name", ["difficulty", "staged", "mixed"])
def test_a_resumed_one_draws_what_it_would_have_drawn(name: str) -> None:
    config: dict[str, Any] = {"name": name} | ({"weights": {"1": 1, "10": 2}} if name == "mixed" else {})
    whole = made(**config)
    for sequence in range(25):
        whole.draw(sequence)
        if sequence >= 3:  # three are open
            whole.seen(sequence - 3, ("trained", "filtered", "failed")[sequence % 3], 0.9)
    resumed = made(json.loads(json.dumps(whole.state())), **config)
    assert [resumed.draw(sequence) for sequence in range(22, 60)] == [
        whole.draw(sequence) for sequence in range(22, 60)
    ]
    assert resumed.row() == whole.row()


def test_a_level_is_a_field_of_the_record() -> None:
    curriculum = make_curriculum(CurriculumConfig(name="staged", level="hops"), TASKS, lambda _: "other", seed=0)
    assert curriculum.draw(0).level == "1"
    with pytest.raises(BadInput, match=r"curriculum\.level='source': task 10 has no such field: it has hops"):
        make_curriculum(CurriculumConfig(name="staged", level="source"), TASKS, level_of, seed=0)


def test_unknown_levels_and_shares_that_fit_no_strategy_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"curriculum\.weights: no task has the level '3': the levels are 1, 10"):
        made(name="mixed", weights={"3": 1})
    with pytest.raises(BadInput, match=r"curriculum\.weights=.*: expected none"):
        CurriculumConfig(weights={"1": 1})
    with pytest.raises(BadInput, match=r"curriculum\.weights=.*: expected the levels' shares"):
        CurriculumConfig(name="mixed")
    with pytest.raises(BadInput, match=r"curriculum\.order"):
        CurriculumConfig(order=("1",))
