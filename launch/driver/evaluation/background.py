"""Evaluations while an rl stage trains, every `eval.every` steps, on the engines that generate.

Training does not wait for one. Its episodes share the engines with those that are trained on, and begin with the
weights of the step that it is of; newer weights may arrive before its last token is sampled. Which ones did stands in
its line. With `eval.hold_weights` they wait instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from launch.checks.deadlines import evaluated_at_once
from launch.driver.evaluation.evaluate import Evaluation, finish_evaluation, list_pending, set_candidate_apart
from launch.driver.evaluation.limits import evaluation_deadline
from launch.driver.evaluation.sets import plays_of, recipes_played
from launch.driver.run.playing import play_each
from launch.driver.run.run import Run
from rlsys.config.recipe import StageConfig


class BackgroundEvaluation:
    """Of one stage. One evaluation at a time: one that is due meanwhile is left out, and said to be."""

    def __init__(self, run: Run, stage: StageConfig) -> None:
        self._run, self._stage, self._config = run, stage, stage.config.eval
        self._task: asyncio.Task[None] | None = None
        self._one: Evaluation | None = None
        self._busy_s = self._reported_s = 0.0
        self._busy_since: float | None = None  # when the one that is under way began to be played
        self._plays = plays_of(stage.config) if self._config.every else {}
        self._at_once = evaluated_at_once(stage.config, recipes_played(self._plays)) if self._plays else 0
        self.limit_s = evaluation_deadline(stage.config, self._plays).value if self._plays else 0.0

    def due(self, live: Callable[[], Awaitable[None]]) -> None:
        """Begin one where the step that was just taken asks for it. `live` returns once its weights are on the engines.

        None after the last step, which the evaluation of the stage's end follows; none that has been made already.
        """
        state, every = self._run.state, self._config.every
        if not every or state.stage_step in (0, self._stage.steps) or state.stage_step % every:
            return
        place = {"step": state.step, "stage": self._stage.name, "when": "during"}
        if any(place.items() <= row.items() for row in self._run.dir.evaluations()):
            return
        if self._one is not None:
            under_way = f"the one of step {self._one.step} is still under way"
            self._run.progress.say(f"no evaluation at step {state.step}: {under_way} (eval.every, eval.deadline_s)")
            return
        evaluation = Evaluation(
            stage=self._stage,
            when="during",
            step=state.step,
            version=state.version,
            plays=self._plays,
            files=self._run.dir.episodes,
        )
        self._one = evaluation
        self._task = self._run.tasks.spawn(self._evaluate(evaluation, live))

    async def _evaluate(self, evaluation: Evaluation, live: Callable[[], Awaitable[None]]) -> None:
        config = self._config

        def more() -> bool:
            return config.budget_tokens is None or evaluation.tokens < config.budget_tokens

        try:
            await live()  # first: later it would be a newer step's, which may be waiting for this evaluation
            apart = await set_candidate_apart(self._run, evaluation)
            self._busy_since = evaluation.started = time.monotonic()
            limit = asyncio.timeout(self.limit_s)
            try:
                async with self._run.cards.wish(), limit:
                    waiting = list_pending(evaluation.plays, {})
                    await play_each(self._run.pool, waiting, self._at_once, evaluation.add_group, more)
            except TimeoutError:
                if not limit.expired():
                    raise
            await finish_evaluation(self._run, evaluation, apart)
        finally:
            self._busy_s, self._busy_since = self._count_busy(), None
            self._one = None
            await evaluation.close()

    async def wait(self) -> None:
        """Until none is under way."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def hold_weights(self, step: int) -> None:
        """Before the weights of `step` go out: with `eval.hold_weights`, until an evaluation of older ones is over.

        Or until no engine has those any more: then newer ones are all that can end it.
        """
        if self._config.hold_weights and self._task is not None and self._one is not None and self._one.step < step:
            await self._run.pool.publisher.unless_stranded(self._task)

    def cancel(self) -> None:
        """The run stops and does not wait for it. `due` makes that of the present step when the run continues; older
        weights are gone by then."""
        if self._one is not None:
            outcome = "the resumed run makes it" if self._one.step == self._run.state.step else "it is not made again"
            text = f"the evaluation of step {self._one.step} was under way and is cut off: {outcome}"
            self._run.note("evaluation", text)
        if self._task is not None:
            self._task.cancel()

    def row(self) -> dict[str, float]:
        """{"eval/seconds": ..}: of those since it was last asked, how many an evaluation was under way."""
        if not self._config.every:
            return {}
        busy = self._count_busy()
        since, self._reported_s = busy - self._reported_s, busy
        return {"eval/seconds": since}

    def _count_busy(self) -> float:
        return self._busy_s + (time.monotonic() - self._busy_since if self._busy_since is not None else 0.0)
