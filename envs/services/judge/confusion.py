"""How often a judge is wrong, on answers that people have labelled (as SWiRL, appendix D)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

ACCEPTING = ("GOOD", "YES", "correct")  # the verdicts that speak for what was judged
UNPARSABLE = "unparsable"


def wilson_interval(k: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of k of n: wilson_interval(4, 100) is (0.0157, 0.0984). (0, 1) for n = 0."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = (k + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    return (0.0 if k == 0 else max(0.0, centre - reach)), (1.0 if k == n else min(1.0, centre + reach))


def report(
    counts: Mapping[tuple[str, str], int], values: tuple[str, ...], *, reject_unparsable: bool
) -> dict[str, Any]:
    """`counts` by (label, verdict), a verdict being one of `values` or `unparsable`.

    Where the verdicts accept and reject, a false positive is an accepted answer with a rejecting label. `rate` is its
    share of all rejecting labels, `share_of_all` of all answers: the paper's "4 %" of 100 answers may be either. With
    `reject_unparsable` an answer without a verdict rejects; otherwise it is in no rate.
    """
    table = {label: {value: counts.get((label, value), 0) for value in (*values, UNPARSABLE)} for label in values}
    total = sum(counts.values())
    agreed = sum(count for (label, verdict), count in counts.items() if label == verdict)
    lost = sum(count for (_, verdict), count in counts.items() if verdict == UNPARSABLE)
    shown: dict[str, Any] = {
        "count": total,
        "table": table,
        "agreement": _rate(agreed, total),
        UNPARSABLE: _rate(lost, total),
    }
    if not set(values) & set(ACCEPTING):
        return shown
    decided: Counter[tuple[bool, bool]] = Counter()  # (label accepts, verdict accepts)
    for (label, verdict), count in counts.items():
        if verdict != UNPARSABLE or reject_unparsable:
            decided[label in ACCEPTING, verdict in ACCEPTING] += count
    for name, accepts in (("false_positive", True), ("false_negative", False)):
        wrong = decided[not accepts, accepts]
        shown[name] = _rate(wrong, wrong + decided[not accepts, not accepts])
        shown[name]["share_of_all"] = wrong / total if total else None
    return shown


def _rate(k: int, n: int) -> dict[str, Any]:
    low, high = wilson_interval(k, n)
    return {"count": k, "of": n, "rate": k / n if n else None, "interval_95": [low, high]}


def lines(shown: Mapping[str, Any]) -> list[str]:
    """The report as text: the table, labels down and verdicts across, then the rates."""
    table: Mapping[str, Mapping[str, int]] = shown["table"]
    columns = list(next(iter(table.values())))
    width = max(len(name) for name in (*table, *columns, "label")) + 2
    text = ["".join(f"{name:>{width}}" for name in ("label", *columns))]
    text += ["".join(f"{cell:>{width}}" for cell in (label, *row.values())) for label, row in table.items()]
    for name in ("agreement", "false_positive", "false_negative", UNPARSABLE):
        if name in shown:
            rate, (low, high) = shown[name], shown[name]["interval_95"]
            share = "-" if rate["rate"] is None else f"{rate['rate']:.1%}"
            between = f"95 %: {low:.1%} to {high:.1%}"
            text.append(f"{name.replace('_', ' '):<15} {share:>6}  {rate['count']} of {rate['of']}, {between}")
    return text
