"""`rlsys score` in this process: endings, order, overrides, explanations. The real processes are in tests/e2e."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.rewards.findings import Finding, Span
from launch.cli import run
from launch.config.compose import last_recipe
from launch.tools.score.lines import MAX_LINE, LineReader
from launch.tools.score.report import explanation
from rlsys.errors import BadInput
from rlsys.types import Message, Reward, Task, TokenStream, Transcript
from rlsys.untrusted import visible
from tests.fakes.judge_endpoint import scripted

RIGHT = {"task": {"answers": ["Paris"]}, "response": "<think>x</think><answer>Paris</answer>"}


@pytest.fixture
def score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """score(config, *lines_or_options) -> (exit code, what was written, stderr)"""

    def call(config: str, *options: str, lines: list[Any]) -> tuple[int, list[Any], str]:
        source = tmp_path / "in.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        source.write_text("".join(text + "\n" for text in texts))
        code = run(["score", config, "--input", str(source), *options])
        out, err = capsys.readouterr()
        explained = "--explain" in options and "--output" not in options
        return code, out.splitlines() if explained else [json.loads(line) for line in out.splitlines()], err

    return call


def test_a_bad_line_names_itself_and_does_not_stop_the_rest(score: Any) -> None:
    code, out, err = score("icrl", lines=[RIGHT, "nope", "", {"task": {}, "response": ""}, RIGHT])
    assert code == 0
    assert [row.get("line") for row in out] == [None, 2, 4, None]
    assert [row["status"] for row in out] == ["scored", "failure", "failure", "scored"]
    assert out[0] == {
        "status": "scored",
        "reward": pytest.approx(0.98),
        "parts": {"accuracy": 0.8, "format": pytest.approx(0.18), "clamp": 0.0},
        "token_rewards": {},
    }
    assert "2 of 4 lines scored, mean reward 0.98; failures: data 2; the first: line 2" in err


def test_strict_stops_at_the_first_bad_line(score: Any) -> None:
    code, out, err = score("icrl", "--strict", lines=[RIGHT, "nope", RIGHT])
    assert code == 2
    assert [row["status"] for row in out] == ["scored", "failure"]
    assert "rlsys: error: line 2: data: this line: not JSON" in err


def test_a_file_without_a_transcript_is_refused(score: Any) -> None:
    code, out, err = score("icrl", lines=["nope", "{}"])
    assert code == 2 and [row["status"] for row in out] == ["failure", "failure"]
    assert "0 of 2 lines scored" in err and "not one line is a transcript with its task" in err
    code, out, err = score("icrl", lines=[])
    assert (code, out) == (2, []) and "no records, expected one JSON object per line" in err
    assert score("icrl", "--strict", lines=[""])[0] == 2
    assert score("icrl", "--explain", lines=[])[0] == 2


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--output", "/no/where/out.jsonl"], "--output /no/where/out.jsonl: cannot be written (No such file"),
        (["--output", "/"], "--output /: cannot be written (Is a directory)"),
        (["--explain", "0"], "--explain 0: expected the number of a line"),
        (["--explain", "two"], "--explain two: expected the number of a line"),
        (["--explain", "3"], "has no such line"),
        (["reward.clmp=false"], "did you mean 'reward.clamp'"),
        (["reward.clamp=maybe"], "reward.clamp"),
        (["reward.name=icr"], "did you mean 'icrl'"),
        (["stages.shots_9.reward.clamp=false"], "no stage 'shots_9'"),
        (["--inputs", "x"], "--inputs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(score: Any, options: list[str], part: str) -> None:
    code, out, err = score("icrl", *options, lines=[RIGHT])
    assert code == 2 and out == []
    assert part in err.splitlines()[-1]


def test_an_unreadable_input_is_refused_and_the_input_is_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["score", "icrl", "--input", str(tmp_path / "none.jsonl")]) == 2
    assert run(["score", "icrl", "--input", str(tmp_path)]) == 2
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(RIGHT) + "\n")
    assert run(["score", "icrl", "--input", str(source), "--output", str(source)]) == 2
    assert source.read_text() == json.dumps(RIGHT) + "\n"
    error = capsys.readouterr().err
    assert "none.jsonl: cannot be read (No such file or directory)" in error
    assert "cannot be read (Is a directory)" in error
    assert "is the input too" in error


def test_a_full_disk_is_a_failed_run_with_its_reason(score: Any) -> None:
    code, _, err = score("icrl", "--output", "/dev/full", lines=[RIGHT])
    assert code == 1
    assert err.splitlines()[-1] == "rlsys: failed: /dev/full: cannot be written (No space left on device)"


def test_overrides_reach_the_reward_wherever_they_stand(score: Any, tmp_path: Path) -> None:
    bad = {"task": {"answers": ["Paris"]}, "response": "<answer></think>"}
    assert score("icrl", lines=[bad])[1][0]["reward"] == 0.0
    key = "reward.clamp=false"
    for options in ([key], ["--output", "-", key], [f"stages.test.{key}"]):
        assert score("icrl", *options, lines=[bad])[1][0]["reward"] == pytest.approx(0.2 * -0.05)
    assert (
        'rlsys: reward icrl: alpha=0.8, tool="search", clamp=false'
        in score("icrl", "reward.clamp=false", lines=[bad])[2]
    )
    assert "clamp=false" in score("icrl", "--explain", "reward.clamp=false", lines=[bad])[2]


def test_the_last_stages_reward_counts_and_no_data_is_looked_for(tmp_path: Path) -> None:
    config = tmp_path / "own.yaml"
    config.write_text(
        "extends: icrl\nenv: {data: /no/such.jsonl, retriever: {corpus: /none}}\n"
        "stages: [{name: a, kind: rl, epochs: 1}, {name: b, kind: rl, epochs: 1, reward: {clamp: false}}]\n"
    )
    assert last_recipe(str(config), []).reward.clamp is False
    assert last_recipe(str(config), ["reward.clamp=true"]).reward.clamp is True
    assert last_recipe(str(config), ["stages.a.reward.alpha=0.5"]).reward.alpha == 0.8
    config.write_text("reward: {name: research}\n")  # to try a reward, no stages are needed
    assert last_recipe(str(config), []).reward.name == "research"


def boxed(answer: str, gold: str) -> dict[str, Any]:
    return {"task": {"answers": [gold]}, "response": f"\\boxed{{{answer}}}", "num_tokens": 0}


def test_lengths_are_given_or_it_is_a_data_failure(score: Any) -> None:
    task = {"answers": ["4"]}
    lines = [
        {"task": task, "response": "\\boxed{4}"},
        {"task": task, "response": "\\boxed{4}", "num_tokens": 7168},
        {"task": task, "response": "\\boxed{4}", "token_ids": [1, 2, 3, 1, 2, 3, 4]},
    ]
    _, out, err = score("long_cot", "model.path=null", "reward.repetition_ngram=2", lines=lines)
    assert out[0]["kind"] == "data" and "num_tokens or token_ids" in out[0]["detail"]
    assert out[1] == {"status": "scored", "reward": 1.5, "parts": {"outcome": 1.5}, "token_rewards": {}}
    assert out[2]["token_rewards"] == {"repetition": [0.0, 0.0, 0.0, -0.05, -0.05, -0.05, 0.0]}
    assert err.count("nothing to count tokens with: model.path is null") == 1


def test_swirl_without_judgements_says_so(score: Any) -> None:
    line = {"task": {"question": "q"}, "response": "<answer>a</answer>"}
    nobody = [f"reward.judge.{key}=null" for key in ("endpoint", "model", "key_env")]
    _, out, _ = score("swirl", *nobody, lines=[line, {**line, "judgements": ["is GOOD"]}])
    assert out[0]["kind"] == "data" and "no judgements" in out[0]["detail"]
    assert out[1]["reward"] == 1.0


def test_a_judge_is_asked_for_what_has_no_judgements_and_its_failure_is_no_zero(score: Any) -> None:
    def says(prompt: str) -> Any:
        return "It repeats itself. BAD" if "<answer>Rome" in prompt else 404 if "Oslo" in prompt else "GOOD"

    def line(answer: str, **fields: Any) -> dict[str, Any]:
        return {"task": {"question": f"{answer}?"}, "response": f"<answer>{answer}</answer>", **fields}

    with scripted(says) as endpoint:
        judge = [f"reward.judge.endpoint={endpoint.url}", "reward.judge.model=m", "reward.judge.key_env=null"]
        lines = [line("Rome"), line("Paris"), line("Oslo"), line("Rome", judgements=["GOOD"])]
        code, out, err = score("swirl", *judge, lines=lines)
    assert code == 0
    assert [row.get("reward", row.get("status")) for row in out] == [0.0, 1.0, "failure", 1.0]
    assert sum("<answer>" in body["messages"][0]["content"] for body in endpoint.asked) == 3
    assert f'judge.endpoint="{endpoint.url}", judge.model="m"' in err


def test_a_reward_of_the_users_own(score: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_reward.py").write_text(
        "from dataclasses import dataclass\n"
        "from rlsys.types import Reward\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Config:\n    name: str = 'own_reward.Own'\n    scale: float = 1.0\n"
        "class Own:\n"
        "    def __init__(self, config: Config) -> None:\n        self.scale = config.scale\n"
        "    def __call__(self, transcript):\n"
        "        words = self.scale * len(transcript.messages[0].content.split())\n"
        "        return Reward(value=words, parts={'words': words})\n"
    )
    empty = {"task": {}, "messages": []}
    lines = [{"task": {}, "response": "one two"}, empty]
    own = ["reward.name=own_reward.Own", "reward.scale=0.5"]
    _, out, _ = score("quickstart", *own, lines=lines)
    assert out[0]["parts"] == {"words": 1.0}
    assert out[1]["kind"] == "data"
    assert out[1]["detail"] == "IndexError: tuple index out of range (own_reward.py:11 in __call__)"
    _, out, _ = score("quickstart", *own, "--explain", "2", lines=lines)
    assert "words = self.scale * len(transcript.messages[0].content.split())" in "".join(out)
    code, _, err = score("quickstart", *own, "--strict", lines=lines)
    assert code == 2 and 'own_reward.py", line 11, in __call__' in err
    assert err.rstrip().endswith("line 2: data: IndexError: tuple index out of range (own_reward.py:11 in __call__)")
    _, out, _ = score("quickstart", *own, "--explain", lines=lines)
    assert "rules: this reward does not tell them" in out


# -- explanations -----------------------------------------------------------------------------------------------------


def test_an_explanation_shows_each_rule_its_text_and_the_sum(score: Any) -> None:
    code, out, _ = score("icrl", "--explain", "3", lines=["nope", "", RIGHT, "nope"])
    text = "\n".join(out)
    assert code == 0 and "line 3: reward 0.98" in text
    assert "message 1, characters 24-29: <think>x</think><answer>«Paris»</answer>" in text
    assert "-0.02  format         no <search>" in text
    assert out[-1] == "accuracy 0.8 + format 0.18 + clamp 0 = 0.98"
    assert "\x1b" not in text


def test_the_first_line_is_explained_by_itself_or_beside_the_results(score: Any, tmp_path: Path) -> None:
    assert score("icrl", "--explain", lines=["", RIGHT, "nope"])[1][0] == "line 2: reward 0.98"
    code, out, _ = score("icrl", "--explain", lines=["nope", RIGHT])
    assert code == 0 and out == ["line 1: failure (data): this line: not JSON (Expecting value at column 1)"]
    target = tmp_path / "out.jsonl"
    with pytest.raises(json.JSONDecodeError):  # stdout has the explanation, the file the results
        score("icrl", "--explain", "1", "--output", str(target), lines=[RIGHT, RIGHT])
    assert len(target.read_text().splitlines()) == 2


def test_an_explanation_obeys_nothing_that_the_model_wrote_and_colours_only_when_asked() -> None:
    hostile = "\x1b]0;owned\x07\u202eabc\ud800\n"
    assert visible(hostile) == "\\x1b]0;owned\\x07\\u202eabc\\ud800\\n"
    transcript = Transcript(task=Task(task_id="t", question=""), messages=(Message(role="assistant", content=hostile),))
    finding = Finding(part="p", rule=hostile, value=-1.0, span=Span(message=0, start=0, end=len(hostile)), text="")
    stream = TokenStream(name="repetition", values=(0.0, -0.05, -0.05), discount=0.99)
    reward = Reward(value=-1.0, parts={"p": -1.0}, streams=(stream,), findings=(finding,))
    plain = "\n".join(explanation(1, transcript, reward, color=False))
    assert plain.isascii() is False and "\x1b" not in plain and "\u202e" not in plain
    assert "2 of 3 tokens, together -0.1, discount 0.99" in plain and "-0.05  tokens 1-3" in plain
    painted = "\n".join(explanation(1, transcript, reward, color=True))
    assert "\x1b[31m" in painted and "\x1b]0;" not in painted


# -- lines ------------------------------------------------------------------------------------------------------------


def test_lines_come_in_any_pieces_and_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "f"
    long = b"x" * 1_000_000
    path.write_bytes(b"\xef\xbb\xbfa\r\n\n  \n" + long + b"\nlast")
    reader = LineReader(str(path))
    assert list(reader) == [(1, b"a\r"), (4, long), (5, b"last")]
    assert reader.bytes_read == reader.size == path.stat().st_size
    assert reader.reads(str(path)) and not reader.reads(str(tmp_path)) and not reader.reads("/dev/null")
    reader.close()


def test_a_line_past_the_limit_is_dropped_not_held(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(MAX_LINE + 2)  # no newline, no disk
        file.seek(0, os.SEEK_END)
        file.write(b"\nnext\n")
    reader = LineReader(str(path))
    assert list(reader) == [(1, None), (2, b"next")]
    reader.close()


def test_a_pipe_that_waits_is_said(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    answered = threading.Event()

    def write() -> None:
        with fifo.open("wb", buffering=0) as file:
            file.write(b"one\ntw")
            answered.wait(60)
            file.write(b"o\n")

    writer = threading.Thread(target=write)
    writer.start()
    reader = LineReader(str(fifo))
    lines: Iterator[Any] = iter(reader)
    assert next(lines) == (1, b"one")
    started = time.monotonic()
    assert next(lines) is None and time.monotonic() - started < 5  # not stuck until more comes
    answered.set()
    assert [line for line in lines if line is not None] == [(2, b"two")]
    writer.join()
    reader.close()


def test_bad_names_for_a_config_are_the_same_here(score: Any) -> None:
    with pytest.raises(BadInput, match="did you mean 'icrl'"):
        last_recipe("icrll", [])
