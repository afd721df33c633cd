"""`rlsys eval graph_rl/ablations/single-steps`: whole tasks and their steps, of a model and a judge at addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.config.layers import CONFIGS
from launch.data.derived import single_steps
from tests.e2e.runs import left_behind, rlsys
from tests.fakes.judge_endpoint import choice, scripted
from tests.makers.made import jsonl, records
from tests.makers.real_sets import write_real_sets

QUESTIONS = [
    {"question": f"Is {n} odd?", "answers": ["yes"], "decomposition": [f"What is {n}?"], "facts": [f"{n} is a number"]}
    for n in ("one", "two")
]
SINGLE = ("strategyqa", "knowledge_crosswords", "proscript")
TINY = """extends: ablations/single-steps.yaml
name: graph_rl-single-steps-tiny
model: {path: null, dtype: auto}
cluster: {device: cpu, gpu_memory_gb: null}
"""


def write(folder: Path) -> Path:
    """The recipe with data of two tasks a set, and their single steps."""
    write_real_sets(folder)
    real = folder / "data" / "graph_rl" / "real"
    jsonl(real / "strategyqa.jsonl", QUESTIONS)
    filled = [line | {"filled": [f"x is {line['question']}"]} for line in records(real / "knowledge_crosswords.jsonl")]
    jsonl(real / "knowledge_crosswords.jsonl", filled)
    (real / "single").mkdir()
    for name in SINGLE:
        jsonl(real / "single" / f"{name}.jsonl", list(single_steps(name, real / f"{name}.jsonl")))
    (folder / "ablations").mkdir()
    for name in ("paper.yaml", "ablations/single-steps.yaml"):
        text = (CONFIGS / "graph_rl" / name).read_text()
        (folder / name).write_text(text.replace("data/graph_rl", f"{folder}/data/graph_rl"))
    (folder / "tiny.yaml").write_text(TINY)
    return folder / "tiny.yaml"


def judge(prompt: str) -> str:
    """Of the whole questions one is right; of their single steps both are."""
    if "What is" in prompt:
        return "YES"
    return "NO" if "Is two odd?" in prompt or "**A/B/C/D/UNKNOWN**" in prompt else "YES"


@pytest.mark.slow
def test_single_steps_are_played_and_counted_two_by_two(tmp_path: Path) -> None:
    recipe, output = write(tmp_path), tmp_path / "result.json"
    with scripted(lambda prompt: choice("it is so: true, yes, B", "stop")) as model, scripted(judge) as judges:
        command = ["eval", str(recipe), "--endpoint", model.url, "--model", "big", "--output", str(output)]
        result = rlsys(*command, f"eval.judge.endpoint={judges.url}", "eval.judge.model=m")
        prompts = [request["messages"][0]["content"] for request in model.asked]
    assert result.code == 0, result.output[-3000:]
    report = json.loads(output.read_text())
    assert report["failures"] == dict.fromkeys(report["plays"], 0) and len(report["plays"]) == 12
    steps = report["steps"]["strategyqa_single/greedy"]
    assert (steps["both"], steps["steps_alone"], steps["task_alone"], steps["neither"]) == (1, 1, 0, 0)
    assert (steps["single"], steps["whole"]) == (1.0, 0.5)
    assert {name for name in report["steps"]} == {
        f"{name}_single/greedy" for name in ("strategyqa", "crosswords", "proscript")
    }
    crosswords = report["steps"]["crosswords_single/greedy"]
    assert crosswords["steps_alone"] + crosswords["both"] == 2
    assert any("What is two?" in text for text in prompts) and any("Is two odd?" in text for text in prompts)
    assert "single steps of strategyqa/greedy: steps and task right 1, steps alone 1" in result.output
    assert left_behind() == []
