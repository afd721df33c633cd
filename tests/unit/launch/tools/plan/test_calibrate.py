"""What `rlsys plan --from` predicts from real runs on two cores (tests/data/plan, made by benchmarks/plan.py)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from launch.cli import run
from launch.tools.plan.calibrate import Calibration, answers_of, calibrate, fit_engine, predict
from launch.tools.plan.trace import COLUMNS, CUMULATIVE, StepTimes, Trace, TraceSetting, read_trace
from rlsys.errors import BadInput
from tests.makers.made import records
from tests.paths import ROOT

KEPT = ROOT / "tests" / "data" / "plan"
SETTING = TraceSetting(
    groups_per_step=4, group_size=2, max_policy_lag=1, workers=1, ranks=1, max_num_seqs=8, in_flight=None, gpus=False
)
STEP = StepTimes(
    step_s=20.0, wait_s=2.0, build_s=1.0, publish_wait_s=0.0, update_s=16.0, export_s=1.0, checkpoint_s=0.0,
    other_s=0.0, publish_s=1.0, pause_s=0.5, packed=800.0, generated=80.0, generate_s=5.0, tool_s=0.25, score_s=0.25,
    busy_s=10.0, engine_cpu_s=8.0, worker_cpu_s=4.0,
)  # fmt: skip


def kept(name: str) -> Trace:
    content = json.loads((KEPT / f"{name}.json").read_text())
    columns = {
        key: [math.nan if value is None else value for value in column] for key, column in content["columns"].items()
    }
    steps = [StepTimes(**{key: column[at] for key, column in columns.items()}) for at in range(len(content["groups"]))]
    setting = TraceSetting(**content["setting"])
    return Trace(name=name, stage=content["stage"], setting=setting, steps=steps, groups=content["groups"])


def on_two_cores(trace: Trace) -> Calibration:
    return calibrate(trace, cores=2.0, learner_cores=2.0)


def made(count: int = 6, change: Callable[[int], dict[str, float]] = lambda at: {}) -> Trace:
    """Steps that are all alike but for `change`."""
    steps = [replace(STEP, **change(at)) for at in range(count)]
    return Trace(name="made", stage="rl", setting=SETTING, steps=steps, groups=[[[10, 10]] * 4] * count)


def test_an_engine_is_found_by_how_long_its_tokens_took() -> None:
    """40 s of 8 episodes in 10 s: 4 sequences. A token took 40 / 80 = 0.5 s: with 6 fixed ones 0.05 for each of 10."""
    assert fit_engine(made(), fixed=6.0) == pytest.approx((0.3, 0.05))
    assert fit_engine(made(), fixed=0.0) == pytest.approx((0.0, 0.125))


def test_a_replayed_run_takes_what_it_took() -> None:
    """20 s, of which the learner updates and exports for 17 / 20 or a little more, as nothing else takes the time."""
    calibration = calibrate(made(), cores=None)
    assert calibration.replayed.seconds == pytest.approx(20, rel=0.02)
    assert calibration.replayed.update_s == pytest.approx(17, rel=0.2)
    assert predict(calibration, groups_per_step=8).update_s == pytest.approx(2 * calibration.replayed.update_s, rel=0.1)
    assert predict(calibration, workers=2).seconds <= calibration.replayed.seconds + 1e-9


def test_a_worker_takes_its_own_share_of_the_cores() -> None:
    """4 s for its engine's 8: half a core more for every one of an engine, in the run and in a plan for another."""
    calibration = calibrate(made(), cores=2.0, engine_cores=2.0)
    assert calibration.worker_cores == 0.5 and calibration.speed.engine_cores == 3.0
    other = calibration.speed_for(ranks=1, seats=8, engine_cores=1.0, learner_cores=1.0, cores=4.0)
    assert other.engine_cores == 1.5
    unknown = made(
        change=lambda at: {"engine_cpu_s": math.nan, "worker_cpu_s": math.nan} if at else {"engine_cpu_s": 2.0}
    )
    assert calibrate(unknown, cores=2.0).worker_cores == 2.0  # 4 s for 2 s, in the one step that knows
    never = made(change=lambda at: {"worker_cpu_s": math.nan})
    assert calibrate(never, cores=2.0).speed.engine_cores == 1.0


def test_another_number_of_ranks_divides_an_update_and_the_writing_of_a_version() -> None:
    calibration = calibrate(made(), cores=None)
    other = calibration.speed_for(ranks=2, seats=8, engine_cores=1.0, learner_cores=1.0, cores=None)
    assert other.token_s == pytest.approx(calibration.speed.token_s / 2)
    assert other.export_s == pytest.approx(calibration.speed.export_s / 2) and calibration.speed.export_s > 0


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_a_real_run_is_simulated_as_it_was(path: Path) -> None:
    trace = kept(path.stem)
    replay = on_two_cores(trace).replayed
    assert replay.seconds == pytest.approx(fmean(trace.seconds), rel=0.04)
    assert replay.lag == trace.setting.max_policy_lag


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_half_of_a_real_run_predicts_the_other_half_by_its_lengths(path: Path) -> None:
    """Within 8 %: speeds of the first half, and what was played in the second, of which a policy that learns changes
    how much is trained (docs/measurements.md)."""
    trace = kept(path.stem)
    half = len(trace.steps) // 2
    second = trace.part(half, len(trace.steps))
    prediction = predict(on_two_cores(trace.part(0, half)), answers=answers_of(second))
    assert prediction.seconds == pytest.approx(fmean(second.seconds), rel=0.08)


@pytest.mark.parametrize("groups", [64, 16])
def test_real_steps_predict_another_number_of_groups_within_8_percent(groups: int) -> None:
    known = on_two_cores(kept("groups-32").and_then(kept("groups-32-again")))
    took = fmean(kept(f"groups-{groups}").seconds)
    assert predict(known, groups_per_step=groups).seconds == pytest.approx(took, rel=0.08)


@pytest.mark.parametrize(("known", "other"), [(1, 2), (2, 1)])
def test_a_real_run_predicts_another_number_of_engines_within_30_percent(known: int, other: int) -> None:
    """More processes than cores take more processor time for the same tokens, which no prediction knows
    (docs/measurements.md). Without the cores of a worker's own process the errors are larger."""
    trace = kept(f"engines-{known}")
    took = fmean(kept(f"engines-{other}").seconds)
    error = abs(predict(on_two_cores(trace), workers=other).seconds / took - 1)
    assert error < 0.3
    unknown = replace(trace, steps=[replace(step, worker_cpu_s=math.nan) for step in trace.steps])
    assert abs(predict(on_two_cores(unknown), workers=other).seconds / took - 1) > error


def test_rows_that_say_too_little_are_refused() -> None:
    with pytest.raises(BadInput):
        calibrate(made(count=2), cores=None)
    with pytest.raises(BadInput):
        calibrate(made(change=lambda at: {"busy_s": math.nan}), cores=None)
    with pytest.raises(BadInput):
        calibrate(replace(made(), groups=[[]] * 6), cores=None)
    with pytest.raises(BadInput):
        calibrate(made(change=lambda at: {"packed": 0.0}), cores=None)


def write_run(folder: Path, *, gpus: bool = False, steps: int = 8) -> Path:
    """A run directory with what a trace is read from: as STEP has it, each in its own row."""
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "rollout: {workers: 1, in_flight: null}\nengine: {max_num_seqs: 8}\nlearner: {ranks: 1}\n"
        "loop: {groups_per_step: 32, group_size: 2, max_policy_lag: 1}\n"
        "stages:\n- {name: sft, kind: sft}\n- {name: rl, kind: rl, loop: {groups_per_step: 4}}\n"
    )
    rows, lines = [], (folder / "trajectories")
    lines.mkdir()
    for at in range(steps):
        columns = {name: getattr(STEP, key) * (at + 1 if key in CUMULATIVE else 1) for key, name in COLUMNS.items()}
        card = {"memory/learner_gpu_peak_mb": 1.0} if gpus else {}
        rows.append({"step": at + 1, "stage": "rl", "stage_step": at + 1} | columns | card)
        episodes = [{"sequence": number // 2, "sibling": number % 2, "num_tokens": 10} for number in range(8)]
        text = "".join(json.dumps(episode) + "\n" for episode in episodes)
        (lines / f"step-{at + 1:06d}.jsonl").write_text(text)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_run_directory_is_read_with_the_keys_of_its_stage(tmp_path: Path) -> None:
    trace = read_trace(write_run(tmp_path / "run"))
    assert trace.setting == SETTING and trace.stage == "rl"
    assert len(trace.steps) == 7  # without the first
    assert trace.steps[0] == STEP
    assert trace.groups[0] == [[10, 10]] * 4
    assert list(trace.seconds) == [20.0] * 7
    assert read_trace(tmp_path / "run", "rl").part(0, 3).and_then(trace.part(3, 7)) == trace
    with pytest.raises(BadInput):
        read_trace(tmp_path / "run", "sft")


def test_a_counter_that_falls_or_is_missing_is_not_known(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run") / "metrics.jsonl"
    rows = records(path)
    for row in rows[4:]:
        row["engine/cpu_s"] -= 35.0  # a worker that was started again
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(tmp_path / "run")
    assert [math.isnan(step.engine_cpu_s) for step in trace.steps] == [False] * 3 + [True] + [False] * 3
    assert calibrate(trace, cores=2.0).worker_cores == 0.5
    for row in rows:
        del row["engine/cpu_s"], row["rollout/cpu_s"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert calibrate(read_trace(tmp_path / "run"), cores=2.0).worker_cores == 0.0


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["plan", *words, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_plan_from_a_run_shows_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quickstart", "--nodes", "1x2cpu-24G", "--from", str(write_run(tmp_path / "run"))]
    report = plan(capsys, *words, "stages.rl.loop.groups_per_step=4", "stages.rl.loop.group_size=2")
    assert report["measured_step_s"] == 20.0 and report["splits"] == []
    assert report["time"]["forecast"]["packed"] == pytest.approx(800)
    more = plan(capsys, *words, "stages.rl.loop.groups_per_step=16", "stages.rl.loop.group_size=2")
    assert more["time"]["forecast"]["seconds"] > 3 * report["time"]["forecast"]["seconds"]
    assert run(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "measured   run: 20.0 s a step (mean of 7; median 20.0) with 4 groups x 2, 1 engine" in out


def test_a_run_on_other_devices_or_without_steps_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_gpus = write_run(tmp_path / "gpus", gpus=True)
    short = write_run(tmp_path / "short", steps=3)
    larger = write_run(tmp_path / "larger")
    (larger / "run.json").write_text('{"format": 1, "parameters": 7000000000, "attempts": []}')
    for path, problem in (
        (on_gpus, "it ran on GPUs"),
        (larger, "a model of 7,000,000,000 parameters"),
        (short, "3 steps of stage rl"),
        (tmp_path / "no", "no"),
    ):
        assert run(["plan", "quickstart", "--nodes", "1x2cpu-24G", "--from", str(path)]) == 2
        err = capsys.readouterr().err
        assert problem in err and err.count("\n") == 1


def test_on_cpus_no_time_is_said_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "quickstart", "--nodes", "1x2cpu-24G"]) == 0
    assert "seconds of a step: unknown on CPUs before a run has measured it" in capsys.readouterr().out
