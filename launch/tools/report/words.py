"""Numbers as a page shows them: each is written in one way."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, TypeGuard

from rlsys.untrusted import visible

LARGEST = 2**53  # whole numbers up to here are exact in a browser


def mean(values: Iterable[float]) -> float | None:
    """Of the finite ones; None without one."""
    finite = [float(value) for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None


def total(values: Iterable[float]) -> float:
    """Of the finite ones."""
    return math.fsum(float(value) for value in values if math.isfinite(value))


def is_number(value: Any) -> TypeGuard[float]:
    """A finite one, that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def json_scalar(value: object) -> str | int | float | None:
    """What strict JSON, and a browser, have a number for; all else as text."""
    if value is None or (isinstance(value, int | float) and abs(value) <= LARGEST):
        return value
    return visible(str(value))


def number(value: float | None) -> str:
    """1234567 -> 1,234,567; 12.345 -> 12.3; 0.1 -> 0.1; 9.5e-06 -> 9.5e-06; None -> a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}"


def score(value: float) -> str:
    """An accuracy or a reward: 0.72. 193 of 200 is 0.97: a half goes away from 0, whatever the bits say."""
    return f"{_nudge_from_zero(value):.2f}"


def signed(value: float) -> str:
    """A difference of scores: +0.25."""
    return f"{_nudge_from_zero(value):+.2f}"


def _nudge_from_zero(value: float) -> float:
    """1e-9 is more than a float's error, and less than what a task of millions adds."""
    return value + math.copysign(1e-9, value) if value else value


def share(value: float | None) -> str:
    """0.738 -> 74 %. What is not quite nothing or all does not look so: 0.4 %, 99.7 %, > 99.9 %."""
    if value is None or not math.isfinite(value):
        return "–"
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    near_end = 0 < percent < 1 or 99 < percent < 100
    return f"{percent:.1f} %" if near_end else f"{_nudge_from_zero(percent):.0f} %"


def p_value(p: float) -> str:
    """p = 0.03, p = 6e-12, p < 1e-16: what is smaller is the tail of a formula and no probability."""
    if p < 1e-16:
        return "p < 1e-16"
    return f"p = {p:.2g}" if p >= 1e-3 else f"p = {p:.0e}".replace("e-0", "e-")


def round_count(value: float) -> int:
    """To two digits that count: 1632 -> 1600."""
    if value < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(round(value / unit) * unit)


def plural(count: float, name: str) -> str:
    """1 engine, 2 engines, 1,600 tasks."""
    return f"{count:,.0f} {name}" + ("" if count == 1 else "s")
