"""Episodes: what was sampled is kept token by token, and every ending is typed."""

import asyncio
import math
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rlsys.group_rollout import run_group
from rlsys.rendering import Continuation
from rlsys.rollout import EpisodeBroken, RolloutPlan, TurnRequest, run_episode
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Group,
    Ints,
    Message,
    Reward,
    Step,
    Task,
    TokenStream,
    ToolCall,
    ToolOffer,
    Trajectory,
    Transcript,
    TurnSettings,
    TurnStop,
)
from tests.makers import made

PLAY = made.plan(group_size=2, max_turn_tokens=4, max_context=40, timeout_s=5.0)
TASK = Task(task_id="t", question="q", answers=("5",))


class Letters:
    """A token is a character; the reply is framed by brackets."""

    def under(self, template_args: Mapping[str, Any]) -> "Letters":
        return self

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        return tuple(map(ord, "".join(message.content for message in messages)))

    def extend(
        self,
        context: Ints,
        completion: Completion,
        messages: Sequence[Message],
        replies: Sequence[Message],
        max_tokens: int | None,
        offer: ToolOffer | None,
    ) -> Continuation:
        cut = tuple(replace(reply, content=reply.content[:max_tokens]) for reply in replies)
        added = tuple(map(ord, "".join(f"[{reply.content}]" for reply in cut)))
        return Continuation(
            context_ids=made.ints([*context, *completion.token_ids, *added]), replies=cut, num_reply_tokens=len(added)
        )

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        """Each word that begins with a colon is a call."""
        return tuple(ToolCall(name=word[1:]) for word in text.split() if word.startswith(":"))


class Counting:
    """Replies to every message until it sees `!`."""

    stop_strings = ("!",)

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content="q"),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        if "!" in text:
            return Step(end=EpisodeEnd.ANSWERED)
        if turns_left == 0:
            return Step(end=EpisodeEnd.TURN_LIMIT)
        return Step(reply=Message(role="user", content=str(turns_left)), repeated=True)


LETTERS = Letters()


def counting(_: Task) -> Counting:
    return Counting()


def completion(text: str, stop: TurnStop = TurnStop.STOP) -> Completion:
    return made.completion(tuple(map(ord, text)), text, version=3, stop=stop)


async def one(transcript: Transcript) -> Reward:
    return Reward(value=1.0, parts={"correct": 1.0})


def play(
    generate: Any, make_env: Any = counting, *, plan: RolloutPlan = PLAY, max_turns: int = 2, seed: int = 0,
    sibling: int = 0, renderer: Any = LETTERS, score: Any = one,
) -> Trajectory:  # fmt: skip
    player, source = made.player(renderer, generate), made.Source(make_env, max_turns, score)
    return asyncio.run(run_episode(player, source, TASK, plan, max_turns=max_turns, seed=seed, sibling=sibling))


def play_group(
    generate: Any, *, plan: RolloutPlan = PLAY, max_turns: int = 2, score: Any = one, compare: Any = made.unchanged
) -> Coroutine[Any, Any, Group]:
    player, source = made.player(LETTERS, generate, run_seed=1), made.Source(counting, max_turns, score, compare)
    return run_group(player, source, made.ticket(task=TASK, start_version=3), plan)


def saying(text: str) -> Any:
    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion(text)

    return generate


async def hang(context: Sequence[int], request: TurnRequest) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


async def never(context: Sequence[int], request: TurnRequest) -> Completion:
    raise AssertionError("never reached")


def episode(
    texts: list[Completion | Exception], plan: RolloutPlan = PLAY, max_turns: int = 4, score: Any = one
) -> tuple[Trajectory, list[tuple[str, TurnRequest]]]:
    requests: list[tuple[str, TurnRequest]] = []
    answers = iter(texts)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        requests.append(("".join(map(chr, context)), request))
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return play(generate, max_turns=max_turns, plan=plan, seed=7, sibling=1, score=score), requests


class Afresh(Counting):
    """Lets the second prompt stand alone."""

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content="q1"),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        reply = Message(role="user", content="q2")
        return Step(reply=reply, reset_context=True) if text == "a" else await super().step(text, turns_left=turns_left)


def test_an_environment_may_be_awaited_and_a_later_prompt_may_stand_alone() -> None:
    async def make_env(_: Task) -> Afresh:
        return Afresh()

    seen: list[str] = []
    read: list[list[str]] = []  # by a model that is asked by text
    texts = iter(["a", "b", "c!"])

    class Listening(Letters):
        def extend(
            self, context: Ints, completion: Completion, messages: Sequence[Message], *rest: Any
        ) -> Continuation:
            assert [message.content for message in messages] == ["q2", "b"]
            return super().extend(context, completion, messages, *rest)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        seen.append("".join(map(chr, context)))
        read.append([message.content for message in request.messages])
        return completion(next(texts))

    trajectory = play(generate, make_env, max_turns=3, renderer=Listening())
    assert seen == ["q1", "q2", "q2b[1]"]  # nothing of q1 and a; then it goes on from q2
    assert read == [["q1"], ["q2"], ["q2", "b", "1"]]
    assert [turn.starts_sample for turn in trajectory.turns] == [True, True, False]
    assert [message.content for message in trajectory.messages] == ["q1", "a", "q2", "b", "1", "c!"]
    assert (trajectory.num_prompt, trajectory.metrics["reply_tokens"]) == (1, 2 + 3)


class Asking(Counting):
    """Asks for short messages first, then goes back to the first one, with a tool."""

    settings = TurnSettings(max_tokens=2, reports=True, logprobs=True)

    def __init__(self, told: list[Any]) -> None:
        self._told = told

    async def step(self, text: str, *, turns_left: int, **told: Any) -> Step:
        self._told.append((text, told))
        reply, offer = Message(role="user", content=str(turns_left)), ToolOffer(schemas=())
        if turns_left == 2:
            return Step(reply=reply)
        if turns_left == 1:
            return Step(reply=reply, after=0, settings=TurnSettings(offer=offer, stop=(";",), reports=True))
        return Step(end=EpisodeEnd.ANSWERED)


def test_an_environment_says_how_each_message_is_asked_for_and_what_it_continues() -> None:
    steps: list[Any] = []
    requests: list[tuple[str, TurnRequest]] = []
    texts = iter([completion("ab", TurnStop.LENGTH), completion("c"), completion(":x;")])

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        requests.append(("".join(map(chr, context)), request))
        return next(texts)

    trajectory = play(generate, lambda _: Asking(steps), max_turns=3)
    assert [context for context, _ in requests] == ["q", "qab[2]", "qab[1]"]
    assert [(request.max_tokens, request.stop) for _, request in requests] == [(2, ()), (2, ()), (4, (";",))]
    assert trajectory.end is EpisodeEnd.ANSWERED  # no limit of the run's has cut the first message
    first, second, third = (kwargs["sampled"] for _, kwargs in steps)
    assert (first.num_context, first.num_tokens, first.stop) == (1, 2, TurnStop.LENGTH)
    assert [text for text, _ in first.tokens] == ["a", "b"] and (second.num_context, len(second.tokens)) == (6, 1)
    assert third.tokens == () and [call.name for call in steps[2][1]["calls"]] == ["x;"]
    assert [turn.starts_sample for turn in trajectory.turns] == [True, False, True]
    assert trajectory.turns[2].added_ids.tolist() == list(map(ord, "qab[1]"))


def test_contexts_grow_by_what_was_sampled_and_what_was_said() -> None:
    trajectory, requests = episode([completion("ab"), completion("c"), completion("5!")])
    assert [context for context, _ in requests] == ["q", "qab[3]", "qab[3]c[2]"]
    assert trajectory.end is EpisodeEnd.ANSWERED
    assert [turn.reply for turn in trajectory.turns] == ["3", "2", None]
    assert trajectory.num_sampled == 5
    assert trajectory.metrics == {"repeated_calls": 2, "reply_tokens": 6}  # a reply is [n]
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
    trajectory, requests = episode([completion("ab"), completion("cd")], plan=replace(PLAY, max_context=8))
    assert requests[1][1].max_tokens == 2  # "qab[3]" is 6 of 8
    assert trajectory.end is EpisodeEnd.TOKEN_LIMIT


def test_a_response_budget_counts_what_was_said_too() -> None:
    trajectory, requests = episode([completion("ab"), completion("c")], plan=replace(PLAY, max_response_tokens=6))
    assert [request.max_tokens for _, request in requests] == [4, 1]  # "ab[3]" is 5 of 6
    assert trajectory.end is EpisodeEnd.TOKEN_LIMIT


def test_a_prompt_longer_than_the_window_is_a_data_failure_not_a_zero() -> None:
    trajectory, requests = episode([], plan=replace(PLAY, max_context=1))
    assert not requests
    assert isinstance(trajectory.reward, Failure)
    assert trajectory.reward.kind is FailureKind.DATA


class Walking(Counting):
    """Counts its steps in a state of its own."""

    def __init__(self, state: Any) -> None:
        self.state = state

    async def step(self, text: str, *, turns_left: int) -> Step:
        if isinstance(self.state, dict):
            self.state = {**self.state, "steps": self.state.get("steps", 0) + 1}
        return await super().step(text, turns_left=turns_left)

    def final_state(self) -> Any:
        return self.state


def walk(state: Any, texts: list[Completion], seen: list[Transcript]) -> Trajectory:
    answers = iter(texts)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return next(answers)

    async def score(transcript: Transcript) -> Reward:
        seen.append(transcript)
        return await one(transcript)

    return play(generate, lambda _: Walking(state), seed=7, score=score)


@pytest.mark.parametrize(
    ("texts", "steps"),
    [
        ([completion("a"), completion("b!")], 2),
        ([completion("a"), completion("b")], 2),  # out of turns
        ([completion("a"), completion("b", TurnStop.LENGTH)], 1),  # cut off: the last message was never a step
    ],
)
def test_a_reward_sees_where_the_environment_stood_at_the_end(texts: list[Completion], steps: int) -> None:
    seen: list[Transcript] = []
    played = walk({"place": (1, 2), "open": True}, texts, seen)
    assert played.state == seen[0].state == {"place": [1, 2], "open": True, "steps": steps}  # as a file has it


def test_an_environment_that_tells_nothing_has_no_state() -> None:
    seen: list[Transcript] = []
    assert episode([completion("5!")])[0].state is None
    assert walk(None, [completion("5!")], seen).state is None and seen[0].state is None


@pytest.mark.parametrize("state", [{"x": math.nan}, {"x": object()}, [1], {"x": "long" * 20_000}])
def test_a_state_that_no_file_could_hold_is_its_environments_failure(state: Any) -> None:
    played = walk(state, [completion("5!")], [])
    assert isinstance(played.reward, Failure) and played.state is None
    assert (played.reward.kind, played.reward.where) == (FailureKind.DATA, "environment")


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


BROKEN = EpisodeBroken(Failure(kind=FailureKind.INFRA, where="tool", detail="gone"))


def test_what_breaks_is_played_again_within_its_budget_and_with_other_seeds() -> None:
    plan = replace(PLAY, infra_retries=2)
    trajectory, requests = episode([completion("ab"), BROKEN, BROKEN, completion("5!")], plan=plan)
    assert isinstance(trajectory.reward, Reward) and trajectory.end is EpisodeEnd.ANSWERED
    assert [failure.where for failure in trajectory.retried] == ["tool", "tool"]
    assert trajectory.discarded_tokens == 2 and trajectory.num_sampled == 2
    assert [context for context, _ in requests] == ["q", "qab[3]", "q", "q"]
    assert len({request.seed for _, request in requests}) == 4
    assert requests[0][1].seed == episode([completion("5!")])[1][0][1].seed  # of a first attempt: as without retries
    trajectory, _ = episode([BROKEN, BROKEN, BROKEN], plan=plan)
    assert isinstance(trajectory.reward, Failure) and len(trajectory.retried) == 2


def test_what_a_broken_tool_cost_is_counted() -> None:
    """The message that the tool was called with was sampled, and waiting for the tool took its time."""
    envs: list[Counting] = []

    class Flaky(Counting):
        async def step(self, text: str, *, turns_left: int) -> Step:
            if len(envs) < 3:
                await asyncio.sleep(0.01)
                raise BROKEN
            return await super().step(text, turns_left=turns_left)

    def make_env(task: Task) -> Counting:
        envs.append(Flaky())
        return envs[-1]

    recovered = play(saying("5!"), make_env, plan=replace(PLAY, infra_retries=2))
    assert recovered.end is EpisodeEnd.ANSWERED and len(envs) == 3  # a new one each time
    assert (recovered.num_sampled, recovered.discarded_tokens) == (2, 4)
    assert recovered.timings.tool_s > 0.015
    envs.clear()
    failed = play(saying("5!"), make_env)
    assert failed.end is EpisodeEnd.FAILED and (failed.num_sampled, failed.discarded_tokens) == (2, 0)
    assert failed.timings.tool_s > 0.005


def test_calls_in_the_models_own_format_reach_the_environment_and_each_reply_is_a_message() -> None:
    names: list[tuple[str, ...]] = []

    class Calling(Counting):
        offer = ToolOffer(schemas=("{}",))

        async def step(self, text: str, *, turns_left: int, calls: tuple[ToolCall, ...] = ()) -> Step:
            names.append(tuple(call.name for call in calls))
            if not calls:
                return Step(end=EpisodeEnd.ANSWERED)
            return Step(reply=tuple(Message(role="tool", content=call.name.upper()) for call in calls), max_tokens=2)

    script = iter([":abc :d", "z"])

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion(next(script))

    done = play(generate, lambda task: Calling())
    assert names == [("abc", "d"), ()] and done.end is EpisodeEnd.ANSWERED
    assert [message.content for message in done.messages] == ["q", ":abc :d", "AB", "D", "z"]
    assert done.turns[0].reply == "AB\nD"
    assert bytes(done.turns[1].added_ids.tolist()) == b"[AB][D]"


def test_an_environment_is_told_what_a_model_said_apart_from_its_calls_and_a_cut_by_its_server_goes_on() -> None:
    """A server counts tokens of its own: its limit may be reached with fewer of ours."""
    steps: list[Any] = []

    class Calling(Asking):
        settings = replace(Asking.settings, offer=ToolOffer(schemas=("{}",)))

    reply = Message(role="assistant", content="a", calls=(ToolCall(name="x"),))
    script = iter(
        [replace(completion("a", TurnStop.LENGTH), text="a :x", said=reply), completion("b"), completion("c;")]
    )

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return next(script)

    done = play(generate, lambda _: Calling(steps), max_turns=3)
    assert [text for text, _ in steps] == ["a", "b", "c;"] and done.end is EpisodeEnd.ANSWERED
    assert steps[0][1]["calls"] == (ToolCall(name="x", call_id="000000000"),)
    assert "a :x" in [message.content for message in done.messages]


def test_an_episode_accounts_for_no_more_seconds_than_it_took() -> None:
    began = time.monotonic()
    spent = play(saying("5!")).timings
    assert 0 <= spent.generate_s + spent.tool_s + spent.score_s <= time.monotonic() - began


def test_seconds_up_to_a_deadline_are_counted() -> None:
    assert play(hang, plan=replace(PLAY, timeout_s=0.02)).timings.generate_s > 0.01


@pytest.mark.parametrize("step", [Step(), Step(reply=Message(role="user", content="x"), end=EpisodeEnd.ANSWERED)])
def test_a_step_that_is_neither_or_both_is_its_environments_failure(step: Step) -> None:
    class Undecided(Counting):
        async def step(self, text: str, *, turns_left: int) -> Step:
            return step

    trajectory = play(saying("a"), lambda _: Undecided())
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "environment")


def test_a_scoring_that_breaks_is_tried_again_without_playing_again() -> None:
    outcomes = iter([BROKEN, TimeoutError("judge"), None])

    async def score(transcript: Transcript) -> Reward:
        if error := next(outcomes):
            raise error
        return Reward(value=1.0, parts={})

    trajectory, requests = episode([completion("5!")], plan=replace(PLAY, infra_retries=2), score=score)
    assert len(requests) == 1 and trajectory.reward == Reward(value=1.0, parts={})
    assert [failure.kind for failure in trajectory.retried] == [FailureKind.INFRA, FailureKind.TIMEOUT]
    assert trajectory.discarded_tokens == 0


def test_budgets_of_infrastructure_and_data_are_apart() -> None:
    data = EpisodeBroken(Failure(kind=FailureKind.DATA, where="task", detail="odd"))
    trajectory, _ = episode([BROKEN, data, BROKEN], plan=replace(PLAY, infra_retries=1, data_retries=1))
    assert isinstance(trajectory.reward, Failure) and trajectory.reward.kind is FailureKind.INFRA
    assert [failure.kind for failure in trajectory.retried] == [FailureKind.INFRA, FailureKind.DATA]


def test_a_reward_that_raises_is_a_data_failure() -> None:
    async def score(transcript: Transcript) -> Reward:
        raise ValueError("no such key")

    trajectory, _ = episode([completion("5!")], score=score)
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "reward")
    assert re.fullmatch(r"ValueError: no such key \(test_rollout.py:\d+ in score\)", trajectory.reward.detail)
    assert trajectory.end is EpisodeEnd.FAILED


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e308, -1e155])
def test_a_reward_that_a_float32_cannot_hold_is_a_data_failure(number: float) -> None:
    stream = TokenStream(name="repetition", values=(0.0, number), discount=1.0)
    for reward in (Reward(value=number, parts={}), Reward(value=1.0, parts={}, streams=(stream,))):

        async def score(transcript: Transcript, reward: Reward = reward) -> Reward:
            return reward

        trajectory, _ = episode([completion("5!")], score=score)
        assert isinstance(trajectory.reward, Failure) and trajectory.reward.kind is FailureKind.DATA


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({"a": 0.1, "b": 0.2}, True),  # to rounding
        ({"a": 0.1 + 1e-7, "b": 0.2}, True),  # as float32 would have it
        ({"a": 1e6 + 0.3, "b": -1e6}, True),
        ({}, True),  # a reward of one's own that names none
        ({"a": 0.1, "b": 0.3}, False),
        ({"a": 0.0}, False),
    ],
)
def test_parts_that_do_not_sum_to_the_value_are_a_data_failure(parts: dict[str, float], fits: bool) -> None:
    async def score(transcript: Transcript) -> Reward:
        return Reward(value=0.3, parts=parts)

    trajectory, _ = episode([completion("5!")], score=score)
    assert isinstance(trajectory.reward, Reward) is fits
    if isinstance(trajectory.reward, Failure):
        assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "reward")


@pytest.mark.parametrize(
    ("error", "kind"), [(KeyError("x"), FailureKind.DATA), (TimeoutError("tool"), FailureKind.TIMEOUT)]
)
def test_an_environment_that_raises_breaks_its_own_episode_only(error: Exception, kind: FailureKind) -> None:
    class Broken(Counting):
        async def step(self, text: str, *, turns_left: int) -> Step:
            raise error

    trajectory = play(saying("a"), lambda _: Broken())
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (kind, "environment")


def test_an_environment_that_cannot_be_made_is_a_data_failure() -> None:
    def make_env(task: Task) -> Counting:
        raise KeyError("graph")

    trajectory = play(never, make_env)
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "environment")
    assert re.fullmatch(r"KeyError: 'graph' \(test_rollout.py:\d+ in make_env\)", trajectory.reward.detail)


def test_text_that_cannot_be_rendered_is_a_data_failure() -> None:
    class Picky(Letters):
        def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
            raise TypeError("not a text")

    trajectory = play(never, renderer=Picky())
    assert isinstance(trajectory.reward, Failure)
    assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "renderer")
    assert re.fullmatch(r"TypeError: not a text \(test_rollout.py:\d+ in prompt_ids\)", trajectory.reward.detail)


def test_an_episode_that_hangs_is_a_timeout() -> None:
    trajectory = play(hang, plan=replace(PLAY, timeout_s=0.02))
    assert isinstance(trajectory.reward, Failure)
    assert trajectory.reward.kind is FailureKind.TIMEOUT


def test_siblings_of_a_group_are_seeded_apart() -> None:
    seeds: list[int] = []

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        seeds.append(request.seed)
        return completion("5!")

    group = asyncio.run(play_group(generate))
    assert [trajectory.sibling for trajectory in group.trajectories] == [0, 1]
    assert len(set(seeds)) == 2


def test_siblings_of_one_that_the_engine_failed_do_not_go_on() -> None:
    cancelled: list[int] = []

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        cancelled.append(0)
        if len(cancelled) == 2:
            raise RuntimeError("the engine is gone")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled[0] += 1
            raise
        raise AssertionError

    async def run() -> None:
        with pytest.raises(RuntimeError, match="the engine is gone"):
            await play_group(generate, plan=replace(PLAY, group_size=3))
        await asyncio.sleep(0)
        assert cancelled == [2, 0, 0]

    asyncio.run(run())


def compared(compare: Any) -> list[Trajectory]:
    """A group of three, the second of which could not be scored."""
    scores = iter([1.0, None, 3.0])

    async def score(transcript: Transcript) -> Reward:
        value = next(scores)
        if value is None:
            raise ValueError("odd")
        return Reward(value=value, parts={})

    async def together(transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
        changed: Sequence[Reward] = compare(transcripts, rewards)
        return changed

    group = play_group(saying("5!"), plan=replace(PLAY, group_size=3), score=score, compare=together)
    return list(asyncio.run(group).trajectories)


def test_siblings_that_were_scored_are_compared_and_the_others_stay_failures() -> None:
    def halves(transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> list[Reward]:
        assert [transcript.messages[-1].content for transcript in transcripts] == ["5!", "5!"]
        return [Reward(value=reward.value / 2, parts={}) for reward in rewards]

    first, second, third = compared(halves)
    assert (first.reward, third.reward) == (Reward(value=0.5, parts={}), Reward(value=1.5, parts={}))
    assert isinstance(second.reward, Failure)


@pytest.mark.parametrize(
    "compare",
    [
        lambda transcripts, rewards: rewards[:1],
        lambda transcripts, rewards: 1 / 0,
        lambda transcripts, rewards: [Reward(value=math.nan, parts={})] * len(rewards),
    ],
)
def test_a_comparison_that_breaks_is_the_failure_of_all_that_it_compared(compare: Any) -> None:
    for trajectory in compared(compare):
        assert isinstance(trajectory.reward, Failure) and trajectory.end is EpisodeEnd.FAILED
        assert (trajectory.reward.kind, trajectory.reward.where) == (FailureKind.DATA, "reward")


def test_the_arguments_of_an_environments_config_reach_the_renderer() -> None:
    class Loud(Letters):
        def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
            return (*super().prompt_ids(messages, offer), ord("?"))

    class Told(Letters):
        def under(self, template_args: Mapping[str, Any]) -> Letters:
            return Loud() if template_args == {"loud": True} else self

    seen: list[list[int]] = []

    async def generate(context: Ints, request: TurnRequest) -> Completion:
        seen.append(list(context))
        return completion("!")

    for args in ({}, {"loud": True}):
        play(generate, plan=replace(PLAY, env=SimpleNamespace(template_args=args)), renderer=Told())
    assert seen == [list(map(ord, "q")), list(map(ord, "q?"))]


def test_what_a_broken_attempt_holds_is_let_go_of_at_once() -> None:
    let_go: list[int] = []

    class Holding(Counting):
        async def step(self, text: str, *, turns_left: int) -> Step:
            raise EpisodeBroken(Failure(kind=FailureKind.INFRA, where="tool", detail="gone"))

        async def close(self) -> None:
            let_go.append(1)
            raise RuntimeError("nor does this matter")

    trajectory = play(saying("a"), lambda _: Holding(), plan=replace(PLAY, infra_retries=2))
    assert len(trajectory.retried) == 2 and len(let_go) == 3
    assert play(saying("a!"), lambda _: Counting()).end is EpisodeEnd.ANSWERED
