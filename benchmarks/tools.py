"""A list of tools in miniature: `python benchmarks/tools.py [--seeds 1 2 3 4] [--runs DIR]`, two runs a seed.

`rlsys train worlds/tools` teaches a policy from nothing to call three tools in its chat template's own format, with
demonstrations of which three in five call a tool that does not fit, and then trains it by GRPO on the answers alone. In
the arm `mcp` (`worlds/tools_mcp`) an MCP server of the reference SDK answers for one of the tools. Held-out errands are
asked before and after the rl stage. Runs that are done are not repeated. Writes the numbers into
`docs/tool_calls.json`, draws `docs/tool_calls.svg`, prints them with the spread over seeds and what became of the
predictions; `--draw` takes what is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Prediction

from launch.tools.analysis.draw import COLOURS, GREY

RESULTS = ROOT / "docs" / "tool_calls.json"
ARMS = {"function": "worlds/tools", "mcp": "worlds/tools_mcp"}
TITLES = {"function": "price is a function", "mcp": "price is behind an MCP server"}
AWAY = 0.22  # of a kind's place, where before and after stand
KINDS = ("price", "made", "sum", "both")  # of errands: one tool each, and two calls in one message with a third after


def _accuracy(arms: study.Arms, arm: str, when: str, kind: str) -> float:
    return float(arms[arm][when][kind])


def _gain(arms: study.Arms, arm: str, kind: str) -> float:
    return _accuracy(arms, arm, "after", kind) - _accuracy(arms, arm, "before", kind)


# Written before any run of these recipes. Seeds 0 and 100 then chose their settings, and count for nothing.
PREDICTIONS = (
    Prediction(
        "accuracy of sampled answers rises by at least 0.3 in each of the three kinds that take one tool, in both arms",
        lambda arms: all(_gain(arms, arm, kind) >= 0.3 for arm in ARMS for kind in KINDS[:3]),
    ),
    Prediction(
        "accuracy of sampled answers to errands with two calls in one message rises by at least 0.2, in both arms",
        lambda arms: all(_gain(arms, arm, "both") >= 0.2 for arm in ARMS),
    ),
)


def numbers(folder: Path) -> dict[str, Any]:
    """Accuracy of sampled answers by kind, before and after the rl stage."""
    rows = {row["when"]: row for row in study.rows(folder, "evaluations") if row["stage"] == "rl"}
    return {
        when: {kind: rows[when][f"sampled/accuracy_by_level/{kind}"] for kind in KINDS} for when in ("before", "after")
    }


def play_seed(seed: int, runs: Path) -> study.Arms:
    arms: study.Arms = {}
    for arm, recipe in ARMS.items():
        folder = runs / f"{seed}-{arm}"
        study.train(recipe, folder, [f"seed={seed}", f"env.seed={seed}"])
        arms[arm] = numbers(folder)
    return arms


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    rows = {f"{arm}, {kind}": partial(_accuracy, arm=arm, kind=kind) for arm in ARMS for kind in KINDS}
    study.tell_gains(report, "held-out accuracy of sampled answers", by_seed, rows)


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    """Each kind of errand: a dot for each seed before and after the rl stage, and a line between the two."""
    note = f"{len(by_seed)} seeds, two dots and a line each; grey: before the rl stage, coloured: after it"
    with study.picture(path, "Held-out accuracy of sampled answers, by kind of errand", note, sharey=True) as grid:
        for axis, arm, colour in zip(grid, ARMS, COLOURS, strict=False):
            for place, kind in enumerate(KINDS):
                for arms in by_seed.values():
                    ends = [_accuracy(arms, arm, when, kind) for when in ("before", "after")]
                    axis.plot([place - AWAY, place + AWAY], ends, color=colour, linewidth=0.7, alpha=0.5)
                    axis.plot(place - AWAY, ends[0], "o", markersize=4, color=GREY, alpha=0.8)
                    axis.plot(place + AWAY, ends[1], "o", markersize=4, color=colour, alpha=0.8)
            axis.set(title=TITLES[arm], ylim=(0, 1.03), xlim=(-0.5, len(KINDS) - 0.5))
            axis.set_xticks(range(len(KINDS)), list(KINDS))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(1, 2, 3, 4))
