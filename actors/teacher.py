"""A teacher in the place of the rollout workers: it plays groups, in this process, without Ray and without an engine.

Servers differ in whether they keep a stop string, so none is sent to a teacher: its text is cut here. It writes answers
to train on; distillation's log-probabilities are computed in `learners/update.py: forward_passes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from actors.env_worker import EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.playing_here import completion_of, local_env_workers, play_group, question_of
from actors.renderer import ChatRenderer
from actors.services import ServiceSpec
from envs.papers.long_cot.actions import construct
from envs.services.endpoint import Choice
from envs.services.judge.templates import Prompts
from envs.services.teacher import Teacher
from rlsys.config.generate import TeacherConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.deadlines import SERVED_AT_ONCE
from rlsys.errors import require
from rlsys.rollout import EpisodeBroken, Player, RolloutPlan, TurnRequest
from rlsys.types import Completion, Failure, FailureKind, Group, Ints, Ticket


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
        return await play_group(self.player, self._worlds, ticket, plan, self._patience_s)

    def _patience_s(self, turns: int) -> float:
        """Of an episode. Raises BadInput where a chain of thought would be constructed over several messages."""
        supported = turns == 1 or not self._config.constructs
        require(supported, "generate.teacher.constructs", True, "false in an environment of several messages")
        return turns * (self._config.max_steps if self._config.constructs else 1) * self.teacher.patience_s

    async def generate(self, context: Ints, request: TurnRequest) -> Completion:
        question = question_of(request)
        if self._config.constructs:
            if question.tools:
                detail = "generate.teacher.constructs: an action is a text, and calls no tools"
                raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="teacher", detail=detail))
            problem = "\n\n".join(message.content for message in question.messages)
            choice = Choice(
                text=await construct(self.teacher, self._prompts, problem, question, self._config.max_steps)
            )
        else:
            choice = await self.teacher.answer(question, {"seed": question.seed})
        return completion_of(self._renderer, choice, request)


@asynccontextmanager
async def open_teacher_player(
    recipe: RecipeConfig, renderer: ChatRenderer, spec: EnvWorkerSpec, services: Sequence[ServiceSpec], log: Path
) -> AsyncIterator[TeacherPlays]:
    """With the tool servers and the judge that the recipe asks for, in this process too. Raises BadInput.

    log: what the teacher has said.
    """
    calls_at_once = recipe.generate.concurrency or SERVED_AT_ONCE
    concurrency = max(calls_at_once, recipe.generate.samples)  # one group at least is under way
    teacher = Teacher(recipe.generate.teacher, concurrency=concurrency, log=log)
    async with local_env_workers(teacher, spec, services) as worlds:
        yield TeacherPlays(recipe.generate.teacher, teacher, worlds, renderer, recipe.seed)
