"""One update: equal rows on all ranks, forward passes, credit, then an optimizer step for each epoch and minibatch.

Every rank does the same collectives in the same order, however unequal its rows. Row tensors lie in host memory and
come to the device one row at a time.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from learners.algorithms.base import PROXIMAL, moments
from learners.attention import find_shared_starts
from learners.flops import matmul_peak, row_flops, sheet_peak
from learners.leaving import RowGate, UpdateLeft
from learners.rows import pack_ids
from learners.served_reference import ServedReference
from learners.stage import Phases, Stage, to_device
from rlsys.batch import Batch, MicroBatch, UpdateReport, masked_means, padding_row, token_advantages
from rlsys.config.learner import LearnerConfig
from rlsys.losses import LossOutput, kl_estimate
from rlsys.metrics import Max, Mean, Metric, Metrics, Min, Sum, merge
from rlsys.mismatch import mismatch_metrics

# Returns closer together than this have no variance to explain.
_MIN_SPREAD = 1e-6


def equal_rows(stage: Stage, batch: Batch) -> list[MicroBatch]:
    """This rank's rows, minibatch by minibatch. Where another rank has more, rows without weight make up for it.

    So all ranks do the same collectives (docs/laws.md, law 7).

    Raises ValueError, on all ranks, where one of them has no row at all.
    """
    counts = [0.0] * len(batch.denominators)
    for row in batch.rows:
        counts[row.minibatch] += 1
    *most, empty = stage.max_over_ranks([*counts, float(not batch.rows)])
    if empty:
        raise ValueError("a batch without rows: expected at least one on every rank")
    rows: list[MicroBatch] = []
    for minibatch, (count, target) in enumerate(zip(counts, most, strict=True)):
        rows += [row for row in batch.rows if row.minibatch == minibatch]
        rows += [padding_row(minibatch, batch.rows[0].discounts)] * int(target - count)
    return rows


def forward_first(stage: Stage) -> bool:
    """Whether the policy makes an extra pass before the first gradient.

    It does for the proximal policy, and for `learner.behavior: learner`. Only the latter can do without: with a single
    step per batch, and no model that credit waits for, the training pass gives the same numbers.
    """
    algorithm = stage.algorithm
    single = algorithm.epochs * algorithm.minibatches == 1 and not algorithm.needs
    return PROXIMAL in algorithm.needs or (stage.learner.behavior == "learner" and not single)


def count_rows(stage: Stage, batch: Batch, rows: Sequence[MicroBatch]) -> int:
    """How often an update begins a row: once in each pass over it that is made here, and once after one elsewhere."""
    models, algorithm = stage.models, stage.algorithm
    served = isinstance(models.reference, ServedReference)
    reference = models.reference is not None and not served
    critic = models.critic_engine is not None
    trained = sum(batch.denominators[row.minibatch] > 0 for row in rows)
    passes = reference + critic + forward_first(stage)
    return served + len(rows) * passes + algorithm.epochs * trained * (1 + critic)


@torch.no_grad()
def forward_passes(
    stage: Stage, rows: list[MicroBatch], version: int, phases: Phases, gate: RowGate
) -> tuple[list[MicroBatch], list[Metrics]]:
    """The rows with the log-probabilities and values that the algorithm needs, from the models before this update."""
    models = stage.models
    metrics: list[Metrics] = []
    if isinstance(models.reference, ServedReference):
        with phases.phase("reference"):
            logps = models.reference.logprobs(rows, gate.check)
            gate.begin_row()  # a rank beyond is in sums over all ranks perhaps: those that still ask come as far
            rows = [replace(row, reference_logprobs=logp_T) for row, logp_T in zip(rows, logps, strict=True)]
    elif models.reference is not None:
        with phases.phase("reference"), models.reference.ready() as reference:
            rows = [replace(row, reference_logprobs=logprobs(stage, reference, row)) for row in gate.through(rows)]
    if models.critic_engine is not None:
        with phases.phase("values"):
            rows = [replace(row, values=critic_values(stage, row).cpu()) for row in gate.through(rows)]
    if forward_first(stage):
        with phases.phase("proximal"):
            filled = []
            for row in gate.through(rows):
                logp_T = logprobs(stage, models.policy_engine, row)
                metrics.append(mismatch_metrics(logp_T, row, version))
                if PROXIMAL in stage.algorithm.needs:
                    row = replace(row, proximal_logprobs=logp_T)
                if stage.learner.behavior == "learner":
                    row = replace_behavior_logprobs(row, logp_T, version)
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
        stage.group,
    )
    return logp_T, entropy_T


def dummy_pass(stage: Stage) -> torch.Tensor:
    """The policy's [2] log-probabilities of a row that nobody asked about: for its collectives, or for its graph."""
    row, chunk = pack_ids([[0, 0]], stage.torch_device), stage.learner.logit_chunk
    logp_T: torch.Tensor = stage.models.policy_engine(*row, stage.temperature, chunk)[0]
    return logp_T


def logprobs(stage: Stage, model: Any, row: MicroBatch) -> torch.Tensor:
    """[T] float32 in host memory, 0 where the loss mask is 0."""
    return policy_pass(stage, model, to_device(row, stage.torch_device))[0].cpu()


def critic_values(stage: Stage, row: MicroBatch) -> torch.Tensor:
    """[T] float32 on the device, 0 where the loss mask is 0."""
    row = to_device(row, stage.torch_device)
    critic: Any = stage.models.critic_engine
    values_T: torch.Tensor = critic(row.token_ids, row.position_ids, row.cu_seqlens, row.loss_mask > 0, stage.group)
    return values_T


def replace_behavior_logprobs(row: MicroBatch, logp_T: torch.Tensor, version: int) -> MicroBatch:
    """The row with the learner's log-probabilities in place of the engine's, for tokens that `version` sampled."""
    own_T = row.versions == version
    return replace(row, behavior_logprobs=torch.where(own_T, logp_T, row.behavior_logprobs))


def run_update(stage: Stage, batch: Batch, step: int, gate: RowGate) -> UpdateReport:
    """One update over the rows of this rank. The denominators of `batch` are those of all ranks together.

    The metrics are those of this rank and may be `nan`: `learners.group.merge_reports` looks at all ranks before it
    drops any. Raises UpdateLeft where `gate` says so; no gradient is left then, and no step was taken.
    """
    started = time.perf_counter()
    phases = Phases(stage.torch_device)
    models = stage.models
    metrics: list[Metrics] = [set_learning_rates(stage, step)]
    with phases.phase("align"):
        rows = equal_rows(stage, batch)
    gate.expect(count_rows(stage, batch, rows))
    rows, measured = forward_passes(stage, rows, batch.version, phases, gate)
    with phases.phase("credit"):
        rows = stage.algorithm.credit(rows, partial(moments, add_up=stage.sum_over_ranks))
        metrics += [*measured, credit_metrics(stage, rows)]
        advantages = token_advantages(rows)

    policy, critic = Steps(), Steps()
    for _ in range(stage.algorithm.epochs):
        for minibatch, denominator in enumerate(batch.denominators):
            if not denominator > 0:
                continue  # on all ranks alike: there is nothing to learn in it
            mine = [row for row in rows if row.minibatch == minibatch]
            version = batch.version if policy.made == 0 else None  # afterwards the weights are others
            with phases.phase("forward_backward"):
                learned = policy_rows(stage, mine, denominator, version, gate)
            with phases.phase("optimizer"):
                policy.make(models.policy_engine, "learner/grad_norm", learned)
            if models.critic_engine is not None:
                with phases.phase("critic_forward_backward"):
                    learned = critic_rows(stage, mine, denominator, gate)
                with phases.phase("critic_optimizer"):
                    critic.make(models.critic_engine, "critic/grad_norm", learned)
    seconds = time.perf_counter() - started
    metrics += [*policy.metrics(), *critic.metrics()]
    metrics.append({"learner/steps": Max(policy.made), "learner/skipped": Max(policy.made - policy.taken)})
    if models.critic_engine is not None:
        metrics.append({"critic/skipped": Max(critic.made - critic.taken)})
    metrics.append(work_metrics(stage, rows, phases, seconds))
    merged = merge(metrics)
    if stage.group is not None and stage.group.place:  # its rows are counted once, by the first rank that has them
        merged = {name: metric for name, metric in merged.items() if isinstance(metric, (Max, Min))}
    return UpdateReport(applied=policy.taken > 0, metrics=merged, seconds=seconds, advantages=advantages)


@dataclass(slots=True)
class Steps:
    """The optimizer steps of one model in one update.

    A step whose gradient is not finite on some rank is skipped on all of them. It is counted and leaves no other
    metric: those of the ranks whose rows were sound would look like the whole.
    """

    made: int = 0
    taken: int = 0
    learned: list[Metrics] = field(default_factory=list)

    def make(self, engine: Any, norm_name: str, learned: Sequence[Metrics]) -> None:
        """Take a step, unless the gradient is not finite.

        learned: metrics of the rows that the gradient is of. The norm that is recorded is the one before clipping.
        """
        engine.step()
        self.made += 1
        if engine.was_step_applied():
            self.taken += 1
            self.learned += [*learned, {norm_name: Mean(float(engine.get_global_grad_norm()))}]

    def metrics(self) -> list[Metrics]:
        """Losses add up over rows and ranks; over the steps of an update they are averaged."""
        return [
            {name: Sum(m.value / self.taken) if isinstance(m, Sum) else m for name, m in part.items()}
            for part in self.learned
        ]


def set_learning_rates(stage: Stage, step: int) -> Metrics:
    learner, models = stage.learner, stage.models
    metrics: dict[str, Metric] = {}
    engines = {"learner/lr": (models.policy_engine, learner.lr), "critic/lr": (models.critic_engine, learner.critic_lr)}
    for name, (engine, peak) in engines.items():
        if engine is None:
            continue
        lr = lr_at(step, peak, learner, stage.total_steps)
        for group in engine.optimizer.param_groups:
            group["lr"] = lr
        metrics[name] = Max(lr)
    return metrics


def lr_at(step: int, peak: float, learner: LearnerConfig, total_steps: int) -> float:
    """The learning rate of update `step` (from 0): linear warm-up to `peak`, then constant, or down to the last step.

    With 4 steps of warm-up and peak 1.0 the first is 0.25. Line and cosine end at peak * `final_lr_ratio`.
    """
    warmup = learner.warmup_steps or math.ceil(learner.warmup_ratio * total_steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    if learner.schedule == "constant":
        return peak
    progress = min(1.0, (step - warmup) / max(1, total_steps - 1 - warmup))
    decay = 1 - progress if learner.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (learner.final_lr_ratio + (1 - learner.final_lr_ratio) * decay)


def policy_rows(
    stage: Stage, rows: Sequence[MicroBatch], denominator: float, version: int | None, gate: RowGate
) -> list[Metrics]:
    """Adds the gradient of a minibatch to the policy's, ready for its step. Where the update is left, none is kept."""
    learned: list[Metrics] = []
    try:
        for row in gate.through(rows):
            learned.append(policy_row(stage, row, denominator, version))
        gate.close()
    except UpdateLeft:
        if learned:
            drop_gradient(stage)
        raise
    return learned


def drop_gradient(stage: Stage) -> None:
    """Of the rows so far. In a step that is skipped, since its gradient is not finite: the one way in which DeepSpeed
    forgets a gradient that is the same at every ZeRO stage. All ranks have to do it."""
    engine = stage.models.policy_engine
    engine.backward(dummy_pass(stage).sum() * math.nan, scale_wrt_gas=False)
    engine.step()
    assert not engine.was_step_applied(), "a step of an update that was left"


def critic_rows(stage: Stage, rows: Sequence[MicroBatch], denominator: float, gate: RowGate) -> list[Metrics]:
    return [critic_row(stage, row, denominator) for row in gate.through(rows)]


def policy_row(stage: Stage, row: MicroBatch, denominator: float, version: int | None) -> Metrics:
    """Adds one row's gradient to the policy's. version: that of the weights, None once a step has changed them."""
    row = to_device(row, stage.torch_device)
    engine, entropy_gradient = stage.models.policy_engine, stage.algorithm.entropy_coef > 0
    logp_T, entropy_T = policy_pass(stage, engine, row, entropy_gradient=entropy_gradient)
    metrics: dict[str, Metric] = {}
    if version is not None and not forward_first(stage):
        metrics |= mismatch_metrics(logp_T, row, version)
        if stage.learner.behavior == "learner":
            row = replace_behavior_logprobs(row, logp_T.detach(), version)
    if row.reference_logprobs is not None:
        gap_T = kl_estimate(logp_T.detach(), row.reference_logprobs, kind="k3")
        metrics |= masked_means(row.loss_mask.bool(), {"kl/reference": gap_T})
    out = stage.algorithm.loss(logp_T, entropy_T, row, denominator=denominator)
    return metrics | backward(stage, engine, out, logp_T, "loss/total")


def critic_row(stage: Stage, row: MicroBatch, denominator: float) -> Metrics:
    row = to_device(row, stage.torch_device)
    values_T = critic_values(stage, row)
    out = stage.algorithm.value_loss(values_T, row, denominator=denominator)
    return backward(stage, stage.models.critic_engine, out, values_T, "loss/critic_total")


def backward(stage: Stage, engine: Any, out: LossOutput, outputs_T: torch.Tensor, name: str) -> dict[str, Metric]:
    """The one place that undoes DeepSpeed's averages over ranks and over micro-batches.

    A loss that is not finite may have a finite gradient, because clamping stops `nan` on its way back. That gradient
    would pass for the gradient of the sound tokens, so `nan` is added to it and the step is skipped on every rank.
    `nan` is added through outputs_T, the model's outputs that the loss was made of, and the loss stays in the graph:
    under ZeRO-3 all ranks must go back through the modules in the same order, or their collectives never meet.
    """
    value = out.loss.item()
    loss = out.loss * stage.world_size
    if not math.isfinite(value):
        loss = loss + outputs_T.sum() * math.nan
    engine.backward(loss, scale_wrt_gas=False)
    return {**out.metrics, name: Sum(value)}


def credit_metrics(stage: Stage, rows: Sequence[MicroBatch]) -> Metrics:
    """Advantages and the critic's errors over all ranks: each of them reports the same numbers."""
    masks = [row.loss_mask for row in rows]
    spread = moments([row.advantages for row in rows], masks, stage.sum_over_ranks)
    metrics: dict[str, Metric] = {"advantage/mean": Max(spread[0]), "advantage/std": Max(spread[1])}
    if stage.models.critic_engine is None:
        return metrics
    returns = [row.advantages.new_zeros(row.num_tokens) if row.returns is None else row.returns for row in rows]
    errors = [target - row.values for target, row in zip(returns, rows, strict=True) if row.values is not None]
    _, of_returns, _ = moments(returns, masks, stage.sum_over_ranks)
    _, of_errors, _ = moments(errors, masks, stage.sum_over_ranks)
    if of_returns > _MIN_SPREAD:
        metrics["value/explained_variance"] = Max(1 - (of_errors / of_returns) ** 2)
    return metrics


def work_metrics(stage: Stage, rows: Sequence[MicroBatch], phases: Phases, seconds: float) -> Metrics:
    """What this rank did, and how fast."""
    num_tokens = sum(row.num_tokens for row in rows)
    useful = [float(row.loss_mask.sum()) for row in rows]
    metrics: dict[str, Metric] = {
        "learner/tokens": Sum(num_tokens),
        "learner/rows": Sum(len(rows)),
        "learner/padding_rows": Sum(useful.count(0.0)),
        "learner/tokens_per_s": Sum(num_tokens / seconds),
        "tokens/useful_share": Mean(sum(useful), num_tokens),
        "memory/learner_rss_peak_mb": Max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    metrics |= {f"time/learner_{name}": Max(spent) for name, spent in phases.seconds.items()}
    if stage.torch_device.type == "cpu" and stage.group is None:
        shared = [find_shared_starts(row.token_ids, row.cu_seqlens) for row in rows]
        metrics["learner/tokens_shared"] = Sum(sum(len(starts.repeats) for starts in shared if starts is not None))
    if stage.torch_device.type == "cuda":
        metrics["memory/learner_gpu_peak_mb"] = Max(torch.cuda.max_memory_allocated() / 2**20)
    training_s = sum(phases.seconds.get(name, 0.0) for name in ("forward_backward", "optimizer"))
    if training_s > 0:
        flops = stage.algorithm.epochs * sum(row_flops(stage.models.policy, row) for row in rows)
        metrics["learner/flops_per_s"] = Sum(flops / training_s)
        sharing = stage.group.size if stage.group is not None else 1
        peaks = {"mfu": matmul_peak(stage.torch_device, stage.dtype), "mfu_datasheet": sheet_peak(stage.torch_device)}
        for name, peak in peaks.items():
            if peak is not None:
                metrics[f"learner/{name}"] = Mean(flops / training_s / peak / sharing)
    return metrics
