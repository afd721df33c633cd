"""Steps that others have published with everything that a plan needs, and what the planner says of them.

Each has its model, cards, division, batch, mean length and limit from public pages, so that nothing is guessed. Left
out, because a page lacks one of these: SkyRL's Qwen3-1.7B on 4+4 H100 (github.com/NovaSky-AI/SkyRL/pull/2244: no length
of an answer), marin's Qwen3-0.6B on 8+8 H100 (github.com/marin-community/marin/issues/8955: no limit, no prompts), and
Qwen3-32B on 64 and Llama 3.3 70B on 128 H100 of the page of 2025-08-20 (no division of their engines).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launch.checks.gpu_memory import BYTES, ModelShape, shape_of
from launch.checks.known_models import KNOWN
from launch.tools.plan.answers import DRAWN, Answers, draw_lengths, group_lengths
from launch.tools.plan.forecast import forecast
from launch.tools.plan.rates import Rates, delivery_s, engine_step, learner_token_s, rates_of
from launch.tools.plan.simulate import Setting
from launch.tools.plan.speed import Speed, forward_token_flops
from rlsys.system.datasheets import find_card

TRAINING = 3  # passes: forward, and backward for two
SEATS = 256  # sequences of an engine, vLLM's default at the time: a step gives none of these engines more at a time
PARTS = ("generation", "training", "log-probabilities", "delivery")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStep:
    name: str
    system: str
    model: str  # of the table of known models, bfloat16
    card: str
    ranks: int  # cards that train
    engines: int
    ways: int = 1  # cards of an engine
    in_turn: bool  # the same cards generate and train; else each side has its own, and generates one step ahead
    prompts: int  # of a step
    samples: int  # of a prompt
    answer_tokens: int  # sampled, on average
    prompt_tokens: int | None  # on average; None where it is not published, and counted as none
    max_tokens: int  # of prompt and answer
    row_tokens: int  # of a packed row
    checkpointing: bool  # the forward pass is computed again in the backward pass
    scored: int  # passes for log-probabilities: of the policy, and of the reference
    seconds: float  # of a step
    parts: Mapping[str, float] = field(default_factory=dict)  # of PARTS, in seconds, where they are published
    source: str  # a public page, with its date
    setting: str  # the public page of its configuration

    @property
    def shape(self) -> ModelShape:
        shape = shape_of(KNOWN[self.model])
        assert shape is not None
        return shape

    @property
    def answers(self) -> int:
        return self.prompts * self.samples

    @property
    def rates(self) -> Rates:
        return rates_of(find_card(self.card))


_NEMO = "https://github.com/NVIDIA-NeMo/RL/blob"
_BLOG = (
    "https://developer.nvidia.com/blog/reinforcement-learning-with-nvidia-nemo-rl-megatron-core-support-for-optimized-"
    "training-throughput (2025-08-20, v0.3)"
)
_V04 = f"{_NEMO}/cff17f83b/docs/about/performance-summary.md (2025-12-01, v0.4)"
_V05 = f"{_NEMO}/v0.5.0/docs/about/performance-summary.md (2026-01-20, v0.5)"
_RECIPES = "examples/configs/recipes/llm/performance"


# 64 prompts x 32 answers of OpenMathInstruct-2 in 4,096 tokens. Prompt tokens: from the tokens/s of the same page, or
# of the next one where a page has none.
_EIGHT = PublishedStep(
    name="8B, 16 cards in turn", system="NeMo RL 0.4", model="meta-llama/Llama-3.1-8B", card="H100", ranks=16,
    engines=16, in_turn=True, prompts=64, samples=32, answer_tokens=1060, prompt_tokens=132, max_tokens=4096,
    row_tokens=4096, checkpointing=True, scored=2, seconds=97.7, source=_V04,
    setting=f"{_NEMO}/v0.4.0/{_RECIPES}/grpo-llama3.1-8b-instruct-2n8g.yaml",
)  # fmt: skip
_AHEAD = replace(
    _EIGHT, name="8B, 8+8 cards, one step ahead", ranks=8, engines=8, in_turn=False, answer_tokens=1129,
    prompt_tokens=130, seconds=74.6,
    setting=f"{_NEMO}/v0.4.0/{_RECIPES}/grpo-llama3.1-8b-instruct-2n8g-async-1off.yaml",
)  # fmt: skip
_MEGATRON = replace(
    _EIGHT, name="8B, 8 cards in turn, Megatron", system="NeMo RL 0.3", ranks=8, engines=8, answer_tokens=795,
    checkpointing=False, seconds=112.0, parts=dict(zip(PARTS, (58.0, 28.0, 18.0, 5.0), strict=True)), source=_BLOG,
    setting=f"{_NEMO}/v0.3.0/examples/configs/grpo_math_8B_megatron.yaml",
)  # fmt: skip
_THIRTY_TWO = replace(
    _EIGHT, name="32B, 32 cards in turn", system="NeMo RL 0.5", model="Qwen/Qwen3-32B", ranks=32, engines=8, ways=4,
    answer_tokens=3251, prompt_tokens=104, checkpointing=False, seconds=376.0, source=_V05,
    setting=f"{_NEMO}/v0.5.0/{_RECIPES}/grpo-qwen3-32b-4n8g.yaml",
)  # fmt: skip
FIVE: Sequence[PublishedStep] = (
    _EIGHT,
    _AHEAD,
    _MEGATRON,
    replace(
        _MEGATRON, name="8B, 8 cards in turn, FSDP2", answer_tokens=777, seconds=122.0,
        parts=dict(zip(PARTS, (57.0, 38.0, 19.0, 4.0), strict=True)),
        setting=f"{_NEMO}/v0.3.0/examples/configs/grpo_math_8B.yaml",
    ),
    PublishedStep(
        name="1.5B, 8 cards in turn", system="rllm (verl)", model="Qwen/Qwen2.5-1.5B", card="A100-80G", ranks=8,
        engines=8, in_turn=True, prompts=128, samples=8, answer_tokens=5500, prompt_tokens=None, max_tokens=8192,
        row_tokens=32768, checkpointing=True, scored=2, seconds=394.0,
        source="https://github.com/rllm-org/rllm/issues/29 (2025-02-15); the length at the start of the 8k stage: "
        "https://long8v.github.io/PTIR/posts/225-deepscaler-surpassing-o1-preview-with-a-15b-model-by-scaling",
        setting="https://github.com/chrisliu298/deepscaler/blob/a64a52d/scripts/train/run_deepscaler_1.5b_8k.sh",
    ),
)  # fmt: skip
# Nothing is fitted to these: other releases and sizes of the same pages.
HELD_OUT: Sequence[PublishedStep] = (
    replace(
        _EIGHT, name="8B, 16 cards in turn, a release later", system="NeMo RL 0.5", answer_tokens=1019,
        prompt_tokens=127, seconds=92.8, source=_V05, setting=_EIGHT.setting.replace("v0.4.0", "v0.5.0"),
    ),
    replace(
        _AHEAD, name="8B, 8+8 cards, a release later", system="NeMo RL 0.5", answer_tokens=1123, prompt_tokens=131,
        seconds=64.8, source=_V05, setting=_AHEAD.setting.replace("v0.4.0", "v0.5.0"),
    ),
    _THIRTY_TWO,
    replace(
        _THIRTY_TWO, name="32B, 32+32 cards, one step ahead", in_turn=False, answer_tokens=3252, prompt_tokens=110,
        seconds=200.0, setting=f"{_NEMO}/v0.5.0/{_RECIPES}/grpo-qwen3-32b-8n8g-async-1off.yaml",
    ),
    replace(
        _MEGATRON, name="70B, 64 cards in turn", model="meta-llama/Llama-3.1-70B", ranks=64, engines=16, ways=4,
        answer_tokens=398, seconds=147.0, parts=dict(zip(PARTS, (84.0, 28.0, 18.0, 14.0), strict=True)),
        setting=f"{_NEMO}/v0.3.0/examples/configs/grpo_math_70B_megatron.yaml",
    ),
)  # fmt: skip
# What `rlsys plan` says of itself; tests/unit/launch/tools/plan/test_published.py computes it again.
CLOSE = 0.25
ACCURACY = "within 25% of 8 of 10 published steps (the others: -45% to -33%)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    seconds: float
    parts: Mapping[str, float]  # of PARTS, each as if it were alone


def plan_published(step: PublishedStep, rates: Rates | None = None) -> PlannedStep:
    """By the arithmetic of `rlsys plan`. rates: others than those of the card."""
    card, shape = find_card(step.card), step.shape
    rates = rates or step.rates
    prompt = step.prompt_tokens or 0
    lengths = draw_lengths(step.answer_tokens, step.max_tokens - prompt, DRAWN * step.samples)
    packed = float(step.answer_tokens + prompt)
    answers = Answers(groups=group_lengths(lengths, step.samples), packed=packed, said="", prefilled=float(prompt))
    passes = TRAINING + step.checkpointing + step.scored
    flops = passes * forward_token_flops(shape, answers.packed_context)
    token_s = learner_token_s(rates, shape, card, flops=flops, passes=passes, row_tokens=step.row_tokens) / step.ranks
    base_s, each_s = engine_step(rates, shape, card, "bfloat16", step.ways, answers.context)
    version = shape.parameters * BYTES["bfloat16"]
    export_s, load_s = delivery_s(rates, version, ranks=step.ranks, loaded=version / step.ways)
    speed = Speed(
        token_s=token_s, fixed_s=0.0, build_s=0.0, base_s=base_s, each_s=each_s, seats=SEATS, export_s=export_s,
        carry_s=0.0, load_s=load_s,
    )  # fmt: skip
    setting = Setting(
        groups_per_step=step.prompts, group_size=step.samples, max_policy_lag=0 if step.in_turn else 1,
        workers=step.engines, seats=SEATS, in_flight=2 * SEATS, base_s=base_s, each_s=each_s,
    )  # fmt: skip
    prediction = forecast(setting, speed, answers)
    update_s = prediction.update_s - export_s
    generation = prediction.wait_s - load_s if step.in_turn else prediction.busy_s
    parts = (generation, update_s * (passes - step.scored) / passes, update_s * step.scored / passes, export_s + load_s)
    return PlannedStep(seconds=prediction.seconds, parts=dict(zip(PARTS, parts, strict=True)))


def error_of(step: PublishedStep, rates: Rates | None = None) -> float:
    """-0.1 where a tenth less is planned than was published."""
    return plan_published(step, rates).seconds / step.seconds - 1


def with_bandwidth(rates: Rates, share: float) -> Rates:
    return replace(rates, of_bandwidth=replace(rates.of_bandwidth, value=share))


def fit_bandwidth(steps: Sequence[PublishedStep], shares: Sequence[float]) -> float:
    """Of these shares of the bandwidth the one with the least mean error."""

    def mean_error(share: float) -> float:
        return sum(abs(error_of(step, with_bandwidth(step.rates, share))) for step in steps)

    return min(shares, key=mean_error)


def describe_accuracy(errors: Sequence[float]) -> str:
    others = [error for error in errors if abs(error) > CLOSE]
    close = f"within {CLOSE:.0%} of {len(errors) - len(others)} of {len(errors)} published steps"
    if not others:
        return close
    return f"{close} (the others: {min(others):+.0%} to {max(others):+.0%})"
