"""envs.tasks.files: a bad line names itself."""

from pathlib import Path

import pytest

from envs.tasks.files import read_jsonl, text_field
from rlsys.errors import BadInput
from tests.refused import refused


def write(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    return str(path)


def test_records_come_with_line_numbers_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\n   \n{"a": "\xc3\xa9"}')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, {"a": "\u00e9"})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n\n{"a": \n', "line 3: not JSON (Expecting value at column 7)"),
        (b'{"a": 1}\n[1]\n', "line 2: a list, expected a JSON object"),
        (b"3\n", "line 1: a number, expected a JSON object"),
        (b'{"a": "\xff"}\n', "line 1: not UTF-8 (byte 0xff at 7)"),
        (b"[" * 100_000 + b"\n", "line 1: not usable JSON (RecursionError)"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "line 1: not usable JSON (ValueError)"),
    ],
)
def test_bad_line_is_one_clear_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(BadInput) as caught:
        list(read_jsonl(path))
    assert str(caught.value) == f"{path} {message}"


def test_missing_and_empty_files_are_bad_input(tmp_path: Path) -> None:
    with refused(where="gone.jsonl", says="No such file or directory"):
        list(read_jsonl(str(tmp_path / "gone.jsonl")))
    with refused(says="cannot be read"):
        list(read_jsonl(str(tmp_path)))
    with refused(says="no records"):
        list(read_jsonl(write(tmp_path, b"\n \n")))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, 'f line 7: no "question"'),
        ({"question": ["a"]}, 'f line 7: "question" is a list, expected a text'),
        ({"question": None}, 'f line 7: "question" is null, expected a text'),
        ({"question": " "}, 'f line 7: "question" is empty'),
    ],
)
def test_text_field_says_what_is_wrong(record: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        text_field(record, "question", "f line 7")
    assert str(caught.value) == message
