"""The `dpo` kind: preference pairs, against the weights that the stage began with (arXiv 2305.18290)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

from actors.renderer import ChatRenderer
from launch.driver.run.run import Run
from launch.driver.stages import supervised
from launch.driver.stages.base import StageKeys
from launch.driver.stages.datasets import DataStage
from launch.driver.stages.reads import EXAMPLES, REFERENCE
from launch.driver.stages.store import pairs_path
from launch.driver.stages.supervised import answer_logprobs
from learners.algorithms import ALGORITHMS
from rlsys.choices import choose
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput
from rlsys.examples import read_pair
from rlsys.reductions import weigh
from rlsys.types import Sample


class DPO(DataStage):
    algorithm = "dpo"
    reads = (*EXAMPLES, *REFERENCE)
    made = "its preference pairs"
    nothing_made = "no task had two answers of different reward; raise generate.samples or generate.temperature"
    parse = staticmethod(read_pair)

    def produced_file(self, kept: Path) -> Path:
        return pairs_path(kept)

    def example(self, config: RunConfig, stage: StageConfig, renderer: ChatRenderer) -> list[Sample]:
        return supervised.first_samples(self, config, stage, renderer)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        if not isinstance(recipe.algorithm, choose("algorithm", ALGORITHMS, "dpo").schema):
            raise BadInput(
                where=where, key="algorithm.name", found=recipe.algorithm.name, expected="'dpo' in a dpo stage"
            )
        if head.data is None:
            raise BadInput(
                "a dpo stage without data", where=where, expected="the name of a generate stage, or a path to pairs"
            )
        super().check(where, head, recipe)
        if recipe.learner.serve_reference:
            raise BadInput(
                "only rl and stepwise stages train while engines run",
                where=where,
                key="learner.serve_reference",
                found=True,
            )
        if recipe.eval.every and recipe.learner.reference != "stage":
            raise BadInput(
                f"the held-out loss of eval.every={recipe.eval.every} is measured against the weights that "
                "the stage begins with",
                where=where,
                key="learner.reference",
                found=recipe.learner.reference,
                expected="stage",
            )

    async def run(self, run: Run, stage: StageConfig) -> None:
        training = await supervised.begin_with_data(run, stage, self, "steps of {} preference pairs")
        stage, config = training.stage, training.stage.config

        def prepare(stage_step: int) -> supervised.Prepared:
            pairs, left_out = training.draw_examples(stage_step)
            samples = weigh(pairs, "sequence_sum")  # an answer counts once, however long it is
            return supervised.Prepared(samples, samples_per_unit=2, metrics={"data/too_long": left_out})

        held_out = flatten_pairs(await asyncio.to_thread(training.fitting, training.data.held_out, "held-out pairs"))
        if held_out:
            await remember_reference(run, stage, held_out)

        async def loss() -> dict[str, float]:
            policy = await supervised.answer_logprobs(run.learner, held_out)
            return pair_loss(policy, run.state.reference, config.algorithm.beta)

        await supervised.train_steps(run, stage, prepare, loss if held_out else None)
        await supervised.measure_after(run, stage)


def flatten_pairs(pairs: Sequence[Sequence[Sequence[Sample]]]) -> list[Sample]:
    """Chosen, rejected, chosen, ...: an answer of a pair is one sample."""
    return [sample for pair in pairs for answer in pair for sample in answer]


async def remember_reference(run: Run, stage: StageConfig, held_out: Sequence[Sample]) -> None:
    """What the weights that the stage begins with think of the held-out pairs: saved with the run, for a resume."""
    if run.state.stage_step == 0:
        run.state.reference = await run.tasks.until(answer_logprobs(run.learner, held_out))
    elif len(run.state.reference) != len(held_out):
        raise BadInput(
            f"stages.{stage.name}: {len(held_out)} held-out pairs, {len(run.state.reference)} values of the reference",
            expected="the data, eval keys and engine.max_model_len that the stage began with",
        )


def pair_loss(policy: Sequence[float], reference: Sequence[float], beta: float) -> dict[str, float]:
    """DPO's loss, margin and accuracy, means over pairs. policy, reference: log p of chosen, rejected, chosen, ..."""
    gains = [ours - theirs for ours, theirs in zip(policy, reference, strict=True)]
    margins = [beta * (chosen - rejected) for chosen, rejected in zip(gains[0::2], gains[1::2], strict=True)]
    losses = [max(-margin, 0.0) + math.log1p(math.exp(-abs(margin))) for margin in margins]  # -log sigmoid(margin)
    count = len(margins)
    return {
        "eval/loss": math.fsum(losses) / count,
        "eval/margin": math.fsum(margins) / count,
        "eval/accuracy": sum(margin > 0 for margin in margins) / count,
    }
