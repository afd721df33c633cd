"""ICRL in miniature, with examples that show no tool: `python benchmarks/icrl_cue.py [--seeds 5 6 7 8 9] [--runs DIR]`.

The run of `benchmarks/icrl.py` whose examples fade from three to none, but that they answer at once instead of
searching (`env.made_up_examples=answer`): after them, in the teaching too, three answers in ten search. If the search
stays when they go, as it does after examples that search, then examples are a cue at this size, and what they show is
not what is learnt. Runs that are done are not repeated. Writes the numbers into `docs/icrl_cue.json`, and prints them
with what became of the predictions.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import icrl
import study
from icrl import FADING, GREEDY, HALF, SAMPLED, STEPS
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction, spread

RESULTS = ROOT / "docs" / "icrl_cue.json"
SEARCHED = "searched"  # a share of the taught policy's answers after three examples

# Written before any of these runs. The second and third are those of examples that search, of `benchmarks/icrl.py`.
PREDICTIONS = (
    Prediction(
        "the taught policy searches in at least 0.15 of its sampled answers after three examples, which do not",
        lambda arms: arms["taught"][SEARCHED] >= 0.15,
    ),
    Prediction(
        "with 3, 2, 1 and no examples greedy exact match without examples is at least 0.8 at the end",
        lambda arms: arms[FADING]["end"][GREEDY] >= 0.8,
    ),
    Prediction(
        "half of the episodes without examples search after at most 36 steps, all steps counted",
        lambda arms: (arms[FADING][HALF] or STEPS) <= 36,
    ),
)


def play_seed(seed: int, runs: Path) -> Arms:
    folder = runs / f"{seed}-{FADING}"
    study.train("icrl/tiny", folder, [*icrl.changes(FADING, seed, runs), "env.made_up_examples=answer"])
    return {FADING: icrl.numbers(folder), "taught": icrl.gate(folder)}


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest."""
    report.head("examples that answer at once", SEARCHED, SAMPLED, GREEDY, HALF)
    taught = [arms["taught"][SEARCHED] for arms in by_seed.values()]
    before = [arms[FADING]["before"][SAMPLED] for arms in by_seed.values()]
    report.row("taught, three examples; none", spread(taught), spread(before), None, None)
    ends = [[arms[FADING]["end"][kind] for arms in by_seed.values()] for kind in (SAMPLED, GREEDY)]
    halves = ", ".join(str(arms[FADING][HALF] or "never") for arms in by_seed.values())
    report.row(f"3, 2, 1 and no examples, {STEPS} steps", None, *map(spread, ends), halves)
    shown = json.loads(icrl.RESULTS.read_text())["seeds"]
    pairs = {seed: (shown[str(seed)], arms) for seed, arms in by_seed.items() if str(seed) in shown}
    if pairs:
        report.head("difference over the seeds, at the end", SAMPLED, GREEDY)
        leads = (study.paired(pairs, partial(_lead, kind=kind)) for kind in (SAMPLED, GREEDY))
        report.row("examples that search - that answer", *leads)


def _lead(pair: tuple[Arms, Arms], kind: str) -> float:
    searching, answering = (arms[FADING]["end"][kind] for arms in pair)
    return float(searching - answering)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS, seeds=(5, 6, 7, 8, 9))
