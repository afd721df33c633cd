"""Long CoT in miniature where a second look helps: three rewards, as in figures 3 and 4.

    python benchmarks/long_cot_rechecks.py [--seeds 0 1 2 3] [--runs DIR]

In `benchmarks/long_cot.py` most rechecks doubt a line that is right. Here most of them set a mistake right: of the
demonstrations' slips two in three are noticed, and one right line in ten is doubted. One policy for each seed is taught
so, and PPO trains it for 40 steps with each of the three rewards. Runs that are done are not repeated. Writes
every seed's numbers into `docs/long_cot_rechecks.json`, prints them with what became of the predictions, and draws
`docs/long_cot_rechecks.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import long_cot
import study
from long_cot import FIRST, after, last
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction, paired

RESULTS = ROOT / "docs" / "long_cot_rechecks.json"
TEACHING = ["env.demo_error_rate=0.2", "env.demo_recheck_rate=0.4", "env.demo_doubt_rate=0.1"]
PPO = ["stages.rl.steps=40", "stages.rl.eval.every=10"]

# Written before any run of this study; the last two are the paper's order.
PREDICTIONS = (
    Prediction(
        "figure 3: with the classic reward, answers of the last 10 steps are longer than those of the first 10",
        lambda arms: last(arms["classic"], "tokens") > arms["classic"]["parts"][0]["tokens"],
        share=0.75,
    ),
    Prediction(
        "figure 3: with the classic reward, more of them are cut off than of the first 10",
        lambda arms: last(arms["classic"], "cut off") > arms["classic"]["parts"][0]["cut off"],
        share=0.75,
    ),
    Prediction(
        "figure 4: accuracy after 40 steps is at least as high with the cosine reward as with the classic one",
        lambda arms: after(arms["cosine"]) >= after(arms["classic"]),
        share=0.75,
    ),
    Prediction(
        "figure 4: it is at least as high with the penalty as without",
        lambda arms: after(arms[FIRST]) >= after(arms["cosine"]),
        share=0.75,
    ),
)


def play_seed(seed: int, runs: Path) -> Arms:
    return long_cot.play_rewards(seed, runs, [*TEACHING, *PPO])


def _less(arms: Arms, first: str, second: str) -> float:
    return after(arms[first]) - after(arms[second])


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    long_cot.tell_rewards(report, by_seed)
    report.head("difference over the seeds, after 40 steps", "with its 95 % interval")
    for first, second in (("cosine", "classic"), (FIRST, "cosine"), (FIRST, "classic")):
        difference = paired(by_seed, partial(_less, first=first, second=second))
        report.row(f"accuracy, {first} - {second}", difference)


def draw(by_seed: ArmsBySeed, path: Path) -> None:
    note = f"lines: means of {len(by_seed)} seeds; dots: each of them; held-out sums, sampled answers"
    with study.picture(path, "Long CoT in miniature, where rechecks help", note) as (cut, accuracy):
        long_cot.draw_rewards(cut, accuracy, by_seed)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(0, 1, 2, 3))
