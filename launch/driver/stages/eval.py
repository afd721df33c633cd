"""The `eval` kind: the weights as they are, on the sets of `eval`. Nothing is trained."""

from __future__ import annotations

from typing import Any

from launch.driver.evaluation.evaluate import digest_of_plays, evaluate
from launch.driver.evaluation.sets import plays_of
from launch.driver.run.first_delivery import first_delivery
from launch.driver.run.run import Run
from launch.driver.stages.base import Stage, StageKeys, check_judge, check_response_length
from launch.driver.stages.reads import DELIVERY, EVALUATION
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput


class Eval(Stage):
    """Played once. What was played lies in trajectories/, its numbers in evaluations.jsonl and the summary."""

    has_length = False
    plays = True
    mixes = True
    reads = (*EVALUATION, *DELIVERY)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        check_response_length(where, recipe)
        check_judge(where, recipe)
        for key in ("steps", "epochs", "data"):
            if getattr(head, key) is not None:
                setting = f"{where}.{key}={getattr(head, key)!r}"
                raise BadInput(
                    "an eval stage trains nothing", where=setting, expected="eval.tasks, eval.samples, eval.sets"
                )

    def midway(self, stage: StageConfig) -> dict[str, Any]:
        return {}

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        lines = []
        for name, play in plays_of(stage.config).items():
            tasks, per_task = len(play.of.tasks), play.samples * play.seeds
            lines.append(f"episodes, {name} = {tasks} tasks x {play.samples} x {play.seeds} seeds = {tasks * per_task}")
        return lines

    async def run(self, run: Run, stage: StageConfig) -> None:
        state = run.state
        await run.begin_stage(stage)
        await first_delivery(run)
        values = await run.tasks.until(evaluate(run, stage, "eval"))
        state.eval_stages[stage.name] = {"eval": values}
        state.eval_last = {"step": state.step, "prompts": digest_of_plays(stage), "values": values}
