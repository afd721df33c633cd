"""Play one episode with a `generate` callable and an environment.

Knows neither Ray nor vLLM: tokens come from `generate`, text from `env`, ids of what the environment said from
`renderer`, the reward from `score`. What was sampled is kept token by token and never re-tokenised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rlsys.seeds import derive
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Group,
    Message,
    Reward,
    Task,
    Ticket,
    Timings,
    Trajectory,
    Transcript,
    Turn,
    TurnStop,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What `generate` is asked for, beside the context."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How episodes are played: the same for a whole stage or evaluation."""

    purpose: str  # enters the seeds: "rl", "eval" ...
    env: Any  # the environment's config: a stage may change it
    reward: Any  # the reward's config
    group_size: int
    temperature: float
    top_p: float
    max_turn_tokens: int
    max_context: int  # tokens of the context window
    timeout_s: float


class Reply(Protocol):
    """The part of an environment's step that the loop reads."""

    @property
    def reply(self) -> Message | None: ...
    @property
    def end(self) -> EpisodeEnd | None: ...
    @property
    def repeated(self) -> bool: ...


class Episode(Protocol):
    """The part of `envs.base.Env` that the loop calls."""

    @property
    def stop_strings(self) -> Sequence[str]: ...
    def first_messages(self) -> tuple[Message, ...]: ...
    async def step(self, text: str, *, turns_left: int) -> Reply: ...


class Renderer(Protocol):
    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    def delta_ids(self, completion: Completion, reply: Message) -> tuple[int, ...]:
        """What follows the completion in the context: the end of its turn, the reply, the next turn's opening."""
        ...


Generate = Callable[[Sequence[int], TurnRequest], Awaitable[Completion]]
Score = Callable[[Transcript], Awaitable[Reward]]


class EpisodeBroken(Exception):
    """Raised by `generate` or a tool when something other than the policy broke. Carries the typed failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


async def run_episode(
    task: Task,
    make_env: Callable[[Task], Episode],
    *,
    max_turns: int,
    play: Play,
    seed: int,
    sibling: int,
    renderer: Renderer,
    generate: Generate,
    score: Score,
) -> Trajectory:
    """Play an environment to its end and score it. Returns a Trajectory in every case but cancellation.

    `generate` may raise EpisodeBroken; what else it raises is no episode's failure but the engine's, and goes through.
    """
    prompt: tuple[Message, ...] = ()
    messages: list[Message] = []
    turns: list[Turn] = []
    generate_s = tool_s = 0.0
    repeated = 0
    failure: Failure | None = None
    end = EpisodeEnd.TURN_LIMIT

    def broken(kind: FailureKind, where: str, detail: str) -> None:
        nonlocal failure, end
        failure, end = Failure(kind=kind, where=where, detail=detail), EpisodeEnd.FAILED

    try:
        async with asyncio.timeout(play.timeout_s):
            with _data_boundary("environment"):
                env = make_env(task)
                prompt, stop = env.first_messages(), tuple(env.stop_strings)
                messages += prompt
            with _data_boundary("renderer"):
                context = renderer.prompt_ids(prompt)
            for turn in range(max_turns):
                room = play.max_context - len(context)
                if room <= 0:
                    if not turns:
                        detail = f"the prompt has {len(context)} tokens, the context window {play.max_context}"
                        broken(FailureKind.DATA, f"task {task.task_id}", detail)
                    else:
                        end = EpisodeEnd.TOKEN_LIMIT
                    break
                request = TurnRequest(
                    max_tokens=min(play.max_turn_tokens, room),
                    temperature=play.temperature,
                    top_p=play.top_p,
                    seed=derive(seed, turn),
                    stop=stop,
                )
                started = time.monotonic()
                completion = await generate(context, request)
                generate_s += time.monotonic() - started
                messages.append(Message(role="assistant", content=completion.text))
                if completion.stop is TurnStop.ABORT:
                    broken(FailureKind.INFRA, "engine", "the request was aborted")
                elif completion.stop is TurnStop.LENGTH:
                    end = EpisodeEnd.TOKEN_LIMIT
                if completion.stop in (TurnStop.ABORT, TurnStop.LENGTH):
                    turns.append(Turn(context_ids=context, completion=completion, reply=None))
                    break
                started = time.monotonic()
                with _data_boundary("environment"):
                    step = await env.step(completion.text, turns_left=max_turns - turn - 1)
                tool_s += time.monotonic() - started
                repeated += step.repeated
                if step.reply is None:
                    assert step.end is not None, "an environment's step carries a reply or an end"
                    turns.append(Turn(context_ids=context, completion=completion, reply=None))
                    end = step.end
                    break
                turns.append(Turn(context_ids=context, completion=completion, reply=step.reply.content))
                messages.append(step.reply)
                with _data_boundary("renderer"):
                    context = context + completion.token_ids + renderer.delta_ids(completion, step.reply)
    except TimeoutError:
        broken(FailureKind.TIMEOUT, "episode", f"not over after {play.timeout_s:g} s")
    except EpisodeBroken as error:
        failure, end = error.failure, EpisodeEnd.FAILED

    started = time.monotonic()
    outcome: Reward | Failure
    if failure is not None:
        outcome = failure
    else:
        transcript = Transcript(
            task=task,
            messages=tuple(messages[len(prompt) :]),
            truncated=end is EpisodeEnd.TOKEN_LIMIT,
            token_ids=tuple(token for turn in turns for token in turn.completion.token_ids),
        )
        outcome = await _scored(score, transcript, play.timeout_s)
    return Trajectory(
        task=task,
        sibling=sibling,
        turns=tuple(turns),
        messages=tuple(messages),
        end=end if isinstance(outcome, Reward) else EpisodeEnd.FAILED,
        reward=outcome,
        timings=Timings(generate_s=generate_s, tool_s=tool_s, score_s=time.monotonic() - started),
        repeated_calls=repeated,
    )


@contextmanager
def _data_boundary(where: str) -> Iterator[None]:
    """A fault boundary: what an environment or a chat template raises is this task's failure and nobody else's."""
    try:
        yield
    except EpisodeBroken:
        raise
    except Exception as error:
        kind = FailureKind.TIMEOUT if isinstance(error, TimeoutError) else FailureKind.DATA
        detail = f"{type(error).__name__}: {error}"
        raise EpisodeBroken(Failure(kind=kind, where=where, detail=detail)) from error


async def _scored(score: Score, transcript: Transcript, timeout_s: float) -> Reward | Failure:
    try:
        with _data_boundary("reward"):
            async with asyncio.timeout(timeout_s):
                return await score(transcript)
    except EpisodeBroken as error:
        return error.failure


async def run_group(
    ticket: Ticket,
    *,
    worker: str,
    make_env: Callable[[Task], Episode],
    max_turns: int,
    play: Play,
    run_seed: int,
    renderer: Renderer,
    generate: Generate,
    score: Score,
) -> Group:
    """All siblings of one task, at once."""
    episodes = [
        run_episode(
            ticket.task,
            make_env,
            max_turns=max_turns,
            play=play,
            seed=derive(run_seed, play.purpose, ticket.sequence, sibling),
            sibling=sibling,
            renderer=renderer,
            generate=generate,
            score=score,
        )
        for sibling in range(play.group_size)
    ]
    return Group(ticket=ticket, trajectories=tuple(await asyncio.gather(*episodes)), worker=worker)
