"""JSON lines of a run that may still be going on: one at a time, and without a last one that is not there whole yet."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput
from rlsys.files import is_packed
from rlsys.jsonl import json_object


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """Raises BadInput naming the file, and the line where it is damaged."""
    try:
        for number, line in enumerate(_lines(path), start=1):
            try:
                yield json_object(line, f"{path} line {number}")
            except BadInput:
                if line.endswith(b"\n"):
                    raise
                return
    except (OSError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = is_packed(file.read(1))
        file.seek(0)
        if not packed:
            yield from file
            return
        with gzip.open(file) as unpacked:
            try:
                yield from unpacked
            except EOFError:  # the copy of a file that ends in the middle
                return
