"""Two environments in one stage, one of them with a server: killed with -9 and continued, with the same draws."""

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs import make_world
from launch.config.compose import compose
from launch.driver.stages.rl_loop import curriculum_of
from rlsys.config.envs import env_of
from rlsys.journal import Dispatched, ledger, read_journal, surviving_rows
from tests.e2e.runs import left_behind, rlsys, rows, steps_of, summary, trajectories
from tests.fakes.judge_endpoint import choice, scripted
from tests.makers.made import records

RECIPE = """
name: both
envs:
  - name: calculator
    weight: 1
    max_turns: 4
    last_chance: false
    train_tasks: 256
    held_out_tasks: 16
    instruction: ""
    reward: {name: answer}
  - name: search_qa
    label: search
    weight: 2
    protocol: research
    topk: 1
    instruction: ""
    train_tasks: 64
    held_out_tasks: 8
    knowledge: {entities: 30}
    retriever: {guard: {deadline_s: 5, attempts: 6, breaker_s: 1}}
    reward: {name: research}
engine: {max_model_len: 512, max_num_seqs: 64, kv_cache_mb: 256}
rollout: {max_turn_tokens: 48}
eval: {tasks: 4}
checkpoint: {every: 1}
tracker: none
stages:
  - {name: sft, kind: sft, steps: 60, loop: {groups_per_step: 32}, learner: {lr: 2.0e-3}, checkpoint: {every: 60}}
  - {name: rl, kind: rl, steps: 5, loop: {groups_per_step: 6, group_size: 4}, learner: {lr: 3.0e-4}}
"""


@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_draws_of_each_environment(tmp_path: Path) -> None:
    recipe, run = tmp_path / "both.yaml", tmp_path / "run"
    recipe.write_text(RECIPE)
    command = ["train", str(recipe), "--run-dir", str(run)]
    killed = rlsys(*command, send=signal.SIGKILL, when=lambda: steps_of(run, "rl") >= 2)
    assert killed.code == -signal.SIGKILL, killed.output[-3000:]
    result = rlsys(*command, "--resume")
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []

    stage = compose(str(recipe), []).stages[-1]
    curriculum = curriculum_of(stage, make_world(stage.config.env), None)
    written = read_journal(run / "journal.jsonl")
    dispatched = [row for row in written if isinstance(row, Dispatched)]
    assert {row.lineage for row in dispatched} == {0, 1}  # of both processes
    for row in dispatched:  # those that the death made void too
        draw = curriculum.draw(row.sequence)
        assert (row.task, row.epoch) == (draw.task.task_id, draw.epoch)
    book = ledger(surviving_rows(written))
    assert (book.dispatched, book.in_flight, book.problems) == (30, 0, ())
    assert Counter(env_of(curriculum.draw(n).task.task_id) for n in range(30)) == {"calculator": 10, "search": 20}

    trained = [row for row in rows(run) if row["stage"] == "rl"]
    assert [row["stage_step"] for row in trained] == list(range(1, 6))
    for row in trained:
        for key in ("episode/count", "tokens/generated", "groups/trained", "groups/filtered", "groups/failed"):
            # a step without episodes of an environment has no tokens of it
            assert sum(row.get(f"by_env/{name}/{key}", 0) for name in ("calculator", "search")) == row[key]
    written_of = [(env_of(t["task"]["task_id"]), "f1" in t["parts"]) for t in trajectories(run, "step-*.jsonl")]
    assert {*written_of} == {("search", True), ("calculator", False)}
    evaluations = records(run / "evaluations.jsonl")
    assert {"calculator/greedy", "search/greedy"} <= evaluations[-1]["prompts"].keys()
    assert "retriever" in " ".join(summary(run)["restarts"])  # its server was one of the run's parts


@pytest.mark.slow
def test_an_evaluation_plays_each_environment_and_scores_it_by_its_own_reward(tmp_path: Path) -> None:
    """A model at an address that adds, and that calls the calculator for word problems: no engine, no Ray."""

    def says(prompt: str) -> Any:
        (question, *more) = endpoint.asked[-1]["messages"]
        if question["content"].startswith("What is"):
            return choice(f"\\boxed{{{sum(int(term) for term in re.findall(r'[0-9]+', question['content']))}}}", "stop")
        return choice("<answer>23" if more else "<math_exp>20 + 3", "stop")

    output = tmp_path / "served.json"
    with scripted(says) as endpoint:
        command = ["eval", "worlds/mixture", "--endpoint", endpoint.url, "--model", "big", "--output", str(output)]
        result = rlsys(*command, "eval.tasks=6", "eval.samples=0", "eval.sets={sums: {tasks: 4}, calculator: {}}")
    assert result.code == 0, result.output[-3000:]
    report = json.loads(output.read_text())
    assert report["episodes"] == {"sums/greedy": 4, "calculator/greedy": 6}
    sums, words = (report["plays"][f"{name}/greedy"]["metrics"] for name in ("sums", "calculator"))
    assert (sums["accuracy"]["value"], sums["part/outcome"]["value"], sums["turns"]["value"]) == (1.0, 1.0, 1.0)
    assert (words["turns"]["value"], words["valid_calls"]["value"]) == (2.0, 1.0) and "part/outcome" not in words
    assert words["accuracy"]["value"] < 1.0
    assert left_behind() == []
