"""How well `rlsys plan` predicts seconds of a step: `python benchmarks/plan.py [--runs DIR] [--read] [--published]`.

Of each run the first half predicts the second half: as it stands, and with the lengths and the packed tokens of the
second, which change as a policy learns. Then the same machine with another setting is predicted: one run has 32, 16, 64
and again 32 groups a step, and the first and the last of these predict the two others; a run with one engine predicts
one with two. What the machine does besides changes the seconds of a step: what is compared runs in turn. What the plan
reads of each run is kept in `tests/data/plan/`, where a test repeats the predictions, and `--read` takes what is there.

`--published` plans the steps that others have published, without a run. One rate is fitted to five of them, the share
of the bandwidth that an engine gets: of each of the five also what the four others predict is shown.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import study
from report import Report, parser
from study import ROOT

from launch.tools.plan import published
from launch.tools.plan.calibrate import Calibration, answers_of, calibrate, predict
from launch.tools.plan.trace import COLUMNS, StepTimes, Trace, TraceSetting, read_trace

KEPT, SEVERAL = ROOT / "tests" / "data" / "plan", ROOT / "benchmarks" / "plan.yaml"
SHARES = [at / 50 for at in range(20, 41)]  # of the bandwidth that are tried, 40 % to 80 %
GROUPS = 4  # of each step, whose lengths are kept
QUIET = ["eval.tasks=20", "eval.samples=0", "trajectories.keep=null", "trajectories.keep_mb=null"]
TINY = ["stages.before=null", "stages.test=null", "stages.rl.steps=30", "stages.rl.eval.every=0"]
ENGINES = ["stages.sft=null", "stages.b=null", "stages.c=null", "stages.d=null", "stages.a.steps=20"]
WHOLE = ("quickstart", "research", "engines-2", "engines-1")
STAGES = {"groups-32": "a", "groups-16": "b", "groups-64": "c", "groups-32-again": "d"}  # of SEVERAL


def play(runs: Path) -> None:
    study.train("quickstart", runs / "quickstart", [*QUIET, "stages.rl.steps=40"])
    study.train("research/tiny", runs / "research", [*QUIET, *TINY])
    study.train(str(SEVERAL), runs / "groups", [])
    start = f"model.path={max((runs / 'groups' / 'checkpoints').glob('step-*')) / 'hf'}"
    for count in (2, 1):
        study.train(str(SEVERAL), runs / f"engines-{count}", [*ENGINES, start, f"rollout.workers={count}"])
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in WHOLE:
        keep(name, read_trace(runs / name))
    for name, stage in STAGES.items():
        keep(name, read_trace(runs / "groups", stage))


def keep(name: str, trace: Trace) -> None:
    """Of each step its numbers, and the lengths of the episodes of a few groups."""
    values = {key: [getattr(step, key) for step in trace.steps] for key in COLUMNS}
    columns = {key: [None if math.isnan(v) else round(v, 4) for v in column] for key, column in values.items()}
    groups = [[list(group) for group in step[:: max(1, len(step) // GROUPS)][:GROUPS]] for step in trace.groups]
    record = {"stage": trace.stage, "setting": asdict(trace.setting), "columns": columns, "groups": groups}
    (KEPT / f"{name}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")


def is_kept(name: str) -> bool:
    return (KEPT / f"{name}.json").is_file()


def read(name: str) -> Trace:
    record = json.loads((KEPT / f"{name}.json").read_text())
    columns = {key: [math.nan if v is None else v for v in column] for key, column in record["columns"].items()}
    steps = [StepTimes(**{key: column[at] for key, column in columns.items()}) for at in range(len(record["groups"]))]
    setting = TraceSetting(**record["setting"])
    return Trace(name=name, stage=record["stage"], setting=setting, steps=steps, groups=record["groups"])


def calibrate_from(trace: Trace) -> Calibration:
    cores = float(os.cpu_count() or 1)
    return calibrate(trace, cores=cores, learner_cores=cores)


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--runs", type=Path, default=ROOT / "runs" / "plan")
    cli.add_argument("--read", action="store_true", help="train nothing, take what tests/data/plan holds")
    cli.add_argument(
        "--published", action="store_true", help="plan the steps that others have published, and nothing else"
    )
    options = cli.parse_args()
    if options.published:
        with Report(options) as report:
            show_published(report)
        return
    if not options.read:
        play(options.runs)
    with Report(options) as report:
        report.head("second half of", "steps", "first half, s", "second, s", "by the first", "with its own lengths")
        for name in filter(is_kept, (*WHOLE, *STAGES)):
            trace = read(name)
            half = len(trace.steps) // 2
            first, second = trace.part(0, half), trace.part(half, len(trace.steps))
            model, took = calibrate_from(first), fmean(second.seconds)
            predictions = (model.replayed.seconds, predict(model, answers=answers_of(second)).seconds)
            errors = [f"{seconds:.2f} ({seconds / took - 1:+.0%})" for seconds in predictions]
            report.row(name, len(trace.steps), fmean(first.seconds), took, *errors)
        report.head(
            "processor time", "sequences in an engine", "engine, ms a step", "worker, us a token", "worker : engine"
        )
        for name in filter(is_kept, (*WHOLE, *STAGES)):
            report.row(name, *spent(read(name)))
        report.head(
            "other setting", "predicted, s", "measured, s", "error", "without the worker's cores", "as it was, s"
        )
        model = calibrate_from(read("groups-32").and_then(read("groups-32-again")))
        for name in ("groups-16", "groups-64"):
            show(report, f"{name} from groups-32", model, read(name))
        for source, target in ((WHOLE[3], WHOLE[2]), (WHOLE[2], WHOLE[3])):
            if is_kept(source) and is_kept(target):
                show(report, f"{target} from {source}", calibrate_from(read(source)), read(target))


def show_published(report: Report) -> None:
    report.head("step", "system", "answers x tokens", "published, s", "planned, s", "error", "by the four others")
    errors = []
    for step in (*published.FIVE, *published.HELD_OUT):
        planned = published.plan_published(step)
        errors.append(planned.seconds / step.seconds - 1)
        others = [other for other in published.FIVE if other is not step]
        by_others = None
        if step in published.FIVE:
            share = published.fit_bandwidth(others, SHARES)
            error = published.error_of(step, published.with_bandwidth(step.rates, share))
            by_others = f"{error:+.0%} ({share:.0%} of the bandwidth)"
        work = f"{step.answers:,} x {step.answer_tokens:,}"
        report.row(f"{step.name}, {step.card}", step.system, work, step.seconds, planned.seconds,
                   f"{errors[-1]:+.0%}", by_others)  # fmt: skip
    report.head("parts of a step, published / planned, s", *published.PARTS)
    for step in (step for step in (*published.FIVE, *published.HELD_OUT) if step.parts):
        parts = published.plan_published(step).parts
        report.row(step.name, *(f"{step.parts[part]:.0f} / {parts[part]:.0f}" for part in published.PARTS))
    report.note(
        f"Of the five {sum(abs(error) <= published.CLOSE for error in errors[:5])} are within {published.CLOSE:.0%}, "
        f"of all: {published.describe_accuracy(errors)}. The largest error is {max(errors, key=abs):+.0%}. "
        f"Fitted to the five: {published.fit_bandwidth(published.FIVE, SHARES):.0%} of the bandwidth."
    )


def show(report: Report, name: str, model: Calibration, trace: Trace) -> None:
    setting = trace.setting
    took = fmean(trace.seconds)
    unknown = calibrate_from(
        replace(model.trace, steps=[replace(step, worker_cpu_s=math.nan) for step in model.trace.steps])
    )
    pred, without = (
        predict(calibration, groups_per_step=setting.groups_per_step, workers=setting.workers).seconds
        for calibration in (model, unknown)
    )
    report.row(name, pred, took, f"{pred / took - 1:+.0%}", f"{without / took - 1:+.0%}", fmean(model.trace.seconds))


def spent(trace: Trace) -> tuple[float, float, float, float]:
    """Sequences in an engine, by Little's law; processor time of an engine's step in ms and of a worker for a token in
    us, and the worker's for a second of its engine's."""
    episodes = trace.setting.groups_per_step * trace.setting.group_size
    steps = [step for step in trace.steps if step.busy_s > 0 and step.engine_cpu_s > 0]
    engine, worker, busy, tokens = (
        sum(getattr(step, key) for step in steps) for key in ("engine_cpu_s", "worker_cpu_s", "busy_s", "generated")
    )
    num_seqs = sum(step.generate_s * episodes for step in steps) / busy
    return num_seqs, 1e3 * engine * num_seqs / tokens, 1e6 * worker / tokens, worker / engine


if __name__ == "__main__":
    main()
