"""A model at an address in the place of the rollout workers, to be evaluated: without Ray and without an engine.

Episodes, environments, tools and rewards are those of a worker. What an environment says between two messages of the
model is the user's, whatever the protocol, and a tokenizer counts tokens as it would for a policy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from actors.renderer import ChatRenderer
from actors.services import ServiceSpec
from actors.teacher import completion_of, playing_here
from actors.watched import CannotStart, EnvWorkerSpec
from actors.worlds import EnvWorkerPool
from envs.services.endpoint import Question, with_stop
from envs.services.teacher import Teacher, as_chat, message_text
from rlsys.config.served import ServedConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.group_rollout import run_group
from rlsys.rollout import Player, RolloutPlan, TurnRequest
from rlsys.types import Completion, Group, Ints, Message, Ticket

MOST_STOPS = 4  # that OpenAI's endpoint takes
FIRST = Message(role="user", content="Answer with one word: which colour has a clear sky?")


class ServedPlays:
    """`group` as a pool of workers has it."""

    def __init__(self, model: Teacher, worlds: EnvWorkerPool, renderer: ChatRenderer, run_seed: int) -> None:
        self._model = model
        self._worlds = worlds
        self._renderer = renderer
        self._player = Player(name="endpoint", run_seed=run_seed, renderer=renderer, generate=self.generate)

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        """Raises RunFailed where the environment cannot be made."""
        try:
            with self._worlds.play(plan, ticket.task) as playing:
                turns = await playing.max_turns()
                plan = replace(plan, timeout_s=plan.timeout_s + turns * self._model.patience_s)
                return await run_group(self._player, playing, ticket, plan)
        except CannotStart as error:
            raise RunFailed(f"the environment cannot be made: {error}") from error

    async def generate(self, context: Ints, request: TurnRequest) -> Completion:
        question = Question(
            messages=as_chat(request.messages),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed if request.temperature else 0,
            stop=request.stop[:MOST_STOPS],
        )
        choice = await self._model.answer(question, {"sample": request.seed})
        whole = replace(choice, text=with_stop(choice, question.stop))
        return completion_of(self._renderer, message_text(whole), request, truncated=choice.truncated)

    async def try_out(self, plan: RolloutPlan) -> None:
        """Ask one short question, sampled as the plan has it. Raises BadInput where no answer comes."""
        question = Question(
            messages=(FIRST,),
            max_tokens=plan.max_turn_tokens,
            temperature=plan.temperature,
            top_p=plan.top_p,
            stop=("</answer>",),
        )
        try:
            await self._model.try_out(question)
        except BadInput as error:
            expected = "an answer to a first question; --omit and --limit-key name what the server does not know"
            raise BadInput(error, key="--endpoint", expected=expected) from error


@asynccontextmanager
async def serving(
    config: ServedConfig,
    renderer: ChatRenderer,
    spec: EnvWorkerSpec,
    services: Sequence[ServiceSpec],
    *,
    concurrency: int,
    run_seed: int,
    log: Path,
) -> AsyncIterator[ServedPlays]:
    """With the tool servers and judges that are needed, in this process too. Raises BadInput.

    concurrency: questions at once. log: what the model has answered.
    """
    model = Teacher(config, concurrency=concurrency, log=log)
    async with playing_here(model, spec, services) as worlds:
        yield ServedPlays(model, worlds, renderer, run_seed)
