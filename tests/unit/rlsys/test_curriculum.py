"""Shares are kept to one draw, what teaches nothing rests, and a resumed run draws what it would have drawn."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsys.config.curriculum import CurriculumConfig
from rlsys.curriculum import Curriculum, make_curriculum
from rlsys.errors import BadInput
from rlsys.seeds import Epochs
from rlsys.types import Task
from tests.refused import refused

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
        curriculum.record_group(sequence, False, 1.0)
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
        first = [draw.task.task_id for draw in drawn if draw.level == level][:size]
        assert len(set(first)) == size


def test_difficulty_follows_the_signal_down_to_the_floor() -> None:
    curriculum = made(name="difficulty", floor=0.1)
    for sequence in range(400):
        level = curriculum.draw(sequence).level
        curriculum.record_group(sequence, level == "10", 0.5 if level == "10" else 1.0)
    row = curriculum.row()
    easy, hard = 8 * 0.1, len(TASKS) - 8
    assert row["curriculum/share/1"] == pytest.approx(easy / (easy + hard), abs=0.01)
    assert row["curriculum/signal/10"] == pytest.approx(1.0)
    assert row["curriculum/reward/1"] == pytest.approx(1.0)
    late = Counter(curriculum.draw(sequence).level for sequence in range(400, 500))
    assert 0 < late["1"] < late["10"] / 3  # revisited, seldom


def test_a_task_without_signal_rests_twice_as_long_each_time_and_comes_back() -> None:
    tasks = [Task(task_id="dull", question="?"), Task(task_id="keen", question="?")]
    curriculum = make_curriculum(CurriculumConfig(name="difficulty", max_rest=4), tasks, lambda _: "all", seed=0)
    draws: list[int] = []
    for sequence in range(60):
        drawn = curriculum.draw(sequence)
        if drawn.task.task_id == "dull":
            draws.append(sequence)
        curriculum.record_group(sequence, drawn.task.task_id != "dull", 0.0)
    gaps = [after - before for before, after in zip(draws, draws[1:], strict=False)]
    rests = [2, 4, 8, 8]  # draws: 1, 2, 4 epochs of two tasks, then never more
    assert all(rest < gap <= rest + 2 for gap, rest in zip(gaps, rests, strict=False))


@given(st.integers(2, 9), st.sets(st.integers(0, 8)), st.integers(1, 8), st.integers(0, 99))
def test_a_rest_is_counted_in_draws_however_many_tasks_rest(size: int, dull: set[int], most: int, seed: int) -> None:
    """Passing over others that rest makes no rest shorter; where some do not rest, a rest is over in time."""
    tasks = [Task(task_id=str(number), question="?") for number in range(size)]
    config = CurriculumConfig(name="difficulty", max_rest=most)
    curriculum = make_curriculum(config, tasks, lambda _: "all", seed=seed)
    keen = [number for number in range(size) if number not in dull]
    last: dict[int, int] = {}
    streaks: Counter[int] = Counter()
    for sequence in range(12 * size):
        number = int(curriculum.draw(sequence).task.task_id)
        if number in dull and keen:
            if number in last:
                rest = min(2 ** (streaks[number] - 1), most) * size
                assert rest < sequence - last[number] <= rest + 2 * size
            last[number] = sequence
            streaks[number] += 1
        curriculum.record_group(sequence, number not in dull, 0.5)


def test_where_everything_rests_a_rest_is_as_long_and_a_resumed_one_goes_on_alike() -> None:
    def dull() -> Curriculum:
        return made(name="difficulty", max_rest=8)

    whole, saved = dull(), {}
    for sequence in range(120):
        whole.draw(sequence)
        whole.record_group(sequence, False, 0.0)
        if sequence == 60:
            saved = json.loads(json.dumps(whole.state()))
    resumed = made(saved, name="difficulty", max_rest=8)
    for sequence in range(61, 120):
        resumed.draw(sequence)
        resumed.record_group(sequence, False, 0.0)
    assert resumed.state() == whole.state()


def test_what_was_never_drawn_or_has_failed_changes_no_row() -> None:
    curriculum = made(name="difficulty")
    before = curriculum.row()
    curriculum.record_group(99, True, 1.0)
    curriculum.draw(0)
    after = curriculum.row()
    curriculum.record_group(0, None, 1.0)
    assert before == after == curriculum.row()


def test_a_state_that_counted_rests_in_epochs_is_read() -> None:
    """Of a run before rests were counted in draws: the task rests for as long as it would have in that order."""
    curriculum = made(name="difficulty")
    for sequence in range(5):
        curriculum.draw(sequence)
        curriculum.record_group(sequence, True, 0.5)
    state = json.loads(json.dumps(curriculum.state()))
    for level in state["levels"].values():
        del level["drawn"]
    state["rests"] = {"0": {"streak": 1, "until": 2}}  # of 8 tasks: after 16 draws
    again = made(state, name="difficulty")
    draws = [again.draw(sequence) for sequence in range(5, 200)]
    drawn = state["levels"]["1"]["cursor"]
    easy = [draw.task.task_id for draw in draws if draw.level == "1"]
    assert TASKS[0].task_id == "10" and TASKS[0].task_id not in easy[: 16 - drawn] and TASKS[0].task_id in easy


def test_where_everything_rests_the_next_of_the_order_is_drawn_all_the_same() -> None:
    tasks = [Task(task_id=str(n), question="?") for n in range(5)]
    curriculum = make_curriculum(CurriculumConfig(name="difficulty", max_rest=64), tasks, lambda _: "all", seed=0)
    counts: Counter[str] = Counter()
    for sequence in range(100):
        counts[curriculum.draw(sequence).task.task_id] += 1
        curriculum.record_group(sequence, False, 0.0)
        assert max(counts.values()) <= sequence // 5 + 1  # none twice before all were drawn once more
    assert set(counts.values()) == {20}


def test_failures_say_nothing_about_a_task() -> None:
    curriculum = made(name="difficulty")
    before = curriculum.row()
    for sequence in range(20):
        curriculum.draw(sequence)
        curriculum.record_group(sequence, None, None)
    assert curriculum.row() == before


def test_staged_adds_a_level_when_the_last_one_is_passed_and_never_goes_back() -> None:
    curriculum = made(name="staged", pass_at=0.5, pass_groups=4)
    for sequence in range(4):
        assert curriculum.draw(sequence).level == "1"
        curriculum.record_group(sequence, True, 0.6)
    levels = set()
    for sequence in range(4, 30):
        levels.add(curriculum.draw(sequence).level)
        curriculum.record_group(sequence, True, 0.0)
    assert levels == {"1", "10"}


def test_staged_waits_for_the_reward() -> None:
    curriculum = made(name="staged", order=("10", "1"), pass_at=0.5, pass_groups=4)
    for sequence in range(20):
        assert curriculum.draw(sequence).level == "10"
        curriculum.record_group(sequence, True, 0.4)


@pytest.mark.parametrize("name", ["difficulty", "staged", "mixed"])
def test_a_resumed_one_draws_what_it_would_have_drawn(name: str) -> None:
    config: dict[str, Any] = {"name": name} | ({"weights": {"1": 1, "10": 2}} if name == "mixed" else {})
    whole = made(**config)
    for sequence in range(25):
        whole.draw(sequence)
        if sequence >= 3:  # three are open
            whole.record_group(sequence - 3, (True, False, None)[sequence % 3], 0.9)
    saved = whole.state()
    written = json.dumps(saved)
    resumed = made(json.loads(written), **config)
    assert [resumed.draw(sequence) for sequence in range(22, 60)] == [
        whole.draw(sequence) for sequence in range(22, 60)
    ]
    assert resumed.row() == whole.row()
    assert json.dumps(saved) == written  # what was drawn since then has changed nothing in it


def test_a_level_is_a_field_of_the_record() -> None:
    curriculum = make_curriculum(CurriculumConfig(name="staged", level="hops"), TASKS, lambda _: "other", seed=0)
    assert curriculum.draw(0).level == "1"
    with pytest.raises(BadInput, match=r"curriculum\.level='source': task 10 has no such field: it has hops"):
        make_curriculum(CurriculumConfig(name="staged", level="source"), TASKS, level_of, seed=0)


def test_unknown_levels_and_shares_that_fit_no_strategy_are_bad_input() -> None:
    with refused("curriculum.weights", says="level '3'"):
        made(name="mixed", weights={"3": 1})
    with pytest.raises(BadInput, match=r"curriculum\.weights=.*: expected none"):
        CurriculumConfig(weights={"1": 1})
    with refused("curriculum.weights", expected="the levels' shares"):
        CurriculumConfig(name="mixed")
    with pytest.raises(BadInput, match=r"curriculum\.order"):
        CurriculumConfig(order=("1",))
