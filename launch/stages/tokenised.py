"""Examples as samples of this run's policy, drawn step by step."""

from __future__ import annotations

from collections.abc import Sequence

from launch.run.run import Run
from launch.stages.examples import Example, samples_of
from launch.stages.trajectories import tokenizer_id
from rlsys.curriculum import Curriculum
from rlsys.errors import BadInput
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
