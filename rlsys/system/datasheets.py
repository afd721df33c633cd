"""Cards that a plan can be made for: what their makers' data sheets say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlsys.errors import BadInput, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    name: str
    memory_gb: float  # 10^9 bytes, as it is sold
    flops: float | None  # dense bf16 FLOP/s of a matrix product, without sparsity; None where it is not known
    bandwidth: float | None  # bytes/s of its memory


def _card(name: str, memory_gb: float, teraflops: float, gigabytes_per_s: float) -> tuple[str, Card]:
    return name, Card(name=name, memory_gb=memory_gb, flops=teraflops * 1e12, bandwidth=gigabytes_per_s * 1e9)


# NVIDIA's data sheets; without PCIE or NVL a name is of the SXM module, where there is one (an A100-40G is both):
# A100 (2021), H100 (2023), H200 (2024), L40S (2023), L4 (2023), A10 (2021), RTX A6000 (2021); RTX 4090: the Ada
# architecture's white paper (FP32 accumulation).
CARDS: Mapping[str, Card] = dict(
    [
        _card("A100-40G", 40, 312, 1555),
        _card("A100-80G", 80, 312, 2039),
        _card("H100", 80, 989, 3350),
        _card("H200", 141, 989, 4800),
        _card("L40S", 48, 362, 864),
        _card("L4", 24, 121, 300),
        _card("A10", 24, 125, 600),
        _card("A6000", 48, 155, 768),
        _card("RTX-4090", 24, 165, 1008),
        _card("A100-80G-PCIE", 80, 312, 1935),
        _card("H100-PCIE", 80, 756, 2000),
        _card("H100-NVL", 94, 835, 3900),
        _card("H200-NVL", 141, 835, 4800),
    ]
)
ALIASES = {"H100-80G": "H100", "H200-141G": "H200", "L40S-48G": "L40S", "4090": "RTX-4090", "RTX4090": "RTX-4090",
           "A10-24G": "A10", "L4-24G": "L4"}  # fmt: skip
SIZES = {"40G", "80G"}  # in the names of cards; a driver gives them in other words


def find_card(name: str) -> Card:
    """Raises BadInput for one that no table has."""
    word = name.upper()
    card = CARDS.get(ALIASES.get(word, word))
    if card is None:
        hint = nearest(word, CARDS)
        ways = "A100-40G or A100-80G" if word == "A100" else f"one of {', '.join(CARDS)}{hint}"
        raise BadInput("a card without data", key="--nodes", found=name, expected=ways)
    return card


def card_of(device_name: str, memory_gb: float) -> Card:
    """Of a GPU by the name that its driver gives: "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"."""
    words = set(device_name.upper().replace("-", " ").split())
    near = [card for card in CARDS.values() if abs(card.memory_gb - memory_gb) <= 0.1 * card.memory_gb]
    named = [card for card in near if set(card.name.split("-")) - SIZES <= words]
    unknown = Card(name=device_name, memory_gb=memory_gb, flops=None, bandwidth=None)
    return max(named, key=lambda card: len(card.name), default=unknown)  # the longest has the form, too
