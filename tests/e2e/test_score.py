"""`rlsys score` as a command: each recipe on hand-made lines, with the numbers that its paper gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.tiny_models import tiny_tokenizer

RLSYS = [sys.executable, "-m", "launch"]
DEADLINE_S = 120.0
PARIS = {"question": "The capital of France?", "answers": ["Paris"]}


def rlsys(*argv: str, lines: list[Any]) -> list[Any]:
    """The results, through both pipes."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    process = subprocess.run(
        [*RLSYS, "score", argv[0], "--input", "-", *argv[1:]],
        input=text.encode(),
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert process.returncode == 0, process.stderr.decode()
    return [json.loads(line) for line in process.stdout.splitlines()]


def values(results: list[Any]) -> list[Any]:
    return [result.get("reward", result.get("kind")) for result in results]


def near(*expected: float) -> Any:
    return pytest.approx(list(expected), abs=1e-6)


def test_research() -> None:
    def body(answer: str, golds: tuple[str, ...] = ("Paris",), **fields: Any) -> dict[str, Any]:
        response = (
            "<think>a</think> <search>q</search> <result>\nd <think> </answer>\n</result> <think>b</think> "
            f"<answer> The final answer is \\[ {answer} \\] </answer>"
        )
        return {"task": {"question": "q", "answers": list(golds)}, "response": response, **fields}

    cases = [
        body("\\boxed{Paris}"),
        body("\\boxed{Paris, France}"),
        body("\\boxed{New York}", ("NYC", "New York City")),
        body("\\boxed{London}"),
        {"task": PARIS, "response": "<think>a</think><answer>Paris</answer>"},
        {"task": PARIS, "response": "<think>a<answer>\\boxed{Paris}</answer>"},
        body("\\boxed{Paris}", truncated=True),
        body("\\boxed{" + "word " * 29 + "Paris}"),
        body("\\boxed{}"),
    ]
    gate = [1.0, 2 / 3, 0.8, 0.1, 0.0, 0.0, 0.0, 2 / 31, 0.1]
    assert values(rlsys("research", lines=cases)) == near(*gate)
    equation_2 = [1.0, 2 / 3, 0.8, 0.1, 0.0, 1.0, 1.0, 2 / 31, 0.1]
    assert values(rlsys("research", "reward.format_gate=false", lines=cases)) == near(*equation_2)


def test_long_cot_with_its_lengths_given_and_counted(tmp_path: Path) -> None:
    def at(length: int, correct: bool, **fields: Any) -> dict[str, Any]:
        return {"task": {}, "response": "", "num_tokens": length, "correct": correct, **fields}

    lengths = [0, 3584, 7168, 14320, 14336]
    lines = [at(length, correct) for correct in (True, False) for length in lengths]
    right, wrong = (2.0, 1.853553, 1.5, -10.0, -10.0), (-10.0, -8.535534, -5.0, -10.0, -10.0)
    twice = at(80, True, token_ids=[*range(40), *range(40)])
    *sized, scored = rlsys("long_cot", lines=[*lines, twice])
    assert values(sized) == near(*right, *wrong)
    assert scored["token_rewards"]["repetition"] == [0.0] * 40 + [-0.05] * 40
    assert sum(scored["parts"].values()) == scored["reward"]

    tiny_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    line = {"task": {"answers": ["4"]}, "response": "aaaa \\boxed{\\sqrt{16}}"}
    keys = [f"model.path={tmp_path}", "reward.max_length=100", "reward.margin=0"]
    ended, cut, half = rlsys("long_cot", *keys, lines=[line, {**line, "truncated": True}, {**line, "num_tokens": 50}])
    counted = len(ended["token_rewards"]["repetition"])
    assert len(line["response"]) / 2 < counted <= len(line["response"]) + 1  # nearly a token for each character
    assert len(cut["token_rewards"]["repetition"]) == counted - 1  # the end token was not reached
    assert (cut["reward"], half["reward"]) == (-10.0, 1.5)
    (unknown,) = rlsys("long_cot", "model.path=nobody/has-this-model", lines=[line])
    assert unknown["kind"] == "data" and "num_tokens or token_ids" in unknown["detail"]


def test_graph_rl() -> None:
    def wording(steps: str, answer: str) -> str:
        return f"<think>t</think><response>{steps}</response><answer>{answer}</answer>"

    connected = {"kind": "connectivity", "num_nodes": 5, "edges": [[0, 4], [1, 4]], "source": 0, "target": 1}
    edges = [[0, 4, 4], [0, 3, 3], [0, 1, 3], [1, 4, 4], [4, 2, 2], [2, 3, 1], [4, 3, 1]]
    path = {"kind": "shortest_path", "num_nodes": 5, "edges": edges, "source": 0, "target": 2}
    good = "0 -> 4 -> 2 with a total weight of 4 + 2 = 6. 0 -> 3 -> 2 with a total weight of 3 + 1 = 4."
    cases = [
        (connected, wording("0 is connected to 4. 4 is connected to 1. 1 is connected to 4.", "yes")),
        (connected, wording("0 is connected to 4. 0 is connected to 3.", "yes")),
        (connected, "<response>0 is connected to 4.</response><answer>yes</answer>"),
        (connected, wording("0 is connected to 2.", "Yes.")),
        (path, wording(good, "The shortest path is 0->3->2. The length of shortest path is 4.")),
        (path, wording(good, "The shortest path is 0->4->2. The length of shortest path is 6.")),
        (path, wording(good, "The shortest path is 0->2. The length of shortest path is 4.")),
        (path, wording(good, "4")),
    ]
    lines = [{"task": task, "response": response} for task, response in cases]
    process = (1.15, 0.125, 1.05, -0.9, 1.15, 0.15, -1.85, 0.15)
    assert values(rlsys("graph_rl", lines=lines)) == near(*process)
    solution = (1.1, 1.1, 1.0, 1.1, 1.1, 0.1, -1.9, 0.1)
    assert values(rlsys("graph_rl", "reward.kind=solution", lines=lines)) == near(*solution)
    assert values(rlsys("graph_rl", "reward.preset=text", lines=lines[:4])) == near(1.35, 0.325, 1.05, -0.7)


def test_memory_stays_flat_over_many_lines_and_huge_ones(tmp_path: Path) -> None:
    def peak_mb(name: str, num_lines: int, response: str) -> float:
        source = tmp_path / name
        line = json.dumps({"task": PARIS, "response": response}) + "\n"
        with source.open("w") as file:
            file.writelines(line for _ in range(num_lines))
        target = tmp_path / "out.jsonl"
        process = subprocess.Popen(
            [*RLSYS, "score", "icrl", "--input", str(source), "--output", str(target)], stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert len(target.read_bytes().splitlines()) == num_lines
        return used.ru_maxrss / 1024

    answer = "<think>x</think><answer>Paris</answer>"
    few = peak_mb("few", 10, answer)
    assert peak_mb("many", 20_000, "w " * 1000 + answer) < few + 30
    assert peak_mb("huge", 40, "w " * 500_000 + answer) < few + 60  # a megabyte each


def test_who_stops_reading_ends_it_quietly(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text((json.dumps({"task": PARIS, "response": "x"}) + "\n") * 20_000)
    process = subprocess.Popen(
        [*RLSYS, "score", "icrl", "--input", str(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["status"] == "scored"
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait(DEADLINE_S) == 0
    assert errors.startswith("rlsys: reward icrl") and errors.count("\n") == 1
    process.stderr.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_takes_the_graders_with_it(number: signal.Signals, code: int) -> None:
    """Also a conversation: each line is answered before the next one is sent."""
    process = subprocess.Popen(
        [*RLSYS, "score", "long_cot", "--input", "-", "rollout.grader_deadline_s=100"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    for answer, reward in (("2\\sqrt{2}", 2.0), ("3\\sqrt{2}", -10.0)):
        line = {"task": {"answers": ["\\sqrt{8}"]}, "response": f"\\boxed{{{answer}}}", "num_tokens": 0}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["reward"] == reward
    line = {"task": {"answers": ["17"]}, "response": "\\boxed{9^{9^{9^9}}}", "num_tokens": 0}
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    time.sleep(0.5)
    graders = psutil.Process(process.pid).children()
    assert graders
    process.send_signal(number)
    assert process.wait(60) == code
    assert psutil.wait_procs(graders, timeout=60)[1] == []
    process.stdin.close()
    process.stdout.close()
