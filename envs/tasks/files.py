"""Records of files: JSON lines, JSON arrays, parquet, Arrow, CSV, tab-separated text, each with its place.

Those of text may be packed by gzip (`train.jsonl.gz`). A bad record names itself. Files are read record by record, so
that the first hundred of a large one cost little.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import gzip
import io
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, BinaryIO, cast

import numpy as np

from envs.tasks.hub import SUFFIXES, download, files_in_folder, is_hub_name
from rlsys.errors import BadInput
from rlsys.jsonl import json_object, kind_of
from rlsys.types import Task

PACKED = ".gz"
BROKEN_PACK = (EOFError, zlib.error, gzip.BadGzipFile)  # the last is an OSError without a reason: caught before those
EXACT = 2**53  # from here on a float stands for several whole numbers
ARROW_FILE = b"ARROW1"  # how a file of Arrow's begins; a stream of it does not
DELIMITERS = ",;\t"  # of CSV
LONGEST_ROW = 1 << 20  # bytes of a line that is read to see whether it is a row, or an object that holds all rows
# An object whose first value that is no text and no number is its list of records, `data`.
LISTED_UNDER_DATA = re.compile(rb'\{\s*("\w+"\s*:\s*("[^"\\]*"|[\w.+-]+)\s*,\s*)*"data"\s*:\s*\[\s*\{')
LONGEST_CELL = 1 << 27  # characters of a CSV file's cell
TSV_FIELDS = ("belief", "argument", "stance", "graph")  # ExplaGraphs, the only such file known, comes without a header


def open_data(path: str) -> BinaryIO:
    """A data file's bytes, unpacked where its name ends in .gz; reading may then raise one of BROKEN_PACK."""
    return cast(BinaryIO, gzip.open(path)) if path.lower().endswith(PACKED) else open(path, "rb")


@contextmanager
def read_errors_as_bad_input(path: str, expected: str = "") -> Iterator[None]:
    """What cannot be read or unpacked inside is BadInput that names the file."""
    try:
        yield
    except BROKEN_PACK as error:
        raise BadInput(f"not a whole gzip file ({error})", where=path) from error
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror}){expected}", where=path) from error


def read_jsonl(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, with their objects; blank lines are skipped.

    Raises BadInput for a file that cannot be read or holds no record, and for a line that is not an object in UTF-8.
    """
    empty = True
    with read_errors_as_bad_input(path, ", expected a JSON-lines file"), open_data(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.strip():
                empty = False
                yield number, json_object(line, f"{path} line {number}")
    if empty:
        raise BadInput("no records", where=path, expected="one JSON object per line")


def text_field(record: Mapping[str, Any], key: str, where: str, *, blank: bool = False) -> str:
    """A required text of a record, `blank` or not. Raises BadInput: `data.jsonl line 7: no "question"`."""
    if key not in record:
        raise BadInput(f'no "{key}"', where=where)
    value = record[key]
    if not isinstance(value, str):
        raise BadInput(where=where, key=f'"{key}"', found=kind_of(value), expected="a text")
    if not blank and not value.strip():
        raise BadInput("is empty", where=where, key=f'"{key}"')
    if any("\ud800" <= character <= "\udfff" for character in value):  # legal JSON, but no tokenizer takes it
        raise BadInput(
            "holds half of a surrogate pair (\\ud800 to \\udfff alone): not a text", where=where, key=f'"{key}"'
        )
    return value


def number_text(value: float) -> str:
    """As people write it: 40 for 40.0, as a column of whole numbers with one missing holds it, 0.00001 for 1e-05."""
    if not isinstance(value, float) or abs(value) >= EXACT:
        return str(value)
    return str(int(value)) if value.is_integer() else np.format_float_positional(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """One record and where it stands: Located(where="train.jsonl line 7", task_id="train.jsonl:7", fields={…})

    Its methods check what they read: BadInput names the place.
    """

    where: str
    task_id: str
    fields: Mapping[str, Any]

    @property
    def lower(self) -> dict[str, Any]:
        """The fields by lower-case name, for some publishers write `Question`; a lower-case name wins over others.

        Without those that are null: files of columns give every row the fields of all others.
        """
        present = {key: value for key, value in self.fields.items() if value is not None}
        fields = {key.casefold(): value for key, value in present.items()}
        return fields | {key: value for key, value in present.items() if key == key.casefold()}

    def text(self, key: str) -> str:
        """A required text, stripped."""
        return text_field(self.lower, key, self.where).strip()

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.lower.get(key)
        if not isinstance(value, Mapping) or not value:
            raise BadInput("is missing, empty or no object", where=self.where, key=f'"{key}"')
        return value

    def texts(self, values: object, key: str) -> tuple[str, ...]:
        """A non-empty list of texts or numbers, as texts."""
        if not isinstance(values, list | tuple) or not values:
            raise BadInput("is missing, empty or no list", where=self.where, key=f'"{key}"', expected="a list of texts")
        return tuple(self.value_text(value, key) for value in values)

    def value_text(self, value: object, key: str) -> str:
        """A text or a number as text. True and false are neither."""
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return number_text(value)
        return text_field({key: value}, key, self.where).strip()

    def answer(self) -> str:
        return self.value_text(self.lower.get("answer"), "answer")

    def task(self, question: str, answers: Sequence[str], extra: Mapping[str, Any] | None = None) -> Task:
        record = {**self.fields, **(extra or {})}
        return Task(task_id=self.task_id, question=question, answers=tuple(answers), record=record)


def read_records(
    source: str, *, split: str | None = None, columns: Mapping[str, str] | None = None
) -> Iterator[Located]:
    """The records of a file, of the files of a folder, or of a data set on the hub. Raises BadInput.

    columns: by our name, that of the column in the file, which is renamed."""
    for path in _data_paths(source, split):
        empty = True
        for record in open_records(path):
            empty = False
            yield replace(record, fields=_rename_columns(record, columns)) if columns else record
        if empty:
            raise BadInput("no records", where=path)


def _rename_columns(record: Located, columns: Mapping[str, str]) -> Mapping[str, Any]:
    """The fields by our names. Those of a file that has all of our names, and none of the others, stay as they are."""
    fields, names = record.fields, {key.casefold(): key for key in record.fields}
    found = {ours: names.get(theirs.casefold()) for ours, theirs in columns.items()}
    if not any(found.values()) and all(ours in fields for ours in columns):
        return fields
    for ours, theirs in columns.items():
        key = f"env.columns.{ours}"
        if found[ours] is None:
            there = ", ".join(sorted(name[:40] for name in fields)[:20])
            raise BadInput(f"no such column. Columns found: {there}", where=record.where, key=key, found=theirs)
        if ours in fields and ours not in found.values():
            expected = f"another name for that too, such as env.columns.own_{ours}={ours}"
            reason = f"the file has a column {ours!r} of its own"
            raise BadInput(reason, where=record.where, key=key, found=theirs, expected=expected)
    renamed = {theirs: ours for ours, theirs in found.items()}
    return {renamed.get(key, key): value for key, value in fields.items()}


def open_records(path: str) -> Iterator[Located]:
    """The records of one file, whose kind its suffix tells. Raises BadInput."""
    suffix = os.path.splitext(path.lower().removesuffix(PACKED))[1]
    if suffix == ".parquet":
        unit, rows = "row", _parquet(path)
    elif suffix == ".arrow":
        unit, rows = "row", _arrow(path)
    elif suffix == ".tsv":
        unit, rows = "line", _tsv(path)
    elif suffix == ".csv":
        unit, rows = "row", _csv(path)
    elif suffix == ".json" and (items := _place_of_records(path)) is not None:
        unit, rows = "record", _json_array(path, items)
    else:
        unit, rows = "line", read_jsonl(path)
    # `datasets` calls the shards of all splits alike: their folder tells them apart.
    name = "/".join(path.split(os.sep)[-2 if suffix == ".arrow" else -1 :])
    with read_errors_as_bad_input(path):
        for number, row in rows:
            fields = {key: None if value != value else value for key, value in row.items()}  # NaN is a missing one
            yield Located(where=f"{path} {unit} {number}", task_id=f"{name}:{number}", fields=fields)


def _data_paths(source: str, split: str | None) -> Sequence[str]:
    if os.path.isdir(source):
        return files_in_folder(source, source, config=None, split=split)
    if os.path.exists(source):
        if split is not None:
            raise BadInput(
                "it chooses among the files of a folder or of the hub, this is a file",
                where=source,
                key="split",
                found=split,
            )
        return [source]
    if is_hub_name(source) and not source.lower().endswith(SUFFIXES):
        return download(source, split)
    expected = "a path, or owner/name or owner/name:config on the hub"
    raise BadInput("cannot be read (No such file or directory)", where=source, expected=expected)


def _parquet(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow.parquet

    with _arrow_errors_as_bad_input(path, "parquet"), pyarrow.parquet.ParquetFile(path) as file:
        yield from _numbered_rows(file.iter_batches(batch_size=256), _types_by_column(file.schema_arrow, path))


def _arrow(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """As `datasets` saves a set to a folder, or a file of Arrow's own format."""
    import pyarrow

    with _arrow_errors_as_bad_input(path, "Arrow"), pyarrow.memory_map(path) as file:
        is_file = file.read(len(ARROW_FILE)) == ARROW_FILE
        file.seek(0)
        reader = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        yield from _numbered_rows(batches, _types_by_column(reader.schema, path))


@contextmanager
def _arrow_errors_as_bad_input(path: str, form: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # ValueError: a time of nanoseconds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"cannot be read as {form} ({reason})", where=path) from error


def _numbered_rows(batches: Iterable[Any], kinds: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        yield number, {name: _json_value(value, kinds[name]) for name, value in row.items()}


def _types_by_column(schema: Any, path: str) -> dict[str, Any]:
    """By column. Raises BadInput where two have one name: only one of them would be read."""
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two columns are called {twice!r}", where=path, expected="one of a name")
    return {field.name: field.type for field in schema}


def _csv(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """With a header. An empty cell is a missing value; a first column without a name counts the rows, as in pandas."""
    csv.field_size_limit(LONGEST_CELL)
    number = 0
    try:
        with open_data(path) as packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline="") as file:
            delimiter = _find_delimiter(file)
            file.seek(0)
            rows = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            header = [name.strip() for name in next(rows, [])]
            counted = header[:1] == [""]
            if "" in header[counted:] or len(set(header)) < len(header):
                raise BadInput(f"its first line names columns {header}"[:200], where=path, expected="one name for each")
            for cells in rows:
                if not cells:
                    continue
                number += 1
                if len(cells) != len(header):
                    expected = f"{len(header)}, as its header names"
                    raise BadInput(f"{len(cells)} cells", where=f"{path} row {number}", expected=expected)
                yield number, {name: cell or None for name, cell in zip(header, cells, strict=True) if name}
    except csv.Error as error:
        raise BadInput(f"not CSV ({error}) after row {number}", where=path) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 (byte 0x{error.object[error.start]:02x})", where=path) from error


def _find_delimiter(file: io.TextIOWrapper) -> str:
    """What makes most cells of the header, and as many of the row below it."""
    best = ",", 1
    for delimiter in DELIMITERS:
        file.seek(0)
        with suppress(csv.Error):
            rows = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            header, row = next(rows, []), next(rows, [])
            if len(header) > best[1] and len(row) in (0, len(header)):
                best = delimiter, len(header)
    return best[0]


def _json_value(value: Any, kind: Any) -> Any:
    """A parquet value as JSON, and as people write it. kind: its Arrow type, which alone tells a map from a list of
    pairs and 0.1 from 0.10000000149011612. Bytes are text, or None where they are none and hold a picture."""
    from pyarrow import types

    if value is None:
        return None
    if types.is_map(kind):
        return {str(_json_value(key, kind.key_type)): _json_value(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        return {field.name: _json_value(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_json_value(item, kind.value_type) for item in value]
    if types.is_float16(kind) or types.is_float32(kind):
        return float(str(kind.to_pandas_dtype()(value)))
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return _decode_text(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time() and value.tzinfo is None:
        return str(value.date())  # a column of days that became one of times
    return value if isinstance(value, bool | int | float | str) else str(value)


def _decode_text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _tsv(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        with open_data(path) as packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                columns = line.rstrip("\r\n").split("\t")
                if number == 1 and tuple(name.strip().casefold() for name in columns) == TSV_FIELDS:
                    continue
                if len(columns) != len(TSV_FIELDS):
                    expected = f"{len(TSV_FIELDS)}: {', '.join(TSV_FIELDS)}"
                    raise BadInput(f"{len(columns)} columns", where=f"{path} line {number}", expected=expected)
                yield number, dict(zip(TSV_FIELDS, columns, strict=True))
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 (byte 0x{error.object[error.start]:02x})", where=path) from error


def _json_array(path: str, items: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """items: ijson's name of the place where the records are."""
    import ijson  # type: ignore[import-untyped]

    number = 0
    try:
        with open_data(path) as file:
            file.seek(len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0)
            for value in ijson.items(file, items, use_float=True):
                number += 1
                if not isinstance(value, dict):
                    raise BadInput(type(value).__name__, where=f"{path} record {number}", expected="a JSON object")
                yield number, value
    except ijson.JSONError as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"not JSON ({reason}) after record {number}", where=path) from error


def _place_of_records(path: str) -> str | None:
    """In a file of one JSON value: an array, or the list `data` of an object, as BeerQA's. None: lines, of which each
    may have such a column."""
    with read_errors_as_bad_input(path, ", expected a JSON-lines file"), open_data(path) as file:
        beginning = file.read(LONGEST_ROW).removeprefix(codecs.BOM_UTF8).lstrip()
    if beginning.startswith(b"["):
        return "item"
    if not LISTED_UNDER_DATA.match(beginning):
        return None
    line, _, rest = beginning.partition(b"\n")
    try:
        row = json.loads(line)
    except ValueError:  # it ends further on
        return "data.item"
    return None if rest.strip() or {"question", "prompt"} & {*row} else "data.item"
