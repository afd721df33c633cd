"""Before the first gradient of an update: equal rows on all ranks, and the forward passes that the algorithm needs.

Row tensors lie in host memory and come to the device one row at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from learners.algorithms.base import PROXIMAL
from learners.stage import Phases, Stage, to_device
from rlsys.batch import Batch, MicroBatch, padding_row
from rlsys.metrics import Metrics
from rlsys.mismatch import mismatch_metrics


def equal_rows(stage: Stage, batch: Batch) -> list[MicroBatch]:
    """This rank's rows, minibatch by minibatch. Where another rank has more, rows without weight make up for it.

    So all ranks do the same collectives (docs/laws.md, law 7).

    Raises ValueError, on all ranks, where one of them has no row at all.
    """
    counts = [0.0] * len(batch.denominators)
    for row in batch.rows:
        counts[row.minibatch] += 1
    *most, nobody = stage.max_over_ranks([*counts, float(not batch.rows)])
    if nobody:
        raise ValueError("a batch without rows: expected at least one on every rank")
    rows: list[MicroBatch] = []
    for minibatch, (count, wanted) in enumerate(zip(counts, most, strict=True)):
        rows += [row for row in batch.rows if row.minibatch == minibatch]
        rows += [padding_row(minibatch, batch.rows[0].discounts)] * int(wanted - count)
    return rows


def forward_first(stage: Stage) -> bool:
    """Whether the policy makes a pass of its own before the first gradient.

    It does for the proximal policy, and for `learner.behavior: learner`. Only the latter can do without: with a single
    step per batch, and no model that credit waits for, the training pass gives the same numbers.
    """
    algorithm = stage.algorithm
    single = algorithm.epochs * algorithm.minibatches == 1 and not algorithm.needs
    return PROXIMAL in algorithm.needs or (stage.learner.behavior == "learner" and not single)


@torch.no_grad()
def forward_passes(
    stage: Stage, rows: list[MicroBatch], version: int, phases: Phases
) -> tuple[list[MicroBatch], list[Metrics]]:
    """The rows with the log-probabilities and values that the algorithm needs, from the models before this update."""
    models = stage.models
    metrics: list[Metrics] = []
    if models.reference is not None:
        with phases.phase("reference"), models.reference.ready() as reference:
            rows = [replace(row, reference_logprobs=logprobs(stage, reference, row)) for row in rows]
    if models.critic_engine is not None:
        with phases.phase("values"):
            rows = [replace(row, values=critic_values(stage, row).cpu()) for row in rows]
    if forward_first(stage):
        with phases.phase("proximal"):
            filled = []
            for row in rows:
                logp_T = logprobs(stage, models.policy_engine, row)
                metrics.append(mismatch_metrics(logp_T, row, version))
                if PROXIMAL in stage.algorithm.needs:
                    row = replace(row, proximal_logprobs=logp_T)
                if stage.learner.behavior == "learner":
                    row = own_behavior(row, logp_T, version)
                filled.append(row)
            rows = filled
    return rows, metrics


def policy_pass(
    stage: Stage, model: Any, row: MicroBatch, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp, entropy) of a row that is on the device: each [T] float32, 0 where the loss mask is 0."""
    logp_T, entropy_T = model(
        row.token_ids,
        row.position_ids,
        row.cu_seqlens,
        stage.temperature,
        stage.learner.logit_chunk,
        row.loss_mask > 0,
        entropy_gradient,
    )
    return logp_T, entropy_T


def logprobs(stage: Stage, model: Any, row: MicroBatch) -> torch.Tensor:
    """[T] float32 in host memory, 0 where the loss mask is 0."""
    return policy_pass(stage, model, to_device(row, stage.torch_device))[0].cpu()


def critic_values(stage: Stage, row: MicroBatch) -> torch.Tensor:
    """[T] float32 on the device, 0 where the loss mask is 0."""
    row = to_device(row, stage.torch_device)
    critic: Any = stage.models.critic_engine
    values_T: torch.Tensor = critic(row.token_ids, row.position_ids, row.cu_seqlens, row.loss_mask > 0)
    return values_T


def own_behavior(row: MicroBatch, logp_T: torch.Tensor, version: int) -> MicroBatch:
    """The row with the learner's log-probabilities in place of the engine's, for tokens that `version` sampled."""
    own_T = row.versions == version
    return replace(row, behavior_logprobs=torch.where(own_T, logp_T, row.behavior_logprobs))
