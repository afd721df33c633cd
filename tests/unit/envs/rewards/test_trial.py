"""A reward function of a user's own is tried before a run: what always raises or compares is refused by its name."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from envs.rewards import trial
from envs.rewards.functions import FunctionsRewardConfig
from envs.rewards.trial import try_functions
from launch.checks.own_functions import try_functions_of
from launch.config.compose import compose
from launch.driver.stages.base import scored_recipes
from rlsys.types import Task
from tests.makers.made import jsonl
from tests.refused import refused

OWN = "tests.fakes.reward_functions"
TASKS = [Task(task_id=f"t:{n}", question=f"{n} + 1?", answers=(str(n + 1),), record={"level": n}) for n in range(4)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes long to start a process."""
    monkeypatch.setattr(trial, "TRIAL_S", 600.0)


def config(*names: str) -> FunctionsRewardConfig:
    return FunctionsRewardConfig(functions={f"{OWN}.{name}": 1.0 for name in names})


def test_functions_that_give_rewards_pass() -> None:
    names = ["length", "boom_on_the_first", "insists_on_tags", "reads_a_tool", "draws", "first_alone", "no_server"]
    assert try_functions(config(*names, "compute_score", "writes"), TASKS) == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("boom", "KeyError: 'stock' (reward_functions.py:"),
        ("compute_none", "ValueError"),
        ("words", "returned 'good'"),
        ("rank", "; together "),
        ("rank_later", "it compares completions"),
        ("leaves", "it ended its process"),
    ],
)
def test_one_that_always_fails_or_compares_is_refused(name: str, says: str) -> None:
    with refused("reward.functions", found=f"{OWN}.{name}", says=says):
        try_functions(config("length", name), TASKS)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["misspelt"], "'anwser' (did you mean 'answer'?) keeps its default"),
        (["silent"], "no function applies"),
        (["silent", "length"], ""),
        (["wants_two_tags"], "wants_two_tags: 0 for every text"),
        (["compute_score_em"], "compute_score_em: 0 for every text"),
        (["always_one"], "always_one: 1 for every text"),
        (["finds_the_answer"], ""),
        (["finds_it_in_tags"], ""),
        (["wants_two_tags", "length"], ""),
    ],
)
def test_a_doubt_is_said_and_is_no_refusal(names: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert try_functions(config(*names), TASKS) == ""
    output = capsys.readouterr().err
    assert says in output and output.count("\n") == bool(says)


def test_a_doubt_needs_a_wrong_answer_with_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    said_twice = [Task(task_id=f"t:{n}", question="?", answers=("yes",)) for n in range(3)]
    for name, doubted in (("finds_the_answer", False), ("always_one", True)):
        assert try_functions(config(name), said_twice) == ""  # the tasks have no second answer
        assert bool(capsys.readouterr().err) == doubted


def test_a_trial_awaits_what_a_run_awaits() -> None:
    with refused("reward.functions", says="`async def`"):
        try_functions(config("unawaited"), TASKS)


def test_one_that_takes_minutes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIAL_S", 0.0)
    assert "was not tried" in try_functions(config("minutes"), TASKS)


def test_a_function_that_always_raises_is_refused_before_a_run_and_told_to_one_that_goes_on(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]
    data = jsonl(tmp_path / "tasks.jsonl", rows)
    keys = ["stages.sft=null", "env.name=prompts", f"env.data={data}", "reward.name=functions"]
    run = compose("quickstart", [*keys, f"reward.functions={{{OWN}.boom: 1}}"])
    with refused("reward.functions", says="in boom"):
        try_functions_of(scored_recipes(run, run.stages[0]))
    warnings: list[str] = []
    try_functions_of(scored_recipes(run, run.stages[0]), warnings.append)
    assert len(warnings) == 1 and "in boom" in warnings[0] and "goes on" in warnings[0]


@pytest.mark.parametrize("kind", ["rl", "eval"])
def test_what_scores_an_evaluation_set_is_tried_too(kind: str, tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"{n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
    recipe = {
        "env": {"name": "prompts", "data": str(jsonl(tmp_path / "tasks.jsonl", rows)), "held_out_tasks": 1},
        "reward": {"name": "functions", "functions": {f"{OWN}.length": 1}},
        "eval": {"sets": {"one": {"reward": {"functions": {f"{OWN}.boom": 1}}}}},
        "stages": [{"name": "one", "kind": kind} | ({"steps": 1} if kind == "rl" else {})],
    }
    (tmp_path / "own.yaml").write_text(json.dumps(recipe))
    run = compose(str(tmp_path / "own.yaml"), [])
    with refused("reward.functions", says="in boom"):
        try_functions_of(scored_recipes(run, run.stages[0]))


def test_functions_are_tried_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[object] = []
    monkeypatch.setattr(trial, "tried", set())
    monkeypatch.setattr(trial, "try_functions", lambda *about: calls.append(about) or "was not tried")
    for source in ("a", "a", "b"):
        trial.try_functions_once(config("length"), TASKS, source)
    assert len(calls) == 2 and capsys.readouterr().err.count("was not tried") == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("reads_its_own_form", "it raised AttributeError"),
        ("needs_a_variable", "not tried: it raised KeyError"),
        ("needs_a_file", "not tried: it raised FileNotFoundError"),
        ("starts_a_process", ""),
    ],
)
def test_what_another_text_or_place_may_have_is_no_refusal(
    name: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert try_functions(FunctionsRewardConfig(functions={f"{OWN}.{name}": 1.0}), TASKS) == ""
    assert says in capfd.readouterr().err


def test_what_a_function_starts_ends_with_the_trial() -> None:
    word = f"trial-{os.getpid()}-{time.time_ns()}"
    tasks = [Task(task_id="t", question="?", answers=("1",), record={"word": word})]
    assert try_functions(FunctionsRewardConfig(functions={f"{OWN}.leaves_a_process": 1.0}), tasks) == ""
    assert not [process for process in psutil.process_iter() if _word_of(process) == word]


def _word_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("WORD", "") if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""
