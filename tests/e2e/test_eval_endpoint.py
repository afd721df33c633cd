"""`rlsys eval --endpoint`: a model behind a real HTTP server that is busy, broken and slow; killed and continued."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from envs.protocols.families.tagged import HERMES
from envs.protocols.native import read_calls
from tests.e2e.runs import left_behind, rlsys
from tests.fakes.judge_endpoint import ScriptedEndpoint, choice, scripted
from tests.makers.made import jsonl, records

pytestmark = pytest.mark.slow
KEY = "sk-very-secret-key"
FAULTS = [(429, {"Retry-After": "1"}, "later"), 500, None, (200, {"x": "y"}, "<html>"), (200, {"x": "y"}, ""),
          (200, {"x": "y"}, '{"choices": []}'), (503, {"x": "y"}, "")]  # fmt: skip


def asked_of(question: dict[str, Any]) -> str:
    return json.dumps([question["messages"], question.get("seed")])


def read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def episodes(folder: Path, play: str) -> list[dict[str, Any]]:
    return records(folder / f"{play}.jsonl")


class Calculates:
    """Writes down each calculation of a made-up problem as a call, as OpenAI does: without the stop string."""

    def __init__(self) -> None:
        self.endpoint: ScriptedEndpoint
        self.faults = list(FAULTS)

    def __call__(self, prompt: str) -> Any:
        question = self.endpoint.asked[-1]
        if self.faults and len(self.endpoint.asked) > 1:
            return self.faults.pop()
        replies = [message for message in question["messages"] if message["role"] == "assistant"]
        result = question["messages"][-1]["content"]
        if not replies:
            return choice("First.\n<math_exp>20 + 3", "stop")
        return choice(f"<answer>{(re.findall(r'-?[0-9.]+', result) or ['none'])[-1]}", "stop")


def test_a_tool_is_called_over_chat_whatever_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    says = Calculates()
    output = tmp_path / "served.json"
    with scripted(says) as says.endpoint:
        command = [
            "eval",
            "worlds/calculator",
            "--endpoint",
            says.endpoint.url,
            "--model",
            "big",
            "--output",
            str(output),
        ]
        command += [
            "--key-env",
            "SERVED_KEY",
            "--deadline",
            "3",
            "eval.tasks=8",
            "eval.samples=2",
            "eval.concurrency=4",
        ]
        result = rlsys(*command)
        requests = says.endpoint.asked
    assert result.code == 0, result.output[-3000:]
    report = read(output)
    assert report["episodes"] == {"greedy": 8, "sampled": 16} and report["failures"] == {"greedy": 0, "sampled": 0}
    assert (report["checkpoint"], report["step"]) == (f"big at {says.endpoint.url}", None)
    assert report["plays"]["greedy"]["metrics"]["valid_calls"]["value"] == 1.0
    assert report["plays"]["greedy"]["metrics"]["turns"]["value"] == 2.0
    for episode in episodes(tmp_path / "served.transcripts", "sampled"):
        roles = [message["role"] for message in episode["messages"]]
        assert roles == ["assistant", "user", "assistant"] and "23" in episode["messages"][1]["content"]
        assert episode["messages"][0]["content"].endswith("</math_exp>")
        assert episode["messages"][2]["content"] == "<answer>23.0</answer>"
    assert not says.faults and all(request["stop"] == ["</math_exp>", "</answer>"] for request in requests)
    assert {request["temperature"] for request in requests} == {0.0, 1.0}
    assert len({request["seed"] for request in requests if "seed" in request}) == 16 * 2
    assert set(says.endpoint.keys) == {f"Bearer {KEY}"}
    assert KEY not in result.output
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "starting Ray" not in result.output and "rollout worker" not in result.output
    assert left_behind() == []


def sums(prompt: str) -> Any:
    terms = [int(term) for term in re.findall(r"\d+", prompt)]
    wrong = sum(terms) % 4 == 0
    return choice(f"\\boxed{{{sum(terms) + wrong}}}", "stop")


def test_it_is_killed_continued_compared_and_asks_no_question_twice(tmp_path: Path) -> None:
    output, answers = tmp_path / "a.json", tmp_path / "a.transcripts" / "answers.jsonl"

    def until_ten(prompt: str) -> Any:
        return None if len(endpoint.asked) > 10 else sums(prompt)

    with scripted(until_ten) as endpoint:
        command = ["eval", "worlds/sums", "--endpoint", endpoint.url, "--model", "big", "eval.tasks=12"]
        argv = [*command, "--output", str(output)]
        lines = lambda: answers.read_bytes().count(b"\n") if answers.exists() else 0  # noqa: E731
        killed = rlsys(*argv, send=signal.SIGKILL, when=lambda: lines() == 10)
        assert (killed.code, output.exists()) == (-9, False), killed.output[-3000:]
        before = [asked_of(request) for request in endpoint.asked]
        answered = before[:10]
        endpoint.asked.clear()
        endpoint.say = sums
        other_model = rlsys(*argv[:5], "other", *argv[6:], "--resume")
        assert other_model.code == 2 and "was begun with" in other_model.output, other_model.output[-2000:]
        assert endpoint.asked == [] and endpoint.greeted == ["big"]
        result = rlsys(*argv, "--resume")
        assert result.code == 0, result.output[-3000:]
        assert endpoint.greeted == ["big"] * 2
        after = [asked_of(request) for request in endpoint.asked]
        assert not set(answered) & set(after) and len(set(answered) | set(after)) == 12 * 3 == len(answered) + len(
            after
        )
        endpoint.greet = lambda model: 401
        rerun = rlsys(*argv, "--resume")
        assert rerun.code == 0 and endpoint.greeted == ["big"] * 2, rerun.output[-2000:]  # nothing is left to ask
        endpoint.greet, endpoint.say = lambda model: "yes", lambda prompt: sums(prompt + " 1")
        worse = rlsys(*command, "--output", str(tmp_path / "b.json"), "--against", str(output), "eval.samples=0")
        assert worse.code == 0 and f"against {output}" in worse.output, worse.output[-2000:]
    right = [sum(episode["task"]["terms"]) % 4 != 0 for episode in episodes(tmp_path / "a.transcripts", "greedy")]
    assert read(output)["accuracy"]["greedy"] == pytest.approx(sum(right) / 12)
    assert read(tmp_path / "b.json")["accuracy"]["greedy"] == 0.0
    assert left_behind() == []


JUDGED = """extends: worlds/sums
name: judged
eval:
  tasks: 8
  samples: 0
  sets:
    asked: {reward: {name: judged, kind: outcome_math, answer: boxed}, paper: {accuracy: 0.25}}
"""


def test_failures_are_counted_and_a_judge_at_an_address_is_asked(tmp_path: Path) -> None:
    (tmp_path / "judged.yaml").write_text(JUDGED)
    output = tmp_path / "judged.json"

    def refuses(prompt: str) -> Any:
        return (400, {"x": "y"}, "content policy") if " 7" in prompt or "1" in prompt else sums(prompt)

    with scripted(refuses) as model, scripted(lambda prompt: "YES" if len(prompt) % 2 else "NO") as judge:
        command = ["eval", str(tmp_path / "judged.yaml"), "--endpoint", model.url, "--model", "big"]
        keys = [f"eval.judge.endpoint={judge.url}", "eval.judge.model=m", "loop.max_failed_share=0.95"]
        result = rlsys(*command, "--output", str(output), *keys)
        assert result.code == 0, result.output[-3000:]
        strict = rlsys(*command, *keys[:2], "loop.max_failed_share=0.01")
        model.greet = lambda _: 401
        refused = rlsys(*command, *keys)
    report = read(output)
    (failures,) = report["failures"].values()
    graded = [
        line for line in episodes(tmp_path / "judged.transcripts", "asked-greedy") if line.get("reward") is not None
    ]
    assert 0 < failures < 8 and len(graded) == 8 - failures and len(judge.asked) >= len(graded)
    assert "content policy" in result.output and "paper 0.250" in result.output
    assert strict.code == 1 and "episodes, asked/greedy, failed" in strict.output
    assert refused.code == 2 and "answered 401" in refused.output and "--key-env" in refused.output
    assert left_behind() == []


ROOM = ["rollout.max_turn_tokens=256", "engine.max_model_len=4096"]  # a tokenizer of a few words spells out all others


class Adds:
    """Calls a tool, then says what it returned."""

    def __init__(self, name: str, arguments: str) -> None:
        self.endpoint: ScriptedEndpoint
        self.called = name, arguments

    def __call__(self, prompt: str) -> Any:
        last = self.endpoint.asked[-1]["messages"][-1]
        if last["role"] == "tool":
            return choice(f"It is {last['content']}.", "stop")
        return choice("Let me add.", "tool_calls", self.called)


def test_an_agent_plays_against_a_model_at_an_address_with_its_own_tools(tmp_path: Path) -> None:
    tasks = jsonl(tmp_path / "tasks.jsonl", [{"question": "calculate", "answer": str(at)} for at in range(3)])
    output, says = tmp_path / "agent.json", Adds("add", '{"b": 3, "a": 2}')
    agent = ["env.name=agent", "env.agent=tests.fakes.agents.play", f"env.data={tasks}", "reward.name=agent"]
    with scripted(says) as says.endpoint:
        command = ["eval", "quickstart", "--endpoint", says.endpoint.url, "--model", "big", "--output", str(output)]
        result = rlsys(*command, *agent, *ROOM, "eval.tasks=3", "eval.samples=1")
    assert result.code == 0, result.output[-3000:]
    requests, report = says.endpoint.asked, read(output)
    assert report["episodes"] == {"greedy": 3, "sampled": 3} and report["failures"] == {"greedy": 0, "sampled": 0}
    assert report["plays"]["greedy"]["metrics"]["mean_reward"]["value"] == 1.0
    assert all([tool["function"]["name"] for tool in request["tools"]] == ["add"] for request in requests)
    assert {request["temperature"] for request in requests} == {0.0, 1.0}  # the evaluation's own, not the agent's
    second = next(request["messages"] for request in requests if len(request["messages"]) == 4)
    (call,) = second[2]["tool_calls"]
    assert (second[0], second[2]["content"]) == ({"role": "system", "content": "Add."}, "Let me add.")
    assert call["function"]["name"] == "add" and json.loads(call["function"]["arguments"]) == {"a": 2, "b": 3}
    assert second[3] == {"role": "tool", "content": "5", "tool_call_id": call["id"]}
    for episode in episodes(tmp_path / "agent.transcripts", "greedy"):
        assert [message["role"] for message in episode["messages"]] == ["assistant", "tool", "assistant"]
        assert read_calls(HERMES, episode["messages"][0]["content"])[0].arguments == {"a": 2, "b": 3}
        assert episode["weight_versions"] == [[], []] and "logprobs" not in episode
    assert left_behind() == []


def test_an_agent_that_asks_for_log_probabilities_is_a_failure_that_names_them(tmp_path: Path) -> None:
    tasks = jsonl(tmp_path / "tasks.jsonl", [{"question": "stream", "answer": "5"}])
    agent = ["env.name=agent", "env.agent=tests.fakes.agents.play", f"env.data={tasks}", "reward.name=agent"]
    with scripted(lambda _: "5") as endpoint:
        result = rlsys("eval", "quickstart", "--endpoint", endpoint.url, "--model", "big", *agent, "eval.samples=0")
        assert endpoint.asked == []
    assert result.code == 1 and "logprobs" in result.output, result.output[-3000:]


def test_tools_in_the_model_s_own_format_are_offered_to_the_server(tmp_path: Path) -> None:
    tasks = jsonl(tmp_path / "tasks.jsonl", [{"question": "48 / 2?", "answer": "24"}])
    keys = ["env.name=tools", "env.tools=[{name: calculator}]", "env.style=free", f"env.data={tasks}", "eval.samples=0"]
    keys += [*ROOM, "reward.name=answer"]
    output, says = tmp_path / "tools.json", Adds("calculator", '{"expression": "48 / 2"}')
    with scripted(says) as says.endpoint:
        command = ["eval", "quickstart", "--endpoint", says.endpoint.url, "--model", "big", *keys]
        result = rlsys(*command, "--output", str(output))
        says.endpoint.greet = lambda _: (400, {"x": "y"}, "start me with a parser of calls")
        refused = rlsys(*command)
    assert result.code == 0, result.output[-3000:]
    assert [tool["function"]["name"] for tool in says.endpoint.greeted_with[0]["tools"]] == ["probe_tool"]
    assert read(output)["plays"]["greedy"]["metrics"]["valid_calls"]["value"] == 1.0
    (episode,) = episodes(tmp_path / "tools.transcripts", "greedy")
    called, *others = [message["content"] for message in episode["messages"]]
    assert called.startswith("Let me add.") and '"expression": "48 / 2"' in called and others == ["24.0", "It is 24.0."]
    assert refused.code == 2 and "a parser of calls" in refused.output
