"""`rlsys generate` with a teacher behind a real endpoint: killed in the middle, continued, and never asked twice."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys, rows, summary
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import records

KEY = "sk-very-secret-key"


def solved(prompt: str) -> str:
    terms = [int(term) for term in re.findall(r"\d+", prompt)]
    return f"{' + '.join(map(str, terms))} = {sum(terms)}\n\\boxed{{{sum(terms)}}}"


def asked_of(question: dict[str, Any]) -> str:
    return json.dumps([question["messages"], question["seed"]])


@pytest.mark.slow
def test_what_a_teacher_answered_is_kept_and_never_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    output = tmp_path / "long.jsonl"
    answers: list[str] = []

    def say(prompt: str) -> Any:
        if len(answers) == 12:
            return None  # and hang
        answers.append(prompt)
        wrong = len(answers) % 4 == 0
        return (200, {"x": "y"}, choice(solved(prompt.replace("1", "2") if wrong else prompt)))

    with scripted(say) as endpoint:
        command = ["generate", "worlds/sums", "--output", str(output), "--tasks", "8", "--samples", "4"]
        command += ["--keep", "correct", "generate.concurrency=8", f"generate.teacher.endpoint={endpoint.url}"]
        command += ["generate.teacher.model=big", "generate.teacher.key_env=TEACHER_KEY"]
        killed = rlsys(*command, send=signal.SIGKILL, when=lambda: stored(tmp_path / "long.answers.jsonl") == 12)
        assert (killed.code, output.exists()) == (-9, False), killed.output[-3000:]
        first = [asked_of(request) for request in endpoint.asked[:12]]
        answers.clear()
        endpoint.asked.clear()
        endpoint.say = lambda prompt: (200, {"x": "y"}, choice(solved(prompt)))
        result = rlsys(*command)
        assert result.code == 0, result.output[-3000:]
        second = [asked_of(request) for request in endpoint.asked]
    assert len(set(first)) == 12 and not set(first) & set(second)
    assert len(set(first) | set(second)) == 8 * 4 == len(first) + len(second)
    assert endpoint.keys == [f"Bearer {KEY}"] * len(endpoint.keys)
    output_rows = records(output)
    assert len(output_rows) == 8 and all(row["parts"]["outcome"] > 0 and row["num_tokens"] > 0 for row in output_rows)
    assert all("samples" not in row and "tokenizer" not in row for row in output_rows)
    assert "32 trajectories of 8 tasks" in result.output and "the teacher big plays" in result.output
    assert not (tmp_path / "long.answers.jsonl").exists()
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in result.output + killed.output
    assert left_behind() == []


RECIPE = """
extends: worlds/sums
name: taught
stages:
  - name: distil
    kind: generate
    generate: {tasks: 8, samples: 2, keep: correct, teacher: {endpoint: URL, model: big}}
  - {name: sft, kind: sft, data: distil, steps: 2, loop: {groups_per_step: 4}, learner: {lr: 1.0e-3}}
"""


@pytest.mark.slow
def test_a_run_learns_what_a_teacher_said_and_starts_no_engine(tmp_path: Path) -> None:
    with scripted(lambda prompt: (200, {"x": "y"}, choice(solved(prompt)))) as endpoint:
        (tmp_path / "taught.yaml").write_text(RECIPE.replace("URL", f'"{endpoint.url}"'))
        result = rlsys("train", str(tmp_path / "taught.yaml"), "--run-dir", str(tmp_path / "run"))
    assert result.code == 0, result.output[-3000:]
    counts = summary(tmp_path / "run")["generated"]["distil"]
    assert (counts["tasks"], counts["trajectories"], counts["kept"], len(endpoint.asked)) == (8, 16, 8, 16)
    assert [row["stage"] for row in rows(tmp_path / "run")] == ["sft", "sft"]
    assert "rollout engines" not in result.output and "weights delivered" not in result.output
    assert left_behind() == []


def act(prompt: str) -> str:
    """One action of a chain of thought, in the form that its prompt asks for."""
    terms = re.findall(r"\d+", prompt.partition("What is")[2].partition("?")[0])
    if "<clarification>" in prompt:
        return f"<clarification>What is {' + '.join(terms)}?</clarification><goal>Find the sum.</goal>"
    if "<sentence>" in prompt:
        return "<sentence>I could add from the left.</sentence>"
    if "Solution:" in prompt:
        return f"\\boxed{{{re.findall(r'= (.+)', prompt)[-1]}}}"
    return f"{' + '.join(terms)} = {sum(map(int, terms))}"


def reflect(prompt: str) -> str:
    """Once it sends the chain of thought back."""
    achieved = "false" if prompt.count("add from the left") < 4 else "true"
    return (
        f"<verification>Wait, is it?</verification><current_goal_achieved>true</current_goal_achieved>"
        f"<parent_goal_achieved>{achieved}</parent_goal_achieved>"
    )


@pytest.mark.slow
def test_chains_of_thought_are_constructed_by_two_models_and_an_sft_stage_reads_them(tmp_path: Path) -> None:
    output = tmp_path / "constructed.jsonl"
    with (
        scripted(lambda prompt: (200, {"x": "y"}, choice(act(prompt)))) as short,
        scripted(lambda prompt: (200, {"x": "y"}, choice(reflect(prompt)))) as strong,
    ):
        command = ["generate", "worlds/sums", "--output", str(output), "--tasks", "4", "--samples", "2"]
        command += ["--keep", "correct", "generate.teacher.constructs=true", "reward.max_length=160"]
        for key, endpoint in (("", short), (".reflector", strong)):
            command += [f"generate.teacher{key}.endpoint={endpoint.url}", f"generate.teacher{key}.model=m{key}"]
        result = rlsys(*command)
    assert result.code == 0, result.output[-3000:]
    chains = [json.loads(line)["messages"][0]["content"].split("\n\n") for line in output.read_text().splitlines()]
    assert len(chains) == 4 and all(len(thoughts) == 8 for thoughts in chains)
    assert all(thoughts.count("Wait, is it?") == 2 and "\\boxed" in thoughts[-1] for thoughts in chains)
    steps = records(tmp_path / "constructed.answers.jsonl")
    assert {step["model"] for step in steps if step["state"] == "reflection"} == {"m.reflector"}
    assert len(steps) == 4 * 2 * 8
    keys = ["stages.rl=null", f"stages.sft.data={output}", "stages.sft.steps=2", "stages.sft.loop.groups_per_step=4"]
    trained = rlsys("train", "worlds/sums", "--run-dir", str(tmp_path / "run"), *keys)
    assert trained.code == 0, trained.output[-3000:]


def stored(answers: Path) -> int:
    return answers.read_bytes().count(b"\n") if answers.exists() else 0


def choice(text: str) -> str:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
