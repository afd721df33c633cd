from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launch.config.compose import compose
from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.buffer import SlotBuffer
from rlsys.choices import choose
from rlsys.config.curriculum import CurriculumConfig
from rlsys.curriculum import make_curriculum
from rlsys.errors import BadInput
from rlsys.harvest import Harvest, harvest_groups
from rlsys.metrics import values
from rlsys.summaries import can_lack_signal, credit_group, summarize, summarize_group, use_metrics
from rlsys.types import EpisodeEnd, Reward, Task, TokenStream
from tests.makers.made import group, ticket, trajectory, turn
from tests.unit.rlsys.test_harvest import sampled_by

BASELINE_FREE: list[tuple[str, dict[str, Any]]] = [("ppo", {}), ("reinforce_pp", {}), ("sft", {})]
COMPARING: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("rloo", {}),
    ("gspo", {}),
    ("swirl", {}),
    ("swirl", {"baseline": "group_mean"}),
    ("swirl", {"baseline": "none"}),
    ("reinforce_pp", {"group_baseline": True}),
]
GROUPS: list[list[float | None]] = [
    [1.0, 1.0, 1.0],
    [0.0, 0.0, 0.0],
    [0.0, 1.0, 1.0],
    [0.1 + 0.2, 0.3, 0.3],  # alike, to rounding
    [1.0, None, 0.0],
    [1.0, None, None],
    [None, None, None],
]
NOW = 5
CALL, LAST = turn((1, 2), (7, 7, 7), reply="4"), turn((1, 2, 7, 7, 7, 4), (7,))


def test_a_summary_has_neither_tokens_nor_text() -> None:
    judged = Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(0.5, 0.5), discount=0.9),),
        judgements=("x" * 1000,),
    )  # fmt: skip
    (seen,) = summarize_group(
        group(ticket(0), trajectory(turn((1, 2), (3, 4), text="four", version=(1, 2)), reward=judged))
    )
    assert seen.reward == Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(1.0,), discount=0.9),)
    )
    assert (seen.num_sampled, seen.oldest_version, seen.versions) == (2, 1, {1, 2})
    assert (seen.turns.tolist(), seen.spans.tolist()) == ([[1, 2, 2]], [[0, 1, 1], [0, 2, 1]])
    assert "four" not in repr(seen)


def algorithm(name: str, given: dict[str, Any]) -> Any:
    return make_algorithm(choose("algorithm", ALGORITHMS, name).schema(**given))


def harvested(credits: Any, rewards: list[float | None], version: int) -> Harvest:
    group = sampled_by(0, *((reward, (version,) * 2) for reward in rewards))
    harvest = harvest_groups([group], credits, longest=100, version=NOW, max_token_lag=1)
    assert harvest.signals[0] == credit_group(credits, group)[0]
    return harvest


def rests(signal: bool | None) -> bool:
    curriculum = make_curriculum(
        CurriculumConfig(name="difficulty"), [Task(task_id="a", question="?")], lambda _: "", seed=0
    )
    curriculum.draw(0)
    curriculum.record_group(0, signal, 0.5)
    return curriculum.row()["curriculum/resting"] == 1


@pytest.mark.parametrize("rewards", GROUPS, ids=str)
@pytest.mark.parametrize(("name", "given"), BASELINE_FREE + COMPARING)
def test_all_agree(name: str, given: dict[str, Any], rewards: list[float | None]) -> None:
    credits = algorithm(name, given)
    fresh, old = harvested(credits, rewards, NOW), harvested(credits, rewards, NOW - 3)
    signal = fresh.signals[0]
    assert fresh.outcomes[0] == {True: "trained", False: "filtered", None: "failed"}[signal]
    assert (old.signals[0], bool(old.samples)) == (signal, False)  # too old to train says nothing of the task
    assert rests(signal) is (signal is False)
    assert (signal is None) == (rewards == [None] * 3)


@pytest.mark.parametrize(("name", "given"), COMPARING)
def test_a_step_trains_no_more_groups_than_it_has_places(name: str, given: dict[str, Any]) -> None:
    credits = algorithm(name, given)

    async def taken() -> Harvest:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=1, total=2, spare=4)
        for sequence, rewards in enumerate([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]):
            if await asyncio.wait_for(buffer.admit(), 60) is None:
                break
            group = sampled_by(sequence, *((reward, (1, 1)) for reward in rewards))
            buffer.start(group.ticket)
            await buffer.finish(group, signal=credit_group(credits, group)[0] is not False)
            if len(buffer.open_tickets) == 2:
                break
        return harvest_groups(await buffer.take(1), credits, longest=100, version=1)

    outcomes = asyncio.run(taken()).outcomes
    assert list(outcomes.values()).count("trained") == 2 < len(outcomes)


def test_who_is_ever_without_signal() -> None:
    assert all(can_lack_signal(algorithm(name, options), 4) for name, options in COMPARING)
    assert not any(can_lack_signal(algorithm(name, options), 4) for name, options in BASELINE_FREE)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["algorithm.name=ppo", "loop.oversample=3"], r"loop\.oversample=3\.0: .* algorithm\.name='ppo'"),
        (["algorithm.name=reinforce_pp", "loop.oversample=1.5"], r"loop\.oversample=1\.5"),
        (["algorithm.name=ppo", "curriculum.name=difficulty"], r"curriculum\.name='difficulty': "),
        (["loop.group_size=1"], r"stages\.rl: loop\.group_size=1: expected at least 2 with algorithm\.name='grpo'"),
        (["algorithm.name=rloo", "loop.group_size=1"], r"loop\.group_size=1"),
    ],
)
def test_what_can_never_work_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        compose("quickstart", overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["loop.oversample=3", "curriculum.name=difficulty"],
        ["algorithm.name=reinforce_pp", "algorithm.group_baseline=true", "loop.oversample=3"],
        ["algorithm.name=ppo", "loop.group_size=1"],
        ["algorithm.name=reinforce_pp", "loop.group_size=1"],
    ],
)
def test_what_works_is_not(overrides: list[str]) -> None:
    assert compose("quickstart", overrides).stages


def test_a_steps_columns() -> None:
    searched = trajectory(CALL, LAST, metrics={"calls": 1, "valid_calls": 1, "reply_tokens": 1, "tables": 2})
    lost = trajectory(CALL, CALL, LAST, metrics={"calls": 2, "repeated_calls": 1}, end=EpisodeEnd.TURN_LIMIT)
    at_once = trajectory(LAST)
    row = values(use_metrics(list(map(summarize, (searched, lost, at_once)))))
    assert (row["episode/calls"], row["episode/valid_calls"]) == (1.0, pytest.approx(1 / 3))
    assert (row["episode/repeated_calls"], row["env/tables"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert row["episode/response_tokens"] == (4 + 1 + 7 + 1) / 3
    answered = [row[f"episode/answered_by_{turn}"] for turn in (1, 2, 3)]
    assert answered == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert "episode/answered_by_4" not in row


def test_nothing_was_played() -> None:
    assert use_metrics([]) == {}
