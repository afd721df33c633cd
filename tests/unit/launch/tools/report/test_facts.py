"""The first screen: each number equals what the raw lines give, and its sentences say what can be said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.cli import run as rlsys
from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.episodes import read_episodes
from launch.run_dir.significance import paired_test
from launch.tools.report.build import build_report
from launch.tools.report.charts import POINTS, colour_labels
from launch.tools.report.facts import Stage, main_stage
from launch.tools.report.headline import headline
from launch.tools.report.packing import make_pack
from launch.tools.report.redact import redact
from launch.tools.report.tiles import SOUND, Tile, rollout_fidelity_verdict
from launch.tools.report.verdict import Verdict, judge_learning, tasks_needed
from launch.tools.report.words import number, p_value, round_count, share
from tests.makers.made import jsonl, records
from tests.makers.run_directory import episode, result, run_directory

STAGES = [{"name": "sft", "kind": "sft", "steps": 3}, {"name": "rl", "kind": "rl", "steps": 20}]
LOOP = {"groups_per_step": 4, "group_size": 2, "max_policy_lag": 1, "mismatch_limit": None}
BOTH = [{"step": 3, "stage": "rl", "when": "before"}, {"step": 23, "stage": "rl", "when": "after"}]


def row(n: int) -> dict[str, Any]:
    """Step n of 23; numbers without a pattern, so that no two means are equal by chance."""
    place = {"step": n, "time": 1e9 + 3 * n, "wall_s": 3.0 * n, "tokens/trained": 100 + n}
    if n <= 3:
        return place | {"stage": "sft", "stage_step": n, "loss/nll": 3.0 / n, "time/step": 2.0, "time/update": 1.5}
    wait, update = 0.5 + 0.01 * n, 1 + 0.1 * math.sin(n)
    return place | {
        "stage": "rl",
        "stage_step": n - 3,
        "reward/mean": 0.5 + 0.02 * n + 0.1 * math.sin(n),
        "reward/min": 0.0,
        "reward/max": 1.1,
        "reward/part/correct": 0.3 + 0.01 * n,
        "groups/trained": 4 - n % 3,
        "groups/filtered": n % 3,
        "groups/failed": 0,
        "lag/max": n % 2,
        "mismatch/probe_mean": 1e-6 * n,
        "mismatch/probe_limit": 0.003,
        "failures/infra": float(n == 5),
        "failures/timeout": float(n == 6),
        "failures/data": 0.0,
        "failures/retried": float(n % 7 == 0),
        "engine/busy_s": 2.0 * n + math.cos(n),
        "engine/alive_s": 3.0 * n,
        "time/step": wait + update + 0.2,
        "time/wait_rollout": wait,
        "time/update": update,
        "time/other": 0.2,
        "time/episode_generate": 9.0,
    }


def whole(path: Path, **more: Any) -> Path:
    config = {"stages": STAGES, "loop": LOOP, "reward": {"name": "answer", "correct": 1.0}}
    config |= {"rollout": {"workers": 1}, "learner": {"ranks": 1}, "cluster": {"device": "cpu"}}
    rows = [row(n) for n in range(1, 24)]
    run_directory(path, rows, **({"summary": {"status": "done", "steps": 23}, "evaluations": BOTH} | config | more))
    if more.get("evaluations") != ():
        result(path, "rl-before", {f"t{n}": float(n % 2) for n in range(40)})
        result(path, "rl-after", {f"t{n}": float(n % 2 or n < 30) for n in range(40)})
    return path


def opened(path: Path, **more: Any) -> RunDirectory:
    return read_directory(whole(path / "run", **more))


def stage_of(run: RunDirectory) -> Stage:
    stage = main_stage(run)
    assert stage is not None
    return stage


def average(values: list[float]) -> float:
    return sum(values) / len(values)


# -- the first screen ------------------------------------------------------------------------------------------------


def test_every_number_of_the_first_screen_is_that_of_the_raw_lines(tmp_path: Path) -> None:
    run = opened(tmp_path)
    report = build_report([run], [None])
    raw = records(run.path / "metrics.jsonl")
    rl = [line for line in raw if line["stage"] == "rl"]
    tiles = {tile["label"]: (tile["value"], tile["note"]) for tile in report["tiles"]}
    reward = [line["reward/mean"] for line in rl]
    assert tiles["reward, last 10 steps"] == (f"{average(reward[-10:]):.2f}", f"first 10: {average(reward[:10]):.2f}")
    filtered, trained = (sum(line[f"groups/{name}"] for line in rl) for name in ("filtered", "trained"))
    late = [sum(line[f"groups/{name}"] for line in rl[-10:]) for name in ("filtered", "trained")]
    assert tiles["groups without signal"] == (
        f"{100 * late[0] / sum(late):.0f} %",
        f"of the whole stage {100 * filtered / (filtered + trained):.0f} %",
    )
    assert tiles["policy lag, most"] == ("1", "bound 1")
    assert tiles["engine-learner gap"] == ("2.3e-05", "limit 0.003")
    assert tiles["failed episodes"] == ("2", "3 played again")
    busy = (rl[-1]["engine/busy_s"] - rl[0]["engine/busy_s"]) / (rl[-1]["engine/alive_s"] - rl[0]["engine/alive_s"])
    seconds = sum(line["time/step"] for line in rl)
    learner = sum(line["time/update"] for line in rl) / seconds
    assert tiles["engine busy"] == (f"{100 * busy:.0f} %", f"learner {100 * learner:.0f} %")
    parts = {part["label"]: part for part in report["time"]["parts"]}
    assert report["time"]["total_s"] == round(seconds, 1)
    assert parts["waiting for rollouts"]["seconds"] == round(sum(line["time/wait_rollout"] for line in rl), 3)
    assert sum(part["share"] for part in report["time"]["parts"]) == pytest.approx(1, abs=1e-3)
    assert sum(part["seconds"] for part in report["time"]["parts"]) == pytest.approx(seconds, abs=0.01)


def test_what_is_unusual_comes_first_and_a_gap_over_its_limit_is_not_to_be_trusted(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    report = build_report([read_directory(run)], [None])
    assert [tile["level"] for tile in report["tiles"]] == ["warn", "none", *["ok"] * 3, "none"]
    sound = "as far as one seed tells: nothing is over its limit (policy lag, engine-learner gap, failures)."
    assert report["trust"] == {"level": "good", "text": sound}
    lines = records(run / "metrics.jsonl")
    lines[-1] |= {"mismatch/probe_mean": 0.004, "episode/token_limit": 1.0, "episode/malformed": 0.9}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = build_report([read_directory(run)], [None])
    names = ["engine-learner gap", "cut off by a limit", "failed episodes"]
    assert [tile["label"] for tile in report["tiles"]][:3] == names and len(report["tiles"]) == 6
    assert report["trust"] == {"level": "bad", "text": "as it is: engine-learner gap 0.004 (limit 0.003)."}


def test_what_was_not_measured_is_not_trusted_and_a_failed_run_no_further_than_it_went() -> None:
    tiles = [Tile(label, "", "", "ok", "") for label in SOUND]
    assert rollout_fidelity_verdict(tiles, "done")["level"] == "good"
    assert rollout_fidelity_verdict(tiles, "failed")["text"].startswith("up to where it failed")
    assert (rollout_fidelity_verdict([], "done")["level"], rollout_fidelity_verdict(tiles[2:], "done")["level"]) == (
        "unknown",
        "unknown",
    )
    assert all(name in rollout_fidelity_verdict(tiles[2:], "done")["text"] for name in ("lag", "gap", "failures"))


@pytest.mark.parametrize(("lags", "bounds", "level"), [([3, 1], [3, 1], "ok"), ([3, 2], [3, 1], "bad")])
def test_the_lag_of_a_step_is_compared_with_the_bound_that_it_had(
    lags: list[int], bounds: list[int], level: str, tmp_path: Path
) -> None:
    run = whole(tmp_path / "run", loop=LOOP | {"max_policy_lag": 1})
    lines = records(run / "metrics.jsonl")
    for line, lag, bound in zip([entry for entry in lines if entry["stage"] == "rl"], lags, bounds, strict=False):
        line |= {"lag/max": lag, "lag/bound": bound}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiles = {tile["label"]: tile for tile in build_report([read_directory(run)], [None])["tiles"]}
    assert (tiles["policy lag, most"]["level"], tiles["policy lag, most"]["note"]) == (level, "bound 3")


def test_the_verdict_is_the_paired_test_over_the_tasks_of_both(tmp_path: Path) -> None:
    """20 of 40 before, 35 after: 15 tasks are new, none is lost, and p is 2 / 2^15."""
    judgement = judge_learning(opened(tmp_path))
    assert judgement.level == "good" and judgement.paired is not None
    assert (judgement.paired.tasks, judgement.paired.difference) == (40, 0.375)
    assert judgement.paired.p == pytest.approx(2 / 2**15) == paired_test([1.0] * 15 + [0.0] * 25)[1]
    assert judgement.paired.low > 0
    assert "0.50" in judgement.text and "0.88" in judgement.text and "p = 6e-5" in judgement.text


def test_the_headline_says_how_it_ended_and_what_ran(tmp_path: Path) -> None:
    nodes = [{"name": "node 1", "gpus": {"name": "A100-80G", "count": 8}}, {"name": "node 2", "gpus": None}]
    attempt = {"version": "0.1.0", "commit": "548c04b9999", "dirty": True, "nodes": nodes}
    record = {"parameters": 720_000, "attempts": [attempt]}
    gpus = headline(opened(tmp_path / "a", record=record, cluster={"device": "cuda"}))
    assert gpus == (
        "done, 23 steps in 1:09 · reward answer, seed 0 · sft, rl · 0.72 M parameters · 1 engine + 1 rank, "
        "8 x A100-80G on 2 nodes · rlsys 0.1.0 (548c04b+changes)"
    )
    ended = {"status": "stopped", "steps": 23, "wall_s": 95.4}  # 26 s after its last row
    assert headline(opened(tmp_path / "d", summary=ended)).startswith("stopped at step 23 of 23 in 1:35 ·")
    killed = headline(opened(tmp_path / "b", summary=None, algorithm={"name": "grpo"}))
    assert killed.startswith(
        "stopped at step 23 in 1:09, no summary: the process was killed · reward answer, seed 0 · sft, grpo"
    )
    failed = headline(opened(tmp_path / "c", summary={"status": "failed", "reason": "x\x1b[2J", "steps": 23}))
    assert failed.startswith("failed at step 23 in 1:09: x\\x1b[2J ·")


@pytest.mark.parametrize(("step", "says"), [(0, "begun again"), (12, "continued from step 12")])
def test_a_run_that_goes_on_from_nothing_is_begun_again(step: int, says: str, tmp_path: Path) -> None:
    record = {"attempts": [{"from_step": 0}, {"from_step": step}]}
    assert headline(opened(tmp_path, record=record)).startswith(f"done, 23 steps in 1:09, {says} ·")


def test_right_answers_are_as_the_rows_have_them_and_of_older_rows_as_a_part_says(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", reward={"name": "answer", "correct": 2.0})
    lines = records(run / "metrics.jsonl")
    lines[-1] |= {"reward/solved": 0.75}  # the others are of an earlier version: 0.3 + 0.01 n of 2
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert stage_of(read_directory(run)).right[-3:].tolist() == pytest.approx([0.51 / 2, 0.52 / 2, 0.75])
    functions = {"name": "functions", "functions": {"my.right": 1.0, "my.brief": 0.2}, "solved_by": {"right": 0.5}}
    assert np.isnan(stage_of(opened(tmp_path / "old", reward=functions)).right).all()
    newer = whole(tmp_path / "newer", reward=functions)
    (newer / "metrics.jsonl").write_text(
        "".join(json.dumps(line | {"reward/solved": 0.5}) + "\n" for line in records(newer / "metrics.jsonl"))
    )
    assert (stage_of(read_directory(newer)).right == 0.5).all()


# -- what cannot be known --------------------------------------------------------------------------------------------


def verdict(path: Path, before: dict[str, float], after: dict[str, float], **more: Any) -> Verdict:
    run = opened(path)
    result(run.path, "rl-before", before)
    result(run.path, "rl-after", after, **more)
    return judge_learning(read_directory(run.path))


def test_no_difference_names_the_tasks_that_would_show_one(tmp_path: Path) -> None:
    """Of 100 tasks 5 are won and 5 lost: the interval is about 0.06 to either side, as of 200 with deviation 0.43."""
    tasks = {f"t{n}": float(n < 50) for n in range(100)}
    judgement = verdict(tmp_path, tasks, {task: float(5 <= n < 55) for n, task in enumerate(tasks)})
    assert judgement.level == "flat" and judgement.paired is not None
    half = (judgement.paired.high - judgement.paired.low) / 2
    needed = 100 * (half / 1.96 * 2.8 / 0.03) ** 2
    assert tasks_needed(judgement.paired) == round_count(needed) and 700 < needed < 1000
    assert f"{tasks_needed(judgement.paired):,} would show 3 points" in judgement.text


@pytest.mark.parametrize(("wins", "level", "first"), [(8, "good", "sampled"), (6, "flat", "greedy")])
def test_another_play_decides_only_beyond_chance_in_two_looks(
    tmp_path: Path, wins: int, level: str, first: str
) -> None:
    """Of 40 tasks sampled answers win 8 or 6: p is 2 / 2^8 = 0.008, or 0.031, which is above 0.05 / 2."""
    run, tasks = opened(tmp_path), {f"t{n}": 0.0 for n in range(40)}
    for name in ("rl-before", "rl-after"):
        result(run.path, name, tasks)
    result(run.path, "rl-before", tasks, also="sampled")
    result(run.path, "rl-after", {task: float(n < wins) for n, task in enumerate(tasks)}, also="sampled")
    judgement = judge_learning(read_directory(run.path))
    assert judgement.after is not None and (judgement.level, judgement.after.play) == (level, first)
    assert ("greedy: no difference" if first == "sampled" else "sampled: better") in judgement.text


def test_a_fall_is_said(tmp_path: Path) -> None:
    tasks = {f"t{n}": 1.0 for n in range(30)}
    assert verdict(tmp_path, tasks, dict.fromkeys(tasks, 0.0)).level == "bad"


def test_a_gain_of_one_text_for_all_tasks_is_said_to_be_chance(tmp_path: Path) -> None:
    one_text = BOTH[1] | {"greedy/same_text": 1.0, "greedy/accuracy": 0.4, "greedy/episodes": 100}
    run, tasks = opened(tmp_path, evaluations=[BOTH[0], one_text]), {f"t{n}": float(n < 40) for n in range(100)}
    result(run.path, "rl-before", dict.fromkeys(tasks, 0.0))
    result(run.path, "rl-after", tasks)
    assert "one text" in judge_learning(read_directory(run.path)).text


def test_other_prompts_are_not_compared(tmp_path: Path) -> None:
    tasks = {"a": 0.0, "b": 1.0}
    judgement = verdict(tmp_path, tasks, tasks, prompts="2:other")
    assert judgement.level == "unknown" and judgement.paired is None


def test_without_an_evaluation_the_reward_is_no_proof(tmp_path: Path) -> None:
    judgement = judge_learning(opened(tmp_path, evaluations=()))
    assert judgement.level == "unknown" and "no proof" in judgement.text
    rewards = [row(n)["reward/mean"] for n in range(4, 24)]
    assert f"rose from {average(rewards[:10]):.2f} to {average(rewards[-10:]):.2f}" in judgement.text
    empty = run_directory(tmp_path / "empty")
    assert judge_learning(read_directory(empty)).level == "unknown"
    assert build_report([read_directory(empty)], [None])["tiles"] == []


# -- the rest of a report --------------------------------------------------------------------------------------------


def test_charts_have_a_line_for_each_stage_and_gaps_stay_gaps(tmp_path: Path) -> None:
    run = opened(tmp_path)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    lines[9] = json.dumps({key: own for key, own in json.loads(lines[9]).items() if key != "mismatch/probe_mean"})
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    charts = build_report([read_directory(run.path)], [None])["charts"]
    gap, limit = charts["gap"]["series"]
    assert set(limit["y"]) == {0.003}
    assert gap["x"] == list(range(4, 24)) and gap["y"][6] is None and gap["y"][7] == 1.1e-5
    assert {curve["stage"] for curve in charts["seconds"]["series"]} == {"sft", "rl"}
    assert charts["reward"]["series"][0]["low"] == [0.0] * 20
    assert charts["reward"]["series"][0]["hours"][0] == pytest.approx(
        (row(4)["time"] - row(1)["time"]) / 3600, rel=1e-5
    )
    assert charts["reward"]["series"][0]["tokens"][0] == 101 + 102 + 103 + 104
    assert [mark for mark in charts["reward"]["marks"] if mark["kind"] == "stage"] == [
        {"x": 4, "label": "stage rl", "kind": "stage"}
    ]
    line, dots = charts["right"]["series"]
    assert (line["label"], line["y"][0]) == ("training", 0.34)
    assert (dots["kind"], dots["x"], dots["y"]) == ("dots", [3, 23], [0.5, 0.875])


def test_a_long_run_is_drawn_by_means_with_their_ends(tmp_path: Path) -> None:
    count = 2 * POINTS + 2
    rows = [{"step": n, "reward/std": float(n % 2)} for n in range(1, count + 1)]
    charts = build_report([read_directory(run_directory(tmp_path / "a", rows))], [None])["charts"]
    (line,) = charts["spread"]["series"]
    assert len(line["x"]) == math.ceil(count / 3) and line["x"][-1] == count
    assert (line["low"][0], line["y"][0], line["high"][0]) == (0.0, 0.666667, 1.0)


def test_all_numbers_have_their_meaning_and_their_ends(tmp_path: Path) -> None:
    entry = build_report([opened(tmp_path)], [None])["numbers"]["loss/nll"]
    assert (entry["last"], entry["min"], entry["max"]) == (1.0, 1.0, 3.0) and entry["about"]


def test_cost_counts_the_time_that_a_run_was_held(tmp_path: Path) -> None:
    """Two attempts: 9 s until the row of step 3, then from 30 s to the row of step 23 at 69 s: 48 s on 8 GPUs."""
    nodes = [{"gpus": {"name": "x", "count": 8}}]
    attempts = [{"time": 1e9, "nodes": nodes}, {"time": 1e9 + 30, "nodes": nodes}]
    run = opened(tmp_path, record={"attempts": attempts}, cluster={"device": "cuda"})
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    (run.path / "metrics.jsonl").write_text("\n".join(lines[:3] + lines[10:]) + "\n")
    run = read_directory(run.path)
    rows = dict(build_report([run], [None], price=3.0)["tables"]["cost"]["rows"])
    assert rows["GPU hours"] == number(8 * 48 / 3600)
    assert rows["cost, at 3 for a GPU hour"] == f"{3 * 8 * 48 / 3600:,.2f}"


def test_a_label_has_one_colour_in_all_charts_of_a_page(tmp_path: Path) -> None:
    report = build_report([opened(tmp_path)], [None])
    series = [curve for chart in report["charts"].values() for curve in chart["series"]]
    plays = {curve["colour"] for curve in series if curve["label"].removeprefix("held-out ") == "greedy"}
    assert len(plays) == 1 and {owner["chart"] for owner in owners(report, "greedy")} >= {"held_out", "right"}
    phases = {curve["label"]: curve["colour"] for curve in report["charts"]["seconds"]["series"]}
    assert {
        part["label"]: part["colour"] for part in report["time"]["parts"] if part["label"] in phases
    }.items() <= phases.items()


def owners(found: dict[str, Any], label: str) -> list[dict[str, Any]]:
    pairs = ((name, curve) for name, chart in found["charts"].items() for curve in chart["series"])
    return [{"chart": name} for name, curve in pairs if curve["label"].removeprefix("held-out ") == label]


def test_colours_are_those_of_before_where_they_are_free_and_differ_within_a_chart() -> None:
    def chart(*labels: str) -> dict[str, Any]:
        kinds = {label: "dots" if label.split()[-1] in ("greedy", "sampled") else "line" for label in labels}
        return {"series": [{"label": label, "kind": kinds[label]} for label in labels]}

    def colours(charts: dict[str, Any], **more: bool) -> dict[str, list[int]]:
        colour_labels(charts, **more)
        return {name: [curve["colour"] for curve in own["series"]] for name, own in charts.items()}

    charts = {
        "a": chart("greedy", "sampled"),
        "b": chart("x", "held-out sampled"),
        "c": chart("y", "x", "its limit"),
        "d": chart(*"abcdefghij"),
    }
    held_out, limit = [1, 2], 9  # as report.css has them
    more = [0, 3, 4, 5, 6, 7, 8, 0, 3, 4]
    assert colours(charts) == {"a": held_out, "b": [0, 2], "c": [3, 0, limit], "d": more}
    assert colours({"a": chart("a greedy", "b greedy"), "b": chart("b greedy")}, compared=True) == {
        "a": [0, 3],
        "b": [3],
    }


def test_a_caption_names_the_stage_where_a_curve_is_of_several(tmp_path: Path) -> None:
    charts = build_report([opened(tmp_path)], [None])["charts"]
    assert charts["seconds"]["summary"].startswith("rl, update: first ")
    assert charts["reward"]["summary"].startswith("first ")


def test_the_table_of_paid_wrong_answers_is_what_the_lists_link_shows(tmp_path: Path) -> None:
    """Three right ones of 1.0; two wrong ones of 0.1 for their form, and one of 0.9."""
    run = opened(tmp_path)
    wrong = [
        episode(sequence=1, sibling=n, reward=paid, parts={"correct": 0.0}) for n, paid in enumerate((0.1, 0.9, 0.1))
    ]
    jsonl(run.path / "trajectories" / "step-000005.jsonl", [*(episode(sibling=n) for n in range(3)), *wrong])
    episodes = read_episodes(run)
    table = build_report([run], [episodes])["tables"]["paid"]
    assert [cells[0] for cells in table["rows"]] == ["step-000005:1.1"] and "(1 episode paid more than 0.5" in table[
        "title"
    ]
    index = make_pack([episodes], None).index()
    columns = index["columns"]
    places = zip(columns["reward"], columns["correct"], columns["sibling"], strict=True)
    assert [place for place in places if place[0] > index["paid"] and not place[1]] == [(0.9, 0, 1)]


def test_a_report_of_one_directory_is_always_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = whole(tmp_path / "run")
    jsonl(path / "trajectories" / "step-000005.jsonl", [episode(), episode(sibling=1, reward=0.25)])
    pages = []
    for _ in range(2):
        assert rlsys(["report", str(path)]) == 0
        pages.append((path / "report.html").read_bytes() + (path / "report.json").read_bytes())
    assert pages[0] == pages[1]
    assert json.loads((path / "report.json").read_text())["title"] == "run"
    assert not [file.name for file in path.iterdir() if file.name.endswith(".tmp")]
    capsys.readouterr()
    assert rlsys(["report", str(path), "--json"]) == 0
    assert capsys.readouterr().out == (path / "report.json").read_text()


def test_what_is_redacted_names_no_machine_no_path_and_no_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["rlsys", "train", "quickstart", "--run-dir", "/data/secret/run"]
    nodes = [{"name": "node 1", "cores": 2, "memory_gb": 8, "gpus": None, "parts": ["driver"]}]
    attempt = {"time": 1e9, "command": command, "overrides": ["env.data=/data/secret/x.jsonl"], "nodes": nodes}
    events = [{"kind": "restart", "step": 5, "who": "rollout:0", "text": "secret"}, {"kind": "end"}]
    health = [{"stage": "rl", "what": "raised", "says": "look: rlsys score /data/secret/run/config.yaml", "of": 0}]
    path = whole(
        tmp_path / "run",
        record={"attempts": [attempt]},
        events=events,
        env={"data": "/data/secret/x.jsonl"},
        summary={"status": "done", "steps": 23, "health": health},
    )
    lines = [episode(task={"task_id": "secret"}, parts={"correct": 0.0})]
    jsonl(path / "trajectories" / "step-000005.jsonl", lines)
    assert rlsys(["report", str(path), "--json"]) == 0
    assert "secret" in capsys.readouterr().out
    assert rlsys(["report", str(path), "--json", "--redact"]) == 0
    out = capsys.readouterr().out
    assert "secret" not in out and "It learned" in out
    assert rlsys(["report", str(path), "--redact"]) == 0
    assert b"secret" not in (path / "report.html").read_bytes()


def test_errors_that_a_run_quotes_are_left_out_of_a_redacted_report(tmp_path: Path) -> None:
    says = "in 2 % of the episodes your code raised an error; the first: data in reward: the answer of secret"
    summary = {
        "status": "failed",
        "steps": 23,
        "reason": "secret · at 10.0.0.2",
        "health": [
            {"stage": "rl", "what": "raised", "says": says, "of": 0},
            {"stage": "rl", "what": "cut", "says": "on 10.1.2.3, version 0.1.0", "of": 0},
        ],
    }
    report = redact(build_report([opened(tmp_path, summary=summary)], [None]))
    text = json.dumps(report)
    assert "secret" not in text and "10.0.0.2" not in text and "10.1.2.3" not in text and "0.1.0" in text
    assert report["runs"][0]["headline"].startswith("failed at step 23 in 1:09 · ")


@pytest.mark.parametrize("odd", ["-1", "many"])
def test_a_count_that_is_none_is_refused(tmp_path: Path, odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rlsys(["report", str(tmp_path), f"--trajectories={odd}"]) == 2
    assert "--trajectories" in capsys.readouterr().err


def test_numbers_are_written_in_one_way() -> None:
    assert [number(value) for value in (None, 0, 0.1, 0.0312, 12.345, 999.7, 1234567.0, 9.5e-6)] == [
        "–", "0", "0.1", "0.0312", "12.3", "1,000", "1,234,567", "9.5e-06"
    ]  # fmt: skip
    assert [share(value) for value in (0.738, 0.004, 0.997, 1.0, 0.0, 1e-5)] == [
        "74 %", "0.4 %", "99.7 %", "100 %", "0 %", "< 0.1 %"
    ]  # fmt: skip
    assert [p_value(value) for value in (0.034, 6e-12, 1e-20)] == ["p = 0.034", "p = 6e-12", "p < 1e-16"]
    assert [round_count(value) for value in (1632.0, 99.6, 0.2)] == [1600, 100, 1]
