"""Columns and blocks of the trajectories of a page."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from launch.run_dir.places import Place, read_places
from launch.tools.report import packing
from launch.tools.report.kept import Room
from launch.tools.report.packing import clean_line, divide_room, dump_line, embed_in_html, make_pack, shorten, tokens_in
from launch.tools.report.pieces import Pieces
from tests.makers.report_example import byte_tokenizer, episodes_of, write_run


def test_each_row_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 steps of 3 groups of 4, and 6 of an evaluation; in blocks of about five lines."""
    monkeypatch.setattr(packing, "BLOCK", 10_000)
    pack = make_pack([episodes_of(write_run(tmp_path / "a"))], None)
    index = pack.index()
    assert index["count"] == index["total"] == 102 and len(index["starts"]) == len(pack.blocks) > 5
    lines = [json.loads(line) for number in range(len(pack.blocks)) for line in pack.lines(number)]
    columns = index["columns"]
    assert [line["sequence"] for line in lines] == columns["sequence"]
    assert [line["sibling"] for line in lines] == columns["sibling"]
    assert [line.get("reward") for line in lines] == columns["reward"]
    assert set(columns["file"]) == {f"step-{n:06d}.jsonl" for n in range(1, 9)} | {"eval-rl-after-greedy.jsonl"}


def test_a_page_reads_each_file_once_however_many_blocks_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also files without known members: a compressed one would be decompressed up to each block again."""
    monkeypatch.setattr(packing, "BLOCK", 10_000)
    pack = make_pack([episodes_of(write_run(tmp_path / name)) for name in "ab"], None)
    blocks = [pack.lines(number) for number in range(len(pack.blocks))]
    opened = Counter[Path]()

    def count(path: Path, places: Iterable[Place]) -> Iterator[bytes]:
        opened[path] += 1
        return read_places(path, places)

    monkeypatch.setattr("launch.run_dir.episodes.read_places", count)
    assert list(pack.lines_by_block()) == blocks and len(blocks) > 2 * 9
    assert len(opened) == 2 * 9 and set(opened.values()) == {1}


def test_runs_share_the_room_and_no_block(tmp_path: Path) -> None:
    runs = [episodes_of(write_run(tmp_path / name)) for name in "ab"]
    index = make_pack(runs, Room(80)).index()
    assert index["total"] == 204 and 72 <= index["count"] <= 80
    assert sum(run == 0 for run in index["columns"]["run"]) == sum(run == 1 for run in index["columns"]["run"])
    blocks = make_pack(runs, Room(80)).blocks
    assert {block.run for block in blocks} == {0, 1}


def test_a_file_that_is_gone_is_named_in_each_of_its_lines(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    pack = make_pack([episodes_of(run)], None)
    (run / "trajectories/step-000001.jsonl").unlink()
    lines = [json.loads(line) for line in pack.lines(0)]
    assert len(lines) == len(pack.blocks[0].rows)
    assert sum("unreadable" in line for line in lines) == 12


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a": 1}\n', '{"a":1}'),
        (b'{"a": NaN, "b": [-Infinity]}', '{"a":"nan","b":["-inf"]}'),
        (b'{"a": "\\ud800"}', '{"a":"\\ud800"}'),
        ('{"a": "漢"}'.encode(), '{"a":"漢"}'),
        (b'{"a": "x\\ny\\u2028"}', '{"a":"x\\ny\u2028"}'),
    ],
)
def test_lines_are_what_a_browser_reads(line: bytes, found: str) -> None:
    assert clean_line(line) == found
    json.loads(found, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize("line", [b"", b"[1]", b'{"a": ', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_says_so(line: bytes) -> None:
    assert "unreadable" in json.loads(clean_line(line))


def test_what_is_embedded_closes_no_tag_and_is_always_the_same() -> None:
    text = dump_line({"a": "</script><!--"})
    assert embed_in_html(text) == embed_in_html(text)
    assert not set(embed_in_html(text)) & set("<>&\"'")
    assert gzip.decompress(base64.b64decode(embed_in_html(text))).decode() == text


def test_long_texts_say_how_long_they_are() -> None:
    assert shorten("x" * 12_000, 3) == "xxx ... (12,000 characters)"
    assert shorten("xyz", 3) == "xyz"


def test_tokens_are_collected_from_what_has_them() -> None:
    assert tokens_in(['{"token_ids": [[1, 2], [2, 5]]}', '{"token_ids": 7}', '{"token_ids": [3, ["x", 9]]}', "{}"]) == {
        *(1, 2, 5, 9),
    }


def test_pieces_of_a_text_make_the_text(tmp_path: Path) -> None:
    """Also where a character is spread over tokens: each token is its bytes."""
    tokenizer = byte_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = [*tokenizer.encode("the 漢\u202e sum").ids, 258]
    pieces = Pieces(tmp_path / "tokenizer.json")
    numbers, texts = pieces.table([*ids, 99_999, -1])
    assert numbers == sorted(set(ids))
    by_id = dict(zip(numbers, texts, strict=True))
    assert "".join(by_id[token] for token in ids).encode("latin-1").decode() == "the 漢\u202e sum<|end|>"
    assert by_id[257] == "the"


def test_a_damaged_tokenizer_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="tokenizer.json"):
        Pieces(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("sizes", "keep", "found"),
    [
        ([5, 7], 20, [5, 7]),
        ([100, 3, 100], 43, [20, 3, 20]),
        ([9, 9], 0, [0, 0]),
        ([], 5, []),
    ],
)
def test_what_a_small_run_leaves_is_the_others(sizes: list[int], keep: int, found: list[int]) -> None:
    assert divide_room(sizes, keep) == found
