"""`rlsys play`: the episode of training with a person for a model. The reward is that of `rlsys score`."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run
from launch.tools.score.play import Lines, PlayerMessage, completion_of, lines_of, next_message
from rlsys.errors import BadInput
from rlsys.types import TurnStop
from tests.makers.made import records

TASK = "Hugo has 55 cards and then gives away 24 of them to a friend. How many cards does Hugo have left?"
DATA = [{"question": TASK, "answer": "#### 31"}, {"question": "What is 2 + 3?", "answer": "#### 5"}]
SAID = "<math_exp>60 / 3</math_exp> and more\n<math_exp>(</math_exp>\n<answer>31</answer>\n"
SHOWN = f"""env calculator, reward answer, at most 4 messages
a message ends after </math_exp> or </answer>
user       {TASK}
assistant> <math_exp>60 / 3</math_exp>
user       60 / 3 -> 20.0
assistant> <math_exp>(</math_exp>
user       ( -> error: expression ends too early
assistant> <answer>31</answer>
end: answered
reward 1.1
messages, as the reward reads them
"""


class Played:
    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = tmp_path, capsys
        (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in DATA))

    def __call__(self, *argv: str, said: str, config: str = "quickstart") -> tuple[int, str, str]:
        (self._folder / "said.txt").write_text(said)
        options = ["--answers", str(self._folder / "said.txt"), "--split", "all"]
        options += [] if {"--task", "--seed"} & {*argv} else ["--task", "data.jsonl:1"]
        code = run(["play", config, f"env.data={self._folder / 'data.jsonl'}", *options, *argv])
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Played:
    return Played(tmp_path, capsys)


def test_the_transcript_of_an_episode_with_a_tool(play: Played) -> None:
    code, out, err = play(said=SAID)
    assert (code, err) == (0, "")
    head, _, rest = out.partition("\n")
    assert head == "task data.jsonl:1, 2 of 2 in split all"  # which of them are held out, their content decides
    assert rest.startswith(SHOWN), rest
    assert "right answer" in rest and rest.endswith("correct 1 + format 0.1 = 1.1\n")


@pytest.mark.parametrize("said", [SAID, "<answer>30</answer>", "nothing", '{"content": "so fa", "truncated": true}'])
def test_the_reward_is_that_of_score(
    play: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    out = tmp_path / "played.jsonl"
    code, _, _ = play("--output", str(out), said=said)
    line = json.loads(out.read_text())
    assert code == 0 and line["num_tokens"] is None and line["worker"] == "play"
    assert run(["score", "quickstart", "--input", str(out)]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert (scored["reward"], scored["parts"]) == (line["reward"], line["parts"])


def test_episodes_add_up_in_a_file(play: Played, tmp_path: Path) -> None:
    out = tmp_path / "played.jsonl"
    for task in ("2", "data.jsonl:2"):
        assert play("--output", str(out), "--task", task, said="<answer>5</answer>")[0] == 0
    lines = records(out)
    assert [(line["sequence"], line["parts"]["correct"]) for line in lines] == [(1, 0.0), (0, 1.0)]


def test_a_seed_draws_a_task(play: Played) -> None:
    drawn = {play("--seed", str(seed), said="<answer>5</answer>")[1].splitlines()[0] for seed in range(8)}
    assert drawn == {f"task data.jsonl:{n}, {3 - n} of 2 in split all" for n in (1, 2)}
    assert len({play("--seed", "5", said="<answer>5</answer>")[1] for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("argv", "said", "expected"),
    [
        (["--task", "3"], "hi", "--task 3: expected 1 to 2, or the id of a task in split all"),
        (["--task", "data.jsonl:3"], "hi", "did you mean 'data.jsonl:"),
        (["--task", "1", "--seed", "1"], "hi", "--task and --seed: expected one of the two"),
        (["--seed", "x"], "hi", "invalid int value: 'x'"),
        (["--split", "test"], "hi", "invalid choice: 'test'"),
        (["env.dta=1"], "hi", "env.dta: unknown key"),
        ([], "", "said.txt: no more messages, and the episode has not ended: no reward"),
        ([], "<math_exp>1</math_exp>", "no more messages"),
        (["--output", "/nonexistent/f.jsonl"], "<answer>5</answer>", "--output /nonexistent/f.jsonl: expected a file"),
    ],
)
def test_what_cannot_be_played_is_one_line(play: Played, argv: list[str], said: str, expected: str) -> None:
    code, _, err = play(*argv, said=said)
    assert code == 2 and err.count("\n") == 1 and expected in err, err


def test_what_was_played_is_written_though_the_messages_end_early(play: Played, tmp_path: Path) -> None:
    out = tmp_path / "played.jsonl"
    code, _, err = play("--output", str(out), said="<math_exp>60 / 3</math_exp>")
    assert (code, err.count("\n")) == (2, 1)
    line = json.loads(out.read_text())
    texts = [message["content"] for message in line["messages"]]
    assert texts == ["<math_exp>60 / 3</math_exp>", "60 / 3 -> 20.0"]
    assert (line["end"], line.get("reward"), line["failure"]["where"]) == ("failed", None, "messages")
    assert play("--output", str(out), said="")[0] == 2 and len(out.read_text().splitlines()) == 1
    assert play("--output", str(out), "reward.name=long_cot", said="<answer>5</answer>")[0] == 1
    assert [json.loads(line)["end"] for line in out.read_text().splitlines()] == ["failed"] * 2


def test_a_message_of_several_lines_is_shown_in_whole(play: Played) -> None:
    out = play(said='"first\\nsecond\\n\\n<answer>31</answer>"')[1]
    assert "\nassistant> first\n           second\n\n           <answer>31</answer>\n" in out


@pytest.mark.parametrize(("typed", "cut"), [("<answer>3</answer> and more\n", 1), ("<answer>3</answer>\n", 0)])
def test_whoever_types_is_told_where_an_engine_would_have_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, cut: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert run(["play", "quickstart"]) == 0
    out = capsys.readouterr().out
    assert "end: answered" in out and out.count("(cut after '<answer>3</answer>'") == out.count("(cut") == cut


def test_messages_that_nobody_waited_for_are_said(play: Played) -> None:
    code, _, err = play(said=SAID + "one more\n")
    assert code == 0 and "ended before the messages did" in err


def test_a_reward_that_cannot_be_given_is_a_failure_and_no_zero(play: Played) -> None:
    code, out, err = play("reward.name=long_cot", said="<answer>\\boxed{5}</answer>")
    assert code == 1 and "counts tokens: model.path=FOLDER" in out and "end: answered" in out
    assert "no reward: data in reward: task data.jsonl:1: no length" in err


def test_a_terminal_obeys_nothing_that_was_written(play: Played, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps({"question": "\x1b[2Jwhat?", "answer": "#### 5"}) + "\n")
    _, out, _ = play(said='"\\u001b]0;x\\u0007<answer>5</answer>"')
    assert "\x1b" not in out and "\\x1b[2Jwhat?" in out


def test_a_world_from_elsewhere_says_where_it_stands(
    play: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The final state is in the line, and the reward in a run, in a play and in `rlsys score` sees the same."""
    steps = '{"on": 1, "back": -1}[text]'
    (tmp_path / "corridor_world.py").write_text(CORRIDOR.replace('1 if text == "on" else -1', steps))
    (tmp_path / "corridor.yaml").write_text("env: {name: corridor_world.World}\nreward: {name: corridor_world.There}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "played.jsonl"
    for replies in ("on\non\n", "on\nback\non\non\n"):
        code, stdout, err = play("--output", str(out), said=replies, config="corridor.yaml")
        assert code == 0, err
    assert 'state {"place": 2, "way": [0, 1, 2]}' in stdout or '"way": [0, 1, 0, 1, 2]' in stdout
    lines: list[Any] = records(out)
    assert [(line["state"]["place"], line["reward"]) for line in lines] == [(2, 1.0), (2, 0.8)]
    assert run(["score", "corridor.yaml", "--input", str(out)]) == 0
    assert [json.loads(line)["reward"] for line in capsys.readouterr().out.splitlines()] == [1.0, 0.8]
    code, stdout, err = play(said="on\nnowhere\n", config="corridor.yaml")
    assert code == 1 and 'corridor_world.py", line' in stdout and '{"on": 1, "back": -1}[text]' in stdout
    assert re.search(r"data in environment: KeyError: 'nowhere' \(corridor_world.py:\d+ in step\)", err), err


CORRIDOR = """
from dataclasses import dataclass
from envs import base
from envs.base import Step
from envs.tasks.config import TaskConfig
from envs.tasks.splits import split_tasks
from rlsys.types import EpisodeEnd, Message, Reward, Task, Transcript


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    name: str = "corridor_world.World"


class World(base.World):
    max_turns = 5

    def __init__(self, config: Config) -> None:
        self.split = split_tasks(config, make=lambda count, held_out: [])

    def env(self, task: Task) -> "Corridor":
        return Corridor()


class Corridor:
    stop_strings = ()

    def __init__(self) -> None:
        self.way = (0,)

    def first_messages(self):
        return (Message(role="user", content="on or back?"),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        self.way += (self.way[-1] + (1 if text == "on" else -1),)
        return Step(end=EpisodeEnd.ANSWERED) if self.way[-1] == 2 else Step(reply=Message(role="user", content="and?"))

    def final_state(self):
        return {"place": self.way[-1], "way": self.way}


@dataclass(frozen=True, kw_only=True)
class ThereConfig:
    name: str = "corridor_world.There"


class There:
    def __init__(self, config: ThereConfig) -> None: ...

    def __call__(self, transcript: Transcript) -> Reward:
        state = transcript.state
        there, steps = float(state["place"] == 2), -0.1 * (len(state["way"]) - 3)
        return Reward(value=there + steps, parts={"there": there, "steps": steps})
"""


def messages(text: str) -> list[PlayerMessage]:
    waiting = iter([*text.splitlines(keepends=True), "", "", ""])
    lines = Lines(lambda _: next(waiting), typed=False)
    return list(iter(lambda: next_message(lines, ""), None))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n", [PlayerMessage("one"), PlayerMessage("two")]),
        (
            "one\n\n  \ntwo",
            [PlayerMessage("one"), PlayerMessage("two")],
        ),  # blank lines, and a last line without its end
        ("print(1)\\\nprint(2)\nnext\n", [PlayerMessage("print(1)\nprint(2)"), PlayerMessage("next")]),
        ("the end\\\n", [PlayerMessage("the end")]),
        ('"two\\nlines"\n', [PlayerMessage("two\nlines")]),
        ('""\n', [PlayerMessage("")]),
        ('{"content": "so far", "truncated": true}\n', [PlayerMessage("so far", True)]),
        (
            '"just a quote\n{"x": 1}\n{broken\n',
            [PlayerMessage('"just a quote'), PlayerMessage('{"x": 1}'), PlayerMessage("{broken")],
        ),
        ("[" * 100_000, [PlayerMessage("[" * 100_000)]),
        ("\r\n", []),
    ],
)
def test_lines_become_messages(text: str, expected: list[PlayerMessage]) -> None:
    assert messages(text) == expected


def test_a_message_ends_where_an_engine_stops() -> None:
    stop = ("</call>", "</answer>")
    cut = completion_of(PlayerMessage("<answer>5</answer> and <call>6</call>"), stop)
    assert (cut.text, cut.stop) == ("<answer>5</answer>", TurnStop.STOP)
    assert completion_of(PlayerMessage("no tag"), stop).stop is TurnStop.EOS
    assert completion_of(PlayerMessage("no tag", True), stop).stop is TurnStop.LENGTH
    assert completion_of(PlayerMessage("<call>6</call> more", True), stop).stop is TurnStop.STOP


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--answers .*nothing.*cannot be read"), lines_of(str(tmp_path / "nothing")):
        pass
