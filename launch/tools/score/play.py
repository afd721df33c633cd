"""One episode in which a person writes the model's messages.

The world, its tools, the loop (`rlsys.rollout`) and the reward are those of training. What is missing is the engine,
and with it the tokens: limits on tokens cut nothing here, and a reward that counts them gets those of `model.path`'s
tokenizer, as in `rlsys score`.

A person, or a file, writes one message a line. A line that is a JSON text or an object with "content" is read as JSON:
`"two\\nlines"`, `{"content": "so far", "truncated": true}`. Any other line is the message as it stands; one that ends
in a backslash continues on the next. Blank lines are left out.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from actors.scoring import RewardService, ScoringSpec
from envs import make_reward, new_world
from envs.base import Env, World
from envs.episode import UNLIMITED
from envs.protocols.families.tagged import HERMES
from envs.protocols.native import FAMILIES, read_calls
from envs.rewards import RewardFunction
from launch.checks.chat_template import read_template
from launch.driver.run.playing import rollout_plan
from launch.tools.score.report import explanation, trace_of
from launch.tools.score.scorer import Tokens
from rlsys.broken import EpisodeBroken
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, nearest
from rlsys.group_rollout import run_group
from rlsys.jsonl import json_line
from rlsys.records import make_record, to_json
from rlsys.rendering import Continuation
from rlsys.rollout import Player, RolloutPlan, TurnRequest
from rlsys.seeds import Epochs
from rlsys.types import (
    Completion,
    Failure,
    FailureKind,
    Group,
    Ints,
    Message,
    Reward,
    Task,
    Ticket,
    ToolCall,
    ToolOffer,
    Transcript,
    TurnStop,
)
from rlsys.untrusted import visible

WHO = 11  # columns


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the messages come from."""

    read: Callable[[str], str]  # (what is shown before it) -> a line with its end; "" where there are no more
    typed: bool  # at a terminal, which shows what is typed


@dataclass(frozen=True, slots=True)
class PlayerMessage:
    text: str
    truncated: bool = False  # as a token limit would: the episode ends there


@contextmanager
def lines_of(path: str | None) -> Iterator[Lines]:
    """None and "-" are standard input: with a line editor where that is a terminal. Raises BadInput."""
    if path is not None and path != "-":
        try:
            file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115  closed below
        except OSError as error:
            raise BadInput(
                f"cannot be read ({error.strerror})", key="--answers", found=path, expected="a message a line"
            ) from error
        with file:
            yield Lines(lambda _: file.readline(), typed=False)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        yield Lines(_edit_line, typed=True)
    else:
        yield Lines(lambda _: sys.stdin.readline(), typed=False)


def _edit_line(before: str) -> str:
    import readline  # noqa: F401  arrow keys and history in `input`

    try:
        return input(before) + "\n"
    except EOFError:
        print()
        return ""


def next_message(lines: Lines, before: str) -> PlayerMessage | None:
    """The next one, or None where there are no more."""
    while line := lines.read(before):
        while line.endswith("\\\n"):
            line = line[:-2] + "\n" + lines.read("... ")
        if line.strip():
            return _to_message(line.removesuffix("\n"))
    return None


def _to_message(line: str) -> PlayerMessage:
    if line.lstrip()[:1] in ('"', "{"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return PlayerMessage(line)
        if isinstance(value, str):
            return PlayerMessage(value)
        if isinstance(value, dict) and isinstance(value.get("content"), str):
            return PlayerMessage(value["content"], value.get("truncated") is True)
    return PlayerMessage(line)


def completion_of(message: PlayerMessage, stop: Sequence[str]) -> Completion:
    """As an engine would have ended it: after the first stop string, which the text keeps. Its tokens are not known."""
    ends = [message.text.find(string) + len(string) for string in stop if string in message.text]
    text = message.text[: min(ends)] if ends else message.text
    how = TurnStop.STOP if ends else TurnStop.LENGTH if message.truncated else TurnStop.EOS
    return Completion(token_ids=np.empty(0, np.int32), logprobs=np.empty(0, np.float32), spans=(), stop=how, text=text)


def tell(line: str) -> None:
    """Print at once, also into a pipe. A reader that has closed it ends the episode, quietly."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to fail when Python ends
        raise SystemExit(0) from None


NO_MORE = Failure(kind=FailureKind.DATA, where="messages", detail="no more of them, and the episode has not ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    line: bytes  # for a file of trajectories; b"" where no message was written
    failure: Failure | None  # why there is no reward; NO_MORE: the messages ended before the episode


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTask:
    """The task to play."""

    task: Task
    number: int  # in its split, from 1
    of: int


def choose_task(world: World, split: str, task_key: str | None, seed: int | None) -> ChosenTask:
    """By its id or its number; else one that the seed draws; else the first. Raises BadInput."""
    tasks = world.tasks(split)
    if not tasks:
        raise BadInput("the environment has no such tasks", key="--split", found=split)
    numbers = {task.task_id: number for number, task in enumerate(tasks, start=1)}
    if task_key is None:
        default_task = tasks[0] if seed is None else Epochs(tasks, seed=seed).draw(0)[1]
        number = numbers[default_task.task_id]
    elif task_key in numbers:
        number = numbers[task_key]
    elif task_key.isascii() and task_key.isdigit() and 1 <= int(task_key[:18]) <= len(tasks):
        number = int(task_key)
    else:
        hint = nearest(task_key, numbers, otherwise="")
        raise BadInput(
            key="--task", found=task_key, expected=f"1 to {len(tasks)}, or the id of a task in split {split}{hint}"
        )
    return ChosenTask(task=tasks[number - 1], number=number, of=len(tasks))


class Page:
    """Shows the conversation to a person, in the place of the renderer that makes tokens of it."""

    def under(self, template_args: Mapping[str, Any]) -> Page:
        return self

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        for schema in offer.schemas if offer is not None else ():
            show("tools", schema)
        for message in messages:
            show(message.role, message.content)
        return ()

    def extend(
        self,
        context: Ints,
        completion: Completion,
        messages: Sequence[Message],
        replies: Sequence[Message],
        max_tokens: int | None,
        offer: ToolOffer | None,
    ) -> Continuation:
        for reply in replies:
            show(reply.role, reply.content)
        return Continuation(context_ids=context, replies=tuple(replies), num_reply_tokens=0)

    def decode(self, ids: Sequence[int]) -> str:
        return ""  # a person writes no tokens

    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        """A person writes calls in the most common format, where the environment asks for no other."""
        return read_calls(FAMILIES.get(offer.form, HERMES), text, [json.loads(schema) for schema in offer.schemas])


def show(label: str, text: str) -> None:
    """A message, its further lines below its first one. A terminal obeys nothing in it."""
    first, *more = text.split("\n")
    tell(f"{label:<{WHO}}{visible(first)}")
    for line in more:
        tell(f"{'':<{WHO}}{visible(line)}".rstrip())


@dataclass(slots=True)
class Source:
    """The environment and the reward of the one episode."""

    world: World
    rewards: RewardService
    reward: RewardFunction
    tokens: Tokens | None  # None: the reward counts none
    scored: list[Transcript] = field(default_factory=list)  # that the reward was given

    async def max_turns(self) -> int:
        return self.world.max_turns

    async def env(self, task: Task) -> Env:
        env = await self.world.open_env(task)
        if env.stop_strings:
            tell(f"a message ends after {' or '.join(map(visible, env.stop_strings))}")
        return env

    async def score(self, transcript: Transcript) -> Reward:
        transcript = replace(transcript, token_ids=None)  # they are unknown: that is not none
        self.scored.append(self.tokens.count_tokens(transcript) if self.tokens is not None else transcript)
        return await self.rewards.score(self.reward, self.scored[-1])

    async def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
        return rewards


async def play(
    recipe: RecipeConfig, lines: Lines, *, split: str, task: str | None, seed: int | None, color: bool
) -> PlayedEpisode:
    """Play one task to its end and tell its reward. Raises BadInput for what cannot be played."""
    async with open_world(recipe) as (world, rewards):
        choice = choose_task(world, split, task, seed)
        tell_rules(recipe, world, choice, split)
        reward = make_reward(recipe.reward)
        counts = getattr(reward, "uses_tokens", False)
        tokens = (
            Tokens(recipe.model.path, read_template(recipe.model)) if counts and recipe.model.path is not None else None
        )
        if counts and tokens is None:
            tell("this reward counts tokens: model.path=FOLDER says whose, such as the runs/NAME/model of a run")

        async def generate(context: Ints, request: TurnRequest) -> Completion:
            message = next_message(lines, f"{'assistant>':<{WHO}}")
            if message is None:
                raise EpisodeBroken(NO_MORE)
            completion = completion_of(message, request.stop)
            if not lines.typed:
                show("assistant>", completion.text)
            elif completion.text != message.text:
                tell(f"{'':<{WHO}}(cut after {completion.text[-20:]!r}: an engine stops there)")
            return completion

        player = Player(name="play", run_seed=recipe.seed, renderer=Page(), generate=generate)
        source = Source(world, rewards, reward, tokens)
        ticket = Ticket(sequence=choice.number - 1, epoch=0, task=choice.task, attempt=0, start_version=0)
        group = await run_group(player, source, ticket, plan_of(recipe))
    return tell_end(group, source.scored, color=color)


def plan_of(recipe: RecipeConfig) -> RolloutPlan:
    """One episode that nothing hurries: a person thinks. Tools keep their own deadlines; nothing is tried again."""
    plan = rollout_plan(recipe, "play", group_size=1, temperature=recipe.rollout.temperature)
    return replace(plan, timeout_s=math.inf, max_response_tokens=None, infra_retries=0, data_retries=0)


@asynccontextmanager
async def open_world(recipe: RecipeConfig) -> AsyncIterator[tuple[World, RewardService]]:
    """The world with its tools, and its server in this process where it has one, and the reward's helpers."""
    spec = ScoringSpec(grader_workers=recipe.rollout.grader_workers, grader_deadline_s=recipe.rollout.grader_deadline_s)
    world, rewards, service = new_world(recipe.env), RewardService(spec), None
    try:
        await world.check()
        if world.service:
            token = secrets.token_urlsafe()
            service = await asyncio.to_thread(world.start_service, host="127.0.0.1", port=0, token=token)
            world.connect(service.url, token)
        yield world, rewards
    finally:
        await world.close()
        await rewards.close()
        if service is not None:
            await asyncio.to_thread(service.stop)


def tell_rules(recipe: RecipeConfig, world: World, choice: ChosenTask, split: str) -> None:
    most = "as many messages as it takes" if world.max_turns >= UNLIMITED else f"at most {world.max_turns} messages"
    tell(f"task {visible(choice.task.task_id)}, {choice.number} of {choice.of} in split {split}")
    tell(f"env {recipe.env.name}, reward {recipe.reward.name}, {most}")


def tell_end(group: Group, transcripts: Sequence[Transcript], *, color: bool) -> PlayedEpisode:
    (trajectory,) = group.trajectories
    # No tokens were sampled here: those who score the line count them as they would for any text.
    record = replace(make_record(trajectory, group), token_ids=(), num_tokens=None, weight_versions=())
    written, outcome = json_line(to_json(record)) if trajectory.turns else b"", trajectory.reward
    if outcome is NO_MORE:
        return PlayedEpisode(line=written, failure=outcome)
    tell(f"end: {trajectory.ended or trajectory.end}")
    if isinstance(outcome, Failure):
        for line in trace_of(outcome):
            tell(line)
        return PlayedEpisode(line=written, failure=outcome)
    transcript = replace(transcripts[-1], correct=outcome.correct, judgements=outcome.judgements)
    for line in explanation("", transcript, outcome, color=color):
        tell(line)
    return PlayedEpisode(line=written, failure=None)
