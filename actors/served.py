"""A model at an address in the place of the rollout workers, to be evaluated: without Ray and without an engine.

What an environment says between two messages of the model is the user's, whatever the protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from actors.env_worker import EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.playing_here import completion_of, local_env_workers, play_group, question_of
from actors.renderer import ChatRenderer
from actors.services import ServiceSpec
from envs.services.endpoint import text_with_stop
from envs.services.teacher import Teacher
from rlsys.config.served import ServedConfig
from rlsys.rollout import Player, RolloutPlan, TurnRequest
from rlsys.types import Completion, Group, Ints, Ticket

MOST_STOPS = 4  # that OpenAI's endpoint takes


class ServedPlays:
    """`group` as a pool of workers has it."""

    def __init__(
        self, model: Teacher, worlds: EnvWorkerPool, renderer: ChatRenderer, run_seed: int, *, sends_stop: bool = True
    ) -> None:
        """sends_stop: whether the server is told where to stop. Else it left nothing out that would be put back."""
        self._model = model
        self._sends_stop = sends_stop
        self._worlds = worlds
        self._renderer = renderer
        self._player = Player(name="endpoint", run_seed=run_seed, renderer=renderer, generate=self.generate)

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        """Raises RunFailed where the environment cannot be made."""
        return await play_group(self._player, self._worlds, ticket, plan, self._patience_s)

    def _patience_s(self, turns: int) -> float:
        return turns * self._model.patience_s

    async def generate(self, context: Ints, request: TurnRequest) -> Completion:
        seed = request.seed if request.temperature else 0
        stop = request.stop[:MOST_STOPS] if self._sends_stop else ()
        question = replace(question_of(request), seed=seed, stop=stop)
        choice = await self._model.answer(question, {"sample": request.seed})
        full_choice = replace(choice, text=text_with_stop(choice, question.stop))
        return completion_of(self._renderer, full_choice, request)


@asynccontextmanager
async def open_served_player(
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
    async with local_env_workers(model, spec, services) as worlds:
        yield ServedPlays(model, worlds, renderer, run_seed, sends_stop="stop" not in config.omit)
