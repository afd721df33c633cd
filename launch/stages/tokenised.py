"""Examples as samples of this run's policy, drawn step by step."""

from __future__ import annotations

from collections.abc import Sequence

from actors.renderer import ChatRenderer
from launch.run.run import Run
from launch.stages.trajectories import tokenizer_id
from rlsys.curriculum import Curriculum
from rlsys.errors import BadInput
from rlsys.records import Example, Tokens
from rlsys.types import Sample


class Tokenised:
    def __init__(self, run: Run) -> None:
        self._renderer = run.renderer
        self._tokenizer = tokenizer_id(run.renderer)
        self._stop = tuple(run.world.env(run.world.tasks("train")[0]).stop_strings)
        self._longest = run.config.recipe.engine.max_model_len

    def all_of(self, examples: Sequence[Example], what: str) -> list[list[list[Sample]]]:
        """Per example, per answer, its samples. An example is left out that is longer than the context window, or
        in which an answer has no token to train on.

        Raises BadInput where none is left; `what` they are.
        """
        found = (samples_of(example, self._renderer, self._tokenizer, self._stop) for example in examples)
        fitting = [answers for answers in found if self._fits(answers)]
        if examples and not fitting:
            raise BadInput(f"all {len(examples)} {what} are longer than engine.max_model_len={self._longest}, or empty")
        return fitting

    def _fits(self, answers: list[list[Sample]]) -> bool:
        short = all(len(sample.token_ids) <= self._longest for samples in answers for sample in samples)
        return short and all(any(any(sample.loss_mask) for sample in samples) for samples in answers)

    def drawn(
        self, curriculum: Curriculum[Example], stage_step: int, count: int
    ) -> tuple[list[list[list[Sample]]], int]:
        """The examples of one step, and how many of them were left out. A function of the seed and the step alone."""
        sequences = range(stage_step * count, (stage_step + 1) * count)
        found = self.all_of([curriculum.draw(sequence)[1] for sequence in sequences], "examples of a step")
        return found, count - len(found)


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
