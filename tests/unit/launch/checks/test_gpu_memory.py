"""Memory on GPUs, worked out by hand for Qwen2.5-7B and 32B: in GB per rank, one row of 17k tokens."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from launch.checks.gpu_memory import (
    GIGA,
    EnginePlan,
    ModelShape,
    RankPlan,
    adapter_parameters,
    engine_memory,
    host_memory,
    rank_memory,
    scoring_share,
    shape_of,
    total,
)

QWEN_7B = {
    "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
QWEN_32B = QWEN_7B | {
    "num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 40,
    "num_key_value_heads": 8,
}  # fmt: skip
PLAN = RankPlan(
    ranks=4, zero_stage=2, dtype="bfloat16", checkpointing=True, row_tokens=17_000, logit_chunk=1024, reference=False,
    critic=False, offload="none", offload_reference=False,
)  # fmt: skip


def shape(config: dict[str, Any]) -> ModelShape:
    model_shape = shape_of(config)
    assert model_shape is not None
    return model_shape


def gigabytes(config: dict[str, Any] = QWEN_7B, **changes: Any) -> dict[str, float]:
    parts = rank_memory(shape(config), replace(PLAN, **changes))
    return {label.split()[0]: size / GIGA for label, size in parts} | {"sum": total(parts) / GIGA}


def test_the_parameters_of_a_dense_decoder() -> None:
    assert shape(QWEN_7B).parameters == pytest.approx(7.615e9, rel=1e-3)  # 7,615,616,512 in its files, biases included
    assert shape(QWEN_32B).parameters == pytest.approx(32.76e9, rel=1e-3)
    assert shape_of(QWEN_7B, parameters=7_615_616_512) == replace(shape(QWEN_7B), parameters=7_615_616_512)
    tied = shape(QWEN_7B | {"tie_word_embeddings": True})
    assert shape(QWEN_7B).parameters - tied.parameters == 152064 * 3584
    assert shape_of({"n_embd": 768}) is None


@pytest.mark.parametrize(
    ("stage", "ranks", "weights", "gradients", "optimizer", "summed"),
    [
        (1, 4, 15.2, 45.7, 22.8, 96),
        (1, 8, 15.2, 45.7, 11.4, 84),
        (2, 4, 15.2, 7.6 + 7.6 + 3, 22.8, 68),
        (2, 8, 15.2, 3.8 + 3.8 + 3, 11.4, 49),
        (3, 4, 3.8 + 3, 7.6, 22.8, 50),
    ],
)
def test_a_rank_of_the_7b_model(
    stage: int, ranks: int, weights: float, gradients: float, optimizer: float, summed: float
) -> None:
    sizes = gigabytes(zero_stage=stage, ranks=ranks)
    assert sizes["weights"] == pytest.approx(weights, abs=0.2)
    assert sizes["gradients"] == pytest.approx(gradients, abs=0.2)
    assert sizes["optimizer"] == pytest.approx(optimizer, abs=0.1)
    assert sizes["activations"] == pytest.approx(12, abs=0.6)
    assert sizes["sum"] == pytest.approx(summed, abs=1.2)


def test_without_checkpointing_a_row_fits_no_card() -> None:
    more = gigabytes(checkpointing=False)["sum"] - gigabytes()["sum"]
    assert more == pytest.approx(116, rel=0.06)
    kept, computed = (
        gigabytes(QWEN_7B | {"num_hidden_layers": 1}, checkpointing=checkpointing) for checkpointing in (True, False)
    )
    assert (kept["sum"] - computed["sum"]) * GIGA == pytest.approx(17_000 * 3584 * 2)  # one layer has no other to keep


def test_the_32b_model_wants_two_nodes_of_ranks() -> None:
    eight, sixteen = (gigabytes(QWEN_32B, zero_stage=3, ranks=ranks) for ranks in (8, 16))
    assert eight["weights"] + eight["gradients"] + eight["optimizer"] == pytest.approx(8.2 + 3.6 + 16.4 + 49, abs=0.5)
    assert eight["sum"] > 80 > sixteen["sum"]


def test_a_reference_and_a_critic_are_models_too() -> None:
    plain = gigabytes()
    assert gigabytes(reference=True)["reference"] == pytest.approx(15.2, abs=0.1)
    assert gigabytes(reference=True)["sum"] > 80  # no room for one beside four ranks
    assert gigabytes(reference=True, offload_reference=True)["sum"] < 80
    assert gigabytes(reference=True, zero_stage=3)["reference"] == pytest.approx(3.8, abs=0.1)
    states = plain["weights"] + plain["gradients"] + plain["optimizer"]
    assert gigabytes(critic=True)["sum"] == pytest.approx(plain["sum"] + states)


def test_what_is_offloaded_is_not_on_the_card() -> None:
    assert gigabytes(offload="optimizer")["optimizer"] == 0
    everything = gigabytes(offload="all", zero_stage=3)
    assert everything["weights"] + everything["gradients"] < 7


def test_what_is_offloaded_is_in_the_nodes_ram() -> None:
    def of(config: dict[str, Any], ranks_of_a_node: int, **changes: Any) -> dict[str, float]:
        parts = host_memory(shape(config), replace(PLAN, zero_stage=3, **changes), ranks_of_a_node)
        return {label: size / GIGA for label, size in parts}

    # 16 x 32.76 G = 524 GB of masters, moments and gradients; 14 x 32.76 G = 459 GB of a checkpoint
    whole = of(QWEN_32B, 8, ranks=8, offload="optimizer")
    assert whole == {"offloaded": pytest.approx(524.2, rel=1e-3), "a checkpoint": pytest.approx(458.7, rel=1e-3)}
    assert of(QWEN_32B, 8, ranks=16, offload="optimizer")["offloaded"] == pytest.approx(262.1, rel=1e-3)  # two nodes
    assert of(QWEN_32B, 1, ranks=8, offload="all")["offloaded"] == pytest.approx(18 * 32.76 / 8, rel=1e-3)
    assert of(QWEN_7B, 4) == {"a checkpoint": pytest.approx(14 * 7.615, rel=1e-3)}
    assert of(QWEN_7B, 4, critic=True, offload="optimizer")["offloaded"] == pytest.approx(2 * 16 * 7.615, rel=1e-3)
    assert of(QWEN_7B, 4, reference=True, offload_reference=True)["reference"] == pytest.approx(15.2, abs=0.1)


def test_fp32_has_a_gradient_of_its_own_width_and_masters_below_zero_3() -> None:
    sizes = gigabytes(dtype="float32", zero_stage=1)
    assert (sizes["weights"], sizes["gradients"]) == (pytest.approx(30.5, abs=0.1), pytest.approx(30.5, abs=0.1))
    assert sizes["optimizer"] == pytest.approx(22.8, abs=0.1)
    assert gigabytes(dtype="float32", zero_stage=3)["optimizer"] == pytest.approx(15.2, abs=0.1)


def test_an_engine_has_what_its_weights_leave() -> None:
    plan = EnginePlan(
        tensor_parallel=1, dtype="bfloat16", max_num_seqs=128, max_model_len=16384, card=80 * GIGA, share=0.85
    )
    engine = engine_memory(shape(QWEN_7B), plan)
    assert total(engine.parts) == pytest.approx(68 * GIGA)
    assert engine.tokens == pytest.approx(engine.cache / (2 * 28 * 4 * 128 * 2))
    assert 800_000 < engine.tokens < 900_000
    assert engine_memory(shape(QWEN_32B), plan).tokens < 16384  # 65.5 GB of weights leave no room for one answer
    halved = engine_memory(shape(QWEN_32B), replace(plan, tensor_parallel=2))
    assert dict(halved.parts)["weights"] == pytest.approx(32.8e9, rel=0.01) and halved.tokens > 16384


def estimator(file: str, name: str) -> Callable[..., tuple[int, ...]]:
    """A function of DeepSpeed's that needs nothing else of it, without importing DeepSpeed, which takes seconds."""
    spec = find_spec("deepspeed")
    if spec is None or spec.origin is None:
        pytest.skip("no DeepSpeed here")
    tree = ast.parse((Path(spec.origin).parent / "runtime" / "zero" / file).read_text())
    (own,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(body=[own], type_ignores=[]), file, "exec"), names)  # noqa: S102 - of a pinned package
    return names[name]  # type: ignore[no-any-return]


@pytest.mark.parametrize("ranks", [2, 8])
def test_deepspeeds_own_estimates_are_within_what_is_planned(ranks: int) -> None:
    """ZeRO-3: its 18 bytes a parameter, where we add what is gathered at a time and it adds a layer.

    ZeRO-2: 2 + 18 / N, to which we add buckets and, for the copy that the step makes of fp32 gradients, 2 / N.
    """
    count = shape(QWEN_7B).parameters
    ends = 2 * 152064 * 3584 * 2 / GIGA
    two = estimator("stage_1_and_2.py", "estimate_zero2_model_states_mem_needs")
    three = estimator("stage3.py", "estimate_zero3_model_states_mem_needs")
    states = {}
    for stage in (2, 3):
        sizes = gigabytes(ranks=ranks, zero_stage=stage)
        states[stage] = sizes["weights"] + sizes["gradients"] + sizes["optimizer"]
    theirs = two(count, num_gpus_per_node=ranks, cpu_offload=False)[1] / GIGA
    buckets = 2 * 2e8 * 2 / GIGA + ends
    assert states[2] - theirs == pytest.approx(2 * count / ranks / GIGA + buckets)
    theirs = three(count, 0, num_gpus_per_node=ranks, cpu_offload=False, cpu_offload_params=False)[1] / GIGA
    assert states[3] - theirs == pytest.approx(1e9 * 2 / GIGA + ends / 2)


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_an_adapter_of_7b_leaves_most_of_a_card_free() -> None:
    """Rank 32 on all layers: 28 x 32 x (7168 + 2 x 4096 + 7168 + 3 x 22528) = 80.7 M, 161 MB in bfloat16. One rank: the
    weights once, 2 bytes of weights, 8 + 4 of gradients and buckets and 12 of optimizer a number of the adapter."""
    count = adapter_parameters(shape(QWEN_7B), LINEAR, 32)
    assert count == 28 * 32 * 90_112 == 80_740_352
    sizes = gigabytes(ranks=1, adapter=count)
    assert sizes["weights"] == pytest.approx(15.2, abs=0.05)
    assert sizes["adapter"] == pytest.approx(0.161, abs=0.001)
    assert sizes["gradients"] == pytest.approx((8 + 4) * count / GIGA, rel=1e-3)
    assert sizes["optimizer"] == pytest.approx(12 * count / GIGA, rel=1e-3)
    assert sizes["sum"] < gigabytes(ranks=1)["sum"] / 4
    host = dict(host_memory(shape(QWEN_7B), replace(PLAN, ranks=1, adapter=count), 1))
    assert host["a checkpoint"] == 16 * count
    assert adapter_parameters(shape(QWEN_7B), LINEAR, 0) == 0


@pytest.mark.parametrize(
    ("vocab", "chunk", "card", "share"),
    [
        (152_064, 2048, 80, 0.92),  # 3.1 GB of scores and 1.5 of CUDA's: of the 6.4 that are left
        (256_000, 2048, 80, 0.91),  # 5.2
        (152_064, 8192, 80, 0.82),  # 12.5
        (256_000, 8192, 80, 0.71),  # 21.0
        (256_000, 2048, 24, 0.71),
        (256_000, 8192, 22, 0.01),  # for nothing
    ],
)
def test_an_engine_that_scores_prompts_leaves_room_for_the_scores(
    vocab: int, chunk: int, card: int, share: float
) -> None:
    assert scoring_share(vocab, chunk, card * GIGA, 0.92) == share
    assert share == 0.01 or (1 - share) * card * GIGA >= 10 * vocab * chunk + 1.5 * GIGA
