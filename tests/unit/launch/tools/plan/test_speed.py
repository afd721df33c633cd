"""Times of cards that are not there: the arithmetic of docs/gpu.md, and what follows from more cards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.checks.gpu_memory import shape_of
from launch.checks.known_models import KNOWN
from launch.config.compose import compose
from launch.tools.plan.nodes import Nodes, parse_nodes
from launch.tools.plan.schedule import Source, Timed, best_splits, planned_recipe, same_kind, time_step
from launch.tools.plan.speed import token_flops
from launch.tools.plan.split import split_of, with_split
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput
from rlsys.system.datasheets import Card

SEVEN, SHORT, TWO = "gpu/qwen2.5-7b-16xa100", "gpu/qwen2.5-7b-16xa100-short", parse_nodes("2x8xA100-80G")


def source(nodes: Nodes, answer_tokens: int, name: str = "Qwen/Qwen2.5-7B") -> Source:
    return Source(shape=shape_of(KNOWN[name]), nodes=nodes, answer_tokens=answer_tokens)


def timed(config: RunConfig, at: Source, ranks: int, workers: int) -> Timed:
    divided = with_split(config, replace(split_of(config.recipe), ranks=ranks, workers=workers))
    recipe = planned_recipe(divided, at.nodes)
    assert recipe is not None
    return time_step(recipe, at)


@pytest.fixture(scope="module")
def seven() -> RunConfig:
    return compose(SEVEN, [])


@pytest.mark.parametrize(
    ("name", "tokens", "ranks", "workers", "learner", "engines"),
    [
        (SEVEN, 8192, 8, 8, 759, 839),
        (SEVEN, 8192, 10, 6, 608, 1118),
        (SHORT, 2048, 12, 4, 116, 131),
        (SHORT, 2048, 8, 8, 174, 66),
    ],
)
def test_the_7b_model_takes_what_the_page_says(
    name: str, tokens: int, ranks: int, workers: int, learner: float, engines: float
) -> None:
    timing = timed(compose(name, []), source(TWO, tokens), ranks, workers)
    assert timing.forecast.update_s - timing.speed.export_s == pytest.approx(learner, rel=0.01)
    assert timing.forecast.full_s == pytest.approx(engines, rel=0.02)
    assert timing.forecast.seconds >= max(timing.forecast.update_s, timing.forecast.full_s)


def test_an_offloaded_optimizer_is_passed_over_at_each_of_its_steps(seven: RunConfig) -> None:
    """28 bytes of each of 7.6 G parameters at 10 GB/s, by 10 ranks: 2.1 s."""
    offloaded = replace(seven.recipe, learner=replace(seven.recipe.learner, offload="optimizer"))

    def fixed_s(epochs: int, minibatches: int) -> float:
        terms = replace(offloaded.algorithm, epochs=epochs, minibatches=minibatches)
        recipe = replace(offloaded, algorithm=terms)
        stage = replace(seven.stages[0], config=recipe)
        rl_config = planned_recipe(replace(seven, recipe=recipe, stages=(stage,)), TWO)
        assert rl_config is not None
        return time_step(rl_config, source(TWO, 2048)).speed.fixed_s

    assert fixed_s(1, 1) == pytest.approx(2.13, rel=0.01)
    assert fixed_s(2, 4) == pytest.approx(8 * fixed_s(1, 1))


def test_a_token_of_the_7b_model_takes_63_gflop(seven: RunConfig) -> None:
    """3 x 2 x 7.07 G of matrices and head, 28 layers x 4 x 3,584 for each of 4,096 pairs; a forward pass more."""
    recipe, shape = planned_recipe(seven, TWO), shape_of(KNOWN["Qwen/Qwen2.5-7B"])
    assert recipe is not None and shape is not None
    assert token_flops(recipe, shape, 4096) == pytest.approx(63.1e9, rel=0.01)
    once = replace(recipe, model=replace(recipe.model, gradient_checkpointing=False))
    assert token_flops(once, shape, 4096) == pytest.approx(63.1e9 * 3 / 4, rel=0.01)
    compared = replace(recipe, algorithm=replace(recipe.algorithm, kl_coef=0.01))
    assert token_flops(compared, shape, 4096) == pytest.approx(63.1e9 * 5 / 4, rel=0.01)


def test_under_an_adapter_frozen_matrices_cost_three_passes_of_four(seven: RunConfig) -> None:
    """Their gradient is left out: 2 x 7.07 G. Rank 32 has 80.7 M parameters, trained in all passes."""
    recipe, shape = planned_recipe(seven, TWO), shape_of(KNOWN["Qwen/Qwen2.5-7B"])
    assert recipe is not None and shape is not None
    adapted = replace(recipe, model=replace(recipe.model, lora=replace(recipe.model.lora, rank=32)))
    whole, frozen = token_flops(recipe, shape, 8192), 2 * 7.07e9
    assert token_flops(adapted, shape, 8192) == pytest.approx(whole + 4 * 2 * 80.7e6 - frozen, rel=0.001)


def test_the_best_split_is_the_one_in_which_both_sides_wait_least() -> None:
    """Long answers take engines, short ones ranks."""
    for name, tokens, best in ((SEVEN, 14_336, "7+9"), (SHORT, 2048, "10+6")):
        smaller = compose(name, ["stages.rl.loop.groups_per_step=96"])
        ranking = best_splits(smaller, source(TWO, tokens), same_kind(smaller, TWO, 28))
        in_space = [candidate for candidate in ranking if candidate.split.placement == "split"]
        assert in_space[0].split.describe() == best
        seconds = [candidate.forecast.seconds for candidate in ranking]
        assert seconds == sorted(seconds)


def test_more_nodes_are_never_slower() -> None:
    seconds, smaller = [], compose(SEVEN, ["stages.rl.loop.groups_per_step=32"])
    for count in (2, 3, 5):
        nodes = replace(TWO, count=count, gpus=4)
        ranking = best_splits(smaller, source(nodes, 4096), same_kind(smaller, nodes, 28))
        seconds.append(ranking[0].forecast.seconds)
    assert seconds == sorted(seconds, reverse=True)


def test_a_slower_network_delays_what_is_carried_alone(seven: RunConfig) -> None:
    fast, slow = (timed(seven, replace(source(TWO, 8192), network=rate), 10, 6) for rate in (100.0, 10.0))
    assert slow.speed.carry_s == pytest.approx(10 * fast.speed.carry_s)
    assert fast.speed.carry_s == pytest.approx(15.2 * 8 / 100 / 0.98, rel=0.01)
    single_node = timed(seven, source(parse_nodes("1x8xA100-80G"), 8192), 5, 3)
    assert single_node.speed.carry_s == 0


def test_engines_are_faster_by_what_they_prefill_and_the_learner_is_not() -> None:
    """1,024 answers of 3,072 tokens on 4 engines: 786,432 tokens each, or 524,288 where 1,024 of them are the prompt.

    A sampled token has half of 3,072 before it, or 1,024 and half of 2,048; a packed one half of 3,072 in any case. A
    sequence adds 57,344 bytes of keys and values for each of those at 58% of 2,039 GB/s.
    """
    short = compose(SHORT, ["stages.rl.loop.groups_per_step=128", "stages.rl.loop.group_size=8"])
    sampled, prefilled = (timed(short, replace(source(TWO, 3072), prefill_tokens=count), 12, 4) for count in (0, 1024))
    assert (sampled.forecast.engine_tokens, prefilled.forecast.engine_tokens) == (786_432, 524_288)
    assert sampled.speed.each_s == pytest.approx(57_344 * 1536 / (0.58 * 2.039e12))
    assert prefilled.speed.each_s == pytest.approx(57_344 * 2048 / (0.58 * 2.039e12))
    assert prefilled.forecast.full_s < sampled.forecast.full_s
    assert prefilled.speed.token_s == sampled.speed.token_s and prefilled.forecast.packed == sampled.forecast.packed


def test_an_optimizer_in_host_memory_takes_longer() -> None:
    config, nodes = compose("gpu/qwen2.5-32b-16xa100", []), TWO
    timing = timed(config, source(nodes, 8192, "Qwen/Qwen2.5-32B"), 8, 2)
    assert timing.speed.fixed_s == pytest.approx(28 * 32.76e9 / 8 / 1e10, rel=0.01)
    assert timing.forecast.seconds == pytest.approx(2010, rel=0.02)  # docs/gpu.md


def test_of_a_card_without_a_data_sheet_and_of_cpus_no_time_is_known(seven: RunConfig) -> None:
    bare = replace(TWO, card=Card(name="new", memory_gb=80, flops=None, bandwidth=None))
    for nodes in (bare, parse_nodes("1x2cpu-24G")):
        with pytest.raises(BadInput):
            timed(seven, source(nodes, 8192), 10, 6)


def test_an_adapter_is_what_is_written_carried_loaded_and_offloaded(seven: RunConfig) -> None:
    """Of rank 32: 80.7 M parameters, 161 MB a version, of which each of ten ranks writes a part."""
    keys = ["model.lora.rank=32", "learner.ranks=10", "rollout.workers=3", "engine.tensor_parallel=2"]
    config, version = compose(SEVEN, [*keys, "learner.offload=optimizer"]), 161.5e6
    recipe = planned_recipe(config, TWO)
    assert recipe is not None
    speed = time_step(recipe, source(TWO, 2048)).speed
    assert speed.export_s == pytest.approx(version / 10 / 0.7e9, rel=0.01)
    assert speed.carry_s == pytest.approx(version * 8 / 100e9 / 0.98, rel=0.01)
    assert speed.load_s == pytest.approx(version / 4e9 + 0.43, rel=0.01)  # whole, by both processes of an engine
    assert speed.fixed_s == pytest.approx(28 * version / 2 / 10 / 1e10, rel=0.01)
    whole = planned_recipe(compose(SEVEN, keys[1:]), TWO)
    assert whole is not None
    assert speed.base_s == time_step(whole, source(TWO, 2048)).speed.base_s  # an engine still reads the whole model
