"""`rlsys analyse` on two seeds of a real run: its numbers are those of the run's own files."""

import csv
import json
from pathlib import Path

import pytest

from launch.tools.analysis.figures import FIGURES
from tests.e2e.runs import rlsys, rows, trajectories
from tests.makers.made import records

SMALL = ["stages.sft.steps=40", "stages.rl.steps=4", "eval.tasks=8", "eval.samples=1", "stages.rl.eval.every=2"]


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_curves_of_two_seeds_are_those_of_their_files(tmp_path: Path) -> None:
    runs = [tmp_path / "s0", tmp_path / "s1"]
    for seed, run in enumerate(runs):
        training = rlsys("train", "quickstart", f"seed={seed}", *SMALL, "--run-dir", str(run), "wandb.mode=disabled")
        assert training.code == 0, training.output[-3000:]
    folder = tmp_path / "out"
    result = rlsys("analyse", *map(str, runs), "--output", str(folder))
    assert result.code == 0, result.output[-3000:]
    rewards = [[row["reward/mean"] for row in rows(run) if row["stage"] == "rl"] for run in runs]
    curve = lines(folder / "reward.csv")
    assert [float(line["mean"]) for line in curve] == pytest.approx(
        [sum(values) / 2 for values in zip(*rewards, strict=True)]
    )
    assert {(line["label"], line["stage"], line["seeds"]) for line in curve} == {("quickstart", "rl", "2")}
    assert {"length", "valid", "finish", "accuracy", "results", "correlation"} <= {
        path.stem for path in folder.glob("*.png")
    }
    figures = {path.stem for path in folder.glob("*.json")}
    assert figures <= set(FIGURES) and all((folder / f"{name}.png").stat().st_size > 10_000 for name in figures)

    options = ["--figures", "coding,results", "--output", str(folder / "one"), "--by", "stage"]
    assert rlsys("analyse", str(runs[0]), *options).code == 0
    texts = json.loads((folder / "one" / "coding.json").read_text())["charts"][1]["curves"][0]["points"]
    counted = [trajectory["num_tokens"] for trajectory in trajectories(runs[0]) if trajectory["reward"] is not None]
    sizes = [len(file.read_text().splitlines()) for file in sorted((runs[0] / "trajectories").glob("step-*.jsonl"))]
    assert sum(point["mean"] * size for point, size in zip(texts, sizes, strict=True)) == pytest.approx(sum(counted))
    last = records(runs[0] / "evaluations.jsonl")[-1]
    (greedy,) = [line for line in lines(folder / "one" / "results.csv") if line["key"] == "greedy/accuracy"]
    assert float(greedy["value"]) == last["greedy/accuracy"]
