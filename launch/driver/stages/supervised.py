"""The loop of every stage that learns from given answers: `sft` and `dpo`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from actors.renderer import ChatRenderer
from envs import make_world
from envs.base import World
from envs.mixture import config_of
from launch.driver.evaluation.evaluate import evaluate_after, evaluate_before, needs_evaluation_before
from launch.driver.observe.row import Clock, StepRow
from launch.driver.run.first_delivery import first_delivery
from launch.driver.run.run import Run
from launch.driver.run.saving import checkpoint, checkpoint_is_due
from launch.driver.run.updating import update
from launch.driver.stages.base import needs_engines
from launch.driver.stages.datasets import Data, DataStage, resolve_steps
from launch.driver.stages.own_prompts import PromptAccount, with_prompt
from launch.driver.stages.trajectories import tokenizer_id
from rlsys.config.recipe import RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.examples import Example
from rlsys.metrics import values
from rlsys.plan import BatchPlan, plan_samples
from rlsys.records import Tokens
from rlsys.rollout import template_args_of, tool_offer_of
from rlsys.seeds import Epochs, derive_seed
from rlsys.system.device import require_resolved
from rlsys.types import Bools, Sample, ToolOffer

if TYPE_CHECKING:  # Ray and torch behind these
    from learners.group import LearnerGroup

Samples = list[list[list[Sample]]]  # by example and answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedTraining:
    """A stage that learns from a file, ready for its first step."""

    stage: StageConfig  # with its number of steps
    data: Data
    curriculum: Epochs[Example]
    read: Callable[[Example], list[list[Sample]]]  # the samples of each of its answers
    longest: int  # tokens of the context window
    say: Callable[[str], None]
    said: set[str] = field(default_factory=set)  # of what some were left out

    def draw_examples(self, stage_step: int) -> tuple[Samples, int]:
        """The examples of one step, and how many of them were left out. A function of the seed and the step alone."""
        count = self.stage.config.loop.groups_per_step
        sequences = range(stage_step * count, (stage_step + 1) * count)
        samples = self.fitting([self.curriculum.draw(sequence)[1] for sequence in sequences], "examples of a step")
        return samples, count - len(samples)

    def fitting(self, examples: Sequence[Example], label: str) -> Samples:
        """The samples of `examples`. One is left out that is longer than the context window, or in which an answer has
        no token to train on.

        Raises BadInput where all of them are; `label` names them in its message: "held-out pairs".
        """
        samples = [answers for answers in map(self.read, examples) if self._fits(answers)]
        if examples and not samples:
            raise BadInput(f"all {len(examples)} {label} are longer than engine.max_model_len={self.longest}, or empty")
        if len(samples) < len(examples) and label not in self.said:
            self.said.add(label)
            too_long = f"{len(examples) - len(samples)} of {len(examples)} {label} are longer than engine.max_model_len"
            self.say(f"{too_long}={self.longest}, or empty, and left out; of later steps data/too_long counts them")
        return samples

    def _fits(self, answers: list[list[Sample]]) -> bool:
        short = all(sample.num_tokens <= self.longest for samples in answers for sample in samples)
        return short and all(any(sample.num_loss_tokens for sample in samples) for samples in answers)


async def begin_with_data(run: Run, stage: StageConfig, kind: DataStage, template: str) -> SupervisedTraining:
    """Open the stage's data, load the learner, measure the weights as they are. `template`: "steps of {} answers"."""
    read, renderer = reader_of(run.active.world, stage, run.renderer)
    tokenizer, marks = tokenizer_id(renderer), renderer.marks
    data = await asyncio.to_thread(kind.open, run, stage, lambda example: find_chat_mark(example, marks, tokenizer))
    longest = run.config.recipe.engine.max_model_len
    if stage.prompts is not None:
        run.progress.begin(f"stage {stage.name}: answers under the prompts of its environment")
        where, counted = f"stages.{stage.name}", run.progress.count
        data, account = await asyncio.to_thread(keep_fitting, where, data, read, longest, tokenizer, counted)
        run.note("stage", f"stage {stage.name}: {account.describe()}", **asdict(account))
    stage = resolve_steps(stage, data)
    await run.begin_stage(stage)
    await measure_before(run, stage)
    run.begin(
        "stage",
        f"stage {stage.name}: {stage.steps} {template.format(stage.config.loop.groups_per_step)} "
        f"from {len(data.train)} ({', '.join(sorted({place.path.name for place in data.train.places}))})",
    )
    if data.noted:
        where, mark = data.noted[0]
        run.progress.say(
            f"{len(data.noted)} of the examples hold chat marks, "
            f"the first {mark} in {where}: they are text there, and make and end no turn"
        )
    order = Epochs(data.train, seed=derive_seed(stage.config.seed, stage.name))
    return SupervisedTraining(
        stage=stage, data=data, curriculum=order, read=read, longest=longest, say=run.progress.say
    )


Read = Callable[[Example], list[list[Sample]]]


def reader_of(world: World, stage: StageConfig, renderer: ChatRenderer) -> tuple[Read, ChatRenderer]:
    """What makes training samples of an example in the stage's environment, the first of several, and its renderer."""
    first = world.tasks("train")[0]
    env, renderer = world.env(first), renderer.under(template_args_of(config_of(stage.config.env, first)))
    tokenizer, stop, offer = tokenizer_id(renderer), tuple(env.stop_strings), tool_offer_of(env)
    return lambda example: samples_of(example, renderer, tokenizer, stop, offer), renderer


def first_samples(kind: DataStage, config: RunConfig, stage: StageConfig, renderer: ChatRenderer) -> list[Sample]:
    """One of each answer of the first example, where that is known before the run."""
    example = kind.first(config, stage)
    if example is None:
        return []
    read, _ = reader_of(make_world(stage.config.env), stage, renderer)
    return [samples[-1] for samples in read(example) if samples]


def keep_fitting(
    where: str,
    data: Data,
    read: Callable[[Example], list[list[Sample]]],
    longest: int,
    tokenizer: str,
    counted: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Data, PromptAccount]:
    """The answers that fit under the prompts of a stage of its own, held-out ones too, and what became of all.

    Raises RunFailed where none is left to be trained, or to be held out.
    """
    account, total = PromptAccount(), len(data.train) + len(data.held_out)

    def fits(example: Example) -> bool:
        counted(account.seen, total)
        (answer,), (samples,) = example.answers, read(example)
        sampled = answer.samples[0].sampled[0][0] if example.tokenizer == tokenizer and answer.samples else None
        return account.add(samples, longest, sampled)

    fitting = replace(data, train=data.train.where(fits), held_out=data.held_out.where(fits))
    if not fitting.train or (data.held_out and not fitting.held_out):
        kind = "held-out answer" if fitting.train else "answer"
        raise RunFailed(f"{where}: no {kind} fits under the prompts of this stage: {account.describe()}")
    return fitting, account


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one step trains on, and what is worth a place in its row."""

    samples: list[Sample]
    samples_per_unit: int = 1  # so many consecutive samples stay in one row of the batch: 2 for pairs
    metrics: Mapping[str, float] = field(default_factory=dict)


async def train_steps(
    run: Run,
    stage: StageConfig,
    prepare: Callable[[int], Prepared],
    held_out: Callable[[], Awaitable[dict[str, float]]] | None = None,
) -> None:
    """`stage.steps` updates. The next batch is planned while this one trains.

    prepare: the samples of a stage's step, counted from 0; called in a thread. held_out: measured every `eval.every`
    steps and after the last one.
    """
    clock = Clock(run.phases)
    state, every = run.state, stage.config.eval.every

    def plan_step(stage_step: int) -> tuple[Prepared, BatchPlan]:
        prepared = prepare(min(stage_step, stage.steps - 1))
        length, per_unit = require_resolved(stage.config.learner.tokens_per_row), prepared.samples_per_unit
        return prepared, plan_samples(prepared.samples, length, state.version, samples_per_unit=per_unit)

    def start(stage_step: int) -> asyncio.Task[tuple[Prepared, BatchPlan]]:
        return asyncio.create_task(asyncio.to_thread(plan_step, stage_step))

    if state.stage_step >= stage.steps:
        return
    following = start(state.stage_step)
    while state.stage_step < stage.steps:
        with clock.phase("wait_data"):
            prepared, plan = await run.tasks.until(asyncio.shield(following))
        following = start(state.stage_step + 1)
        with clock.phase("build"):
            await run.tasks.complete(run.learner.build(plan))
        with clock.phase("update"):
            report = await update(run, plan)
        trained = plan.num_loss_tokens if report.applied else 0
        run.count_step(trained)
        metrics = {**values(report.metrics), **prepared.metrics}
        if held_out is not None and (state.stage_step % every == 0 or state.stage_step == stage.steps):
            with clock.phase("held_out"):
                metrics |= await run.tasks.complete(held_out())
        row = StepRow(
            stage=stage.name,
            step=state.step,
            stage_step=state.stage_step,
            trained=trained,
            packed=plan.num_tokens,
            time=clock.close(),
            metrics=metrics,
        )
        run.log_step_metrics(row, stage.steps)
        if checkpoint_is_due(run, stage):
            with clock.phase("checkpoint"):
                await run.tasks.complete(checkpoint(run, stage))
        run.tasks.check_stop()
    following.cancel()


def samples_of(
    example: Example, renderer: ChatRenderer, tokenizer: str, stop: Sequence[str], offer: ToolOffer | None = None
) -> list[list[Sample]]:
    """The training samples of each answer. offer: the tools of this environment, which stand in the prompt.

    tokenizer: this policy's (`trajectories.tokenizer_id`). stop: the strings that end a message of the
    policy in this environment; an answer from elsewhere that ends in none of them is ended as the model ends a message.
    """
    samples: list[list[Sample]] = []
    for answer in example.answers:
        if answer.samples and example.tokenizer == tokenizer:
            token_samples = answer.samples
            if example.replaced:
                token_samples = with_prompt(token_samples, renderer.prompt_ids(example.prompt, offer))
            samples.append([make_sample(tokens.token_ids, _mask(tokens)) for tokens in token_samples])
        else:
            if len(answer.samples) > 1:  # two conversations are no one text
                expected = "this policy's tokenizer, or a file without the line"
                raise BadInput("an answer in several samples of another tokenizer", key="samples", expected=expected)
            messages = (*example.prompt, *answer.messages)
            ids, mask = renderer.demonstration(
                messages, len(example.prompt), stop, truncated=answer.truncated, offer=offer
            )
            samples.append([make_sample(ids, mask)])
    return samples


def find_chat_mark(example: Example, marks: Sequence[str], tokenizer: str) -> str:
    """A chat mark of the tokenizer in what becomes tokens here, of the prompt and of what the assistant says; "" for
    none."""
    spelled = [answer for answer in example.answers if not answer.samples or example.tokenizer != tokenizer]
    texts = [message.content for answer in spelled for message in answer.messages if message.role == "assistant"]
    texts += [message.content for message in example.prompt if spelled]
    return next((mark for mark in marks for text in texts if mark in text), "")


def make_sample(ids: Sequence[int], mask: Sequence[int] | Bools) -> Sample:
    """A sample that no known weights have sampled."""
    zeros = np.zeros(len(ids), np.float32)
    return Sample(
        token_ids=np.asarray(ids, np.int32),
        loss_mask=np.asarray(mask, np.bool_),
        behavior_logprobs=zeros,
        advantages=zeros,
        versions=np.full(len(ids), -1, np.int32),
    )


def _mask(tokens: Tokens) -> Bools:
    mask = np.zeros(len(tokens.token_ids), np.bool_)
    for start, end in tokens.sampled:
        mask[start:end] = True
    return mask


# -- what the weights are worth ---------------------------------------------------------------------------------------


async def answer_loss(learner: LearnerGroup, samples: Sequence[Sample]) -> dict[str, float]:
    """{"eval/loss": mean of -log p over the answers' own tokens}."""
    sums = await answer_logprobs(learner, samples)
    return {"eval/loss": -math.fsum(sums) / sum(sample.num_loss_tokens for sample in samples)}


async def answer_logprobs(learner: LearnerGroup, samples: Sequence[Sample]) -> list[float]:
    """log p of each sample's own tokens, summed."""
    scores = await learner.logprobs([sample.token_ids.tolist() for sample in samples])
    return [math.fsum(np.asarray(scored)[sample.loss_mask[1:]]) for sample, scored in zip(samples, scores, strict=True)]


async def measure_before(run: Run, stage: StageConfig) -> None:
    """The weights that a stage begins with on held-out tasks, where the run has engines for it."""
    if needs_engines(run.config, stage) and needs_evaluation_before(run, stage):
        await first_delivery(run)
        await evaluate_before(run, stage)


async def measure_after(run: Run, stage: StageConfig) -> None:
    """The same of the weights that it ends with."""
    if run.state.version:
        run.state.version += 1  # engines have held other weights under the last number
    if needs_engines(run.config, stage):
        await first_delivery(run)
        await evaluate_after(run, stage)
