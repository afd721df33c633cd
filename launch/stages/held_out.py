"""Losses of examples that are not trained on, from the learner's log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

from learners.group import LearnerGroup
from rlsys.types import Sample


async def answer_loss(learner: LearnerGroup, samples: Sequence[Sample]) -> dict[str, float]:
    """{"eval/loss": mean of -log p over the answers' own tokens}."""
    sums = await answer_logprobs(learner, samples)
    return {"eval/loss": -math.fsum(sums) / sum(sum(sample.loss_mask) for sample in samples)}


async def answer_logprobs(learner: LearnerGroup, samples: Sequence[Sample]) -> list[float]:
    """log p of each sample's own tokens, summed."""
    scores = await learner.logprobs([sample.token_ids for sample in samples])
    return [
        math.fsum(score for score, mask in zip(scored, sample.loss_mask[1:], strict=True) if mask)
        for sample, scored in zip(samples, scores, strict=True)
    ]


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
