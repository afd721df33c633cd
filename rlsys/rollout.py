"""Play one episode with a `generate` callable and an environment.

Knows neither Ray nor vLLM: tokens come from `generate`, text from `env`, ids of what the environment said from
`renderer`, the reward from `score`. What was sampled is kept token by token and never re-tokenised.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rlsys.errors import BadInput
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
    """How one completion is sampled.

    `temperature=0` is greedy: `top_p` is then ignored and the log-probabilities are those of the plain distribution
    (temperature 1), because a greedy choice has none of its own. Otherwise they are those of the distribution that was
    sampled from: after temperature and `top_p`.
    """

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
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
    max_response_tokens: int | None = None  # of a whole episode, the environment's tokens included
    infra_retries: int = 0  # of one episode that infrastructure broke, or a deadline
    data_retries: int = 0  # of one whose environment, task or chat template raised
    service_url: str = ""  # of the tool service that the driver keeps alive for this environment
    judge_url: str = ""  # of the judge that it keeps alive for this reward


class Reply(Protocol):
    """The part of an environment's step that the loop reads."""

    @property
    def reply(self) -> Message | None: ...
    @property
    def end(self) -> EpisodeEnd | None: ...
    @property
    def repeated(self) -> bool: ...
    @property
    def max_tokens(self) -> int | None: ...


class Episode(Protocol):
    """The part of `envs.base.Env` that the loop calls."""

    @property
    def stop_strings(self) -> Sequence[str]: ...
    def first_messages(self) -> tuple[Message, ...]: ...
    async def step(self, text: str, *, turns_left: int) -> Reply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What the model sees next, and the environment's reply as it stands in it."""

    context_ids: tuple[int, ...]
    reply: Message
    num_reply_tokens: int  # the reply with its chat marks


class Renderer(Protocol):
    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    def extend(
        self,
        context: tuple[int, ...],
        completion: Completion,
        messages: Sequence[Message],
        reply: Message,
        max_tokens: int | None,
    ) -> Continuation:
        """The next context. `messages` is the conversation up to `completion`; a reply is cut to `max_tokens`."""
        ...


Generate = Callable[[Sequence[int], TurnRequest], Awaitable[Completion]]
Score = Callable[[Transcript], Awaitable[Reward]]
Compare = Callable[[Sequence[Transcript], Sequence[Reward]], Sequence[Reward]]


class EpisodeBroken(Exception):
    """Raised by `generate` or a tool when something other than the policy broke. Carries the typed failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(slots=True)
class _Attempt:
    """One attempt at an episode, as far as it came."""

    num_prompt: int = 0  # messages[:num_prompt] are the prompt
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    end: EpisodeEnd = EpisodeEnd.TURN_LIMIT
    failure: Failure | None = None
    generate_s: float = 0.0
    tool_s: float = 0.0
    repeated: int = 0

    def broken(self, failure: Failure) -> None:
        self.failure, self.end = failure, EpisodeEnd.FAILED

    @property
    def num_sampled(self) -> int:
        return sum(len(turn.completion.token_ids) for turn in self.turns)


async def run_episode(
    task: Task,
    make_env: Callable[[Task], Episode],
    *,
    max_turns: int,
    plan: RolloutPlan,
    seed: int,
    sibling: int,
    renderer: Renderer,
    generate: Generate,
    score: Score,
) -> Trajectory:
    """Play an environment to its end and score it. Returns a Trajectory in every case but cancellation.

    What breaks is tried again within its budget: the episode with other seeds, or only its scoring. `generate` may
    raise EpisodeBroken; what else it raises is no episode's failure but the engine's, and goes through.
    """
    budget = _Budget(plan)
    discarded, generate_s, tool_s = 0, 0.0, 0.0
    while True:
        attempt_seed = derive(seed, "retry", len(budget.spent)) if budget.spent else seed
        attempt = await _attempt(task, make_env, max_turns, plan, attempt_seed, renderer, generate)
        generate_s, tool_s = generate_s + attempt.generate_s, tool_s + attempt.tool_s
        if attempt.failure is None or not budget.allows(attempt.failure):
            break
        discarded += attempt.num_sampled

    started = time.monotonic()
    outcome: Reward | Failure
    if attempt.failure is not None:
        outcome = attempt.failure
    else:
        transcript = transcript_of(task, attempt)
        outcome = await _scored(score, transcript, plan.timeout_s)
        while isinstance(outcome, Failure) and outcome.kind is not FailureKind.DATA and budget.allows(outcome):
            outcome = await _scored(score, transcript, plan.timeout_s)
    return Trajectory(
        task=task,
        sibling=sibling,
        turns=tuple(attempt.turns),
        messages=tuple(attempt.messages),
        end=attempt.end if isinstance(outcome, Reward) else EpisodeEnd.FAILED,
        reward=outcome,
        timings=Timings(generate_s=generate_s, tool_s=tool_s, score_s=time.monotonic() - started),
        repeated_calls=attempt.repeated,
        retried=tuple(budget.spent),
        discarded_tokens=discarded,
        num_prompt=attempt.num_prompt,
    )


@dataclass(slots=True)
class _Budget:
    """How often one episode may break: what infrastructure breaks and what data breaks are counted apart."""

    plan: RolloutPlan
    spent: list[Failure] = field(default_factory=list)

    def allows(self, failure: Failure) -> bool:
        """Whether this failure is tried again; it is counted when it is."""
        by_data = failure.kind is FailureKind.DATA
        used = sum((earlier.kind is FailureKind.DATA) == by_data for earlier in self.spent)
        if used >= (self.plan.data_retries if by_data else self.plan.infra_retries):
            return False
        self.spent.append(failure)
        return True


async def _attempt(
    task: Task,
    make_env: Callable[[Task], Episode],
    max_turns: int,
    plan: RolloutPlan,
    seed: int,
    renderer: Renderer,
    generate: Generate,
) -> _Attempt:
    """One attempt: turn by turn until the environment, a limit or something broken ends it."""
    done = _Attempt()
    try:
        async with asyncio.timeout(plan.timeout_s):
            with _data_boundary("environment"):
                env = make_env(task)
                prompt, stop = env.first_messages(), tuple(env.stop_strings)
                done.num_prompt = len(prompt)
                done.messages += prompt
            with _data_boundary("renderer"):
                context = renderer.prompt_ids(prompt)
            spent = 0
            for turn in range(max_turns):
                room = plan.max_context - len(context)
                if plan.max_response_tokens is not None:
                    room = min(room, plan.max_response_tokens - spent)
                if room <= 0:
                    if not done.turns:
                        detail = f"the prompt has {len(context)} tokens, the context window {plan.max_context}"
                        done.broken(Failure(kind=FailureKind.DATA, where=f"task {task.task_id}", detail=detail))
                    else:
                        done.end = EpisodeEnd.TOKEN_LIMIT
                    break
                request = TurnRequest(
                    max_tokens=min(plan.max_turn_tokens, room),
                    temperature=plan.temperature,
                    top_p=plan.top_p,
                    seed=derive(seed, turn),
                    stop=stop,
                )
                started = time.monotonic()
                try:
                    completion = await generate(context, request)
                finally:  # what ends in an error or at the deadline took its time too
                    done.generate_s += time.monotonic() - started
                spent += len(completion.token_ids)
                done.turns.append(Turn(context_ids=context, completion=completion, reply=None))
                done.messages.append(Message(role="assistant", content=completion.text))
                if completion.stop is TurnStop.ABORT:
                    aborted = "the request was aborted"
                    done.broken(Failure(kind=FailureKind.INFRA, where="engine", detail=aborted))
                    break
                if completion.stop is TurnStop.LENGTH:
                    done.end = EpisodeEnd.TOKEN_LIMIT
                    break
                started = time.monotonic()
                try:
                    with _data_boundary("environment"):
                        step = await env.step(completion.text, turns_left=max_turns - turn - 1)
                        if (step.reply is None) == (step.end is None):
                            raise ValueError(f"{step}: expected a step with a reply or an end")
                finally:
                    done.tool_s += time.monotonic() - started
                done.repeated += step.repeated
                if step.end is not None:
                    done.end = step.end
                    break
                assert step.reply is not None
                with _data_boundary("renderer"):
                    going_on = renderer.extend(context, completion, done.messages, step.reply, step.max_tokens)
                done.turns[-1] = replace(done.turns[-1], reply=going_on.reply.content)
                done.messages.append(going_on.reply)
                context = going_on.context_ids
                spent += going_on.num_reply_tokens
    except TimeoutError:
        late = f"not over after {plan.timeout_s:g} s"
        done.broken(Failure(kind=FailureKind.TIMEOUT, where="episode", detail=late))
    except EpisodeBroken as error:
        done.broken(error.failure)
    return done


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


def checked(reward: Reward) -> Reward:
    """Raises BadInput for one that holds what is no number: it would spoil means, or end the run."""
    numbers = [reward.value, *reward.parts.values(), *(each for stream in reward.streams for each in stream.values)]
    if not all(map(math.isfinite, numbers)):
        raise BadInput(f"the reward is {reward.value}, or a part or token of it: not a finite number")
    return reward


async def _scored(score: Score, transcript: Transcript, timeout_s: float) -> Reward | Failure:
    try:
        with _data_boundary("reward"):
            async with asyncio.timeout(timeout_s):
                return checked(await score(transcript))
    except EpisodeBroken as error:
        return error.failure


async def run_group(
    ticket: Ticket,
    *,
    worker: str,
    make_env: Callable[[Task], Episode],
    max_turns: int,
    plan: RolloutPlan,
    run_seed: int,
    renderer: Renderer,
    generate: Generate,
    score: Score,
    compare: Compare | None = None,
) -> Group:
    """All siblings of one task, at once. `compare` may change the rewards of those that were scored."""
    episodes = [
        asyncio.ensure_future(
            run_episode(
                ticket.task,
                make_env,
                max_turns=max_turns,
                plan=plan,
                seed=derive(run_seed, plan.purpose, ticket.sequence, sibling),
                sibling=sibling,
                renderer=renderer,
                generate=generate,
                score=score,
            )
        )
        for sibling in range(plan.group_size)
    ]
    try:
        trajectories = list(await asyncio.gather(*episodes))
    finally:
        for episode in episodes:
            episode.cancel()  # where the engine failed one of them, nobody waits for the others
    if compare is not None:
        _compare(trajectories, compare)
    return Group(ticket=ticket, trajectories=tuple(trajectories), worker=worker)


def _compare(trajectories: list[Trajectory], compare: Compare) -> None:
    """A comparison that raises is the failure of all that it was to compare."""
    scored = [index for index, trajectory in enumerate(trajectories) if isinstance(trajectory.reward, Reward)]
    rewards = [trajectories[index].reward for index in scored]
    outcomes: Sequence[Reward | Failure]
    try:
        with _data_boundary("reward"):
            transcripts = [transcript_of(trajectories[index].task, trajectories[index]) for index in scored]
            outcomes = list(map(checked, compare(transcripts, rewards)))  # type: ignore[arg-type]
            if len(outcomes) != len(scored):
                raise ValueError(f"the comparison gave {len(outcomes)} rewards for {len(scored)} trajectories")
    except EpisodeBroken as error:
        outcomes = [error.failure] * len(scored)
    for index, outcome in zip(scored, outcomes, strict=True):
        failed = {"end": EpisodeEnd.FAILED} if isinstance(outcome, Failure) else {}
        trajectories[index] = replace(trajectories[index], reward=outcome, **failed)  # type: ignore[arg-type]


def transcript_of(task: Task, attempt: _Attempt | Trajectory) -> Transcript:
    """What a reward sees of an episode."""
    return Transcript(
        task=task,
        messages=tuple(attempt.messages[attempt.num_prompt :]),
        truncated=attempt.end is EpisodeEnd.TOKEN_LIMIT,
        token_ids=tuple(token for turn in attempt.turns for token in turn.completion.token_ids),
    )
