"""What faults cost a run, with real parts: the quickstart's second stage, killed at random.

    python benchmarks/faults.py                 everything, about an hour and a half on two cores without other load
    python benchmarks/faults.py --smallest      the same with few steps and faults, into the folder of the runs

Measurements, each by `rlsys chaos`, from the weights of one supervised stage. (a) 30 faults over all roles in one run,
and the same run without any: accuracy, audit, seconds by role. (b) Faults at 0, 1, 5 and 10 % of the steps: the seconds
that the run without faults took, as a share of those that the disturbed one took for the same steps. A step is as long
here as six of the quickstart's, because what a fault costs hardly grows with the step, and two engines share a core, so
that one plays while the other is started again. (c) The driver alone, killed at 20 random instants, with a checkpoint
after every step. (d) What would be saved if batches that were trained since the last checkpoint were kept and trained
again, instead of being generated again: by the rows of steps that were taken again, also where generation is the slow
part, and by the simulation of both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from report import Report, parser
from study import (
    ROOT,
    Arms,
    ArmsBySeed,
    Prediction,
    add_options,
    collect,
    picture,
    plan_of,
    summary,
    tell_predictions,
    train,
    weights,
)

from launch.run_dir.names import metrics_line_name
from launch.run_dir.rows import read_steps
from launch.tools.audit.files import JOURNAL
from launch.tools.chaos.disturb import Disturbed
from launch.tools.chaos.rows import Rows
from launch.tools.chaos.table import as_json, settle
from launch.tools.plan.simulate import Episode, Setting, StepCost, simulate
from rlsys.errors import BadInput
from rlsys.journal import Sealed, read_journal

RESULTS = ROOT / "docs" / "faults.json"
SAMPLES, TASKS = 4, 200
OWN = ["report=none", "wandb.mode=disabled"]


@dataclass(frozen=True, slots=True)
class Size:
    taught: int  # steps of the supervised stage
    tasks: int  # held out
    steps: tuple[int, int, int]  # of the rl stage, in each measurement
    groups: tuple[int, int, int]  # of a step
    faults: int  # in (a)
    rates: tuple[int, ...]  # of (b), faults in 100 steps
    kills: int  # in (c)
    slow: int  # steps with a slow engine


FULL = Size(200, TASKS, (240, 80, 520), (32, 192, 32), 30, (1, 5, 10), 20, 60)
SMALLEST = Size(40, 20, (30, 16, 24), (8, 16, 8), 3, (20,), 2, 30)

# Written before the runs.
PREDICTIONS = [
    Prediction("30 faults change held-out accuracy by 0.05 at most", lambda arms: abs(gain(arms)) <= 0.05),
    Prediction(
        "every audit is clean, and no prompt is lost or trained twice",
        lambda arms: all(arm["holds"] and not arm["lost"] + arm["repeated"] for arm in arms.values()),
    ),
    Prediction("at faults in 10 % of the steps 0.9 of the time is effective", lambda arms: effective(arms, 10) >= 0.9),
    Prediction("at faults in 1 % of the steps 0.97 of the time is effective", lambda arms: effective(arms, 1) >= 0.97),
    Prediction("20 kills of the driver leave a run that is done", lambda arms: kills(arms) == 20),
]


def play(seed: int, runs: Path, size: Size) -> Arms:
    base_changes = [
        f"seed={seed}",
        f"env.seed={seed}",
        *OWN,
        f"eval.tasks={size.tasks}",
        f"eval.samples={SAMPLES}",
        "eval.greedy=false",
    ]
    taught = runs / f"{seed}-taught"
    short = [f"stages.sft.steps={size.taught}", f"stages.sft.checkpoint.every={size.taught}", "stages.rl=null"]
    train("quickstart", taught, [*base_changes, *short])
    start = [*base_changes, "stages.sft=null", f"model.path={weights(taught, size.taught)}"]

    def arm(name: str, part: int, every: int, faults: Sequence[str], *more: str) -> dict[str, Any]:
        changes = [f"stages.rl.steps={size.steps[part]}", f"stages.rl.loop.groups_per_step={size.groups[part]}"]
        return disturb(
            runs / f"{seed}-{name}", [*start, *changes, *more, f"stages.rl.checkpoint.every={every}"], faults
        )

    seed_option = ["--seed", str(seed + 1)]
    arms = {"calm": arm("calm", 0, 5, [])}
    arms["faults"] = arm("faults", 0, 5, ["--random", "15%", "--most", str(size.faults), *seed_option])
    for rate in (0, *size.rates):
        faults = ["--random", f"{rate}%", *seed_option] if rate else []
        arms[f"{rate} %"] = arm(f"rate-{rate}", 1, 1, faults, "rollout.workers=2")
    killed = ["--random", "2/min", "--roles", "driver", "--most", str(size.kills), *seed_option]
    arms["driver"] = arm("driver", 2, 1, killed)
    slow = ["engine.max_num_seqs=16", f"stages.rl.steps={size.slow}", "stages.rl.loop.groups_per_step=8"]
    arms["slow engine"] = arm("slow-engine", 0, 20, ["--kill", "learner:0@12s"], *slow)
    return arms


def disturb(folder: Path, changes: Sequence[str], faults: Sequence[str]) -> dict[str, Any]:
    """What `rlsys chaos` measured; of no faults the same numbers of `rlsys train`. What is done is not repeated."""
    if not faults:
        train("quickstart", folder, changes)
        rows = Rows(folder, "rl")
        rows.look()
        outcome = as_json(settle(Disturbed(code=0, began=rows.began, ended=rows.last), folder))
    else:
        written = folder.with_suffix(".json")
        if not written.is_file():
            shutil.rmtree(folder, ignore_errors=True)  # what was cut off: half of its faults would not be measured
            command = [sys.executable, "-m", "launch", "chaos", "quickstart", "--run-dir", str(folder)]
            command += ["--json", str(written), *changes, *faults]
            code = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode
            if code not in (0, 1):
                raise BadInput(f"`rlsys chaos` ended with exit code {code}", where=str(folder))
        outcome = json.loads(written.read_text())
    outcome["audit"] = [offender for check in outcome["audit"] for offender in check["offenders"]]
    outcome["redone"] = repeated_step_costs(folder)
    run_summary = summary(folder)
    outcome["accuracy"] = run_summary["eval"]["after"]["sampled"] if run_summary is not None else None
    return outcome


def repeated_step_costs(folder: Path) -> dict[str, float]:
    """Of steps that were taken again: how many, their seconds, those of waiting for groups, and of a checkpoint (the
    median of all, in which nothing is trained)."""
    names = Counter(row.name for row in read_journal(folder / JOURNAL) if isinstance(row, Sealed))
    rows = list(read_steps(folder))
    repeated = [row for row in rows if names[metrics_line_name(row.step)] > 1]
    saved = [seconds for row in rows if (seconds := row.number("time/checkpoint"))]
    costs = {"steps": len(repeated), "seconds": sum(row.number("time/step") for row in repeated)}
    costs["wait_s"] = sum(row.number("time/wait_rollout") for row in repeated)
    return costs | {"checkpoint_s": median(saved) if saved else math.nan}


def simulated(update_s: float, tokens: float, seats: int, steps: int = 10) -> tuple[float, float, float]:
    """Seconds of a step; of `steps` that are taken again from nothing; of as many whose batches were kept.

    The engine is as fast as the quickstart's, lengths are lognormal."""
    setting = Setting(
        groups_per_step=32,
        group_size=8,
        max_policy_lag=1,
        workers=1,
        seats=seats,
        in_flight=10**6,
        base_s=0.012,
        each_s=0.0002,
    )
    cost = StepCost(build_s=0.05, update_s=update_s, export_s=0.06, publish_s=0.23, pause_s=0.07)

    def group(rng: Random) -> list[Episode]:
        return [Episode(tokens=tokens * rng.lognormvariate(0, 0.6)) for _ in range(setting.group_size)]

    steady = simulate(setting, group, lambda rng: cost, steps=30, skip=5)
    from_start = simulate(setting, group, lambda rng: cost, steps=steps, skip=0)
    kept_s = steps * (cost.build_s + cost.update_s + cost.export_s)
    return sum(step.seconds for step in steady) / len(steady), sum(step.seconds for step in from_start), kept_s


def gain(arms: Arms) -> float:
    with_faults, without = (arms[name]["accuracy"] for name in ("faults", "calm"))
    return math.nan if with_faults is None or without is None else with_faults - without


def effective(arms: Arms, rate: int) -> float:
    """The seconds of the run without faults, as a share of those of the disturbed one; of as many steps."""
    arm = arms.get(f"{rate} %")
    if arm is None or arm["code"]:
        return math.nan
    return float(arms["0 %"]["wall_s"] / arm["wall_s"])


def kills(arms: Arms) -> int:
    """Of the driver, in a run that is done."""
    arm = arms["driver"]
    return sum(cost["hit"] for cost in arm["costs"]) if not arm["code"] else 0


def interval(share: float, count: int) -> str:
    """With its 95 % interval (Wilson's): 0.880 [0.856, 0.901]."""
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return f"{share:.3f} [{middle - half:.3f}, {middle + half:.3f}]"


def tell(report: Report, by_seed: ArmsBySeed, size: Size) -> None:
    for arms in by_seed.values():
        tell_runs(report, arms, size)
        tell_roles(report, arms["faults"])
        tell_rates(report, arms)
        tell_losses(report, arms)
        tell_driver(report, arms["driver"])
        tell_reuse(report, arms)


def tell_runs(report: Report, arms: Arms, size: Size) -> None:
    report.head("run", "faults", "steps", "again", "seconds", "accuracy", "prompts lost", "trained twice", "audit")
    for name in ("calm", "faults"):
        arm = arms[name]
        accuracy = interval(arm["accuracy"], size.tasks * SAMPLES) if arm["accuracy"] is not None else None
        hit = sum(cost["hit"] for cost in arm["costs"])
        audit = "clean" if arm["holds"] else "; ".join(arm["audit"]) or "the run failed"
        steps_again = arm["steps_again"]
        report.row(name, hit, arm["steps"], steps_again, arm["wall_s"], accuracy, arm["lost"], arm["repeated"], audit)


def tell_roles(report: Report, arm: dict[str, Any]) -> None:
    report.head(
        "role", "faults", "known after, s", "serves after, s", "next step after, s", "prompts again", "steps again"
    )
    keys = ("faults", "detected_s", "replaced_s", "next_step_s", "prompts_again", "steps_again")
    for role, costs in arm["roles"].items():
        report.row(role, *(costs[key] for key in keys))


def rates_of(arms: Arms) -> list[int]:
    return sorted(int(name.removesuffix(" %")) for name in arms if name.endswith(" %"))


def tell_rates(report: Report, arms: Arms) -> None:
    report.head(
        "faults, % of steps", "faults", "s per step", "steps again", "seconds", "lost by a fault, s", "effective",
        "in steps that survive",
    )  # fmt: skip
    for rate in rates_of(arms):
        arm = arms[f"{rate} %"]
        hit = sum(cost["hit"] for cost in arm["costs"])
        step_s, lost_s = arm["wall_s"] / max(1, arm["steps"]), arm["wall_s"] - arms["0 %"]["wall_s"]
        cells = [rate, hit, step_s, arm["steps_again"], arm["wall_s"], lost_s / hit if hit else None]
        report.row(*cells, effective(arms, rate), arm["effective"])


def tell_losses(report: Report, arms: Arms) -> None:
    """Of the most faults, by role. A step would have ended half a step after the kill, on average."""
    arm, calm = arms[f"{max(rates_of(arms))} %"], arms["0 %"]
    if arm["code"] or calm["code"]:
        return
    half_s = calm["wall_s"] / max(1, calm["steps"]) / 2
    by_role: dict[str, list[float]] = {}
    for cost in arm["costs"]:
        if cost["hit"] and cost["next_step_s"] is not None:
            by_role.setdefault(cost["role"], []).append(cost["next_step_s"] - half_s)
    report.head("lost with the most faults by", "kills", "until the next step, s", "% of the run")
    for role, seconds in sorted(by_role.items(), key=lambda entry: -sum(entry[1])):
        report.row(role, len(seconds), sum(seconds), 100 * sum(seconds) / arm["wall_s"])
    lost_s, by_kills = arm["wall_s"] - calm["wall_s"], sum(map(sum, by_role.values()))
    report.row(
        "the rest: more than was lost, if negative", None, lost_s - by_kills, 100 * (lost_s - by_kills) / arm["wall_s"]
    )


def tell_driver(report: Report, arm: dict[str, Any]) -> None:
    hits = [cost for cost in arm["costs"] if cost["hit"]]
    during = [sum(cost["during"] == phase for cost in hits) for phase in ("start", "checkpoint", "")]
    report.head("kills of the driver", "while it started", "during a checkpoint", "else", "starts", "run", "audit")
    state, audit = "failed" if arm["code"] else "done", "clean" if arm["holds"] else "; ".join(arm["audit"])
    report.row(len(hits), *during, arm["starts"], state, audit)


def tell_reuse(report: Report, arms: Arms) -> None:
    report.head("run", "steps again", "their seconds", "waiting for groups", "a checkpoint, s")
    for name in ("faults", "slow engine"):
        costs = arms[name]["redone"]
        report.row(name, costs["steps"], costs["seconds"], costs["wait_s"], costs["checkpoint_s"])
    report.head("simulated", "s per step", "10 steps again, s", "of kept batches, s")
    report.row("the learner is slow", *simulated(update_s=1.25, tokens=16, seats=256))
    report.row("the engine is slow", *simulated(update_s=0.4, tokens=60, seats=64))


def draw(by_seed: ArmsBySeed, path: Path) -> None:
    arms = next(iter(by_seed.values()))
    rates = rates_of(arms)
    with picture(path, "What faults cost", "quickstart, rl stage, two cores; faults over all roles") as (left, right):
        left.plot(rates, [effective(arms, rate) for rate in rates], marker="o", label="seconds without faults / with")
        shares = [arms[f"{rate} %"]["effective"] for rate in rates]
        left.plot(rates, shares, marker="s", linestyle="--", label="in steps that survive")
        left.set(xlabel="faults, % of steps", title="effective training time", ylim=(0, 1.05))
        roles = arms["faults"]["roles"]
        for key, shade in (("next_step_s", "#BBBBBB"), ("replaced_s", "#777777"), ("detected_s", "#222222")):
            right.barh(list(roles), [costs[key] or 0.0 for costs in roles.values()], color=shade)
        right.set(title="s until known, serves, next step")


def main() -> None:
    cli = add_options(parser(__doc__), RESULTS, (0,))
    cli.add_argument("--smallest", action="store_true", help="few steps and faults: a few minutes")
    options: argparse.Namespace = cli.parse_args()
    size, predictions = (SMALLEST, []) if options.smallest else (FULL, PREDICTIONS)
    if options.smallest:
        options.runs = options.runs / "smallest"
        options.runs.mkdir(parents=True, exist_ok=True)
        if options.results == RESULTS:
            options.results = options.runs / RESULTS.name
    try:
        planned = plan_of(options, RESULTS, (0,))
        by_seed = collect(options, lambda seed, runs: play(seed, runs, size), predictions, planned)
    except BadInput as error:
        sys.exit(f"error: {error}")
    draw(by_seed, options.results.with_suffix(".svg"))
    with Report(options) as report:
        tell(report, by_seed, size)
        if predictions:
            tell_predictions(report, by_seed, predictions, planned)


if __name__ == "__main__":
    main()
