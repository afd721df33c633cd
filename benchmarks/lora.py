"""An adapter or all weights: `python benchmarks/lora.py [--seeds 0 1 2 3] [--runs DIR]`, the same accuracy or not.

For each seed the quickstart's first stage teaches all weights, and from what it leaves the second trains either all
weights or an adapter (`model.lora`), with the recipe's own learning rate and the defaults of an adapter. Compared are
held-out accuracy during the stage, and the bytes of a version of the weights and of a checkpoint. Runs that are done
are not repeated. Writes every run's numbers into `docs/lora.json` and draws `docs/lora.svg`; `--draw` takes what is
there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, spread

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "lora.json"
EVERY = 9  # steps, of 45
WHOLE, USUAL = "all weights", "rank 16"
RUNS = {WHOLE: [], USUAL: ["model.lora.rank=16"]}


def end(arms: study.Arms, name: str) -> float:
    return float(arms[name]["curve"][-1]["accuracy"])


PREDICTIONS = (
    study.Prediction(
        "at the end rank 16 is at most 0.05 below all weights in held-out accuracy of sampled answers",
        lambda arms: end(arms, USUAL) >= end(arms, WHOLE) - 0.05,
    ),
    study.Prediction(
        "rank 16 ends at 0.8 or more, and at least 0.25 above its beginning",
        lambda arms: end(arms, USUAL) >= max(0.8, arms[USUAL]["curve"][0]["accuracy"] + 0.25),
    ),
)


def measure(folder: Path) -> dict[str, Any]:
    """Held-out accuracy of sampled answers by step of the stage, bytes of a version and of the last checkpoint."""
    curve = [
        {"step": row["step"], "accuracy": row["sampled/accuracy"]}
        for row in study.rows(folder, "evaluations")
        if row["stage"] == "rl"
    ]
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    weights = [path.stat().st_size for path in (newest / "hf").glob("*.safetensors")]
    files = [path.stat().st_size for path in newest.rglob("*") if path.is_file() and "reference" not in path.parts]
    seconds = sum(row["time/step"] for row in study.rows(folder, "metrics") if row["stage"] == "rl")
    return {"curve": curve, "version": sum(weights), "checkpoint": sum(files), "seconds": round(seconds, 1)}


def play_seed(seed: int, runs: Path) -> study.Arms:
    changes = [f"eval.every={EVERY}", f"checkpoint.every={EVERY}"]
    return {name: measure(folder) for name, folder in study.train_from_taught(seed, runs, RUNS, changes)}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    report.head("trained", "accuracy before", "at the end", "bytes of a version", "of a checkpoint", "seconds")
    for name in RUNS:
        runs = [arms[name] for arms in by_seed.values()]
        accuracy = [spread([arm["curve"][index]["accuracy"] for arm in runs]) for index in (0, -1)]
        sizes = [spread([arm[key] for arm in runs]) for key in ("version", "checkpoint", "seconds")]
        report.row(name, *accuracy, *sizes)
    report.head("rank 16 to all weights, paired by seed", "accuracy at the end")
    report.row("difference", study.paired(by_seed, lambda arms: end(arms, USUAL) - end(arms, WHOLE)))


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    note = f"{len(by_seed)} seeds, a line each; left: by step of the rl stage; right: bytes of a version"
    with study.picture(path, "An adapter or all weights, held-out accuracy of sampled answers", note) as grid:
        for place, (name, colour) in enumerate(zip(RUNS, COLOURS, strict=False)):
            for index, arms in enumerate(by_seed.values()):
                curve = arms[name]["curve"]
                steps = [point["step"] - curve[0]["step"] for point in curve]
                grid[0].plot(steps, [point["accuracy"] for point in curve], color=colour, label=None if index else name)
            grid[1].barh(place, next(iter(by_seed.values()))[name]["version"] / 1e6, color=colour)
        grid[0].set(xlabel="step", ylim=(0, 1))
        grid[1].set(xlabel="MB", yticks=range(len(RUNS)), yticklabels=list(RUNS))
        grid[1].invert_yaxis()


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(0, 1, 2, 3))
