"""Every algorithm from the same start, with every real part: `python benchmarks/learning.py [--seeds 2] [ppo ...]`.

A supervised stage on the quickstart's tasks, half of its demonstrations wrong, is trained once. From its weights each
algorithm trains on the same tasks, on engines, learner and asynchronous loop as users have them. Writes held-out
accuracies and the reward of every step into `docs/learning.json`, and draws `docs/learning.svg`. Half an hour on two
cores; `--draw` only draws what is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from report import Report, parser

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "configs" / "quickstart.yaml"
RESULTS = ROOT / "docs" / "learning.json"
PICTURE = ROOT / "docs" / "learning.svg"

COLOURS = ("#3366aa", "#dd7722", "#449955", "#aa3377")

CURVES = {"dpo": "dpo/accuracy"}  # of the others: the mean reward of a step's trajectories

RATE = {"lr": 2.0e-3, "schedule": "cosine", "warmup_steps": 20}
SUPERVISED = {"name": "sft", "kind": "sft", "steps": 250, "loop": {"groups_per_step": 64}, "learner": RATE}
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


def train(recipe: dict[str, Any], folder: Path, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(rows of metrics.jsonl, summary) of a run of `rlsys train`. Raises CalledProcessError where it fails."""
    base = OmegaConf.load(BASE)
    config = folder / f"{name}.yaml"
    OmegaConf.save(OmegaConf.merge(base, {"name": name}, recipe), config)
    run = folder / name
    command = [sys.executable, "-m", "launch", "train", str(config), "--run-dir", str(run), "wandb.mode=disabled"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((run / "summary.json").read_text())


def measure(names: list[str], seeds: int, folder: Path) -> None:
    train(START, folder, "start")
    start = sorted((folder / "start" / "checkpoints").glob("step-*/hf"))[-1]
    for seed in range(seeds):
        for name in names:
            recipe = {"model": {"path": str(start)}, "seed": seed} | recipes()[name]
            rows, summary = train(recipe, folder, f"{name}-{seed}")
            kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
            kept[f"{name}/{seed}"] = {
                "curve": [round(row[curve], 4) for row in rows if (curve := CURVES.get(name, "reward/mean")) in row],
                "before": summary["eval"]["before"],
                "after": summary["eval"]["after"],
                "wall_s": summary["wall_s"],
            }
            lines = [f"{json.dumps(key)}: {json.dumps(kept[key])}" for key in sorted(kept)]
            RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def draw(results: dict[str, Any]) -> str:
    """One panel per algorithm: the rewards of every seed, smoothed over five steps, and held-out accuracies."""
    names = [name for name in recipes() if f"{name}/0" in results]
    wide, high, gap, columns = 250, 140, 46, 3
    rows = -(-len(names) // columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * (wide + gap) + gap}" '
        f'height="{rows * (high + gap + 16) + gap}" font-family="sans-serif" font-size="11" fill="#333">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, name in enumerate(names):
        left, top = gap + index % columns * (wide + gap), gap + index // columns * (high + gap + 16)
        runs = [results[key] for key in results if key.partition("/")[0] == name]
        curve = CURVES.get(name, "reward/mean")
        parts.append(f'<text x="{left}" y="{top - 22}" font-weight="bold" font-size="13">{name}</text>')
        told = ", ".join(f"{run['before']['sampled']:.2f} → {run['after']['sampled']:.2f}" for run in runs)
        parts.append(f'<text x="{left}" y="{top - 7}">held-out, sampled: {told}</text>')
        for level in (0.0, 0.5, 1.0):
            y = top + high * (1 - level / 1.1)
            parts.append(f'<path d="M{left} {y:.1f}h{wide}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
        steps = max((len(run["curve"]) for run in runs), default=0)
        for colour, run in zip(COLOURS, runs, strict=False):
            values = smoothed(run["curve"])
            places = [(left + wide * i / max(1, steps - 1), top + high * (1 - v / 1.1)) for i, v in enumerate(values)]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts.append(
            f'<text x="{left + wide}" y="{top + high + 14}" text-anchor="end">{curve} by step, 1 to {steps}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def smoothed(values: list[float], over: int = 5) -> list[float]:
    """The mean of the last `over` values at each step."""
    windows = [values[max(0, end - over) : end] for end in range(1, len(values) + 1)]
    return [sum(window) / len(window) for window in windows]


if __name__ == "__main__":
    given = parser(__doc__)
    given.add_argument("algorithms", nargs="*", help="all of them by default")
    given.add_argument("--seeds", type=int, default=2)
    given.add_argument("--draw", action="store_true", help="train nothing, draw what docs/learning.json holds")
    options = given.parse_args()
    if not options.draw:
        with tempfile.TemporaryDirectory() as scratch:
            measure(options.algorithms or list(recipes()), options.seeds, Path(scratch))
    results = json.loads(RESULTS.read_text())
    PICTURE.write_text(draw(results))
    with Report(options) as report:
        report.head("algorithm/seed", "sampled before", "sampled after", "greedy before", "greedy after", "seconds")
        for name, each in results.items():
            scores = [each[when][how] for how in ("sampled", "greedy") for when in ("before", "after")]
            report.row(name, *scores, each["wall_s"])
