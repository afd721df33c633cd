"""The division of GPUs that a report advises: simulated with the run's own speeds and lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import read_episodes
from launch.tools.plan.calibrate import calibrate, predict
from launch.tools.plan.trace import StepTimes, Trace, TraceSetting
from launch.tools.report.advise import advise
from launch.tools.report.split import MeasuredSplit, list_divisions, simulate_divisions
from launch.tools.report.verdict import Verdict
from tests.makers.made import jsonl
from tests.makers.run_directory import episode, run_directory

SETTING = TraceSetting(
    groups_per_step=8, group_size=4, max_policy_lag=1, workers=2, ranks=2, max_num_seqs=16, in_flight=None, gpus=True
)


def traced(update_s: float, busy_s: float, wait_s: float) -> Trace:
    """Steps that are all alike: one episode of each group is five times as long as the others."""
    step = StepTimes(
        step_s=update_s + wait_s, wait_s=wait_s, build_s=0.0, publish_wait_s=0.0, update_s=update_s, export_s=0.0,
        checkpoint_s=0.0, other_s=0.0, publish_s=0.1, pause_s=0.1, packed=3200.0, generated=2560.0,
        generate_s=0.9 * busy_s, tool_s=0.0, score_s=0.0, busy_s=2 * busy_s, engine_cpu_s=busy_s, worker_cpu_s=busy_s,
    )  # fmt: skip
    return Trace(name="made", stage="rl", setting=SETTING, steps=[step] * 6, groups=[[[40, 40, 40, 200]] * 8] * 6)


def test_without_a_tail_work_is_divided_evenly() -> None:
    """9 s on 2 engines and 4 s on 6 ranks: 4 engines take 4.5 s, and 4 ranks 6 s."""
    now = MeasuredSplit(workers=2, parallel=1, ranks=6, update_s=4.0, engines_s=9.0, rest_s=0.0)
    assert list_divisions(now)[0] == (3, 5, pytest.approx(6.0))
    assert len(list_divisions(now)) == 7 and all(workers + ranks == 8 for workers, ranks, _ in list_divisions(now))
    sharing = list_divisions(replace(now, sequence_parallel=3))  # ranks that share a row move together
    assert [(workers, ranks) for workers, ranks, _ in sharing] == [(5, 3), (2, 6)]


@pytest.mark.parametrize(("update_s", "busy_s", "wait_s"), [(2.0, 9.5, 8.0), (9.0, 2.0, 0.2)])
def test_the_advised_division_is_the_fastest_of_those_that_are_simulated(
    update_s: float, busy_s: float, wait_s: float
) -> None:
    calibration = calibrate(traced(update_s, busy_s, wait_s), cores=None)
    now = MeasuredSplit(workers=2, parallel=1, ranks=2, update_s=update_s, engines_s=busy_s, rest_s=0.0)
    workers, ranks, seconds = simulate_divisions(now, calibration)
    assert workers + ranks == 4 and seconds == predict(calibration, workers=workers, ranks=ranks).seconds
    assert seconds <= predict(calibration, workers=2, ranks=2).seconds
    assert (ranks > 2) == (update_s > busy_s)


@pytest.mark.parametrize(
    ("needed", "more"), [({}, ""), ({"min_workers": 1}, ""), ({"min_workers": 2}, " rollout.min_workers=1")]
)
def test_a_report_simulates_where_the_episodes_are_kept(tmp_path: Path, needed: dict[str, int], more: str) -> None:
    """And what it advises is not refused: a run that needs two engines is to need one."""
    trace = traced(9.0, 2.0, 0.2)
    columns = {"time/step": "step_s", "time/wait_rollout": "wait_s", "time/update": "update_s",
               "weights/publish_s": "publish_s", "weights/pause_s": "pause_s", "tokens/packed": "packed",
               "tokens/generated": "generated", "time/episode_generate": "generate_s"}  # fmt: skip
    rows = [
        {name: getattr(trace.steps[0], key) for name, key in columns.items()}
        | {"step": n, "engine/busy_s": 4.0 * n, "engine/alive_s": 2 * 9.2 * n}
        for n in range(1, 13)
    ]
    config = {
        "stages": [{"name": "rl", "kind": "rl", "steps": 12}], "cluster": {"device": "cuda"},
        "rollout": {"workers": 2} | needed, "learner": {"ranks": 2},
        "engine": {"tensor_parallel": 1, "max_num_seqs": 16},
        "loop": {"groups_per_step": 8, "group_size": 4, "max_policy_lag": 1},
    }  # fmt: skip
    run = run_directory(tmp_path / "run", rows, summary={"status": "done", "steps": 12}, **config)
    for n in range(1, 13):
        lines = [
            episode(sequence=8 * n + group, sibling=at, num_tokens=tokens)
            for group in range(8)
            for at, tokens in enumerate([40, 40, 40, 200])
        ]
        jsonl(run / "trajectories" / f"step-{n:06d}.jsonl", lines)
    read = read_directory(run)
    (item,) = advise(read, Verdict(level="unknown", text=""), read_episodes(read))
    assert item.rule == "move_gpus" and item.key == f"rollout.workers=1 learner.ranks=3{more}"
    assert item.numbers["seconds"] < 9.2
    (without,) = advise(read, Verdict(level="unknown", text=""), None)
    assert without.text != item.text
