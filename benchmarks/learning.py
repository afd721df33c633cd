"""Every algorithm from one start, with every real part: `python benchmarks/learning.py [--seeds 0 1] [--runs DIR]`.

A supervised stage on the quickstart's tasks, half of its demonstrations wrong, is trained once. From its weights each
algorithm trains on the same tasks, on engines, learner and asynchronous loop as users have them. Runs that are done are
not repeated. Writes held-out accuracies and the reward of every step into `docs/learning.json`. Half an hour
on two cores; `--draw` prints what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import study
from omegaconf import OmegaConf
from report import Report
from study import ROOT

RESULTS = ROOT / "docs" / "learning.json"

CURVES = {"dpo": "dpo/accuracy"}  # of the others: the mean reward of a step's trajectories

RATE = {"lr": 2.0e-3, "schedule": "cosine", "warmup_steps": 20}
STEPS = 250
SUPERVISED = {"name": "sft", "kind": "sft", "steps": STEPS, "loop": {"groups_per_step": 64}, "learner": RATE}
START = {"env": {"demo_error_rate": 0.5}, "stages": [SUPERVISED]}
ONLINE = {"name": "rl", "kind": "rl", "steps": 25, "loop": {"groups_per_step": 32, "group_size": 8}}
PLAYED = {"name": "played", "kind": "generate", "generate": {"samples": 8, "temperature": 0.9, "tasks": 1024}}
PREFERRED = {"name": "dpo", "kind": "dpo", "steps": 40, "data": "played", "loop": {"groups_per_step": 16}}


def recipes() -> dict[str, dict[str, Any]]:
    """What differs from the quickstart: the stages, and the keys that hold for all of them."""
    rate = {"lr": 3.0e-4, "warmup_steps": 2}
    online = {"stages": [ONLINE], "learner": rate}
    return {
        "grpo": online | {"algorithm": {"name": "grpo"}},
        "rloo": online | {"algorithm": {"name": "rloo"}},
        "reinforce_pp": online | {"algorithm": {"name": "reinforce_pp"}},
        "ppo": online | {"algorithm": {"name": "ppo"}, "learner": rate | {"critic_lr": 1.0e-3}},
        "gspo": online | {"algorithm": {"name": "gspo"}},
        "dpo": {"stages": [PLAYED, PREFERRED], "learner": {"lr": 3.0e-5, "warmup_steps": 2}},
    }


def train(recipe: dict[str, Any], runs: Path, name: str) -> Path:
    """The folder of a run of the quickstart with what differs."""
    config = runs / f"{name}.yaml"
    runs.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.merge({"extends": "quickstart", "name": name}, recipe), config)
    study.train(str(config), runs / name, ["wandb.mode=disabled"])
    return runs / name


def numbers(folder: Path) -> dict[str, Any]:
    """Of a run that is called `0-grpo`."""
    summary, curve = study.summary(folder), CURVES.get(folder.name.partition("-")[2], "reward/mean")
    assert summary is not None, folder
    return {
        "curve": [round(row[curve], 4) for row in study.rows(folder, "metrics") if curve in row],
        "before": summary["eval"]["before"],
        "after": summary["eval"]["after"],
        "wall_s": summary["wall_s"],
    }


def play_seed(seed: int, runs: Path) -> study.Arms:
    """Every algorithm from the weights that one supervised run left, the same for all seeds."""
    start = study.weights(train(START, runs, "start"), STEPS)
    arms = {}
    for name, recipe in recipes().items():
        folder = train({"model": {"path": str(start)}, "seed": seed} | recipe, runs, f"{seed}-{name}")
        arms[name] = numbers(folder)
    return arms


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    report.head("seed-algorithm", "sampled before", "sampled after", "greedy before", "greedy after", "seconds")
    for seed, arms in by_seed.items():
        for name, arm in arms.items():
            scores = [arm[when][how] for how in ("sampled", "greedy") for when in ("before", "after")]
            report.row(f"{seed}-{name}", *scores, arm["wall_s"])


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, seeds=(0, 1))
