"""envs.tasks.files: a bad line names itself."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from envs.tasks.files import read_jsonl, read_records, text_field
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


def rows_of(source: Path, **how: Any) -> list[dict[str, Any]]:
    return [dict(record.fields) for record in read_records(str(source), **how)]


def test_cells_of_csv_are_texts_and_empty_ones_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfquestion,answer,level\r\n"one, two\nthree",4,\r\n"say ""5""",5,easy\r\n\r\n')
    assert rows_of(path) == [
        {"question": "one, two\nthree", "answer": "4", "level": None},
        {"question": 'say "5"', "answer": "5", "level": "easy"},
    ]
    for text, row in (
        ("question;answer\n1,5 + 1?;2,5\n", {"question": "1,5 + 1?", "answer": "2,5"}),
        ('"question, as asked";answer\n1 + 1?;2\n', {"question, as asked": "1 + 1?", "answer": "2"}),
        ('question, answer\n"a, b", "c, d"\n', {"question": "a, b", "answer": "c, d"}),
        (",question,answer\n0,1 + 1?,2\n", {"question": "1 + 1?", "answer": "2"}),  # as pandas writes it
        ("question\n1 + 1?\n", {"question": "1 + 1?"}),
    ):
        path.write_text(text)
        assert rows_of(path) == [row]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("question,answer\n1?,2\n1?\n", "row 2: 1 cells, expected 2, as its header names"),
        ("question,,answer\n", "its first line names columns"),
        ("a,a\n1,2\n", "its first line names columns"),
        ('question,answer\n"1?,2\n', "not CSV (unexpected end of data) after row 0"),
        ("", "no records"),
        ("question,answer\n", "no records"),
    ],
)
def test_a_bad_csv_file_is_one_clear_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with refused(where="a.csv", says=message):
        rows_of(path)


def test_a_set_that_datasets_saved_is_read(tmp_path: Path) -> None:
    """A folder for each split, shards of Arrow in it, and files about them."""
    for split, first in (("train", 0), ("test", 100)):
        folder = tmp_path / split
        folder.mkdir()
        for shard in range(2):
            table = pyarrow.table({"question": [f"{first + shard}?"], "answer": [first + shard]})
            with pyarrow.ipc.new_stream(folder / f"data-0000{shard}-of-00002.arrow", table.schema) as stream:
                stream.write_table(table)
        for name in ("dataset_info.json", "state.json"):
            (folder / name).write_text("{}")
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert rows_of(tmp_path) == [{"question": "0?", "answer": 0}, {"question": "1?", "answer": 1}]
    ids = {record.task_id for split in ("train", "test") for record in read_records(str(tmp_path), split=split)}
    assert len(ids) == 4 and "test/data-00001-of-00002.arrow:1" in ids
    (tmp_path / "train" / "cache-0123.arrow").write_bytes(b"what a map has made of it")
    assert rows_of(tmp_path, split="test") == [{"question": "100?", "answer": 100}, {"question": "101?", "answer": 101}]
    (tmp_path / "broken.arrow").write_bytes(b"no Arrow")
    with refused(where="broken.arrow", says="cannot be read as Arrow"):
        rows_of(tmp_path / "broken.arrow")
    table = pyarrow.table({"question": ["1?"], "answer": ["2"]})
    with pyarrow.ipc.new_file(tmp_path / "whole.arrow", table.schema) as file:
        file.write_table(table)
    assert rows_of(tmp_path / "whole.arrow") == [{"question": "1?", "answer": "2"}]


def test_of_a_table_in_several_forms_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("question,answer\n1?,2\n")
    (tmp_path / "train.jsonl").write_text('{"question": "1?", "answer": 2}\n')
    assert rows_of(tmp_path) == [{"question": "1?", "answer": 2}]
    (tmp_path / "train_hard.csv").write_text("question,answer\n1?,2\n")
    with refused(says="3 tables"):
        rows_of(tmp_path)


def test_columns_are_renamed_and_none_is_lost(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"instruction": "1?", "output": "2", "level": 3}')
    assert rows_of(Path(path), columns={"question": "instruction", "answer": "output"}) == [
        {"question": "1?", "answer": "2", "level": 3}
    ]
    swapped = write(tmp_path, b'{"question": "2", "answer": "1?"}')
    assert rows_of(Path(swapped), columns={"question": "answer", "answer": "question"}) == [
        {"question": "1?", "answer": "2"}
    ]
    both = write(tmp_path, b'{"question": "old", "instruction": "1?"}')
    with refused(key="env.columns.question", says="env.columns.own_question=question"):
        rows_of(Path(both), columns={"question": "instruction"})
    assert rows_of(Path(both), columns={"question": "instruction", "own_question": "question"}) == [
        {"own_question": "old", "question": "1?"}
    ]
    named = write(tmp_path, b'{"Instruction": "1?", "output": "2"}')
    assert rows_of(Path(named), columns={"question": "instruction", "answer": "output"})[0]["question"] == "1?"
    ours = write(tmp_path, b'{"question": "1?", "answer": "2"}')  # held-out tasks may have our names already
    assert rows_of(Path(ours), columns={"question": "instruction", "answer": "output"}) == [
        {"question": "1?", "answer": "2"}
    ]
