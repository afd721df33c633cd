"""Play one episode with a `generate` callable and an environment.

Knows neither Ray nor vLLM: tokens come from the player's `generate`, ids of what the environment said from its
`renderer`, text and the reward from an `EpisodeSource`. What was sampled is kept token by token and never re-tokenised.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlsys.broken import Budget, CutShort
from rlsys.broken import EpisodeBroken as EpisodeBroken
from rlsys.broken import failure_of as failure_of
from rlsys.clock import Clock, deadline, note_progress
from rlsys.dialogue import Dialogue
from rlsys.finite import require_finite
from rlsys.rendering import Continuation, Renderer, sampled_report
from rlsys.seeds import derive_seed
from rlsys.state import final_state
from rlsys.summaries import REPEATED, REPLIES
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Ints,
    Message,
    Reward,
    Step,
    Task,
    Timings,
    ToolOffer,
    Trajectory,
    Transcript,
    Turn,
    TurnSettings,
    TurnStop,
)

LEAVE_S = 10.0  # for an environment to let go of what it holds
# Of a message that was cut off; an aborted one that the deadline did not abort is a failure.
CUT = {TurnStop.LENGTH: EpisodeEnd.TOKEN_LIMIT, TurnStop.ABORT: EpisodeEnd.TIME_LIMIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """How one completion is sampled. `temperature=0` is greedy, `top_p` then ignored: the log-probabilities are those
    of the plain distribution (temperature 1), since a greedy choice has no distribution. Otherwise they are those of
    the distribution that was sampled from, after temperature and `top_p`.
    """

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...] = ()
    priority: bool = False  # before all that have none
    messages: tuple[Message, ...] = ()  # the conversation that it sees, for a model that is asked by text
    offer: ToolOffer | None = None  # the tools that it may call, for the same
    logprobs: bool = False  # those of its tokens are told to the environment


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """How episodes are played: the same for a whole stage or evaluation, or for one environment of several in it."""

    purpose: str  # enters the seeds: "rl", "eval" ...
    env: Any  # the environment's config: a stage may change it
    reward: Any  # the reward's config
    group_size: int
    temperature: float
    top_p: float
    max_turn_tokens: int
    max_context: int  # tokens of the context window
    timeout_s: float  # of an attempt: what the policy is writing then is cut off, all else is broken
    max_response_tokens: int | None = None  # of a whole episode, the environment's tokens included
    infra_retries: int = 0  # of one episode that infrastructure broke, or a deadline
    data_retries: int = 0  # of one whose environment, task or chat template raised
    priority: bool = False  # of an evaluation: training does not make it wait, nor cut what is long
    together: tuple[str, ...] = ()  # `config_key` of each environment of a stage with several: none is closed before it


class Env(Protocol):
    """One episode. Create it, run it, discard it."""

    stop_strings: Sequence[str]  # the engine stops after any of these; the text keeps them

    def first_messages(self) -> tuple[Message, ...]: ...

    async def step(self, text: str, *, turns_left: int) -> Step:
        """Answer the model's message `text`. `turns_left` is how many more messages the policy may write."""
        ...


def tool_offer_of(env: object) -> ToolOffer | None:
    """None for an environment that reads the model's text itself."""
    offer = getattr(env, "offer", None)
    return offer if isinstance(offer, ToolOffer) else None


def first_turn_settings(env: Any) -> TurnSettings:
    """How its first message is asked for, and all others while no step says otherwise."""
    settings = getattr(env, "settings", None)
    if isinstance(settings, TurnSettings):
        return settings
    return TurnSettings(stop=tuple(env.stop_strings), offer=tool_offer_of(env))


def template_args_of(env: Any) -> Mapping[str, Any]:
    """What the config of an environment gives the chat template."""
    return getattr(env, "template_args", None) or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """What plays episodes with a model: one for each worker."""

    name: str  # of the worker
    run_seed: int
    renderer: Renderer
    generate: Callable[[Ints, TurnRequest], Awaitable[Completion]]


class EpisodeSource(Protocol):
    """The environments and the reward of one group."""

    async def max_turns(self) -> int: ...

    def env(self, task: Task) -> Env | Awaitable[Env]:
        """A new episode of the task."""
        ...

    async def score(self, transcript: Transcript) -> Reward: ...

    async def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
        """The rewards of the siblings that were scored, seen together; as they are for most rewards."""
        ...


@contextmanager
def _data_boundary(where: str) -> Iterator[None]:
    """A fault boundary: what an environment or a chat template raises is a failure of this task alone."""
    try:
        yield
    except EpisodeBroken:
        raise
    except Exception as error:
        raise EpisodeBroken(failure_of(error, where)) from error


@dataclass(slots=True)
class _Attempt:
    """One attempt at an episode, as far as it came."""

    dialogue: Dialogue
    env: Any = None
    num_prompt: int = 0  # messages[:num_prompt] are the prompt
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    end: EpisodeEnd = EpisodeEnd.TURN_LIMIT
    sampling: bool = False
    broken: EpisodeBroken | None = None
    generate_s: float = 0.0
    tool_s: float = 0.0
    ran_s: float = 0.0  # on the clock of its deadline
    metrics: Counter[str] = field(default_factory=Counter)
    state: Mapping[str, Any] | None = None


async def run_episode(
    player: Player, source: EpisodeSource, task: Task, plan: RolloutPlan, *, max_turns: int, seed: int, sibling: int
) -> Trajectory:
    """Play an environment to its end and score it. Returns a Trajectory in every case but cancellation.

    What breaks is tried again within its budget (`rollout.infra_retries`; elsewhere `max_retries`): the whole episode
    with other seeds, or only its scoring. The player's `generate` raises EpisodeBroken for what concerns this episode.
    Anything else that it raises concerns the engine, and is raised here too.
    """
    budget = Budget(infra_retries=plan.infra_retries, data_retries=plan.data_retries, timeout_s=plan.timeout_s)
    discarded, generate_s, tool_s = 0, 0.0, 0.0
    while True:
        attempt_seed = derive_seed(seed, "retry", len(budget.spent)) if budget.spent else seed
        attempt = await _play_attempt(player, source, task, plan, max_turns, attempt_seed)
        generate_s, tool_s = generate_s + attempt.generate_s, tool_s + attempt.tool_s
        budget.ran_s += attempt.ran_s
        if attempt.broken is not None:
            await _close_env(attempt.env)
        if attempt.broken is None or not budget.allows(attempt.broken):
            break
        discarded += sum(len(turn.completion.token_ids) for turn in attempt.turns)

    started = time.monotonic()
    outcome: Reward | EpisodeBroken | None = attempt.broken
    if outcome is None:
        transcript = transcript_of(task, attempt)
        outcome = await score_transcript(source, transcript, budget)
        mendable = FailureKind.INFRA, FailureKind.TIMEOUT
        while isinstance(outcome, EpisodeBroken) and outcome.failure.kind in mendable and budget.allows(outcome):
            outcome = await score_transcript(source, transcript, budget)
    broken = isinstance(outcome, EpisodeBroken)
    return Trajectory(
        task=task,
        sibling=sibling,
        turns=attempt.turns,
        messages=attempt.messages,
        end=EpisodeEnd.FAILED if broken else attempt.end,
        ended=attempt.end if broken and attempt.broken is None else None,
        reward=outcome.failure if isinstance(outcome, EpisodeBroken) else outcome,
        timings=Timings(generate_s=generate_s, tool_s=tool_s, score_s=time.monotonic() - started),
        retried=(*budget.spent, *budget.spared),
        discarded_tokens=discarded,
        num_prompt=attempt.num_prompt,
        metrics=dict(attempt.metrics),
        state=attempt.state,
    )


async def _play_attempt(
    player: Player, source: EpisodeSource, task: Task, plan: RolloutPlan, max_turns: int, seed: int
) -> _Attempt:
    """One attempt: turn by turn until the environment, a limit or something broken ends it."""
    attempt = _Attempt(dialogue := Dialogue())
    try:
        async with deadline(plan.timeout_s) as clock:
            with _data_boundary("environment"):
                new_env = source.env(task)
                attempt.env = env = await new_env if isinstance(new_env, Awaitable) else new_env
                dialogue.hear(env.first_messages(), after=None)
                settings = first_turn_settings(env)
            with _data_boundary("renderer"):
                renderer = player.renderer.under(args) if (args := template_args_of(plan.env)) else player.renderer
                context = np.asarray(renderer.prompt_ids(dialogue.conversation(), settings.offer), np.int32)
            spent = 0
            for turn in range(max_turns):
                room = plan.max_context - len(context)
                if plan.max_response_tokens is not None:
                    room = min(room, plan.max_response_tokens - spent)
                if room <= 0 or clock.cut:
                    if not dialogue.turns:
                        raise _prompt_too_long_error(task, len(context), plan.max_context)
                    attempt.end = EpisodeEnd.TIME_LIMIT if clock.cut else EpisodeEnd.TOKEN_LIMIT
                    break
                request = TurnRequest(
                    max_tokens=min(plan.max_turn_tokens, room, settings.max_tokens or room),
                    temperature=plan.temperature,
                    top_p=plan.top_p,
                    seed=derive_seed(seed, turn),
                    stop=settings.stop,
                    priority=plan.priority,
                    messages=dialogue.conversation(),
                    offer=settings.offer,
                    logprobs=settings.logprobs,
                )
                completion = await _sample(attempt, context, request, player, clock)
                if completion.stop in CUT and not _is_cut_by_turn_limit(completion, request, settings):
                    attempt.end = CUT[completion.stop]
                    break
                step = await _step_env(attempt, env, max_turns - turn - 1, renderer, settings)
                if not step.replies:
                    attempt.end = step.end or attempt.end
                    break
                settings = step.settings or settings
                with _data_boundary("renderer"):
                    continued = _extend_context(dialogue, renderer, step, settings.offer)
                context = np.asarray(continued.context_ids, np.int32)
                attempt.metrics[REPLIES] += continued.num_reply_tokens
                spent += len(completion.token_ids) + continued.num_reply_tokens
            with _data_boundary("environment"):
                attempt.state = await final_state(env)
    except TimeoutError:
        attempt.broken = _timeout_error(plan.timeout_s, cut=attempt.sampling or clock.cut)
    except EpisodeBroken as error:
        attempt.broken = error
    attempt.turns, attempt.messages, attempt.num_prompt = dialogue.lay_out()
    attempt.ran_s = clock.ran_s
    note_progress()  # of one that ended before its first message, too
    return attempt


async def _close_env(env: Any) -> None:
    """What an environment holds for an attempt that broke, such as a process, is not kept until its group is over."""
    if (close := getattr(env, "close", None)) is not None:
        with suppress(Exception):
            async with asyncio.timeout(LEAVE_S):
                closing = close()
                await closing if isinstance(closing, Awaitable) else None


def _prompt_too_long_error(task: Task, tokens: int, window: int) -> EpisodeBroken:
    detail = f"the prompt has {tokens} tokens, the context window {window}"
    return EpisodeBroken(Failure(kind=FailureKind.DATA, where=f"task {task.task_id}", detail=detail))


def _timeout_error(timeout_s: float, *, cut: bool) -> EpisodeBroken:
    failure = Failure(kind=FailureKind.TIMEOUT, where="episode", detail=f"not over after {timeout_s:g} s")
    return CutShort(failure) if cut else EpisodeBroken(failure)


def _is_cut_by_turn_limit(completion: Completion, request: TurnRequest, settings: TurnSettings) -> bool:
    """Whose limit it was, and no count of tokens, tells: a model at an address counts its own."""
    return completion.stop is TurnStop.LENGTH and request.max_tokens == settings.max_tokens


def _extend_context(dialogue: Dialogue, renderer: Renderer, step: Step, offer: ToolOffer | None) -> Continuation:
    if step.reset_context:
        ids = np.asarray(renderer.prompt_ids(step.replies, offer), np.int32)
        continued = Continuation(context_ids=ids, replies=step.replies, num_reply_tokens=len(ids))
        dialogue.hear(continued.replies, after=None)
        return continued
    at = len(dialogue.turns) - 1 if step.after is None else step.after
    context, completion = dialogue.context(at), dialogue.turns[at].completion
    continued = renderer.extend(context, completion, dialogue.conversation(at), step.replies, step.max_tokens, offer)
    dialogue.hear(continued.replies, after=at)
    return continued


async def _sample(attempt: _Attempt, context: Ints, request: TurnRequest, player: Player, clock: Clock) -> Completion:
    """The model's next message, or what there is of it when its time ends."""
    started, attempt.sampling = clock.ran_s, True
    try:
        completion = await player.generate(context, request)
    finally:  # what ends in an error or at the deadline took its time too
        attempt.generate_s += clock.ran_s - started
        note_progress()
    attempt.sampling = False
    if clock.cut and completion.stop is TurnStop.ABORT and not len(completion.token_ids):
        if not attempt.dialogue.turns:  # it says nothing of the policy, and another attempt no less
            detail = f"no token in {clock.ran_s:.0f} s"
            raise EpisodeBroken(Failure(kind=FailureKind.TIMEOUT, where="engine", detail=detail))
        return completion
    attempt.dialogue.say(context, completion)
    if completion.stop is TurnStop.ABORT and not clock.cut:
        raise EpisodeBroken(Failure(kind=FailureKind.INFRA, where="engine", detail="the request was aborted"))
    return completion


async def _step_env(attempt: _Attempt, env: Any, turns_left: int, renderer: Renderer, settings: TurnSettings) -> Step:
    """What the environment says to the last message."""
    started, dialogue = time.monotonic(), attempt.dialogue
    completion, said = dialogue.turns[-1].completion, dialogue.said[-1]
    kwargs: dict[str, Any] = {"turns_left": turns_left}
    with _data_boundary("renderer"):
        if settings.offer is not None:
            kwargs["calls"] = said.calls
            if completion.said is None:
                kwargs["calls"] = dialogue.number(renderer.read_calls(completion.text, settings.offer))
        if settings.reports:
            num_context = len(dialogue.context(len(dialogue.turns) - 1))
            kwargs["sampled"] = sampled_report(completion, num_context, renderer if settings.logprobs else None)
    try:
        with _data_boundary("environment"):
            step: Step = await env.step(said.content, **kwargs)
            if bool(step.replies) == (step.end is not None) or not all(map(math.isfinite, step.metrics.values())):
                raise ValueError(f"{step}: expected a step with a reply or an end, and finite metrics")
    finally:
        attempt.tool_s += time.monotonic() - started
        note_progress()
    attempt.metrics.update(step.metrics)
    if step.repeated:
        attempt.metrics[REPEATED] += 1
    return step


async def score_transcript(source: EpisodeSource, transcript: Transcript, budget: Budget) -> Reward | EpisodeBroken:
    """Its reward, or why there is none; what that takes counts as part of the attempt."""
    clock = None
    try:
        async with deadline(budget.timeout_s) as clock:
            return require_finite(await source.score(transcript))
    except EpisodeBroken as broken:
        return broken
    except Exception as error:
        return EpisodeBroken(failure_of(error, "reward"))
    finally:
        budget.ran_s += clock.ran_s if clock is not None else 0.0
        note_progress()


def transcript_of(task: Task, attempt: _Attempt | Trajectory) -> Transcript:
    """What a reward sees of an episode."""
    return Transcript(
        task=task,
        messages=tuple(attempt.messages[attempt.num_prompt :]),
        truncated=attempt.end.truncates,
        token_ids=tuple(token for turn in attempt.turns for token in turn.completion.token_ids.tolist()),
        state=attempt.state,
    )
