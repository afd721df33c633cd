"""Each rule of the advice with rows that trip it, and with rows that nearly do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.episodes import read_episodes
from launch.tools.report.advice import Advice
from launch.tools.report.advise import advise
from launch.tools.report.verdict import Verdict, judge_learning
from tests.makers.made import jsonl
from tests.makers.run_directory import episode, result, run_directory

Rows = list[dict[str, Any]]
RANK = "memory/learner_rss_peak_mb"
STAGES = [{"name": "rl", "kind": "rl", "steps": 40}]
UNKNOWN = Verdict(level="unknown", text="")
FLAT = Verdict(level="flat", text="")
GPU = {"cluster": {"device": "cuda"}}
SIZES = {
    "rollout": {"workers": 2, "max_turn_tokens": 64, "in_flight": 8},
    "learner": {"ranks": 6},
    "engine": {"tensor_parallel": 1, "max_model_len": 512},
    "loop": {"groups_per_step": 4, "group_size": 8, "max_policy_lag": 1},
}


def steps(count: int, **values: float | Callable[[int], float]) -> Rows:
    """Rows 1 to count; a function takes the number of the step."""
    return [
        {"step": n, **{key.replace("__", "/"): own(n) if callable(own) else own for key, own in values.items()}}
        for n in range(1, count + 1)
    ]


def opened(path: Path, rows: Rows, **more: Any) -> RunDirectory:
    summary = more.pop("summary", {"status": "done", "steps": len(rows)})
    config = {"stages": STAGES, "reward": {"name": "answer", "correct": 1.0}} | SIZES | more
    return read_directory(run_directory(path / "run", rows, summary=summary, **config))


def advice(path: Path, rows: Rows, verdict: Verdict = UNKNOWN, **more: Any) -> list[Advice]:
    run = opened(path, rows, **more)
    return advise(run, verdict, read_episodes(run))


def rules(found: Sequence[Advice]) -> list[str]:
    return [item.rule for item in found]


def groups(filtered: float, right: float, count: int = 12) -> Rows:
    more = {"groups/trained": 100 - filtered, "groups/filtered": filtered, "reward/part/correct": right}
    return [row | more for row in steps(count)]


# -- what broke ------------------------------------------------------------------------------------------------------


def test_a_run_that_did_not_end_by_itself_is_continued_from_its_newest_checkpoint(tmp_path: Path) -> None:
    run = opened(tmp_path, steps(3), summary={"status": "failed", "steps": 3, "reason": "the disk is full"})
    for name in ("step-000002", "step-000001", "best-step-000003"):
        (run.path / "checkpoints" / name).mkdir(parents=True)
    (item,) = advise(run, UNKNOWN, None)
    assert (item.rule, item.level, item.steps) == ("ended_early", "broken", (3, 3))
    assert "the disk is full" in item.text and "step-000002" in item.text
    assert rules(advice(tmp_path / "b", steps(3), summary=None)) == ["ended_early"]
    assert advice(tmp_path / "c", steps(3)) == []
    assert advice(tmp_path / "d", steps(3), summary={"status": "stopped", "steps": 3}) == []


def test_findings_of_the_run_are_said_unchanged(tmp_path: Path) -> None:
    says = "the reward is format only (format 0.099; correct 0.0078): try an sft stage before"
    finding = {"stage": "rl", "what": "unsolved", "says": says, "first_step": 2, "last_step": 5, "steps": 4, "of": 9}
    (item,) = advice(tmp_path, steps(3), summary={"status": "done", "steps": 3, "health": [finding]})
    assert item.text == f"in 4 of 9 steps of stage rl, from step 2: {says}"
    assert (item.level, item.steps, item.href) == ("wrong", (2, 5), "#t?step=2-5&play=none")
    for kind, level in (("raised", "broken"), ("lopsided", "slow")):
        health = [finding | {"what": kind}]
        (item,) = advice(tmp_path / kind, steps(3), summary={"status": "done", "steps": 3, "health": health})
        assert item.level == level


def test_that_a_run_got_worse_comes_before_what_is_left_of_it(tmp_path: Path) -> None:
    names = ("untrained", "cut", "held_out")
    health = [{"stage": "rl", "what": name, "says": name, "of": 0} for name in names]
    items = advice(tmp_path, steps(3), summary={"status": "done", "steps": 3, "health": health})
    assert [item.text for item in items] == ["held_out", "untrained", "cut"]


def test_of_a_run_without_a_summary_the_events_have_the_findings(tmp_path: Path) -> None:
    events = [{"kind": "health", "step": 2, "text": "3 steps in a row: x"}, {"kind": "end"}]
    items = advice(tmp_path, steps(3), summary={"status": "done", "steps": 3}, events=events)
    assert [(item.text, item.steps) for item in items] == [("3 steps in a row: x", (2, 2))]


def noted(sign: str, step: int = 3, stage: str = "rl") -> dict[str, Any]:
    return {"kind": "health", "step": step, "stage": stage, "text": f"health: step {step}: {sign}", "sign": sign}


def test_of_a_run_that_was_killed_each_sign_is_said_once(tmp_path: Path) -> None:
    """Whether several of its processes, an earlier one's summary, or a rule besides say it."""
    rows, events = groups(95, 0.05), [noted("starved"), noted("raised", 5), noted("starved", 7)]
    items = advice(tmp_path / "a", rows, summary=None, events=events)
    assert rules(items) == ["health: raised", "ended_early", "health: starved"]
    assert [(item.text, item.steps) for item in items[::2]] == [("step 5: raised", (5, 5)), ("step 7: starved", (7, 7))]
    finding = {"stage": "rl", "what": "starved", "says": "x", "first_step": 1, "last_step": 4, "steps": 4, "of": 4}
    earlier = {"status": "stopped", "steps": 4, "health": [finding]}
    items = advice(tmp_path / "b", rows, summary=earlier, events=[*events, {"kind": "begin"}])
    assert rules(items) == ["health: raised", "ended_early", "health: starved"]
    other = advice(tmp_path / "c", rows, summary=None, events=[noted("starved", stage="warm")])
    assert rules(other) == ["ended_early", "health: starved", "hard"]  # another stage's says nothing about this one
    ended = {"status": "done", "steps": 12, "health": []}
    assert rules(advice(tmp_path / "d", rows, summary=ended, events=events)) == ["hard"]  # it has all that held
    by_parent = {"status": "done", "steps": 12}
    lopsided = advice(tmp_path / "e", timed(0.6, 0.97), summary=by_parent, events=[noted("lopsided")], **GPU)
    assert rules(lopsided) == ["move_gpus"]


@pytest.mark.parametrize(
    ("errors", "opened_now", "level"), [(5.0, 0.0, "wrong"), (4.0, 0.0, None), (0.0, 1.0, "broken")]
)
def test_tools_that_fail(tmp_path: Path, errors: float, opened_now: float, level: str | None) -> None:
    """Counts are since the workers' start: the last row of 100 calls has them all."""
    last = {"tool/search/calls": 100.0, "tool/search/errors": errors, "tool/search/breaker_open": opened_now}
    rows = [row | {key: value * n / 5 for key, value in last.items()} for n, row in enumerate(steps(5), start=1)]
    rows[-1]["tool/search/breaker_open"] = opened_now
    items = advice(tmp_path, rows, env={"retriever": {"guard": {"deadline_s": 30.0}}})
    key = "env.retriever.guard.deadline_s"
    assert [(item.rule, item.level, item.key) for item in items] == ([("tool", level, key)] if level else [])


@pytest.mark.parametrize(("timeouts", "again"), [(4.0, False), (5.0, True)])
def test_errors_that_the_run_has_found_are_not_counted_again(tmp_path: Path, timeouts: float, again: bool) -> None:
    counts = {"calls": 100.0, "errors": 9.0 + timeouts, "errors_unparsable": 9.0, "errors_timeout": timeouts}
    row = {f"tool/judge/{key}": count for key, count in counts.items()}
    finding = {"stage": "rl", "what": "unread", "says": "x", "first_step": 1, "last_step": 1, "steps": 1, "of": 1}
    items = advice(tmp_path, [steps(1)[0] | row], summary={"status": "done", "steps": 1, "health": [finding]})
    assert rules(items) == ["health: unread", *(["tool"] if again else [])]


def test_a_count_begins_before_the_stage_and_goes_on_after_a_gap(tmp_path: Path) -> None:
    """100 calls and errors before the stage; in it 10 more calls, of which one failed."""
    counts = [(100.0, 100.0), (100.0, 100.0), None, (110.0, 101.0)]
    rows = [
        {"step": n, "stage": "warm" if n < 2 else "rl"}
        | ({"tool/x/calls": own[0], "tool/x/errors": own[1]} if own else {})
        for n, own in enumerate(counts, start=1)
    ]
    stages = [{"name": "warm", "kind": "sft", "steps": 1}, *STAGES]
    (item,) = advice(tmp_path, rows, stages=stages)
    assert item.numbers == {"errors": 1.0, "calls": 10.0} and item.key is None


def test_calls_of_a_worker_that_began_again_are_added_up(tmp_path: Path) -> None:
    counts = [(50.0, 5.0), (100.0, 10.0), (10.0, 9.0), (20.0, 11.0)]  # a worker began again in the third step
    rows = [row | {"tool/x/calls": c, "tool/x/errors": e} for row, (c, e) in zip(steps(4), counts, strict=True)]
    (item,) = advice(tmp_path, rows)
    assert item.numbers == {"errors": 12.0, "calls": 110.0}


def test_answers_that_cannot_be_graded_are_no_errors_of_the_grader(tmp_path: Path) -> None:
    row = {"tool/grader/calls": 100.0, "tool/grader/errors": 50.0, "tool/grader/errors_hopeless": 50.0}
    assert advice(tmp_path, [steps(1)[0] | row]) == []


# -- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "rule", "key"),
    [
        (groups(74, 0.94), "easy", "curriculum.name=difficulty"),
        (groups(51, 0.81), "easy", "curriculum.name=difficulty"),
        (groups(50, 0.94), None, None),
        (groups(74, 0.80), None, None),
        (groups(74, 0.94, count=9), None, None),
        (groups(74, 0.1), "hard", "loop.group_size=16"),
        (groups(74, 0.2), None, None),
        (groups(50, 0.1), None, None),
    ],
)
def test_tasks_that_are_too_easy_or_too_hard(tmp_path: Path, rows: Rows, rule: str | None, key: str | None) -> None:
    items = advice(tmp_path, rows)
    assert [(item.rule, item.key) for item in items] == ([(rule, key)] if rule else [])
    if items:
        assert items[0].steps == (3, 12) and items[0].href.startswith("#t?step=3-12&advantage=none")
        assert items[0].label == f"{10 * rows[0]['groups/filtered']:.0f} groups"


def test_what_health_has_found_of_a_stage_is_not_said_again(tmp_path: Path) -> None:
    finding = {"stage": "rl", "says": "x", "first_step": 1, "last_step": 9, "steps": 9, "of": 12}
    health = [finding | {"what": "starved"}]
    items = advice(tmp_path, groups(95, 0.05), summary={"status": "done", "steps": 12, "health": health})
    assert rules(items) == ["health: starved"]


@pytest.mark.parametrize(
    ("what", "href"),
    [
        ("mismatch_by_depth", "#chart/gap_depth"),
        ("cut", "#t?step=1-9&truncated=1&play=none"),
        ("clipped", "#t?step=1-9&play=none"),
    ],
)
def test_a_finding_leads_to_where_it_is_seen(tmp_path: Path, what: str, href: str) -> None:
    finding = {"stage": "rl", "what": what, "says": "x", "first_step": 1, "last_step": 9, "steps": 9, "of": 12}
    (item,) = advice(tmp_path, steps(10), summary={"status": "done", "steps": 10, "health": [finding]})
    assert item.href == href


@pytest.mark.parametrize(("last", "falls", "tripped"), [(0.19, True, True), (0.09, True, False), (0.19, False, False)])
def test_more_episodes_cut_off_while_the_reward_falls(tmp_path: Path, last: float, falls: bool, tripped: bool) -> None:
    rows = steps(
        30,
        episode__token_limit=lambda n: last if n > 20 else 0.02,
        reward__mean=lambda n: 0.5 if (n > 20) == falls else 0.7,
        episode__tokens_max=64,
    )
    items = advice(tmp_path, rows)
    assert rules(items) == (["cut"] if tripped else [])
    if tripped:
        assert items[0].key == "rollout.max_turn_tokens=128"
        several = advice(tmp_path / "several", [row | {"episode/turns": 3.0} for row in rows])
        assert [item.key for item in several] == [None]  # 64 tokens in three messages reach no limit


def test_tasks_are_too_hard_after_one_step_of_a_thousand_episodes(tmp_path: Path) -> None:
    rows = [row | {"episode/count": 1024.0} for row in groups(74, 0.1, count=1)]
    (item,) = advice(tmp_path, rows)
    assert item.rule == "hard" and "of the last step " in item.text and "10" not in item.text.partition("right")[0]
    (ten,) = advice(tmp_path / "ten", groups(74, 0.1))
    assert "of the last 10 steps " in ten.text  # of twelve
    rising = [row | {"step": n, "episode/count": 1024.0} for n, row in enumerate(paid((0.4, 0.6))[9:11], start=1)]
    assert rules(advice(tmp_path / "b", rising, FLAT)) == ["unproven"]


def paid(rewards: tuple[float, float]) -> Rows:
    return steps(20, reward__mean=lambda n: rewards[n > 10], reward__min=0.0, reward__max=1.0)


def test_a_reward_that_rises_without_held_out_results(tmp_path: Path) -> None:
    run = opened(tmp_path, paid((0.4, 0.6)))
    jsonl(
        run.path / "trajectories" / "step-000015.jsonl",
        [episode(reward=0.9, parts={"correct": 0.0}), episode(reward=0.4, parts={"correct": 0.0}), episode()],
    )
    (item,) = advise(run, FLAT, read_episodes(run))
    assert item.rule == "unproven" and item.label == "1 episode paid but wrong"
    assert item.href == "#t?step=11-20&play=none&reward>0.5&correct=0"
    assert advise(run, UNKNOWN, None) == []
    assert advice(tmp_path / "b", paid((0.4, 0.49)), FLAT) == []


@pytest.mark.parametrize(("slope", "tripped"), [(100.0, True), (50.0, False)])
def test_memory_that_will_not_suffice(tmp_path: Path, slope: float, tripped: bool) -> None:
    """1 GB is 953.7 MiB. At step 60 of 70 engines hold 100 + 60 x slope / 10, and 10 steps are left."""
    rows = steps(60, engine__rss_mb=lambda n: 100 + n * slope / 10, memory__driver_rss_mb=200)
    record = {"attempts": [{"nodes": [{"memory_gb": 1.0, "cores": 2, "gpus": None, "parts": ["driver"]}]}]}
    stages = [{"name": "rl", "kind": "rl", "steps": 70 if slope < 100 else 80}]
    items = advice(tmp_path, rows, record=record, stages=stages, summary={"status": "stopped", "steps": 60})
    assert rules(items) == (["memory"] if tripped else [])
    if tripped:  # 300 + 600 held, 53.7 left: five steps more
        assert items[0].numbers["at"] == 65 and items[0].numbers["mb_per_step"] == pytest.approx(10.0)
        largest = [{key.replace("engine/rss_mb", RANK): own for key, own in row.items()} for row in rows]
        (of_ranks,) = advice(tmp_path / "ranks", largest, record=record, stages=stages)
        assert of_ranks.numbers["mb_per_step"] == pytest.approx(60.0)  # of six ranks


# -- what is slow ----------------------------------------------------------------------------------------------------


def timed(waits: float, busy: float, update: float | None = None, count: int = 12) -> Rows:
    """Steps of 10 s."""
    return steps(
        count,
        time__step=10.0,
        time__wait_rollout=10 * waits,
        time__update=10 * (1 - waits) if update is None else update,
        engine__busy_s=lambda n: 20 * busy * n,
        engine__alive_s=lambda n: 20.0 * n,
    )


@pytest.mark.parametrize(
    ("waits", "busy", "rule", "key"),
    [
        (0.6, 0.97, "move_gpus", "rollout.workers=4 learner.ranks=4"),  # 9.7 s on 2 engines against 4 s on 6 ranks
        (0.4, 0.97, "move_gpus", "rollout.workers=3 learner.ranks=5"),
        (0.27, 0.97, None, None),
        (0.5, 0.5, "both_wait", "loop.max_policy_lag=2"),
        (0.5, 0.6, None, None),
        (0.4, 0.5, None, None),
        (0.05, 0.3, "move_gpus", "rollout.workers=1 learner.ranks=7"),
        (0.46, 0.3, "both_wait", "loop.max_policy_lag=2"),
        (0.1, 0.66, None, None),
    ],
)
def test_who_waits_for_whom(tmp_path: Path, waits: float, busy: float, rule: str | None, key: str | None) -> None:
    items = advice(tmp_path, timed(waits, busy), **GPU)
    assert [(item.rule, item.key) for item in items] == ([(rule, key)] if rule else [])
    assert advice(tmp_path / "cpu", timed(waits, busy)) == []  # two parts that share cores have nothing to divide


def test_a_division_is_said_once_with_its_keys(tmp_path: Path) -> None:
    """The run has found it too; where no other division is faster its own sentence stays."""
    finding = {"stage": "rl", "what": "lopsided", "says": "x", "first_step": 1, "last_step": 9, "steps": 9, "of": 12}
    health = {"status": "done", "steps": 12, "health": [finding]}
    assert rules(advice(tmp_path / "a", timed(0.6, 0.97), summary=health, **GPU)) == ["move_gpus"]
    assert rules(advice(tmp_path / "b", timed(0.1, 0.66), summary=health, **GPU)) == ["health: lopsided"]


def test_speed_is_no_topic_while_something_is_wrong(tmp_path: Path) -> None:
    rows = [row | other for row, other in zip(timed(0.6, 0.97), groups(74, 0.94), strict=True)]
    assert rules(advice(tmp_path, rows, **GPU)) == ["easy"]


@pytest.mark.parametrize(("tool", "tripped"), [(4.4, True), (4.2, False)])
def test_episodes_that_wait_for_tools(tmp_path: Path, tool: float, tripped: bool) -> None:
    rows = steps(10, time__episode_generate=9.0, time__episode_tool=tool, time__episode_score=1.0)
    items = advice(tmp_path, rows)
    assert [item.key for item in items] == (["rollout.in_flight=16"] if tripped else [])


@pytest.mark.parametrize(
    ("useful", "device", "tripped"), [(0.29, "cuda", True), (0.3, "cuda", False), (0.1, "cpu", False)]
)
def test_tokens_that_teach_nothing(tmp_path: Path, useful: float, device: str, tripped: bool) -> None:
    rows = steps(10, tokens__useful_share=useful, learner__rows=10, learner__padding_rows=2)
    config = {"cluster": {"device": device}, "learner": {"ranks": 6, "tokens_per_row": 4096}}
    items = advice(tmp_path, rows, **config)
    assert [(item.level, item.key) for item in items] == ([("cheap", "learner.tokens_per_row=2048")] if tripped else [])


def evaluated(path: Path, before: Callable[[int], bool], after: Callable[[int], bool], **more: Any) -> RunDirectory:
    """The rows of a real quickstart: the learner waits 42 % and engines are 94 % busy, on the same two cores."""
    rows = [row | other for row, other in zip(timed(0.42, 0.94, 4.7), groups(74, 0.94), strict=True)]
    rows = [row | {"tokens/useful_share": 0.17, "mismatch/depth_0_1k": 4e-7, "reward/mean": 1.0} for row in rows]
    run = opened(path, rows, **more)
    lines: list[Mapping[str, Any]] = []
    for step, when, right in ((0, "before", before), (12, "after", after)):
        result(run.path, f"rl-{when}", {f"t{n}": float(right(n)) for n in range(40)})
        lines.append({"step": step, "stage": "rl", "when": when})
    jsonl(run.path / "evaluations.jsonl", lines)
    return read_directory(run.path)


def test_a_quickstart_that_has_learned_trips_one_rule(tmp_path: Path) -> None:
    run = evaluated(tmp_path, lambda n: n % 4 > 0, lambda n: n % 20 > 0)
    verdict = judge_learning(run)
    assert verdict.level == "good"
    assert rules(advise(run, verdict, read_episodes(run))) == ["easy"]


def test_a_run_that_got_worse_is_told_to_take_smaller_steps(tmp_path: Path) -> None:
    learner = {"learner": {"lr": 1e-5}}
    run = evaluated(tmp_path, lambda n: n % 20 > 0, lambda n: n % 4 > 0, **learner)
    item = next(item for item in advise(run, judge_learning(run), None) if item.rule == "worse")
    assert "fell from 0.95 (step 0) to 0.75 (step 12)" in item.text
    assert (item.key, item.href) == ("stages.rl.learner.lr=5e-06", "#t?play=greedy&step=12&correct=0")
    (run.path / "evaluations" / "rl-before.json").rename(run.path / "evaluations" / "sft-before.json")
    lines = (run.path / "evaluations.jsonl").read_text()
    (run.path / "evaluations.jsonl").write_text(lines.replace('"rl"', '"sft"', 1))
    earlier = read_directory(run.path)  # which of its stages undid it is not known
    assert [item.key for item in advise(earlier, judge_learning(earlier), None) if item.rule == "worse"] == [None]
    said = {"stage": "rl", "what": "held_out", "says": "it fell", "first_step": 0, "last_step": 12, "steps": 0, "of": 0}
    run = evaluated(tmp_path / "said", lambda n: n % 20 > 0, lambda n: n % 4 > 0, summary={"health": [said]})
    assert "worse" not in rules(advise(run, judge_learning(run), None))


def test_of_a_run_that_was_killed_the_newest_evaluation_says_whether_it_got_worse(tmp_path: Path) -> None:
    for step, rule in ((12, "health: held_out"), (7, "worse")):
        events = [noted("held_out", step)]
        run = evaluated(tmp_path / rule, lambda n: n % 20 > 0, lambda n: n % 4 > 0, summary=None, events=events)
        said = rules(advise(run, judge_learning(run), None))
        assert [name for name in said if name in ("health: held_out", "worse")] == [rule]
