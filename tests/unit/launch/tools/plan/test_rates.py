"""Shares of a data sheet: each has its source, and the arithmetic gives back what they were measured by."""

from __future__ import annotations

from dataclasses import fields

import pytest

from launch.checks.gpu_memory import ModelShape, shape_of
from launch.checks.known_models import KNOWN
from launch.tools.plan.rates import (
    MEASURED,
    RATES,
    Rate,
    delivery_s,
    engine_step,
    learner_token_s,
    rates_of,
    start_s,
)
from launch.tools.plan.speed import forward_token_flops
from rlsys.errors import BadInput
from rlsys.system.datasheets import CARDS, Card, find_card

H100, RATE = find_card("H100"), RATES["H100"]
EIGHT = shape_of(KNOWN["meta-llama/Llama-3.1-8B"])
PROFILED = ModelShape(
    parameters=419_000_000, layers=28, hidden=1024, intermediate=3072, heads=16, kv_heads=8, head_dim=64, vocab=32768
)
TOKENS, ROWS = 33_209, 5
assert EIGHT is not None


def test_every_rate_has_a_unit_and_a_source() -> None:
    assert MEASURED in RATES and RATES.keys() <= CARDS.keys()
    for rates in RATES.values():
        for rate in (getattr(rates, field.name) for field in fields(rates)):
            assert isinstance(rate, Rate) and rate.value > 0 and rate.unit and len(rate.source) > 20, rate
        assert rates.of_peak.value < 1 and rates.of_bandwidth.value < 1


def test_the_update_that_was_profiled_takes_what_it_took() -> None:
    """1.05 s, limited by the host; its kernels alone .53 s: 33,209 tokens in five rows."""

    def seconds(row_tokens: float) -> float:
        flops = 3 * forward_token_flops(PROFILED, 2000)
        return TOKENS * learner_token_s(RATE, PROFILED, H100, flops=flops, passes=3, row_tokens=row_tokens)

    assert seconds(TOKENS / ROWS) == pytest.approx(1.05, rel=0.01)
    assert seconds(1e9) == pytest.approx(0.53, rel=0.1)  # no host


def test_a_larger_model_is_limited_by_its_card() -> None:
    """8B in rows of 4,096: 46 GFLOP a token at .77 of 989 T, and 3 x 449 x 32 x 4,096 bytes at 3,350 GB/s."""
    flops = 3 * forward_token_flops(EIGHT, 500)
    card_s = flops / (0.77 * 989e12) + 3 * 449 * 32 * 4096 / 3350e9
    assert flops == pytest.approx(46e9, rel=0.02)
    assert learner_token_s(RATE, EIGHT, H100, flops=flops, passes=3, row_tokens=4096) == pytest.approx(card_s)


def test_an_engine_reads_its_weights_and_what_its_sequences_keep() -> None:
    """8.03 G weights of 2 bytes, 131,072 bytes a token, at .58 of 3,350 GB/s, and 3 ms."""
    base_s, each_s = engine_step(RATE, EIGHT, H100, "bfloat16", 1, 1000)
    assert base_s == pytest.approx(16.06e9 / (0.58 * 3350e9) + 0.003, rel=0.001)
    assert each_s == pytest.approx(131_072 * 1000 / (0.58 * 3350e9))
    halved, of_each = engine_step(RATE, EIGHT, H100, "bfloat16", 2, 1000)
    assert halved - 0.003 == pytest.approx((base_s - 0.003) / 2) and of_each == pytest.approx(each_s / 2)


def test_a_delivery_and_a_start_are_those_that_were_timed() -> None:
    write_s, load_s = delivery_s(RATE, 270e6, ranks=1, loaded=0.0)
    assert write_s == pytest.approx(0.38, rel=0.02) and load_s == 0.43
    assert start_s(RATE, PROFILED) == pytest.approx(97, abs=0.5)


@pytest.mark.parametrize("slower", [name for name, card in CARDS.items() if (card.bandwidth or 0) < 3350e9])
def test_a_card_with_less_is_never_faster(slower: str) -> None:
    card = find_card(slower)
    flops = 4 * forward_token_flops(EIGHT, 500)
    fast, slow = (
        learner_token_s(rates_of(of), EIGHT, of, flops=flops, passes=4, row_tokens=16384) for of in (H100, card)
    )
    assert fast < slow
    engines = [engine_step(rates_of(of), EIGHT, of, "bfloat16", 1, 500) for of in (H100, card)]
    assert engines[0][0] < engines[1][0] and engines[0][1] < engines[1][1]


def test_a_card_without_a_data_sheet_has_no_times() -> None:
    bare = Card(name="new", memory_gb=80, flops=None, bandwidth=None)
    with pytest.raises(BadInput):
        learner_token_s(RATE, EIGHT, bare, flops=1e9, passes=3, row_tokens=4096)
    with pytest.raises(BadInput):
        engine_step(RATE, EIGHT, bare, "bfloat16", 1, 100)
