"""The `dpo` stage: preference pairs, against the weights that the stage began with (arXiv 2305.18290)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from launch.run.run import Run
from launch.stages.delivery import measure_after
from launch.stages.held_out import answer_logprobs, pair_loss
from launch.stages.supervised import Prepared, begin_with_data, train_steps
from learners.algorithms.dpo import DPOConfig
from rlsys.config import StageConfig
from rlsys.errors import BadInput
from rlsys.packing import make_batch
from rlsys.reductions import weigh
from rlsys.types import Sample


async def dpo_stage(run: Run, stage: StageConfig) -> None:
    """Pairs -> Batch -> learner, `stage.steps` times."""
    given = await begin_with_data(run, stage, "steps of {} preference pairs")
    stage, config = given.stage, given.stage.config

    def prepare(stage_step: int) -> Prepared:
        pairs, left_out = given.tokenised.drawn(given.curriculum, stage_step, config.loop.groups_per_step)
        samples = weigh(pairs, "sequence_sum")  # an answer counts once, however long it is
        batch = make_batch(samples, config.learner.tokens_per_row, run.state.version, together=2)
        return Prepared(batch, {"data/too_long": left_out})

    held_out = flat(await asyncio.to_thread(given.tokenised.all_of, given.data.held_out, "held-out pairs"))
    if held_out:
        await remember_reference(run, stage, held_out)

    async def loss() -> dict[str, float]:
        assert isinstance(config.algorithm, DPOConfig)
        policy = await answer_logprobs(run.learner, held_out)
        return pair_loss(policy, run.state.reference, config.algorithm.beta)

    await train_steps(run, stage, prepare, loss if held_out else None)
    await measure_after(run, stage)


def flat(pairs: Sequence[Sequence[Sequence[Sample]]]) -> list[Sample]:
    """Chosen, rejected, chosen, ...: an answer of a pair is one sample."""
    return [sample for pair in pairs for answer in pair for sample in answer]


async def remember_reference(run: Run, stage: StageConfig, held_out: Sequence[Sample]) -> None:
    """What the weights that the stage begins with think of the held-out pairs: saved with the run, for a resume."""
    if run.state.stage_step == 0:
        run.state.reference = await run.until(answer_logprobs(run.learner, held_out))
    elif len(run.state.reference) != len(held_out):
        raise BadInput(
            f"stages.{stage.name}: {len(held_out)} held-out pairs, {len(run.state.reference)} values of the reference: "
            "expected the data, eval keys and engine.max_model_len that the stage began with"
        )
