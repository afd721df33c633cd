"""How fast the parts of a run are: by data sheets for GPUs that are not there, or as a finished run has measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.checks.gpu_memory import BYTES, ModelShape, adapter_parameters, engine_memory, moved_bytes
from launch.checks.gpu_plan import engine_plan, rank_plan
from launch.tools.plan.answers import Answers
from launch.tools.plan.nodes import Nodes
from launch.tools.plan.rates import (
    MEASURED,
    RATES,
    data_sheet,
    delivery_s,
    engine_step,
    learner_token_s,
    rates_of,
    start_s,
)
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE, VALUES
from learners.flop_count import forward_flops, training_flops
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import require_resolved

# Besides launch/tools/plan/rates.py; docs/how-to/plan-a-run.md lists both.
OF_NETWORK = 0.98  # of its rate: headers take the rest
HOST = 1e10  # bytes/s of a rank's optimizer in host memory
LINK = 2e10  # bytes/s between a card and pinned host memory: assumed, two thirds of PCIe 4's 16 lanes
OFFLOADED = 28  # bytes that a step of AdamW reads and writes for a parameter: gradient, master, two moments
USUAL_NETWORK = 100.0  # Gbit/s, where there are several nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of one division of given machines."""

    token_s: float  # the learner's seconds for a packed token, all ranks together
    fixed_s: float  # of each update
    build_s: float  # for a group
    base_s: float  # of an engine's step, which makes a token of each of its sequences
    each_s: float  # that a sequence adds to it
    seats: int  # sequences in an engine: engine.max_num_seqs, or what its cache holds
    export_s: float  # of a version: the learner waits
    carry_s: float  # to the other nodes
    load_s: float  # that engine waits
    cores: float | None = None  # that all parts share
    engine_cores: float = 1.0
    learner_cores: float = 1.0
    token_flops: float | None = None  # of a packed token; None where it was measured
    start_s: float | None = None  # of an engine, once; None where it was not measured
    change_s: float | None = None  # in which a card goes from one side to the other; None: each side has its own

    def engine_rate(self, sequences: float) -> float:
        """Tokens/s of one engine with so many sequences."""
        return sequences / (self.base_s + self.each_s * sequences)


def estimate(
    recipe: RecipeConfig, shape: ModelShape, dtype: str, nodes: Nodes, answers: Answers, network: float | None
) -> Speed:
    """From the cards' data sheets: nothing is measured. recipe: of an rl or stepwise stage, resolved. network: Gbit/s.

    Raises BadInput for a card without them.
    """
    card, learner, ways = nodes.card, recipe.learner, recipe.engine.tensor_parallel
    data_sheet(card, nodes.describe())
    assert card is not None
    trained = adapter_parameters(shape, recipe.model.lora.targets, recipe.model.lora.rank) or shape.parameters
    version = trained * BYTES[dtype]  # what is written, carried and loaded
    # Each process of a divided engine reads an adapter whole, and of a model its own part.
    loaded = version / ways if trained == shape.parameters else version
    limits = engine_plan(recipe, dtype, card.memory_gb)
    rates = rates_of(card)
    base_s, each_s = engine_step(rates, shape, card, dtype, ways, answers.context)
    export_s, load_s = delivery_s(rates, version, ranks=learner.ranks, loaded=loaded)
    flops = token_flops(recipe, shape, answers.packed_context)
    row_tokens = max(float(require_resolved(learner.tokens_per_row)), answers.packed) / learner.sequence_parallel
    token_s = learner_token_s(rates, shape, card, flops=flops, passes=passes_of(recipe), row_tokens=row_tokens)
    algorithm = make_algorithm(recipe.algorithm)
    steps = algorithm.epochs * algorithm.minibatches  # of the optimizer
    offloaded = 0.0 if learner.offload == "none" else steps * OFFLOADED * trained / learner.ranks / HOST
    cards = learner.ranks if recipe.cluster.placement == "sleep" else learner.ranks + recipe.rollout.workers * ways
    away = cards > nodes.gpus and nodes.count > 1
    return Speed(
        token_s=token_s / learner.ranks,
        fixed_s=offloaded,
        build_s=0.0,
        base_s=base_s,
        each_s=each_s,
        seats=max(1, min(limits.max_num_seqs, int(engine_memory(shape, limits).tokens / answers.context))),
        export_s=export_s,
        carry_s=version * 8 / ((network or USUAL_NETWORK) * 1e9 * OF_NETWORK) if away else 0.0,
        load_s=load_s,
        token_flops=flops,
        start_s=start_s(rates, shape),
        change_s=change_s(recipe, shape, dtype) if recipe.cluster.placement == "sleep" else None,
    )


def change_s(recipe: RecipeConfig, shape: ModelShape, dtype: str) -> float:
    """What one side takes to host memory and the other one brings from there, one after the other."""
    rank = moved_bytes(shape, rank_plan(shape, recipe, dtype, moved=True))
    return (rank + shape.parameters * BYTES[dtype]) / LINK


def forward_token_flops(shape: ModelShape, context: float, adapter: int = 0) -> float:
    """Of one pass over a packed token with `context` tokens before it. adapter: its parameters."""
    return forward_flops(
        matrices=shape.matrices + adapter,
        head=shape.vocab * shape.hidden,
        layers=shape.layers,
        width=shape.heads * shape.head_dim,
        tokens=1,
        loss_tokens=1,
        pairs=context,
    )


def token_flops(recipe: RecipeConfig, shape: ModelShape, context: float) -> float:
    """Of a packed token in an update, everything counted that is computed."""
    adapter = adapter_parameters(shape, recipe.model.lora.targets, recipe.model.lora.rank)
    forward = forward_token_flops(shape, context, adapter)
    frozen = 2.0 * (shape.matrices + shape.vocab * shape.hidden) if adapter else 0.0
    return passes_of(recipe) * forward - frozen * trainings_of(recipe)


def trainings_of(recipe: RecipeConfig) -> int:
    """How often a token is trained on in an update, by the policy or its critic."""
    algorithm = make_algorithm(recipe.algorithm)
    return (2 if VALUES in algorithm.needs else 1) * algorithm.epochs


def passes_of(recipe: RecipeConfig) -> float:
    """Over a packed row, in units of a forward pass: a backward pass is two, and computes the forward pass again under
    gradient checkpointing."""
    needs = make_algorithm(recipe.algorithm).needs
    training = training_flops(1.0, 0.0) + bool(require_resolved(recipe.model.gradient_checkpointing))
    return training * trainings_of(recipe) + (REFERENCE in needs) + (recipe.learner.behavior == "learner")


def assumptions(speed: Speed, network: float | None) -> Mapping[str, str]:
    """What an estimate takes for granted."""
    links = {"network": f"{network or USUAL_NETWORK:g} Gbit/s between nodes"} if speed.carry_s else {}
    rates = RATES[MEASURED]
    turns = {} if speed.change_s is None else {"turns": f"{LINK / 1e9:g} GB/s between a card and its host"}
    return {
        "update": f"a learner as profiled on one {MEASURED}, with a model of .42 B",
        "engine": f"{rates.of_bandwidth.value:.0%} of the memory's bandwidth and {rates.engine_step.value * 1e3:g} ms "
        "an engine's step",
        **links,
        **turns,
        "failures": "no failures, evaluations or checkpoints",
    }
