"""A model and a task so small that thirty steps of any algorithm take a moment, the same on every machine.

The model is plain torch in double precision, its first weights and every random choice come from Python's generator,
and the algorithms are the real ones, with real samples, reductions, rows and minibatches. Tokens are sampled by
weights one step old. Task: two prompt tokens, then up to six tokens; the reward is the share of even ones, and a
stream with a discount of its own takes something for each repetition.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import nn

from learners.algorithms.base import PROXIMAL, REFERENCE, VALUES, Algorithm, moments
from rlsys.batch import MicroBatch
from rlsys.reductions import weigh
from rlsys.types import Sample, TokenStream
from tests.makers import made

VOCABULARY, HIDDEN, END, LONGEST = 12, 16, 1, 6
TASKS, SIBLINGS, TOKENS_PER_ROW = 4, 4, 40
STEPS, LEARNING_RATE, CLIP_GRAD = 30, 0.005, 1.0

Select = Callable[[Sequence[Sequence[Sample]]], Sequence[Sequence[Sample]]]


class TinyModel(nn.Module):
    """Sees its last token and the mean of all tokens so far. Double precision; `outputs` numbers per position."""

    def __init__(self, outputs: int, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        shapes = {"embedding": (VOCABULARY, HIDDEN), "mixing": (2 * HIDDEN, HIDDEN), "head": (HIDDEN, outputs)}
        for name, (rows, columns) in shapes.items():
            numbers = [[draw.gauss(0.0, 1.0) / math.sqrt(rows) for _ in range(columns)] for _ in range(rows)]
            setattr(self, name, nn.Parameter(torch.tensor(numbers, dtype=torch.float64)))

    def forward(self, tokens_NL: torch.Tensor) -> torch.Tensor:
        """[N, L, outputs]: of position t, from tokens 0 to t."""
        embedded = self.embedding[tokens_NL]
        seen = embedded.cumsum(1) / torch.arange(1, tokens_NL.shape[1] + 1, dtype=torch.float64).unsqueeze(1)
        return torch.tanh(torch.cat([embedded, seen], dim=-1) @ self.mixing) @ self.head

    def per_token(self, row: MicroBatch) -> torch.Tensor:
        """[T, outputs]: at t from the tokens of the sample before t; nothing is known before a sample's first."""
        parts = []
        for start, end in pairwise(row.cu_seqlens.tolist()):
            out = self(row.token_ids[start : end - 1].unsqueeze(0))[0]
            parts += [out.new_zeros(1, out.shape[1]), out]
        return torch.cat(parts)


class EvenTeacher(TinyModel):
    """A teacher that finds each even token more likely than the policy does at first."""

    def forward(self, tokens_NL: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens_NL) + 2.0 * (torch.arange(VOCABULARY) % 2 == 0)


def log_probabilities(model: TinyModel, row: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp, entropy), [T], 0 where the loss mask is 0, as the learner gives them."""
    logits = model.per_token(row).log_softmax(-1)
    keep = row.loss_mask.bool()
    logp = logits.gather(1, row.token_ids.unsqueeze(1)).squeeze(1)
    entropy = -(logits.exp() * logits).sum(-1)
    return torch.where(keep, logp, 0.0), torch.where(keep, entropy, 0.0)


@torch.no_grad()
def play(model: TinyModel, draw: random.Random, version: int) -> list[list[Sample]]:
    """One group of samples per task. A token is drawn by inverting the distribution at a number of `draw`."""
    tokens = torch.tensor([[draw.randrange(1, VOCABULARY) for _ in range(2)] for _ in range(TASKS)])
    tokens = tokens.repeat_interleave(SIBLINGS, dim=0)
    logps = []
    for _ in range(LONGEST):
        logp = model(tokens)[:, -1].log_softmax(-1)
        uniform = torch.tensor([[draw.random()] for _ in range(len(tokens))], dtype=torch.float64)
        chosen = (logp.exp().cumsum(-1) < uniform).sum(-1, keepdim=True).clamp(max=VOCABULARY - 1)
        logps.append(logp.gather(1, chosen))
        tokens = torch.cat([tokens, chosen], dim=1)
    samples = [
        as_sample(ids, logp, version)
        for ids, logp in zip(tokens.tolist(), torch.cat(logps, dim=1).tolist(), strict=True)
    ]
    return [samples[start : start + SIBLINGS] for start in range(0, len(samples), SIBLINGS)]


def as_sample(ids: Sequence[int], logps: Sequence[float], version: int) -> Sample:
    response = list(ids[2:])
    length = response.index(END) + 1 if END in response else len(response)
    response = response[:length]
    repeated = tuple(-0.05 * (token == before) for before, token in pairwise([-1, *response]))
    return made.sample(
        (0, 0, *[1] * length),
        token_ids=(*ids[:2], *response),
        logprobs=logps[:length],
        versions=version,
        reward=sum(token % 2 == 0 for token in response) / length,
        streams=(TokenStream(name="repetition", values=repeated, discount=0.9),),
    )


def credited(groups: Sequence[Sequence[Sample]], algorithm: Algorithm) -> list[list[list[Sample]]]:
    """What the driver does: advantages within each group. Without signal a group, without one a sibling is left out."""
    credited_groups = []
    for group in groups:
        credit = algorithm.advantages([sample.reward or 0.0 for sample in group])
        if credit is not None:
            credited_groups.append(
                [
                    [replace(sample, advantages=tuple(advantage * mask for mask in sample.loss_mask))]
                    for sample, advantage in zip(group, credit, strict=True)
                    if not math.isnan(advantage)
                ]
            )
    return credited_groups


def best_and_worst(groups: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """Preference pairs: the chosen answer, then the rejected one; a tie gives none."""
    ranked = [sorted(group, key=lambda sample: -(sample.reward or 0.0)) for group in groups]
    return [[group[0], group[-1]] for group in ranked if group[0].reward != group[-1].reward]


def best_only(groups: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """Demonstrations by rejection sampling: the best answer of each group."""
    return [[max(group, key=lambda sample: sample.reward or 0.0)] for group in groups]


def value_only(groups: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """Without the stream beside the value."""
    return [[replace(sample, streams=()) for sample in group] for group in groups]


def curve(algorithm: Algorithm, select: Select, *, samples_per_unit: int = 1) -> dict[str, list[float]]:
    """Thirty steps. `loss`: the sum over rows, its mean over the optimizer steps; `value_loss`: the critic's;
    `grad_norm`: of the last optimizer step; `even`: the probability of an even token, which the reward asks for."""
    policy, sampler = (TinyModel(VOCABULARY, seed=1) for _ in range(2))
    reference = EvenTeacher(VOCABULARY, seed=1) if algorithm.needs_teacher else TinyModel(VOCABULARY, seed=1)
    critic = TinyModel(1, seed=2) if VALUES in algorithm.needs else None
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    critic_optimizer = None if critic is None else torch.optim.Adam(critic.parameters(), lr=LEARNING_RATE)
    draw = random.Random(0)
    curves: dict[str, list[float]] = {"loss": [], "value_loss": [], "grad_norm": [], "even": []}
    for step in range(STEPS):
        groups = select(play(sampler, draw, max(0, step - 1)))
        sampler.load_state_dict(policy.state_dict())  # for the next step: by then a version old
        samples = weigh(credited(groups, algorithm), algorithm.reduction, length=LONGEST)
        batch = made.make_batch(
            samples, TOKENS_PER_ROW, step, minibatches=algorithm.minibatches, samples_per_unit=samples_per_unit
        )
        rows = [before_update(row, algorithm, policy, critic, reference) for row in batch.rows]
        rows = algorithm.credit(rows, moments)
        losses, value_losses = [], []
        for _ in range(algorithm.epochs):
            for index, denominator in enumerate(batch.denominators):
                mine = [row for row in rows if row.minibatch == index]
                policy_loss = partial(loss_of_policy, algorithm, policy, denominator)
                loss, norm = descend(policy_optimizer, policy, mine, policy_loss)
                losses.append(loss)
                if critic is not None and critic_optimizer is not None:
                    value_loss = partial(loss_of_critic, algorithm, critic, denominator)
                    value_losses.append(descend(critic_optimizer, critic, mine, value_loss)[0])
        curves["loss"].append(sum(losses) / len(losses))
        curves["value_loss"] += [sum(value_losses) / len(value_losses)] if value_losses else []
        curves["grad_norm"].append(norm)
        curves["even"].append(even_share(policy))
    return curves


@torch.no_grad()
def before_update(
    row: MicroBatch, algorithm: Algorithm, policy: TinyModel, critic: TinyModel | None, reference: TinyModel
) -> MicroBatch:
    """The forward passes that the algorithm asks for."""
    if REFERENCE in algorithm.needs:
        row = replace(row, reference_logprobs=log_probabilities(reference, row)[0].float())
    if PROXIMAL in algorithm.needs:
        row = replace(row, proximal_logprobs=log_probabilities(policy, row)[0].float())
    return row if critic is None else replace(row, values=values(critic, row).float())


def values(critic: TinyModel, row: MicroBatch) -> torch.Tensor:
    """[T], 0 where the loss mask is 0."""
    return torch.where(row.loss_mask.bool(), critic.per_token(row).squeeze(1), 0.0)


def loss_of_policy(algorithm: Algorithm, policy: TinyModel, denominator: float, row: MicroBatch) -> torch.Tensor:
    logp, entropy = log_probabilities(policy, row)
    entropy = entropy if algorithm.entropy_coef > 0 else entropy.detach()
    return algorithm.loss(logp, entropy, row, denominator=denominator).loss


def loss_of_critic(algorithm: Algorithm, critic: TinyModel, denominator: float, row: MicroBatch) -> torch.Tensor:
    return algorithm.value_loss(values(critic, row), row, denominator=denominator).loss


def descend(
    optimizer: torch.optim.Optimizer,
    model: TinyModel,
    rows: Sequence[MicroBatch],
    loss: Callable[[MicroBatch], torch.Tensor],
) -> tuple[float, float]:
    """One optimizer step: (the loss over all rows, the gradient's norm before clipping)."""
    optimizer.zero_grad()
    total = torch.stack([loss(row) for row in rows]).sum()
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_GRAD)
    optimizer.step()
    return total.item(), norm.item()


@torch.no_grad()
def even_share(policy: TinyModel) -> float:
    """Mean probability of an even token behind each single token."""
    probabilities = policy(torch.arange(VOCABULARY).unsqueeze(1))[:, -1].softmax(-1)
    return float(probabilities[:, 0::2].sum(-1).mean())
