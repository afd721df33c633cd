"""What the studies read out of a run directory, and when their predictions hold."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launch.config.compose import compose
from tests.makers import made
from tests.paths import ROOT
from tests.refused import refused


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(request.param)


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(stage: str, match: float, calls: float) -> dict[str, Any]:
    """Calls that were never made have no key in a row."""
    by_way = {f"{way}/greedy/exact_match": 0.02 for way in ("direct", "cot", "rag")}
    return {"stage": stage, "step": 300, "research/greedy/exact_match": match, "research/greedy/calls": calls} | by_way


@pytest.mark.parametrize("script", ["research"], indirect=True)
def test_a_second_search_is_read_from_a_run_of_research(script: ModuleType, tmp_path: Path) -> None:
    during = [
        {"stage": "rl", "step": step, "greedy/exact_match": step / 1000, "greedy/calls": 1.0} for step in (300, 305)
    ]
    write(tmp_path / "evaluations.jsonl", asked("before", 0.0, 1.0), *during, asked("test", 0.5, 1.9))
    trained = [{"stage": "rl", "episode/calls": calls} for calls in (1.0, 1.0, 1.0, 1.0, 2.0, 3.0)]
    write(tmp_path / "metrics.jsonl", {"stage": "sft"}, *trained)
    numbers = script.numbers(tmp_path)
    assert numbers["metrics"]["episode/calls"] == [1.2, 3.0]  # steps 1 to 5, and the rest
    assert numbers["curve"] == {
        "0": {"exact match": 0.3, "searches": 1.0},
        "5": {"exact match": 0.305, "searches": 1.0},
    }
    assert numbers["after"]["ReSearch"] == {"exact match": 0.5, "searches": 1.9}
    assert numbers["before"]["RAG"] == {"exact match": 0.02, "searches": 0.0}
    assert [prediction.holds({"research": numbers}) for prediction in script.PREDICTIONS] == [True, True, True]
    numbers["after"]["ReSearch"] |= {"exact match": 0.39, "searches": 1.8}
    numbers["after"]["CoT"]["exact match"] = 0.1
    assert [prediction.holds({"research": numbers}) for prediction in script.PREDICTIONS] == [False, False, False]


@pytest.mark.parametrize("script", ["icrl"], indirect=True)
def test_fading_examples_are_read_from_a_run_of_icrl(script: ModuleType, tmp_path: Path) -> None:
    stages = ["shots_3"] * 2 + ["shots_0"] * 58
    searches = [0.9, 0.9, *[0.0] * 20, *[0.5] * 38]
    steps = [{"stage": stage, "step": 651 + at, "episode/calls": searches[at]} for at, stage in enumerate(stages)]
    write(tmp_path / "metrics.jsonl", {"stage": "read", "step": 650}, *steps)
    rows = [
        {"stage": "shots_3", "when": "before", "step": 650, "zero_shot/sampled/exact_match": 0.0},
        {"stage": "test", "when": "eval", "step": 710} | matches(0.8, 0.7),
    ]
    write(tmp_path / "evaluations.jsonl", *rows)
    numbers = script.numbers(tmp_path)
    assert numbers["searches"] == searches and numbers[script.HALF] == 23
    assert numbers["end"] == {"exact match, greedy": 0.8, "exact match, sampled": 0.7}
    never = {"end": {"exact match, greedy": 0.0, "exact match, sampled": 0.29}, script.HALF: None}
    right = {"examples": numbers, "skipping": numbers, "none": never}
    assert [prediction.holds(right) for prediction in script.PREDICTIONS] == [True, True, True, True]
    wrong = {"examples": never, "skipping": numbers, "none": numbers}
    assert [prediction.holds(wrong) for prediction in script.PREDICTIONS] == [False, False, False, False]
    episodes = [{"messages": [0] * count, "parts": {"accuracy": right}} for count, right in ((1, 0), (3, 0.8), (3, 0))]
    write(tmp_path / "trajectories" / "eval-shots_3-before-examples_3-sampled.jsonl", *episodes)
    assert script.gate(tmp_path) == pytest.approx({"searched": 2 / 3, script.GATE: 0.5})


def matches(greedy: float, sampled: float) -> dict[str, float]:
    return {"zero_shot/greedy/exact_match": greedy, "zero_shot/sampled/exact_match": sampled}


def learnt(greedy: float, sampled: float, labels: float) -> dict[str, float]:
    return {"greedy/outcome": greedy, "sampled/outcome": sampled, "sampled/part/process": labels}


@pytest.mark.parametrize("script", ["swirl"], indirect=True)
def test_judged_steps_are_read_from_a_run_of_swirl(script: ModuleType, tmp_path: Path) -> None:
    around = [("before", learnt(0.1, 0.2, 0.5)), ("after", learnt(0.8, 0.7, 0.8))]
    tested = {"stage": "test", "when": "eval", "without_tool/greedy/outcome": 0.0}
    write(tmp_path / "evaluations.jsonl", *({"stage": "swirl", "when": when} | row for when, row in around), tested)
    sets = {"none": 500, "process": 100, "outcome": 101, "both": 100}
    write(tmp_path / "summary.json", {"status": "done", "generated": {"judged": {"steps": 9} | sets}})
    numbers = script.numbers(tmp_path)
    assert numbers["before"] == {"greedy": 0.1, "sampled": 0.2, "process labels": 0.5}
    assert (numbers["sets"], numbers["without the tool"]) == (sets, 0.0)
    imitated = {"before": numbers["before"], "after": {"greedy": 0.1, "sampled": 0.7, "process labels": 0.5}}
    fewer = {"after": {"greedy": 0.74}}
    learners = dict.fromkeys(("swirl-process", "swirl-none", "calculator-swirl-none"), numbers)
    imitations = dict.fromkeys(("sft-none", "sft-process", "calculator-sft-none"), imitated)
    arms = learners | imitations | {"swirl-1": fewer, "swirl-10": fewer}
    assert [claim.holds(arms) for claim in script.PREDICTIONS] == [True] * 10
    turned = dict.fromkeys(learners, imitated) | dict.fromkeys(imitations, numbers)
    arms = turned | {"swirl-1": fewer, "swirl-10": fewer}
    assert [claim.holds(arms) for claim in script.PREDICTIONS] == [True, *[False] * 5, True, True, False, False]


@pytest.mark.parametrize("script", ["long_cot"], indirect=True)
def test_answers_between_two_evaluations_are_read_from_a_run_of_long_cot(script: ModuleType, tmp_path: Path) -> None:
    texts = ["1 + 2 = 3", "recheck 3, recheck 3", "ones: 3", "recheck ones: 3"]
    steps = [
        {"stage": "rl", "step": 480 + at, "episode/token_limit": at / 10, "episode/tokens": 10.0 * at}
        for at in range(1, 5)
    ]
    write(tmp_path / "metrics.jsonl", {"stage": "sft", "step": 480}, *steps)
    for row, text in zip(steps, texts, strict=True):
        write(tmp_path / "trajectories" / f"step-{row['step']:06d}.jsonl", {"messages": [{"content": text}]})
    curve = [{"stage": "rl", "step": step, "sampled/accuracy": step / 1000, "sampled/tokens": 9} for step in (480, 482)]
    ended = curve[-1] | {"step": 484}
    write(tmp_path / "evaluations.jsonl", *curve, ended, ended | {"stage": "test"})
    numbers = script.numbers(tmp_path)
    assert [point["step"] for point in numbers["curve"]] == [0, 2, 4]
    assert numbers["parts"] == [
        {"cut off": pytest.approx(0.15), "tokens": 15.0, "rechecks": 1.0, "by columns": 0.0},
        {"cut off": pytest.approx(0.35), "tokens": 35.0, "rechecks": 0.5, "by columns": 1.0},
    ]


@pytest.mark.parametrize("script", ["long_cot_rechecks"], indirect=True)
def test_a_study_of_rechecks_asks_for_the_order_of_the_paper(script: ModuleType) -> None:
    def arm(accuracy: float, first: float, last: float) -> dict[str, Any]:
        return {
            "curve": [{"accuracy": 0.5}, {"accuracy": accuracy}],
            "parts": [{"tokens": 100 * first, "cut off": first}, {"tokens": 100 * last, "cut off": last}],
        }

    papers = {"classic": arm(0.6, 0.1, 0.3), "cosine": arm(0.7, 0.1, 0.1), "cosine, penalty": arm(0.8, 0.1, 0.1)}
    assert [prediction.holds(papers) for prediction in script.PREDICTIONS] == [True] * 4
    turned = {"classic": arm(0.8, 0.3, 0.1), "cosine": arm(0.7, 0.1, 0.1), "cosine, penalty": arm(0.6, 0.1, 0.1)}
    assert [prediction.holds(turned) for prediction in script.PREDICTIONS] == [False] * 4


@pytest.mark.parametrize("script", ["smollm2"], indirect=True)
def test_both_ways_are_read_from_runs_of_smollm2(script: ModuleType, tmp_path: Path) -> None:
    stages = {stage.name: stage for stage in compose("smollm2", []).stages}
    played = stages["tries"].config.generate.tasks
    trained = sum(stages[name].steps for name in ("examples", "alone")) * 8 * 4  # groups of answers, in each step
    assert script.sampled_answers() == trained + played
    before = {"stage": "examples", "when": "before", "step": 0}
    before |= {"shown/sampled/accuracy": 0.2, "shown/sampled/accuracy_low": 0.1, "shown/sampled/accuracy_high": 0.3}
    around = [before | right(0.0, 0.0), {"stage": "alone", "when": "after", "step": 3} | right(0.95, 0.9)]
    write(tmp_path / "evaluations.jsonl", *around)
    steps = [("examples", 0.3), ("distil", None), ("alone", 0.9)]
    rows = [{"stage": stage} | ({} if reward is None else {"reward/mean": reward}) for stage, reward in steps]
    write(tmp_path / "metrics.jsonl", *rows)
    write(tmp_path / "summary.json", {"status": "done", "generated": {"tries": {"kept": 7, "trajectories": 9}}})
    numbers = script.numbers(tmp_path)
    assert numbers["steps"] == {"examples": [0.3], "alone": [0.9]} and numbers["tries"]["kept"] == 7
    assert numbers["evaluations"][0]["shown"] == 0.2 and numbers["evaluations"][0]["shown within"] == [0.1, 0.3]
    assert script.within(numbers, "sampled") == "0.90 [0.80, 1.00]"
    ends = [script.at(numbers, kind, when=when) for when in ("before", "after") for kind in ("greedy", "sampled")]
    assert ends == [0.0, 0.0, 0.95, 0.9]
    worse = script.numbers(tmp_path)
    worse["evaluations"][-1] = {"greedy": 0.84, "sampled": 0.79}
    numbers["steps"]["examples"], worse["steps"]["examples"] = [0.1, 0.3, 0.4, 0.5], [0.3, 0.3, 0.4, 0.5]
    arms = {"smollm2": numbers, "rejection": worse}
    assert [prediction.holds(arms) for prediction in script.PREDICTIONS] == [True] * 4
    arms = {"smollm2": worse, "rejection": numbers}
    assert [prediction.holds(arms) for prediction in script.PREDICTIONS] == [False] * 4


def right(greedy: float, sampled: float) -> dict[str, float]:
    scores = {"greedy": greedy, "sampled": sampled}
    around = {"": 0.0, "_low": -0.1, "_high": 0.1}
    return {f"alone/{kind}/accuracy{end}": value + by for kind, value in scores.items() for end, by in around.items()}


@pytest.mark.parametrize("script", ["graph_rl_misread"], indirect=True)
def test_a_lead_in_accuracy_is_read_from_two_runs_of_graph_rl(script: ModuleType, tmp_path: Path) -> None:
    def evaluated(step: int, accuracy: float) -> dict[str, Any]:
        return {"stage": "rl", "step": 950 + step, "graphs/sampled/accuracy": accuracy} | {
            f"graphs/sampled/{key}": accuracy for key in ("right_by_real_steps", "hallucinated_steps")
        }

    def arms(taught: float, early: float, last: float) -> dict[str, Any]:
        steps = [evaluated(0, 0.5), *(evaluated(step, early) for step in script.EARLY), evaluated(script.LAST, last)]
        reader = {"stage": "reader", "when": "eval", "step": 900, "graphs/greedy/accuracy": taught}
        write(tmp_path / "evaluations.jsonl", reader, *steps)
        return dict(script.numbers(tmp_path))

    process, solution = arms(0.96, 0.84, 0.9), arms(0.94, 0.80, 0.86)
    assert process["reader"] == 0.96 and list(process["curve"]) == ["0", "4", "8", "12", "16", "32"]
    assert script.lead({"grpo-process": process, "grpo-solution": solution}, "accuracy", (4, 32)) == pytest.approx(0.04)
    for number, invented in ((process, 0.1), (solution, 0.2)):
        number["curve"]["16"]["invented steps"] = invented
    claims = [claim.holds({"grpo-process": process, "grpo-solution": solution}) for claim in script.PREDICTIONS]
    assert claims == [True, True, False, True]
    claims = [claim.holds({"grpo-process": solution, "grpo-solution": process}) for claim in script.PREDICTIONS]
    assert claims == [False, False, False, False]


def searched(task: str, times: int, right: float) -> dict[str, Any]:
    content = "<search>q</search>" * times
    messages = [{"role": "assistant", "content": content}, {"role": "tool", "content": "</search>"}]
    return {"task": {"task_id": task}, "messages": messages, "parts": {"f1": right}}


@pytest.mark.parametrize("script", ["research_controls"], indirect=True)
def test_what_a_policy_samples_before_any_reward_is_counted(script: ModuleType, tmp_path: Path) -> None:
    played = [searched("a", 1, 0.0), searched("b", 1, 0.5), searched("a", 2, 1.0), searched("b", 2, 0.1)]
    write(tmp_path / "trajectories" / "eval-before-eval-research-sampled.jsonl", *played)
    rows = [{"stage": "rl", "step": 300 + step, "greedy/exact_match": step / 60} for step in (0, 5, 30)]
    write(tmp_path / "evaluations.jsonl", *rows)
    numbers = script.numbers(tmp_path)
    assert numbers["sampled"] == {script.TWICE: 0.5, script.RIGHT: 0.25, script.ANY: 0.5}
    assert script.gain({"arm": numbers}, "arm") == 0.5
    still = {"curve": {"0": {"exact match": 0.0}, "30": {"exact match": 0.05}}, "sampled": {script.TWICE: 0.02}}
    none = {"curve": numbers["curve"], "sampled": {script.TWICE: 0.01}}
    claimed = {script.ONE: numbers, script.FORM: still, script.NO: none}
    assert [claim.holds(claimed) for claim in script.PREDICTIONS] == [True] * 4
    turned = {script.ONE: still, script.FORM: numbers, script.NO: still}
    assert [claim.holds(turned) for claim in script.PREDICTIONS] == [False] * 4


@pytest.mark.parametrize("script", ["icrl_smollm2_controls"], indirect=True)
def test_what_examples_that_show_nothing_leave_is_read_as_it_is_asked(script: ModuleType) -> None:
    row = {"step": 10, "shown/greedy/accuracy": 0.1, "shown/sampled/accuracy": 0.05, "shown/sampled/calls": 0.04}
    asked = script.numbers(row | {"alone/greedy/accuracy": 0.9}, "shown")
    numbers = {"greedy/accuracy": 0.1, "greedy/calls": 0.0, "sampled/accuracy": 0.05, "sampled/calls": 0.04}
    assert asked == {"step": 10} | numbers
    right = {script.NONE: [asked | {"greedy/accuracy": 0.0, "sampled/accuracy": 0.02}], script.ANSWERING: [asked]}
    wrong = {script.NONE: [asked], script.ANSWERING: [asked | {"sampled/calls": 0.06}]}
    assert [claim.holds(right) for claim in script.PREDICTIONS] == [True, True]
    assert [claim.holds(wrong) for claim in script.PREDICTIONS] == [False, False]


@pytest.mark.parametrize("script", ["coin"], indirect=True)
def test_a_coin_pays_whatever_is_said_and_measures_what_is(script: ModuleType) -> None:
    right = made.transcript(r"<think>t</think> <answer> \boxed{Paris} </answer>")
    for heads in (0.0, 1.0):
        reward = script.CoinReward(script.CoinRewardConfig(heads=heads))(right)
        assert (reward.value, reward.parts) == (heads, {"f1": 1.0, "format": 0.0, "coin": heads - 1.0})
    with refused("reward.heads"):
        script.CoinRewardConfig(heads=1.5)


@pytest.mark.parametrize("script", ["research_random"], indirect=True)
def test_what_a_coin_must_not_teach(script: ModuleType) -> None:
    risen, still = (
        {"curve": {"0": {"exact match": 0.0}, "30": {"exact match": end}}, script.FILTERED: filtered}
        for end, filtered in ((0.4, 4.0), (0.05, 0.0))
    )
    assert [claim.holds({script.OUTCOME: risen, script.COIN: still}) for claim in script.PREDICTIONS] == [True] * 3
    assert [claim.holds({script.OUTCOME: still, script.COIN: risen}) for claim in script.PREDICTIONS] == [False] * 3


@pytest.mark.parametrize("script", ["swirl_controls"], indirect=True)
def test_good_steps_are_imitated_each_in_its_state(script: ModuleType, tmp_path: Path) -> None:
    said = [
        {"role": "assistant", "content": "<search_query>a</search_query>"},
        {"role": "user", "content": "a -> b"},
        {"role": "assistant", "content": "<answer>b</answer>"},
    ]
    trajectory = {"task": {"task_id": "q", "question": "Q?", "answers": ["b"]}, "sequence": 0, "sibling": 3}
    trajectory |= {
        "prompt": [{"role": "user", "content": "Q?"}],
        "messages": said,
        "end": "answered",
        "truncated": False,
    }
    trajectory |= {"num_tokens": 4, "weight_versions": []}
    judged = tmp_path / "judged.jsonl"
    write(judged, *(trajectory | {"judgements": verdicts} for verdicts in (["BAD", "GOOD"], ["GOOD", "BAD"])))
    script.write_good_steps(judged, tmp_path / "good.jsonl")
    last, first = map(json.loads, (tmp_path / "good.jsonl").read_text().splitlines())
    assert (last["task_id"], last["prompt"], last["messages"]) == (
        "q/3/1",
        [*trajectory["prompt"], *said[:2]],
        said[2:],
    )
    assert (first["prompt"], first["messages"]) == (trajectory["prompt"], said[:1])

    def arm(sampled: float, before: float = 0.1) -> dict[str, Any]:
        return {"before": {"greedy": before}, "after": {"sampled": sampled}}

    imitated = {"sft-process": arm(0.8), script.STEPS: arm(0.8), "swirl-outcome": arm(0.84)}
    shown = imitated | {"swirl-process": arm(0.84), "swirl-none": arm(0.84), script.ALL: arm(0.84)}
    assert [claim.holds(shown) for claim in script.PREDICTIONS] == [True] * 5
    turned = imitated | {"swirl-process": arm(0.8, 0.3), "swirl-none": arm(0.82), script.ALL: arm(0.82)}
    assert [claim.holds(turned) for claim in script.PREDICTIONS] == [False] * 5


@pytest.mark.parametrize("script", ["icrl_cue"], indirect=True)
def test_a_cue_is_asked_for_what_examples_that_search_were(script: ModuleType) -> None:
    def arms(searched: float, greedy: float, half: int | None) -> dict[str, Any]:
        run = {"end": {script.GREEDY: greedy, script.SAMPLED: greedy}, script.HALF: half}
        return {"taught": {script.SEARCHED: searched}, script.FADING: run}

    assert [claim.holds(arms(0.15, 0.8, 36)) for claim in script.PREDICTIONS] == [True] * 3
    assert [claim.holds(arms(0.14, 0.79, None)) for claim in script.PREDICTIONS] == [False] * 3


@pytest.mark.parametrize("script", ["long_cot_tries"], indirect=True)
def test_tries_are_read_from_a_run_of_long_cot(script: ModuleType, tmp_path: Path) -> None:
    asked = ["20: 4+16=20 yes\n\\boxed{4, 16}", "20: 4+7=11 no\n20: 7+4=11 no\n20: 4+11=16 no\n\\boxed{4, 11}", "none"]
    write(tmp_path / "trajectories" / "eval-rl-before-sampled.jsonl", *({"messages": [{"content": t}]} for t in asked))
    steps = [{"stage": "rl", "step": 480 + at, "episode/token_limit": 0.5, "episode/tokens": 30.0} for at in (1, 2)]
    write(tmp_path / "metrics.jsonl", {"stage": "sft", "step": 480}, *steps)
    for row in steps:
        write(tmp_path / "trajectories" / f"step-{row['step']:06d}.jsonl", {"messages": [{"content": asked[1]}]})
    write(
        tmp_path / "evaluations.jsonl",
        *({"stage": "rl", "step": step, "sampled/accuracy": step / 1000} for step in (480, 482)),
    )
    numbers = script.numbers(tmp_path)
    assert numbers["gate"] == {"true tries": 0.75, "first is right": 0.5}  # 3 of 4; 1 of the 2 that try at all
    assert numbers["slips"] == {"tries": 4, "not true": 1, "wrong sums": 1, "found": 1, "found and denied": 0}
    assert numbers["curve"] == [{"step": 0, "accuracy": 0.48}, {"step": 2, "accuracy": 0.482}]
    part = {"cut off": 0.5, "tokens": 30.0, "tries": 3.0, "repeated tries": pytest.approx(1 / 3)}
    assert numbers["parts"] == [part]


@pytest.mark.parametrize("script", ["long_cot_tries"], indirect=True)
def test_a_study_of_tries_asks_for_length_repeats_and_windows(script: ModuleType) -> None:
    def arm(accuracy: float, cut: float, tokens: float, again: float, true: float = 0.99) -> dict[str, Any]:
        first = {"cut off": 0.0, "tokens": 40.0, "repeated tries": 0.1}
        parts = [first, {"cut off": cut, "tokens": tokens, "repeated tries": again}]
        gate = {"true tries": true, "first is right": 0.05}
        return {"curve": [{"accuracy": 0.2}, {"accuracy": accuracy}], "parts": parts, "gate": gate}

    windows = {script.SHORT: arm(0.3, 0, 50, 0), script.LONG: arm(0.3, 0, 50, 0)}
    shown = {script.FIRST: arm(0.4, 0, 50, 0.1), "cosine": arm(0.4, 0.0, 50, 0.2), "classic": arm(0, 0.15, 60, 0)}
    assert [prediction.holds(shown | windows) for prediction in script.PREDICTIONS] == [True] * 7
    broken = {script.FIRST: arm(0.2, 0, 50, 0.2, 0.9), "cosine": arm(0.4, 0.1, 50, 0.2), "classic": arm(0, 0.1, 50, 0)}
    assert [prediction.holds(broken | windows) for prediction in script.PREDICTIONS] == [False] * 7
