"""Given answers as training samples of this policy."""

from __future__ import annotations

from collections.abc import Sequence

from actors.renderer import ChatRenderer
from rlsys.records import Example, Tokens
from rlsys.types import Sample


def samples_of(example: Example, renderer: ChatRenderer, tokenizer: str, stop: Sequence[str]) -> list[list[Sample]]:
    """The training samples of each answer.

    tokenizer: this policy's (`launch.stages.trajectories.tokenizer_id`). stop: the strings that end a message of the
    policy in this environment; an answer from elsewhere that ends in none of them is ended as the model ends a message.
    """
    found: list[list[Sample]] = []
    for answer in example.answers:
        if answer.samples and example.tokenizer == tokenizer:
            found.append([given_sample(each.token_ids, _mask(each)) for each in answer.samples])
        else:
            whole = (*example.prompt, *answer.messages)
            ids, mask = renderer.demonstration(whole, len(example.prompt), stop, truncated=answer.truncated)
            found.append([given_sample(ids, mask)])
    return found


def given_sample(ids: tuple[int, ...], mask: tuple[int, ...]) -> Sample:
    """A sample that nobody's weights are known to have sampled."""
    zeros = (0.0,) * len(ids)
    return Sample(token_ids=ids, loss_mask=mask, behavior_logprobs=zeros, advantages=zeros, versions=(-1,) * len(ids))


def _mask(tokens: Tokens) -> tuple[int, ...]:
    mask = [0] * len(tokens.token_ids)
    for start, end in tokens.sampled:
        mask[start:end] = [1] * (end - start)
    return tuple(mask)
