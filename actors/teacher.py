"""A teacher in the place of the rollout workers: it plays groups, in this process, without Ray and without an engine.

Episodes, environments, tools and rewards are those of a worker. What the teacher says is text: the policy's tokenizer
counts its tokens, for limits and for rewards that look at them, and nothing says that the policy sampled them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from actors.renderer import ChatRenderer
from actors.services import ServiceSpec
from actors.watched import CannotStart, EnvWorkerSpec
from actors.worlds import EnvWorkerPool
from envs.services.endpoint import Question
from envs.services.judge.actions import construct
from envs.services.judge.templates import Prompts
from envs.services.teacher import Teacher, as_chat, message_text
from rlsys.config.generate import TeacherConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import RunFailed, require
from rlsys.group_rollout import run_group
from rlsys.rollout import Player, RolloutPlan, TurnRequest
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.types import Completion, Group, Ints, Ticket, TurnStop


class TeacherPlays:
    """`group` as a pool of workers has it."""

    def __init__(
        self, config: TeacherConfig, teacher: Teacher, worlds: EnvWorkerPool, renderer: ChatRenderer, run_seed: int
    ) -> None:
        self._config = config
        self.teacher = teacher
        self._prompts = Prompts(config.prompts)
        self._worlds = worlds
        self._renderer = renderer
        self.player = Player(name="teacher", run_seed=run_seed, renderer=renderer, generate=self.generate)

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        """Raises RunFailed where the environment cannot be made."""
        try:
            with self._worlds.play(plan, ticket.task) as playing:
                turns = await playing.max_turns()
                one = turns == 1 or not self._config.constructs
                require(one, "generate.teacher.constructs", True, "false in an environment of several messages")
                actions = self._config.max_steps if self._config.constructs else 1
                plan = replace(plan, timeout_s=plan.timeout_s + turns * actions * self.teacher.patience_s)
                return await run_group(self.player, playing, ticket, plan)
        except CannotStart as error:
            raise RunFailed(f"the environment cannot be made: {error}") from error

    async def generate(self, context: Ints, request: TurnRequest) -> Completion:
        question = Question(
            messages=as_chat(request.messages),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
        )
        if self._config.constructs:
            problem = "\n\n".join(each.content for each in question.messages)
            text = await construct(self.teacher, self._prompts, problem, question, self._config.max_steps)
            return self.completion(text, request, truncated=False)
        choice = await self.teacher.answer(question, {"seed": question.seed})
        return self.completion(message_text(choice), request, truncated=choice.truncated)

    def completion(self, text: str, request: TurnRequest, *, truncated: bool) -> Completion:
        """As an engine would have ended it: after the first stop string, which the text keeps, or where as many tokens
        of the policy's are spent as the policy itself would have.

        Servers differ in whether they keep a stop string, so it is not sent to them.
        """
        return completion_of(self._renderer, text, request, truncated=truncated)


def completion_of(renderer: ChatRenderer, text: str, request: TurnRequest, *, truncated: bool) -> Completion:
    """What another model wrote, in the policy's tokens, ended as an engine would have ended it."""
    ends = [text.find(each) + len(each) for each in request.stop if each in text]
    text = text[: min(ends)] if ends else text
    how = TurnStop.STOP if ends else TurnStop.LENGTH if truncated else TurnStop.EOS
    ids = [*renderer.text_ids(text), *([renderer.tokenizer.eos_token_id] * (how is TurnStop.EOS))]
    if len(ids) > request.max_tokens:
        ids, how = ids[: request.max_tokens], TurnStop.LENGTH
        text = renderer.decode(ids)
    return Completion(
        token_ids=np.asarray(ids, np.int32), logprobs=np.zeros(len(ids), np.float32), spans=(), stop=how, text=text
    )


@asynccontextmanager
async def teaching(
    recipe: RecipeConfig, renderer: ChatRenderer, spec: EnvWorkerSpec, services: Sequence[ServiceSpec], log: Path
) -> AsyncIterator[TeacherPlays]:
    """With the tool servers and the judge that the recipe asks for, in this process too. Raises BadInput.

    log: what the teacher has said.
    """
    concurrency = max(recipe.generate.concurrency, recipe.generate.samples)  # one group at least is under way
    teacher = Teacher(recipe.generate.teacher, concurrency=concurrency, log=log)
    async with playing_here(teacher, spec, services) as worlds:
        yield TeacherPlays(recipe.generate.teacher, teacher, worlds, renderer, recipe.seed)


@asynccontextmanager
async def playing_here(
    teacher: Teacher, spec: EnvWorkerSpec, services: Sequence[ServiceSpec]
) -> AsyncIterator[EnvWorkerPool]:
    """Environments, and the servers that they need, as long as a model at an address plays; it is closed with them.

    Of services with one name one is started.
    """
    os.environ[SERVICE_TOKEN] = token = secrets.token_urlsafe(24)  # the process of the environments inherits it
    started: dict[str, Any] = {}
    worlds = EnvWorkerPool(spec)
    try:
        for name, each in {each.name: each for each in services}.items():
            started[name] = await asyncio.to_thread(each.start, each.config, host="127.0.0.1", port=0, token=token)
        worlds.connect({name: service.url for name, service in started.items()})
        yield worlds
    finally:
        await worlds.stop()
        await teacher.close()
        del os.environ[SERVICE_TOKEN]
        for service in started.values():
            await asyncio.to_thread(service.stop)
