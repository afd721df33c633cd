"""What is typed in the model's place: a message a line, ended where an engine would have ended it."""

from pathlib import Path

import pytest

from launch.play.messages import Lines, PlayerMessage, completion_of, lines_of, next_message
from rlsys.errors import BadInput
from rlsys.types import TurnStop


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
