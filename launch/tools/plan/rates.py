"""What the parts of a run get of a card's data sheet, each rate with where it is known from, and the times that follow.

A card that nobody has measured gets the shares of the one that was: bandwidths and peaks differ by its own data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.checks.gpu_memory import BYTES, ModelShape, kv_bytes
from rlsys.errors import BadInput
from rlsys.system.datasheets import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of one card. A pass is one over a packed row: forward is one, backward two."""

    of_peak: Rate  # a learner, while it multiplies matrices
    channel: Rate  # what all its other kernels move: norms, rotary, products of gates, casts
    launch: Rate  # of its host, which starts every kernel
    of_bandwidth: Rate  # an engine, with what is between its kernels
    engine_step: Rate  # of an engine, in addition
    write: Rate  # of a version, by one rank
    load: Rate  # of a version, by one card
    proof: Rate  # of a delivery
    start: Rate  # of an engine, without a layer
    start_layer: Rate


_PROFILE = (
    "profile of one update on an H100 80GB (2026-11-27, commit 36ce6066): 33,209 tokens in 5 rows, 28 layers of 1,024, "
    "`benchmarks/learner.py --device cuda --dtype bfloat16 --hidden 1024 --layers 28 --vocab 32768 --row 8192`"
)
_STARTS = "two engines started on an H100 without a compile cache (2026-11-27): 64 s with 3 layers, 97 s with 28"
RATES: Mapping[str, Rates] = {
    "H100": Rates(
        of_peak=Rate(value=0.77, unit="of the peak", source=f"760 of 989 TFLOP/s: {_PROFILE}"),
        # (.53 s of all kernels - .147 s of products and attention) x 3.35e12 B/s / (33,209 x 28 x 1,024 x 3 passes)
        channel=Rate(value=449.0, unit="bytes a pass, token, layer and channel", source=_PROFILE),
        # 1.05 s, in half of which no kernel ran, / (5 rows x 28 layers x 3 passes)
        launch=Rate(value=2.5e-3, unit="seconds a pass, row and layer", source=_PROFILE),
        of_bandwidth=Rate(
            value=0.58, unit="of the bandwidth",
            source="fitted to FIVE of launch/tools/plan/published.py: `python benchmarks/plan.py --published`",
        ),
        engine_step=Rate(value=3e-3, unit="seconds", source="assumed: scheduling and sampling of one step of vLLM"),
        write=Rate(value=0.7e9, unit="bytes/s", source="270 MB in .38 s, beside an H100 (2026-11-27)"),
        load=Rate(value=4e9, unit="bytes/s", source="assumed: the usual rate from pageable memory, docs/gpu.md"),
        proof=Rate(value=0.43, unit="seconds", source="quickstart on an H100 (2026-11-27): pause .14, probe .29"),
        start=Rate(value=60.0, unit="seconds", source=_STARTS),
        start_layer=Rate(value=1.32, unit="seconds a layer", source=_STARTS),
    )
}  # fmt: skip
MEASURED = "H100"  # the card whose shares the others get


def rates_of(card: Card) -> Rates:
    return RATES.get(card.name, RATES[MEASURED])


def data_sheet(card: Card | None, where: str) -> tuple[float, float]:
    """(FLOP/s, bytes/s). Raises BadInput for a card without them."""
    if card is None or card.flops is None or card.bandwidth is None:
        raise BadInput("no data sheet of this card: memory is planned, time is not", where=where)
    return card.flops, card.bandwidth


def learner_token_s(
    rates: Rates, shape: ModelShape, card: Card, *, flops: float, passes: float, row_tokens: float
) -> float:
    """Seconds of one rank for a packed token of `flops`: those of its card or of its host, whichever is slower.

    row_tokens: that the host starts kernels for at a time.
    """
    peak, bandwidth = data_sheet(card, card.name)
    products = flops / (peak * rates.of_peak.value)
    others = rates.channel.value * passes * shape.layers * shape.hidden / bandwidth
    return max(products + others, rates.launch.value * passes * shape.layers / row_tokens)


def engine_step(
    rates: Rates, shape: ModelShape, card: Card, dtype: str, ways: int, context: float
) -> tuple[float, float]:
    """(seconds of a step of an engine on `ways` cards, seconds that a sequence with `context` tokens adds)."""
    _, bandwidth = data_sheet(card, card.name)
    read = bandwidth * rates.of_bandwidth.value
    step_s = shape.parameters * BYTES[dtype] / ways / read + rates.engine_step.value
    return step_s, kv_bytes(shape, dtype, ways) * context / read


def delivery_s(rates: Rates, version: float, *, ranks: int, loaded: float) -> tuple[float, float]:
    """(seconds in which the learner writes a version, seconds for which an engine loads and proves its part)."""
    return version / ranks / rates.write.value, loaded / rates.load.value + rates.proof.value


def start_s(rates: Rates, shape: ModelShape) -> float:
    """Of an engine, without a compile cache; all start at once."""
    return rates.start.value + rates.start_layer.value * shape.layers
