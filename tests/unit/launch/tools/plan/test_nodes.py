"""--nodes, cards, and how GPUs are divided on equal nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.config.compose import compose
from launch.tools.plan.memory import pack
from launch.tools.plan.nodes import parse_nodes
from launch.tools.plan.split import Split, fits_nodes, most_engines, other_splits, with_split
from rlsys.errors import BadInput
from rlsys.system.datasheets import CARDS, card_of, find_card


def split(ranks: int, workers: int, ways: int = 1) -> Split:
    return Split(ranks=ranks, workers=workers, tensor_parallel=ways, zero_stage=2, offload="none")


def test_ranks_that_share_a_row_move_together() -> None:
    nodes = parse_nodes("1x8xA100-80G")
    splits = other_splits(nodes, replace(split(4, 4), sequence_parallel=2), 32)
    assert {candidate.ranks for candidate in splits} == {2, 4, 6} and all(s.sequence_parallel == 2 for s in splits)


@pytest.mark.parametrize("text", ["2x8xA100-80G", "1x4xL40S:256G", "1x2cpu-24G", "32x8xH100"])
def test_what_is_parsed_is_shown_in_the_same_words(text: str) -> None:
    assert parse_nodes(text).describe() == text


def test_sizes_are_bytes() -> None:
    assert parse_nodes("1x2cpu-24G").ram == 24e9
    nodes = parse_nodes("2x8xA100-80G:1000G")
    assert (nodes.all_gpus, nodes.ram, nodes.card) == (16, 1e12, CARDS["A100-80G"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "2x8",
        "0x8xH100",
        "2x0xH100",
        "2x8xP100",
        "2x8xA100",
        "1x2cpu",
        "2x8xA100-80",
        "9999999x8xH100",
        "1x2cpu-24.5.1G",
        "1x2cpu-.G",
        "1x2cpu-0G",
        "2x8xA100-80G:1.2.3G",
        f"1x2cpu-{'9' * 400}G",
        "4096x4096xH100",
        "1x65xH100",
        "4096x8xH100",
    ],
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_nodes(text)
    assert caught.value.key == "--nodes"


def test_cards_are_found_by_the_names_that_drivers_give() -> None:
    assert card_of("NVIDIA A100-SXM4-80GB", 85.1) is CARDS["A100-80G"]
    assert card_of("NVIDIA A100-SXM4-40GB", 42.3) is CARDS["A100-40G"]
    assert card_of("NVIDIA H100 80GB HBM3", 85.0) is CARDS["H100"]
    assert card_of("NVIDIA GeForce RTX 4090", 25.2) is CARDS["RTX-4090"]
    assert card_of("NVIDIA L40S", 47.7) is CARDS["L40S"]
    assert card_of("NVIDIA RTX A6000", 51.0) is CARDS["A6000"]
    assert card_of("Some card", 80.0).flops is None
    assert find_card("a100-80g") is CARDS["A100-80G"]


def test_a_card_of_another_form_has_its_own_figures() -> None:
    """PCIe and NVL are slower than the SXM module of the same name; an A100-40G is the same card in both."""
    assert card_of("NVIDIA A100-PCIE-40GB", 42.3) is CARDS["A100-40G"]
    assert card_of("NVIDIA A100 80GB PCIe", 85.9) is CARDS["A100-80G-PCIE"]
    assert card_of("NVIDIA H100 PCIe", 85.5) is find_card("h100-pcie")
    assert card_of("NVIDIA H100 NVL", 100.5) is CARDS["H100-NVL"]
    assert card_of("NVIDIA H200", 150.8) is CARDS["H200"] and card_of("NVIDIA H200 NVL", 150.8) is CARDS["H200-NVL"]
    assert card_of("NVIDIA H100 96GB HBM3", 100.5).flops is None  # of that size only the NVL is known


def test_an_engine_is_on_one_node() -> None:
    """Two nodes of 8: 12 ranks leave 4 on the second, 6 leave 2 and 8."""
    nodes = parse_nodes("2x8xA100-80G")
    assert [most_engines(nodes, ranks, 4) for ranks in (4, 6, 8, 12, 13, 16)] == [3, 2, 2, 1, 0, 0]
    assert most_engines(nodes, 6, 4, served=3) == 1
    assert fits_nodes(nodes, split(12, 1, 4)) and not fits_nodes(nodes, split(9, 2, 4))
    assert not fits_nodes(nodes, split(17, 0))


def test_a_process_is_on_one_node() -> None:
    """Three nodes of 10: 2 x 6 + 3 x 4 fill 10, 10 and 4 of them."""
    assert pack([(6.0, 2), (4.0, 3)], room=10.0, nodes=3)
    assert not pack([(6.0, 2), (4.0, 3)], room=10.0, nodes=2)
    assert not pack([(11.0, 1)], room=10.0, nodes=3) and not pack([(6.0, 4)], room=10.0, nodes=3)
    assert pack([(6.0, 1), (4.0, 1)], room=10.0, nodes=1) and pack([(1.0, 10**9)], room=1e9, nodes=1)


def test_all_other_splits_fit_and_take_every_gpu_that_an_engine_can_take() -> None:
    nodes = parse_nodes("2x4xA100-80G")
    splits = list(other_splits(nodes, split(4, 4), heads=28))
    assert all(fits_nodes(nodes, other) for other in splits)
    assert all(other.gpus == 8 for other in splits if other.tensor_parallel == 1)
    assert {other.tensor_parallel for other in splits} == {1, 2, 4}
    assert splits[0].overrides(split(4, 4)) == ["learner.ranks=1", "rollout.workers=7"]


def test_a_stage_keeps_its_own_zero_stage_where_no_key_turns_it() -> None:
    config = compose("gpu/qwen2.5-7b-16xa100", ["stages.rl.learner.zero_stage=3"])
    divided = with_split(config, split(4, 4)).stages[0].config
    assert (divided.learner.ranks, divided.rollout.workers, divided.learner.zero_stage) == (4, 4, 3)
    turned = with_split(config, replace(split(4, 4), zero_stage=3, offload="optimizer")).stages[0].config
    assert (turned.learner.zero_stage, turned.learner.offload) == (3, "optimizer")
