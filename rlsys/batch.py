"""What the learner is given and what it answers: samples packed into rows of tensors, and sums over their masks.

Which samples share a row is decided before, by `rlsys.plan.pack` (elsewhere `use_dynamic_bsz`).

Shapes: T tokens of one packed row, S samples in a row, M reward streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch

from rlsys.metrics import Mean, Metric, Metrics
from rlsys.plan import BatchPlan, total_share
from rlsys.samples import SampleKey, SampleRef, mask_stale, sample_trajectory
from rlsys.types import Floats, Group, Sample

_PADDING_TOKENS = 2  # one would have nothing to predict


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One packed micro-batch: samples side by side, no padding, positions restarting at each sample.

    The optional tensors are filled in by the learner, with `dataclasses.replace`, before the first gradient.
    """

    token_ids: torch.Tensor  # [T] int64
    position_ids: torch.Tensor  # [T] int64, 0 at each sample's first token
    cu_seqlens: torch.Tensor  # [S+1] int32, sample s is cu_seqlens[s]:cu_seqlens[s+1]
    loss_mask: torch.Tensor  # [T] float32, 0 or 1
    behavior_logprobs: torch.Tensor  # [T] float32
    advantages: torch.Tensor  # [T] float32
    versions: torch.Tensor  # [T] int64, -1 where nothing was sampled
    weights: torch.Tensor  # [T] float32, what each token's loss is multiplied by; 0 where the mask is 0
    first_turns: torch.Tensor  # [S] int64, which message of its trajectory each sample begins with, from 1
    share: float  # what the row adds to the denominator of its minibatch
    minibatch: int = 0  # which optimizer step of an epoch it belongs to
    samples: tuple[SampleKey | None, ...] = ()  # [S]: which they are, of those whose token advantages are asked for
    rewards: torch.Tensor | None = None  # [M, T] float32: the value on each sample's last sampled token, then streams
    discounts: tuple[float, ...] = ()  # [M] of each stream; 1 for the value, where an algorithm may put its own
    reference_logprobs: torch.Tensor | None = None  # [T] float32, of the frozen reference model
    proximal_logprobs: torch.Tensor | None = None  # [T] float32, of the policy before the update's first step
    values: torch.Tensor | None = None  # [T] float32, the critic's before the update; of the state before token t
    returns: torch.Tensor | None = None  # [T] float32, what the critic learns

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.numel())


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of one rank for one update: one optimizer step, or one for each minibatch and epoch."""

    rows: tuple[MicroBatch, ...]
    version: int  # the version being trained; lag is counted up to it
    denominators: tuple[float, ...]  # of each minibatch: the shares of all its rows, over all ranks

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one update did. `applied` is False when the policy took no step: none of its gradients was finite."""

    applied: bool
    metrics: Metrics
    seconds: float
    advantages: Mapping[SampleKey, Floats] = field(default_factory=dict)  # float16, of the tokens in the loss: if asked


def build_batch(plan: BatchPlan, sources: Mapping[int, Group | Sample]) -> Batch:
    """The rows of a plan. sources: what lies at `plan.sources`. Raises ValueError for what was not planned."""
    trajectories = {
        (group_id, trajectory.sibling): trajectory
        for group_id, source in sources.items()
        if isinstance(source, Group)
        for trajectory in source.trajectories
    }
    built: dict[tuple[int, int], Sequence[Sample]] = {
        (group_id, 0): [source] for group_id, source in sources.items() if isinstance(source, Sample)
    }

    def build_sample(ref: SampleRef) -> Sample:
        key = ref.group_id, ref.sibling
        if key not in built:
            built[key] = sample_trajectory(trajectories[key], ref.advantage)
        sample = mask_stale(built[key][ref.number], version=plan.version, max_token_lag=plan.max_token_lag)
        if sample is None or (sample.num_tokens, sample.num_loss_tokens) != (ref.num_tokens, ref.num_loss_tokens):
            raise ValueError(f"the tokens of {key} are not those that were planned: {ref}")
        return replace(sample, weight=ref.weight, share=ref.share)

    def name(ref: SampleRef) -> SampleKey | None:
        return ref.key if ref.group_id in plan.shown else None

    return Batch(
        rows=tuple(
            make_row(list(map(build_sample, row.samples)), row.minibatch, tuple(map(name, row.samples)))
            if row.samples
            else padding_row(row.minibatch, plan.discounts)
            for row in plan.micro_batches
        ),
        version=plan.version,
        denominators=plan.denominators,
    )


def token_advantages(rows: Sequence[MicroBatch]) -> dict[SampleKey, Floats]:
    """As `UpdateReport.advantages`, of the samples of these rows that are named."""
    advantages: dict[SampleKey, Floats] = {}
    for row in rows:
        for key, (start, end) in zip(row.samples, pairwise(row.cu_seqlens.tolist()), strict=False):
            if key is not None:
                values = row.advantages[start:end][row.loss_mask[start:end].bool()]
                advantages[key] = values.detach().cpu().to(torch.float16).numpy()
    return advantages


def make_row(samples: Sequence[Sample], minibatch: int = 0, names: tuple[SampleKey | None, ...] = ()) -> MicroBatch:
    """Samples side by side in one row, positions restarting at each. Raises ValueError that names the bad sample."""
    if not samples:
        raise ValueError("no samples: expected at least one in a row")
    for index, sample in enumerate(samples):
        _check_sample(sample, index)
    lengths = [sample.num_tokens for sample in samples]

    def flat(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([getattr(sample, name) for sample in samples])).to(dtype)

    return MicroBatch(
        token_ids=flat("token_ids", torch.int64),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
        loss_mask=flat("loss_mask", torch.float32),
        behavior_logprobs=flat("behavior_logprobs", torch.float32),
        advantages=flat("advantages", torch.float32),
        versions=flat("versions", torch.int64),
        weights=torch.from_numpy(np.concatenate([np.float32(sample.weight) * sample.loss_mask for sample in samples])),
        first_turns=torch.tensor([sample.first_turn for sample in samples]),
        share=total_share(samples),
        minibatch=minibatch,
        samples=names,
        rewards=_row_rewards(samples),
        discounts=samples[0].discounts,
    )


def padding_row(minibatch: int, discounts: tuple[float, ...]) -> MicroBatch:
    """The shortest possible row, with weight 0. discounts: of the reward streams that its minibatch's rows have."""
    nothing = np.zeros(_PADDING_TOKENS, np.float32)
    sample = Sample(
        token_ids=np.zeros(_PADDING_TOKENS, np.int32),
        loss_mask=np.zeros(_PADDING_TOKENS, np.bool_),
        behavior_logprobs=nothing,
        advantages=nothing,
        versions=np.full(_PADDING_TOKENS, -1, np.int32),
        share=0.0,
    )
    rewards = torch.zeros(len(discounts), _PADDING_TOKENS) if discounts else None
    return replace(make_row([sample], minibatch), rewards=rewards, discounts=discounts)


def _check_sample(sample: Sample, index: int) -> None:
    length = sample.num_tokens
    if length == 0:
        raise ValueError(f"sample {index} of the row is empty: expected at least one token")
    for name in ("loss_mask", "behavior_logprobs", "advantages", "versions"):
        if len(getattr(sample, name)) != length:
            raise ValueError(f"sample {index} of the row: {len(getattr(sample, name))} {name} for {length} tokens")
    if sample.loss_mask[0] != 0:
        raise ValueError(f"sample {index} of the row: its first token is in the loss, but nothing predicts it")


def _row_rewards(samples: Sequence[Sample]) -> torch.Tensor | None:
    """[M, T] of a row: the value on each sample's last sampled token, then the streams; None where none has any."""
    kinds = {(sample.reward is None, tuple((s.name, s.discount) for s in sample.streams)) for sample in samples}
    if len(kinds) > 1:
        raise ValueError("samples of one row with different reward streams: expected the same in all trajectories")
    if samples[0].reward is None:
        return None
    columns = []
    for sample in samples:
        sampled = np.flatnonzero(sample.loss_mask)
        rewards = torch.zeros(1 + len(sample.streams), sample.num_tokens)
        if len(sampled) and sample.reward is not None:
            rewards[0, sampled[-1]] = sample.reward
        for number, stream in enumerate(sample.streams, 1):
            rewards[number, sampled] = torch.tensor(stream.values)
        columns.append(rewards)
    return torch.cat(columns, dim=1)


def apply_mask(values: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Zero outside the mask; `where` and not a product, because nan * 0 is nan, forwards and backwards."""
    return torch.where(keep, values, torch.zeros_like(values))


def masked_means(keep: torch.Tensor, values: Mapping[str, torch.Tensor]) -> dict[str, Metric]:
    """The mean of each tensor over the mask (of booleans: a share). Empty when the mask is: no weight, no metric."""
    count = int(keep.sum())
    if count == 0:
        return {}
    # One transfer for all of them: on a GPU each read of a number waits for the device.
    totals = torch.stack([apply_mask(tensor.detach().double(), keep).sum() for tensor in values.values()]).tolist()
    return {name: Mean(total, count) for name, total in zip(values, totals, strict=True)}


def sample_sums(values_T: torch.Tensor, mask_T: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """[S]: the sum over the mask of each sample, with gradient. Split and not scattered: the order of additions is
    fixed, on a GPU too."""
    lengths: list[int] = cu_seqlens.diff().tolist()
    parts = torch.split(apply_mask(values_T, mask_T.bool()), lengths)
    return torch.stack([part.sum() for part in parts])


def expand_to_tokens(values_S: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """[T]: each sample's value at all of its tokens."""
    lengths = cu_seqlens.diff().tolist()
    return torch.cat([value.expand(length) for value, length in zip(values_S, lengths, strict=True)])
