"""Studies: runs of `rlsys train` that are compared over seeds, and predictions that were written down before them.

A study has planned seeds, and its published numbers are of them alone: `--seeds` with others, drawn afterwards, asks
for a file of their own (`--results FILE`), in which their outcome of the predictions stands too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Report, parser

from launch.config.compose import compose
from launch.tools.report.over_seeds import average_changes
from rlsys.errors import BadInput
from rlsys.files import replace_file

ROOT = Path(__file__).resolve().parent.parent

TAUGHT = 200  # steps of the quickstart's first stage

Arms = dict[str, Any]  # the numbers of one seed's runs, by the name of the arm
ArmsBySeed = dict[int, Arms]  # by seed


@dataclass(frozen=True, slots=True)
class Prediction:
    """A sentence with numbers in it, written before the runs; `holds` says of one seed's arms whether it came true."""

    text: str
    holds: Callable[[Arms], bool]
    share: float = 0.8
    """Of the seeds in which it has to hold, for the claim to be shown."""


def main(
    description: str | None,
    results: Path,
    play_seed: Callable[[int, Path], Arms],
    tell: Callable[[Report, ArmsBySeed], None],
    *,
    draw: Callable[[ArmsBySeed, Path], None] | None = None,
    predictions: Sequence[Prediction] = (),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
) -> None:
    """The command of a study: plays the seeds, draws, prints what `tell` says and what became of the predictions."""
    options = add_options(parser(description), results, seeds).parse_args()
    try:
        planned = plan_of(options, results, seeds)
        by_seed = collect(options, play_seed, predictions, planned)
    except BadInput as error:
        sys.exit(f"error: {error}")
    if draw is not None:
        draw(by_seed, options.results.with_suffix(".svg"))
    with Report(options) as report:
        tell(report, by_seed)
        if predictions:
            tell_predictions(report, by_seed, predictions, planned)
        tell_minutes(report, options.results)


def plan_of(options: argparse.Namespace, published: Path, seeds: Sequence[int]) -> Sequence[int]:
    """Over which seeds predictions are counted: those of the study, and of a file that is not `published` those that
    are asked for. Raises BadInput for others in the published file, whose intervals they would move."""
    if options.results.resolve() != published.resolve():
        return [] if options.draw else list(options.seeds)  # what is drawn has run
    extra_seeds = sorted({*options.seeds} - {*seeds})
    if extra_seeds and not options.draw:
        extra, planned = (" ".join(map(str, numbers)) for numbers in (extra_seeds, seeds))
        why = f"no seeds of the study, whose published numbers are of {planned}"
        raise BadInput(why, key="--seeds", found=extra, expected="--results FILE with them, for a file of their own")
    return seeds


def add_options(parser: argparse.ArgumentParser, results: Path, seeds: Sequence[int]) -> argparse.ArgumentParser:
    """Those of a study whose numbers stand in `results`."""
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(seeds), metavar="N", help="which to run (default: %(default)s)"
    )
    folder = ROOT / "runs" / results.stem.replace("_", "-")
    parser.add_argument(
        "--runs", type=Path, default=folder, metavar="DIR", help="where the runs are; what is done is not repeated"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=results,
        metavar="FILE",
        help=f"where the numbers and, as .svg, the picture are written (default: {results.relative_to(ROOT)})",
    )
    parser.add_argument("--draw", action="store_true", help="train nothing, take what the results have")
    return parser


def collect(
    options: argparse.Namespace,
    play_seed: Callable[[int, Path], Arms],
    predictions: Sequence[Prediction] = (),
    planned: Sequence[int] = (),
) -> ArmsBySeed:
    """Plays the seeds asked for, and writes the results after each: a study that is interrupted loses no seed.

    Seeds that stand in the file by then are kept, also those of a study that ran at the same time. A seed's runs are
    the folders `SEED-ARM` of options.runs, whose minutes are written together (`minutes`) and by arm
    (`minutes_by_run`). Raises BadInput where the file has seeds and its predictions are not `predictions`: those were
    made before the runs. And where there is no seed at all. planned: the seeds of the whole study; a prediction counts
    those that are missing as seeds in which it did not come true.
    """
    results: Path = options.results
    by_seed, minutes, by_run = _read_results(results, predictions)
    for seed in [] if options.draw else options.seeds:
        arms = play_seed(seed, options.runs)
        seconds = _seconds(options.runs, seed)
        by_seed, minutes, by_run = _read_results(results, predictions)
        by_seed[seed] = arms
        minutes[seed] = round(sum(seconds.values()) / 60, 1)
        by_run[seed] = {name: round(run_s / 60, 1) for name, run_s in seconds.items()}
        by_seed = dict(sorted(by_seed.items()))
        record = {
            "format": 1,
            "predictions": [_outcome(prediction, by_seed, planned) for prediction in predictions],
            "minutes": {str(seed): minutes[seed] for seed in by_seed if seed in minutes},
            "minutes_by_run": {str(seed): by_run[seed] for seed in by_seed if seed in by_run},
            "seeds": {str(seed): arms for seed, arms in by_seed.items()},
        }
        replace_file(results, json.dumps(record, indent=1) + "\n")
    if not by_seed:
        raise BadInput("there are no seeds to draw", where=str(results))
    return by_seed


def _read_results(
    results: Path, predictions: Sequence[Prediction]
) -> tuple[ArmsBySeed, dict[int, float], dict[int, dict[str, float]]]:
    """The arms, the minutes, and the minutes of each run, by seed. Raises BadInput for other predictions."""
    record = json.loads(results.read_text()) if results.is_file() else {}
    by_seed, minutes, by_run = (
        {int(seed): value for seed, value in record.get(key, {}).items()}
        for key in ("seeds", "minutes", "minutes_by_run")
    )
    _check_unchanged(results, record.get("predictions", []), predictions, by_seed)
    return by_seed, minutes, by_run


def _seconds(runs: Path, seed: int) -> dict[str, float]:
    """Of each of its runs, by arm; what it costs on a machine that does nothing else, if it did nothing else."""
    folders = sorted(path for path in runs.glob(f"{seed}-*") if path.is_dir())
    summaries = {folder.name.removeprefix(f"{seed}-"): summary(folder) for folder in folders}
    return {name: float(run["wall_s"]) for name, run in summaries.items() if run is not None}


def _check_unchanged(
    results: Path, recorded: Sequence[dict[str, Any]], predictions: Sequence[Prediction], by_seed: ArmsBySeed
) -> None:
    """Neither a sentence nor what it asks of the numbers, in the seeds that have run."""
    if not by_seed:
        return
    by_text = {prediction.text: prediction for prediction in predictions}
    for entry in recorded:
        now = by_text.pop(entry["text"], None)
        if now is None or _held(now, {seed: by_seed[seed] for seed in entry["of"]}) != entry["held"]:
            raise BadInput("a prediction was changed after runs", where=str(results), expected=entry["text"])
    if by_text:
        raise BadInput(f"a prediction was added after runs: {next(iter(by_text))}", where=str(results))


def _held(prediction: Prediction, by_seed: ArmsBySeed) -> list[int]:
    return [seed for seed, arms in by_seed.items() if prediction.holds(arms)]


def _outcome(prediction: Prediction, by_seed: ArmsBySeed, planned: Sequence[int]) -> dict[str, Any]:
    seeds = _held(prediction, by_seed)
    min_seeds = math.ceil(prediction.share * len({*by_seed, *planned}) - 1e-9)
    return {
        "text": prediction.text,
        "held": seeds,
        "of": list(by_seed),
        "needed": min_seeds,
        "shown": len(seeds) >= min_seeds,
    }


def tell_predictions(
    report: Report, by_seed: ArmsBySeed, predictions: Sequence[Prediction], planned: Sequence[int] = ()
) -> None:
    """What was predicted, and in which seeds it came true."""
    report.head("predicted before the runs", "came true in", "shown")
    for prediction in predictions:
        outcome = _outcome(prediction, by_seed, planned)
        seeds = f"{len(outcome['held'])} of {len(by_seed)} seeds, {outcome['needed']} needed"
        report.row(prediction.text, seeds, "yes" if outcome["shown"] else "no")


def tell_minutes(report: Report, results: Path) -> None:
    """What the runs of each seed took, on the machine that they ran on; by run, where the file has that."""
    record = json.loads(results.read_text())
    if not record.get("minutes"):
        return
    report.head("seed", "minutes", "of them")
    for seed, minutes in record["minutes"].items():
        by_run = record.get("minutes_by_run", {}).get(seed, {})
        report.row(seed, minutes, ", ".join(f"{name} {run_minutes}" for name, run_minutes in by_run.items()) or None)


def train_from_taught(
    seed: int,
    runs: Path,
    arms: Mapping[str, Sequence[str]],
    changes: Sequence[str] = (),
    *,
    recipe: str = "quickstart",
    steps: int = TAUGHT,
    of_all: Sequence[str] = ("eval.tasks=200", "eval.samples=2", "eval.greedy=false"),
) -> Iterator[tuple[str, Path]]:
    """The recipe's stage `sft`, of so many steps, once, and from the weights that it leaves its stage `rl` for each of
    the arms, which are settings by name. `changes` go to the second stage of all, `of_all` to both stages."""
    base_changes = [f"seed={seed}", f"env.seed={seed}", *of_all]
    taught = runs / f"{seed}-taught"
    train(recipe, taught, [*base_changes, "stages.rl=null"])
    start = ["stages.sft=null", f"model.path={weights(taught, steps)}", *changes]
    for name, settings in arms.items():
        folder = runs / f"{seed}-{name.replace(' ', '-')}"
        train(recipe, folder, [*base_changes, *start, *settings])
        yield name, folder


def tell_gains(report: Report, title: str, by_seed: ArmsBySeed, rows: Mapping[str, Callable[..., float]]) -> None:
    """A table of numbers before and after: means over seeds with the smallest and the largest, and the mean of the
    differences with its interval. rows: how each is taken from a seed's arms, given `before` or `after`."""
    report.head(title, "before", "after", "difference")
    for name, take in rows.items():
        before, after = ({seed: take(arms, when=t) for seed, arms in by_seed.items()} for t in ("before", "after"))
        gain = paired({seed: {"gain": after[seed] - before[seed]} for seed in by_seed}, lambda arms: arms["gain"])
        report.row(name, spread([*before.values()]), spread([*after.values()]), gain)


def plot_seeds(axis: Any, at: Sequence[int], lines: Sequence[Sequence[float]], colour: str) -> None:
    """A thin line for each seed, and a thick one for their mean."""
    for line in lines:
        axis.plot(at, line[: len(at)], color=colour, linewidth=0.7, alpha=0.5)
    axis.plot(at, [statistics.mean(values) for values in zip(*lines, strict=False)], color=colour, linewidth=2)


def paired(by_seed: Mapping[int, Any], difference: Callable[[Any], float]) -> str:
    """The mean over seeds of what two arms of one seed differ by, with its 95 % t-interval: +0.31 [+0.22, +0.40]."""
    values = [difference(arms) for arms in by_seed.values()]
    if len(values) < 2:
        return f"{values[0]:+.2f}"
    mean = average_changes(values)
    return f"{mean.mean:+.2f} [{mean.low:+.2f}, {mean.high:+.2f}]"


@contextmanager
def picture(path: Path, title: str, note: str, columns: int = 2, **how: Any) -> Iterator[list[Any]]:
    """Pairs of axes in the look of `rlsys analyse`; then the file, the same one for the same numbers.

    how: of matplotlib's `subplots`. Whatever has a label stands in a legend below the axes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from launch.tools.analysis.draw import DARK, GREY, LOOK

    with rc_context(LOOK | {"svg.hashsalt": "rlsys", "svg.fonttype": "path"}):
        figure = Figure(figsize=(4 * columns, 3.3), layout="constrained")
        axes = figure.subplots(1, columns, **how)
        yield list(axes)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=DARK)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
        if (handles := axes[0].get_legend_handles_labels())[0]:
            figure.legend(*handles, loc="outside right center")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def train(config: str, folder: Path, changes: Sequence[str]) -> None:
    """Raises CalledProcessError where the run fails, BadInput where `folder` has a finished run of other settings."""
    if summary(folder) is not None:
        if compose(config, changes) != compose(str(folder / "config.yaml"), [], saved=True):
            raise BadInput("a finished run with other settings", where=str(folder), expected="another --runs DIR")
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "launch", "train", config, "--run-dir", str(folder), *changes]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


def summary(folder: Path) -> dict[str, Any] | None:
    """None of a run that is not done."""
    path = folder / "summary.json"
    if not path.is_file() or (record := json.loads(path.read_text()))["status"] != "done":
        return None
    return dict(record)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Of a run's `evaluations` or `metrics`."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def episodes(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Of the files of a run's `trajectories/` that are called so."""
    records = []
    for path in sorted((folder / "trajectories").glob(f"{pattern}.jsonl*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
            records += [json.loads(line) for line in lines]
    return records


def answers(folder: Path, pattern: str) -> list[str]:
    """The last messages of those episodes."""
    return [str(episode["messages"][-1]["content"]) for episode in episodes(folder, pattern)]


def weights(folder: Path, step: int) -> Path:
    """What a run left after that step, for another to begin with."""
    return folder / "checkpoints" / f"step-{step:06d}" / "hf"


def spread(values: Sequence[float]) -> str:
    """The mean, with the smallest and the largest."""
    if max(values) >= 10:
        return f"{statistics.mean(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
