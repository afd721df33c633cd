"""What a model at an address needs to play groups in the place of the rollout workers: in this process, without Ray.

Environments, tools and rewards are those of a worker. What the model says is text: a tokenizer counts its tokens, for
limits and for rewards that look at them, and nothing says that a policy sampled them.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from actors.chat_template import NATIVE
from actors.env_worker import CannotStart, EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.renderer import ChatRenderer
from actors.services import ServiceSpec
from envs.protocols.thoughts import write_thought
from envs.services.endpoint import Choice, Question
from envs.services.teacher import Teacher, as_chat_messages
from rlsys.errors import RunFailed
from rlsys.group_rollout import run_group
from rlsys.rollout import EpisodeBroken, Player, RolloutPlan, TurnRequest
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.types import Completion, Failure, FailureKind, Group, Message, Ticket, ToolCall, TurnStop


async def play_group(
    player: Player, worlds: EnvWorkerPool, ticket: Ticket, plan: RolloutPlan, patience_s: Callable[[int], float]
) -> Group:
    """One group, whose episodes may take as much longer as the model's answers are waited for.

    patience_s: of an episode of so many turns. Raises RunFailed where the environment cannot be made.
    """
    try:
        with worlds.play(plan, ticket.task) as playing:
            more_s = patience_s(await playing.max_turns())
            return await run_group(player, playing, ticket, replace(plan, timeout_s=plan.timeout_s + more_s))
    except CannotStart as error:
        raise RunFailed(f"the environment cannot be made: {error}") from error


def question_of(request: TurnRequest) -> Question:
    """What a policy would be asked, as a chat endpoint takes it; without its stop strings.

    Raises EpisodeBroken for an agent that asks for the log-probabilities of tokens, which are not known here.
    """
    if request.logprobs:
        detail = "logprobs: of a model at an address no token is known, and no log-probability of one"
        raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="endpoint", detail=detail))
    return Question(
        messages=as_chat_messages(request.messages),
        tools=_offered_schemas(request),
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
    )


def _offered_schemas(request: TurnRequest) -> tuple[str, ...]:
    """Of those that it may call, as a server shows them; others stand in the messages."""
    return request.offer.schemas if request.offer is not None and request.offer.form == NATIVE else ()


def completion_of(renderer: ChatRenderer, choice: Choice, request: TurnRequest) -> Completion:
    """What the model wrote, in the policy's tokens, ended as an engine would have ended it: after the first stop
    string, which the text keeps, or where as many tokens of the policy's are spent as the policy itself would have.

    A thought that came apart stands before the text, and ends nothing. Behind it stand calls, as the policy would have
    written them; for the model they stay apart.
    """
    tools = _offered_schemas(request)
    ends = [choice.text.find(stop) + len(stop) for stop in request.stop if stop in choice.text]
    text = write_thought(choice.thought, request.stop) + (choice.text[: min(ends)] if ends else choice.text)
    if choice.calls and not ends and not tools:  # of tools that it was not shown: no more than words
        text = "\n".join(filter(None, (text, *map(_call_as_text, choice.calls))))
    how = TurnStop.STOP if ends else TurnStop.LENGTH if choice.truncated else TurnStop.EOS
    said = Message(role="assistant", content=text, calls=choice.calls if tools and not ends else ())
    written = replace(said, calls=tuple(call for call in said.calls if not call.problem))  # the others are in the text
    ids = list(renderer.assistant_token_ids(written, request.offer) if written.calls else renderer.text_ids(text))
    if written.calls:
        text = renderer.decode(ids)
        if said.content.strip() not in text:
            detail = "the policy's own format of calls has no place for the text beside them"
            raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="endpoint", detail=detail))
    if how is TurnStop.EOS and renderer.turn_end is not None:
        ids.append(renderer.turn_end)
    if len(ids) > request.max_tokens:
        ids, how = ids[: request.max_tokens], TurnStop.LENGTH
        text = renderer.decode(ids)
        said = Message(role="assistant", content=text)
    return Completion(
        token_ids=np.asarray(ids, np.int32),
        logprobs=np.zeros(len(ids), np.float32),
        spans=(),
        stop=how,
        text=text,
        said=said if tools else None,
    )


def _call_as_text(call: ToolCall) -> str:
    """ "" of one that stands in the text already."""
    return "" if call.problem else f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})"


@asynccontextmanager
async def local_env_workers(
    model: Teacher, spec: EnvWorkerSpec, services: Sequence[ServiceSpec]
) -> AsyncIterator[EnvWorkerPool]:
    """Environments, and the servers that they need, as long as a model at an address plays; it is closed with them.

    Of services with one name the first is started, as in a run.
    """
    os.environ[SERVICE_TOKEN] = token = secrets.token_urlsafe(24)  # the process of the environments inherits it
    started: dict[str, Any] = {}
    worlds = EnvWorkerPool(spec)
    try:
        for service in services:
            if service.name not in started:
                served = await asyncio.to_thread(service.start, service.config, host="127.0.0.1", port=0, token=token)
                started[service.name] = served
        worlds.connect({name: server.url for name, server in started.items()})
        yield worlds
    finally:
        await worlds.stop()
        await model.close()
        del os.environ[SERVICE_TOKEN]
        for server in started.values():
            await asyncio.to_thread(server.stop)
