"""JSON-lines files, read so that a bad line names itself."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from rlsys.errors import BadInput
from rlsys.jsonl import json_object, kind_of

PACKED = ".gz"
BROKEN_PACK = (EOFError, zlib.error, gzip.BadGzipFile)  # the last is an OSError without a reason: caught before those


def open_data(path: str) -> BinaryIO:
    """A data file's bytes, unpacked where its name ends in .gz; reading may then raise one of BROKEN_PACK."""
    return cast(BinaryIO, gzip.open(path)) if path.lower().endswith(PACKED) else open(path, "rb")


@contextmanager
def readable(path: str, expected: str = "") -> Iterator[None]:
    """What cannot be read or unpacked inside is BadInput that names the file."""
    try:
        yield
    except BROKEN_PACK as error:
        raise BadInput(f"{path}: not a whole gzip file ({error})") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}){expected}") from error


def read_jsonl(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, with their objects; blank lines are skipped.

    Raises BadInput for a file that cannot be read or holds no record, and for a line that is not an object in UTF-8.
    """
    empty = True
    with readable(path, ", expected a JSON-lines file"), open_data(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.strip():
                empty = False
                yield number, json_object(line, f"{path} line {number}")
    if empty:
        raise BadInput(f"{path}: no records, expected one JSON object per line")


def text_field(record: Mapping[str, Any], key: str, where: str, *, blank: bool = False) -> str:
    """A required text of a record, `blank` or not. Raises BadInput: `data.jsonl line 7: no "question"`."""
    if key not in record:
        raise BadInput(f'{where}: no "{key}"')
    value = record[key]
    if not isinstance(value, str):
        raise BadInput(f'{where}: "{key}" is {kind_of(value)}, expected a text')
    if not blank and not value.strip():
        raise BadInput(f'{where}: "{key}" is empty')
    if any("\ud800" <= character <= "\udfff" for character in value):  # legal JSON, but no tokenizer takes it
        raise BadInput(f'{where}: "{key}" holds half of a surrogate pair (\\ud800 to \\udfff alone): not a text')
    return value
