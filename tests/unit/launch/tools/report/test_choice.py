"""Trajectories by name and by condition, and how a terminal shows one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from launch.cli import run
from launch.tools.report.choice import Range, filter_episodes, find_named, parse_range, trajectory_name
from launch.tools.report.terminal import draw_episode
from rlsys.errors import BadInput
from rlsys.records import pack_floats
from tests.makers.made import jsonl
from tests.makers.report_example import agent_episode, episodes_of, write_run
from tests.makers.run_directory import episode, run_directory

HOSTILE = "\x1b[31m\u202eevil\u2066 [bold]markup[/bold]\r"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run") / "q", text=HOSTILE)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("3", 3, 3),
        ("201-245", 201, 245),
        ("-1:0", -1, 0),
        ("-1", -1, -1),
        ("-0.5:-0.25", -0.5, -0.25),
        (".5-1", 0.5, 1),
    ],
)
def test_ranges_hold_both_ends(text: str, low: float, high: float) -> None:
    assert parse_range(text, "--step") == Range(low, high)


@pytest.mark.parametrize("text", ["", "x", "3-1", "1:0", "1..2", "nan", "1-2-3", "."])
def test_what_is_no_range_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="--step"):
        parse_range(text, "--step")


def test_a_name_finds_its_trajectory_and_its_group(folder: Path) -> None:
    episodes = episodes_of(folder)
    for row in (0, 50, len(episodes) - 1):
        assert find_named(episodes, trajectory_name(episodes, row)) == [row]
    group = find_named(episodes, "step-000003:6")
    assert [trajectory_name(episodes, row) for row in group] == [f"step-000003:6.{n}" for n in range(4)]


NOT_THERE = [
    ("step-000003", "a group of step-000003: it has 6 to 8, such as step-000003:6.0"),
    ("step-000003:99", "a group of step-000003: it has 6 to 8, such as step-000003:6.0"),
    ("step-000003:6.9", "a sibling of that group: it has 0 to 3"),
    ("step-999999:1.0", "a file of the run: step-000001 to step-0000"),
    ("../x:1.1", "a file of the run: step-000001 to step-0000"),
    ("", "a file of the run: step-000001 to step-0000"),
]


@pytest.mark.parametrize(("name", "expected"), NOT_THERE)
def test_a_name_that_none_has_is_refused_with_what_there_is(folder: Path, name: str, expected: str) -> None:
    with pytest.raises(BadInput, match=re.escape(expected)):
        find_named(episodes_of(folder), name)


def test_what_there_is_is_said_in_short() -> None:
    def message(groups: Sequence[int]) -> str:
        zeros = np.zeros(len(groups), int)
        columns = {"file": zeros, "sequence": np.array(groups), "sibling": zeros}
        episodes: Any = SimpleNamespace(columns=columns, texts={"file": ["step-000002.jsonl.gz"]})
        with pytest.raises(BadInput) as caught:
            find_named(episodes, "step-000002:9999")
        return str(caught.value)

    assert "it has 1690 to 1697, 1700, such as step-000002:1690.0" in message([*range(1690, 1698), 1700])
    assert "it has 0, 2, 4, 6, 8, 10, 12, ..., 198, such as step-000002:0.0" in message(range(0, 200, 2))


def test_conditions_are_those_of_columns(folder: Path) -> None:
    episodes = episodes_of(folder)
    reward, step = episodes.columns["reward"], episodes.columns["step"]
    rows = filter_episodes(episodes, {"reward": Range(-1, 0), "step": Range(2, 4)}, {"end": "malformed"})
    assert rows and all(reward[row] == 0 and 2 <= step[row] <= 4 for row in rows)
    assert [step[row] for row in rows] == sorted(step[rows], reverse=True)  # the newest first
    failed = filter_episodes(episodes, {}, {"failed": "any"})
    assert len(failed) + len(filter_episodes(episodes, {}, {"failed": "none"})) == len(episodes)
    assert all(not reward[row] >= -9 for row in failed)
    assert filter_episodes(episodes, {}, {"play": "greedy"}) == filter_episodes(episodes, {}, {"play": "any"})


def test_one_trajectory_is_shown_with_its_speakers_and_findings_and_no_control_character(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(folder), "step-000001:1.0"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith(("prompt", "model", "tool"))] == [
        *("prompt, system", "prompt, user", "model, turn 1", "tool result", "model, turn 2"),
    ]
    assert "  ^ format" in out and " +0.1: “" in out and "  correct " in out
    assert not set(out) & set("\x1b\u202e\u2066\r") and "\\x1b[31m\\u202eevil\\u2066 [bold]markup[/bold]\\r" in out


def test_findings_are_underlined_where_they_are(tmp_path: Path) -> None:
    """Although the character before them is written as six."""
    line = {
        "messages": [{"role": "assistant", "content": "a\u202ebcd"}],
        "findings": [{"message": 0, "start": 2, "end": 4, "rule": "r", "value": -1, "text": "bc"}],
    }
    text = list(draw_episode("x", line))[4]
    assert text.plain == "│ a\\u202ebcd"
    underlined = [text.plain[span.start : span.end] for span in text.spans if "underline" in str(span.style)]
    assert underlined == ["bc"]


def lines_of(line: dict[str, Any]) -> list[str]:
    return [text.plain for text in draw_episode("x", line)]


def headings(line: dict[str, Any]) -> list[str]:
    """Who speaks, and where a sample begins."""
    return [text for text in lines_of(line) if text.startswith(("──", "model"))]


def test_requests_of_an_agent_are_numbered_and_samples_begin_with_a_reason() -> None:
    line = agent_episode(HOSTILE, exit=1, returned=[HOSTILE])
    assert headings(line) == [
        "── sample 1: continues request 1 once more; 20 tokens, trained",
        "model, request 3",
        "── sample 2: history retold: the assistant's messages in it are context, not trained; 12 tokens, trained",
        "model, request 4",
        *("── sample 3: new conversation; 23 tokens, trained", "model, request 5", "model, request 6"),
        "── sample 4: new conversation, which begins with the prompt above; 97 tokens, trained",
        *("model, request 1", "model, request 2", "model, request 7"),
    ]
    lines = lines_of(line)
    assert next(text for text in lines if text.startswith("agent ")).startswith("agent   exit 1  returned [")
    assert lines[lines.index("agent, the end of its output") + 1] == "│ planning"
    assert "agent, the end of its output" not in lines_of(agent_episode(output=""))
    assert not set("".join(lines)) & set("\x1b\u202e\u2066\r")
    assert "12 tokens, not trained" in headings(line | {"advantage": None})[2]
    credit = [pack_floats(np.array([1.0, np.nan, 2.0], np.float32))] * 7
    assert "20 tokens, 2 of them trained" in headings(line | {"token_advantages": credit})[0]


def test_a_context_that_an_environment_resets_is_marked_and_one_in_other_tokens_is_not() -> None:
    line = agent_episode()
    del line["state"]
    assert headings(line)[:2] == ["── sample 1: continues turn 1 once more; 20 tokens, trained", "model, turn 3"]
    rewritten = [{"number": number, "after": number - 1, "begins": "rewritten"} for number in range(7)]
    assert headings(line | {"turns": rewritten}) == [f"model, turn {number}" for number in range(1, 8)]


BEGUN = [
    {"number": "1", "after": {}, "begins": "again"},
    3,
    {"begins": []},
    *({"begins": "again", "after": 1e400},) * 4,
]


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"messages": 3, "prompt": {}, "task": [], "findings": [1], "parts": 7, "failure": "", "turns": 7, "state": []},
        {**agent_episode(), "turns": BEGUN, "token_ids": 3, "token_advantages": [5], "advantage": "x"},
        {**agent_episode(), "reward": None, "state": {"exit": [], "conversations": 1, "output": 3}, "turns": [{}]},
    ],
)
def test_another_shape_is_shown_as_far_as_it_goes(line: dict[str, object]) -> None:
    console = Console(record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for text in draw_episode("x", line):
        console.print(text)
    assert "reward " in console.export_text()


def test_lists_and_json(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["show", str(folder), "--reward", "-1:0", "--end", "malformed", "--limit", "2"]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["trajectory", "step", "reward"] and len(rows) == 2
    assert all(row.split()[2] == "0.000" and "malformed" in row for row in rows) and "the first 2" in last
    assert run(["show", str(folder), "step-000001:1", "--json"]) == 0
    lines = capsys.readouterr().out
    assert lines.isascii() and [json.loads(line)["sibling"] for line in lines.splitlines()] == [0, 1, 2, 3]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_list_tells_question_last_message_and_right_answer_in_the_width_there_is(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = {"question": "What is 17 + 4?\n" + "x" * 300, "answers": ["21", "21.0"]}
    plain = {"question": "", "answer": 9}
    said = [{"role": "assistant", "content": "no"}, {"role": "assistant", "content": f"it is\x1b[31m 4 {'y' * 300}"}]
    lines = [
        episode(reward=-0.0004, task=long | {"task_id": "a"}, messages=said),
        episode(sibling=1, task=plain | {"task_id": "b"}, prompt=[{"role": "user", "content": "日本 4 + 5?"}]),
    ]
    jsonl(run_directory(tmp_path / "q", [{"step": 1}]) / "trajectories" / "step-000001.jsonl", lines)
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["show", str(tmp_path / "q")]) == 0
    head, first, second, _ = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, (head, first, second))) <= width
    assert "-0.000" not in first and " 0.000 " in first and "\x1b" not in first
    if width == 140:
        assert "What is 17 + 4? xxx" in first and "…  it is\\x1b[31m 4 yyy" in first and first.endswith("21 | 21.0")
        assert "日本 4 + 5?" in second and second.endswith(" 9")
    assert run(["show", str(tmp_path / "q"), "step-000001:0.0"]) == 0
    assert "answer  21 | 21.0" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "options", [["--reward", "x"], ["step-000001:1.0", "--step", "3"], ["--limit", "0"], ["step-000001:77.0"]]
)
def test_bad_options_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    assert run(["show", str(folder), *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
