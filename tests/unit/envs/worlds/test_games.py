"""envs.worlds.games: gymnasium's games as text, their splits, what a policy may write, and what they pay."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.rewards.games import GamesReward, GamesRewardConfig
from envs.tasks.splits import is_held_out
from envs.worlds.games import GameEnv, GamesConfig, GamesWorld
from rlsys.types import EpisodeEnd, Message, Step, Task, Transcript
from tests.refused import refused

COUNTS = {"frozen_lake": (64, 16), "taxi": (64, 16), "blackjack": (64, 16)}


def world(game: str, **keys: Any) -> GamesWorld:
    train, held_out = COUNTS[game]
    config = {"train_tasks": train, "held_out_tasks": held_out, "demo_error_rate": 0.0, **keys}
    return GamesWorld(GamesConfig(game=game, **config))  # type: ignore[arg-type]


def play(env: GameEnv, texts: Sequence[str], turns: int = 20) -> list[Step]:
    async def steps() -> list[Step]:
        return [await env.step(text, turns_left=turns - 1 - at) for at, text in enumerate(texts)]

    return asyncio.run(steps())


def scored(env: GameEnv, state: Any = ..., **keys: float) -> float:
    end_state = env.final_state() if state is ... else state
    transcript = Transcript(task=Task(task_id="t", question="q"), messages=(), state=end_state)
    return GamesReward(GamesRewardConfig(**keys))(transcript).value


@pytest.mark.parametrize("game", COUNTS)
def test_a_demonstration_is_the_episode_that_its_actions_play(game: str) -> None:
    games = world(game)
    for task in games.tasks("train")[:16]:
        messages, env = games.demonstration(task, 3).messages, games.env(task)
        steps = play(env, [message.content for message in messages[1::2]])
        assert env.first_messages() == messages[:1]
        assert [step.reply for step in steps[:-1]] == list(messages[2::2]) and steps[-1].end is EpisodeEnd.ANSWERED
        assert env.final_state()["won"] or game == "blackjack"
        assert env.final_state()["points"] == sum(step.metrics["points"] for step in steps)


def test_a_seed_that_gymnasium_does_not_take_is_refused_by_its_key() -> None:
    with refused("env.seed", found=-1):
        GamesConfig(seed=-1)
    assert GamesConfig(seed=0).start(0).seen


def test_a_taxi_costs_a_point_an_action_and_is_paid_twenty() -> None:
    taxi = world("taxi")
    task = taxi.tasks("train")[0]
    actions = [message.content for message in taxi.demonstration(task, 0).messages[1::2]]
    env = taxi.env(task)
    play(env, actions)
    assert env.final_state() == {"won": True, "points": 20.0 - (len(actions) - 1)}
    assert scored(env) == 1.0
    assert scored(env, points=0.1) == pytest.approx(1.0 + 0.1 * (21 - len(actions)))
    wrong = taxi.env(task)
    play(wrong, ["dropoff"])
    assert wrong.final_state() == {"won": False, "points": -10.0} and scored(wrong) == 0.0


def test_a_lake_is_walked_by_the_last_word_of_a_message_and_a_hole_ends_it() -> None:
    lake = world("frozen_lake", size=4, holes=0.4, instruction="")
    task = next(candidate for candidate in lake.tasks("train") if candidate.question.startswith("P H"))
    env = lake.env(task)
    (step,) = play(env, ["I have seen the map. **Right!**"])
    assert step.end is EpisodeEnd.ANSWERED and env.final_state() == {"won": False, "points": 0.0}
    env = lake.env(task)
    (step,) = play(env, ["left"])
    assert step.reply == Message(role="user", content=task.question)


def test_what_is_no_action_costs_a_message_and_the_last_one_ends_the_game() -> None:
    env = world("frozen_lake").env(world("frozen_lake").tasks("train")[0])
    first, last = play(env, ["right, or else down?", "x"], turns=2)
    assert isinstance(first.reply, Message) and "left, down, right, up" in first.reply.content
    assert (first.metrics["calls"], first.metrics["valid_calls"]) == (1.0, 0.0)
    assert last.end is EpisodeEnd.TURN_LIMIT and env.final_state() == {"won": False, "points": 0.0}


@pytest.mark.parametrize("game", COUNTS)
def test_held_out_games_are_no_training_games_and_the_same_in_every_process(game: str) -> None:
    games, again, other = world(game), world(game), world(game, seed=1)
    assert games.tasks("all") == again.tasks("all") and games.tasks("train") != other.tasks("train")
    for variant in (games, other):
        assert not any(is_held_out(task.question) for task in variant.tasks("train"))
        assert all(is_held_out(task.question) for task in variant.tasks("held_out"))
        assert (len(variant.tasks("train")), len(variant.tasks("held_out"))) == COUNTS[game]


def test_a_mistaken_demonstration_is_a_game_too() -> None:
    lake = world("frozen_lake", demo_error_rate=1.0, max_turns=6)
    for task in lake.tasks("train")[:16]:
        messages = lake.demonstration(task, 0).messages
        assert len(messages) <= 12 and messages[-1].role == "assistant"


@given(st.text())
def test_any_text_is_a_message(text: str) -> None:
    for game in COUNTS:
        config = GamesConfig(game=game)  # type: ignore[arg-type]
        (step,) = play(GameEnv(config, Task(task_id="t", question="", record={"seed": 1})), [text])
        assert step.reply is not None or step.end is not None


def test_bad_input_is_refused() -> None:
    with refused("env.size", found=1):
        GamesConfig(size=1)
    with refused("env.holes", found=0.9):
        GamesConfig(holes=0.9)
    with refused("env.held_out_tasks", found=200, says="taxi"):
        world("taxi", held_out_tasks=200)
    with refused("reward.won", found=0.0):
        GamesRewardConfig(won=0.0)
    env = world("taxi").env(world("taxi").tasks("train")[0])
    for state in (None, {"won": 1, "points": 1.0}, {"won": True, "points": float("nan")}):
        with refused('"state"', where="task t"):
            scored(env, state=state)
    assert GamesRewardConfig().env_problem(GamesConfig()) == "" != GamesRewardConfig().env_problem(None)
