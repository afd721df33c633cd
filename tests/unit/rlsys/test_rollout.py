"""Episodes: what was sampled is kept token by token, and every ending is typed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from rlsys.rollout import EpisodeBroken, Play, TurnRequest, run_episode, run_group
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Message,
    Reward,
    Task,
    Ticket,
    Trajectory,
    Transcript,
    TurnStop,
    VersionSpan,
)

PLAY = Play(
    purpose="test",
    env=None,
    reward=None,
    group_size=2,
    temperature=1.0,
    top_p=1.0,
    max_turn_tokens=4,
    max_context=40,
    timeout_s=5.0,
)
TASK = Task(task_id="t", question="q", answers=("5",))


class Letters:
    """A token is a character; the reply is framed by brackets."""

    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(map(ord, "".join(message.content for message in messages)))

    def delta_ids(self, completion: Completion, reply: Message) -> tuple[int, ...]:
        return tuple(map(ord, f"[{reply.content}]"))


@dataclass
class Reply:
    reply: Message | None = None
    end: EpisodeEnd | None = None
    repeated: bool = False


class Counting:
    """Replies to every message until it sees `!`."""

    stop_strings = ("!",)

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content="q"),)

    async def step(self, text: str, *, turns_left: int) -> Reply:
        if "!" in text:
            return Reply(end=EpisodeEnd.ANSWERED)
        if turns_left == 0:
            return Reply(end=EpisodeEnd.TURN_LIMIT)
        return Reply(reply=Message(role="user", content=str(turns_left)), repeated=True)


LETTERS = Letters()


def counting(_: Task) -> Counting:
    return Counting()


def completion(text: str, stop: TurnStop = TurnStop.STOP) -> Completion:
    ids = tuple(map(ord, text))
    return Completion(
        token_ids=ids,
        logprobs=(-1.0,) * len(ids),
        spans=(VersionSpan(version=3, start=0, end=len(ids)),),
        stop=stop,
        text=text,
    )


async def one(transcript: Transcript) -> Reward:
    return Reward(value=1.0, parts={"correct": 1.0})


def episode(
    texts: list[Completion | Exception], play: Play = PLAY, max_turns: int = 4, score=one
) -> tuple[Trajectory, list[tuple[str, TurnRequest]]]:  # type: ignore[no-untyped-def]
    asked: list[tuple[str, TurnRequest]] = []
    answers = iter(texts)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        asked.append(("".join(map(chr, context)), request))
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    trajectory = asyncio.run(
        run_episode(
            TASK,
            counting,
            max_turns=max_turns,
            play=play,
            seed=7,
            sibling=1,
            renderer=LETTERS,
            generate=generate,
            score=score,
        )
    )
    return trajectory, asked


def test_contexts_grow_by_what_was_sampled_and_what_was_said() -> None:
    trajectory, asked = episode([completion("ab"), completion("c"), completion("5!")])
    assert [context for context, _ in asked] == ["q", "qab[3]", "qab[3]c[2]"]
    assert trajectory.end is EpisodeEnd.ANSWERED
    assert [turn.reply for turn in trajectory.turns] == ["3", "2", None]
    assert trajectory.num_sampled == 5
    assert trajectory.repeated_calls == 2
    assert trajectory.oldest_version == 3
    assert [message.role for message in trajectory.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_each_turn_has_its_own_seed_and_the_same_one_every_time() -> None:
    seeds = [request.seed for _, request in episode([completion("a"), completion("b!")])[1]]
    again = [request.seed for _, request in episode([completion("a"), completion("b!")])[1]]
    assert seeds == again
    assert len(set(seeds)) == 2


def test_running_out_of_tokens_is_a_truncated_ending_with_a_reward() -> None:
    seen: list[Transcript] = []

    async def score(transcript: Transcript) -> Reward:
        seen.append(transcript)
        return Reward(value=0.0, parts={})

    trajectory, _ = episode([completion("abcd", TurnStop.LENGTH)], score=score)
    assert trajectory.end is EpisodeEnd.TOKEN_LIMIT
    assert seen[0].truncated
    assert seen[0].token_ids == tuple(map(ord, "abcd"))
    assert [message.content for message in seen[0].messages] == ["abcd"]  # the prompt is not the model's


def test_a_full_context_window_ends_the_episode_and_the_last_turn_gets_what_is_left() -> None:
    trajectory, asked = episode([completion("ab"), completion("cd")], play=replace(PLAY, max_context=8))
    assert asked[1][1].max_tokens == 2  # "qab[3]" is 6 of 8
    assert trajectory.end is EpisodeEnd.TOKEN_LIMIT


def test_a_prompt_longer_than_the_window_is_a_data_failure_not_a_zero() -> None:
    trajectory, asked = episode([], play=replace(PLAY, max_context=1))
    assert not asked
    assert isinstance(trajectory.reward, Failure)
    assert trajectory.reward.kind is FailureKind.DATA


def test_the_turn_limit_is_an_ordinary_ending() -> None:
    trajectory, _ = episode([completion("a"), completion("b")], max_turns=2)
    assert trajectory.end is EpisodeEnd.TURN_LIMIT
    assert isinstance(trajectory.reward, Reward)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([EpisodeBroken(Failure(kind=FailureKind.INFRA, where="engine", detail="gone"))], FailureKind.INFRA),
        ([completion("a", TurnStop.ABORT)], FailureKind.INFRA),
    ],
)
def test_a_broken_engine_is_a_typed_failure(texts: list[Completion | Exception], kind: FailureKind) -> None:
    trajectory, _ = episode(texts)
    assert trajectory.end is EpisodeEnd.FAILED
    assert isinstance(trajectory.reward, Failure)
    assert trajectory.reward.kind is kind


def test_a_reward_that_raises_is_a_data_failure() -> None:
    async def score(transcript: Transcript) -> Reward:
        raise ValueError("no such key")

    trajectory, _ = episode([completion("5!")], score=score)
    assert trajectory.reward == Failure(kind=FailureKind.DATA, where="reward", detail="ValueError: no such key")
    assert trajectory.end is EpisodeEnd.FAILED


@pytest.mark.parametrize(
    ("error", "kind"), [(KeyError("x"), FailureKind.DATA), (TimeoutError("tool"), FailureKind.TIMEOUT)]
)
def test_an_environment_that_raises_breaks_its_own_episode_only(error: Exception, kind: FailureKind) -> None:
    class Broken(Counting):
        async def step(self, text: str, *, turns_left: int) -> Reply:
            raise error

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion("a")

    trajectory = asyncio.run(
        run_episode(
            TASK,
            lambda _: Broken(),
            max_turns=2,
            play=PLAY,
            seed=0,
            sibling=0,
            renderer=LETTERS,
            generate=generate,
            score=one,
        )
    )
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (kind, "environment")


def test_an_environment_that_cannot_be_made_is_a_data_failure() -> None:
    def make_env(task: Task) -> Counting:
        raise KeyError("graph")

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        raise AssertionError("never reached")

    trajectory = asyncio.run(
        run_episode(
            TASK, make_env, max_turns=2, play=PLAY, seed=0, sibling=0, renderer=LETTERS, generate=generate, score=one
        )
    )
    assert trajectory.reward == Failure(kind=FailureKind.DATA, where="environment", detail="KeyError: 'graph'")


def test_text_that_cannot_be_rendered_is_a_data_failure() -> None:
    class Picky(Letters):
        def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
            raise TypeError("not a text")

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        raise AssertionError("never reached")

    trajectory = asyncio.run(
        run_episode(
            TASK,
            counting,
            max_turns=2,
            play=PLAY,
            seed=0,
            sibling=0,
            renderer=Picky(),
            generate=generate,
            score=one,
        )
    )
    assert trajectory.reward == Failure(kind=FailureKind.DATA, where="renderer", detail="TypeError: not a text")


def test_an_episode_that_hangs_is_a_timeout() -> None:
    async def hang(context: Sequence[int], request: TurnRequest) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    trajectory = asyncio.run(
        run_episode(
            TASK,
            counting,
            max_turns=2,
            play=replace(PLAY, timeout_s=0.02),
            seed=0,
            sibling=0,
            renderer=LETTERS,
            generate=hang,
            score=one,
        )
    )
    assert isinstance(trajectory.reward, Failure)
    assert trajectory.reward.kind is FailureKind.TIMEOUT


def test_siblings_of_a_group_are_seeded_apart() -> None:
    seeds: list[int] = []

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        seeds.append(request.seed)
        return completion("5!")

    ticket = Ticket(sequence=0, epoch=0, task=TASK, attempt=0, start_version=3)
    group = asyncio.run(
        run_group(
            ticket,
            worker="w",
            make_env=counting,
            max_turns=2,
            play=PLAY,
            run_seed=1,
            renderer=LETTERS,
            generate=generate,
            score=one,
        )
    )
    assert [trajectory.sibling for trajectory in group.trajectories] == [0, 1]
    assert len(set(seeds)) == 2
