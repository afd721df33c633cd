"""How fast the parts of a run are: by data sheets for GPUs that are not there, or as a finished run has measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.checks.gpu_memory import BYTES, ModelShape, adapter_parameters, engine_memory
from launch.checks.gpu_plan import engine_plan
from launch.tools.plan.answers import Answers
from launch.tools.plan.nodes import Nodes
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE, VALUES
from learners.flop_count import forward_flops, training_flops
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.system.device import require_resolved

# Assumed where nothing was measured; docs/how-to/plan-a-run.md lists them.
OF_PEAK = 0.45  # of a card's matrix products, what is computed again in the backward pass counted
OF_BANDWIDTH = 0.8  # of a card's memory, while an engine reads weights, keys and values
STEP_S = 0.003  # of an engine's step, in addition to reading
WRITES = 1.1e9  # bytes/s of a version, by one rank
LOADS = 4e9  # bytes/s from a node's memory to one card
OF_NETWORK = 0.98  # of its rate: headers take the rest
HOST = 1e10  # bytes/s of a rank's optimizer in host memory
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

    def engine_rate(self, sequences: float) -> float:
        """Tokens/s of one engine with so many sequences."""
        return sequences / (self.base_s + self.each_s * sequences)


def estimate(
    recipe: RecipeConfig, shape: ModelShape, dtype: str, nodes: Nodes, answers: Answers, network: float | None
) -> Speed:
    """From the cards' data sheets: nothing is measured. recipe: of an rl stage, resolved. network: Gbit/s.

    Raises BadInput for a card without them.
    """
    card = nodes.card
    if card is None or card.flops is None or card.bandwidth is None:
        raise BadInput("no data sheet of this card: memory is planned, time is not", where=nodes.describe())
    learner, ways = recipe.learner, recipe.engine.tensor_parallel
    copy, context = shape.parameters * BYTES[dtype], answers.packed
    trained = adapter_parameters(shape, recipe.model.lora.targets, recipe.model.lora.rank) or shape.parameters
    version = trained * BYTES[dtype]  # what is written, carried and loaded
    # Each process of a divided engine reads an adapter whole, and of a model its own part.
    loaded = version / ways if trained == shape.parameters else version
    flops = token_flops(recipe, shape, context)
    limits = engine_plan(recipe, dtype, card.memory_gb)
    _, cache = engine_memory(shape, limits)
    seats = max(1, min(limits.max_num_seqs, int(cache / (context / 2))))
    kv = 2 * shape.layers * max(1, shape.kv_heads // ways) * shape.head_dim * BYTES[dtype]
    rate = card.bandwidth * OF_BANDWIDTH
    algorithm = make_algorithm(recipe.algorithm)
    steps = algorithm.epochs * algorithm.minibatches  # of the optimizer
    offloaded = 0.0 if learner.offload == "none" else steps * OFFLOADED * trained / learner.ranks / HOST
    away = learner.ranks + recipe.rollout.workers * ways > nodes.gpus and nodes.count > 1
    return Speed(
        token_s=flops / (learner.ranks * card.flops * OF_PEAK),
        fixed_s=offloaded,
        build_s=0.0,
        base_s=copy / ways / rate + STEP_S,
        each_s=kv * context / 2 / rate,
        seats=seats,
        export_s=version / learner.ranks / WRITES,
        carry_s=version * 8 / ((network or USUAL_NETWORK) * 1e9 * OF_NETWORK) if away else 0.0,
        load_s=loaded / LOADS,
        token_flops=flops,
    )


def token_flops(recipe: RecipeConfig, shape: ModelShape, context: float) -> float:
    """Of a packed token in an update, everything counted that is computed."""
    attention = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    matrices, head = shape.layers * (attention + 3 * shape.hidden * shape.intermediate), shape.vocab * shape.hidden
    adapter = adapter_parameters(shape, recipe.model.lora.targets, recipe.model.lora.rank)
    forward = forward_flops(
        matrices=matrices + adapter,
        head=head,
        layers=shape.layers,
        width=shape.heads * shape.head_dim,
        tokens=1,
        loss_tokens=1,
        pairs=context / 2,
    )
    algorithm = make_algorithm(recipe.algorithm)
    trained = training_flops(forward, 2.0 * (matrices + head) if adapter else 0.0)
    recompute = forward if require_resolved(recipe.model.gradient_checkpointing) else 0.0
    models = 2 if VALUES in algorithm.needs else 1
    extra_passes = (REFERENCE in algorithm.needs) + (recipe.learner.behavior == "learner")
    return (trained + recompute) * models * algorithm.epochs + forward * extra_passes


def assumptions(speed: Speed, network: float | None) -> Mapping[str, str]:
    """What an estimate takes for granted."""
    links = {"network": f"{network or USUAL_NETWORK:g} Gbit/s between nodes"} if speed.carry_s else {}
    return {
        "update": f"{OF_PEAK:.0%} of the card's peak",
        "engine": f"{OF_BANDWIDTH:.0%} of its memory's bandwidth and {STEP_S * 1000:g} ms a step",
        **links,
        "failures": "no failures, evaluations or checkpoints",
    }
