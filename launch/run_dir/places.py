"""Lines of a file by their places in it: of a compressed one that has many gzip members from the member alone."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

UNKNOWN = -1  # of a whole number of a row: null


@dataclass(frozen=True, slots=True)
class Place:
    """In bytes. Of a file that is not compressed, or by an earlier rlsys, no member is known."""

    offset: int  # before the line, without compression
    length: int
    member: int = UNKNOWN  # before its gzip member in the file
    within: int = UNKNOWN  # before the line in that member, without compression


@dataclass(frozen=True, slots=True)
class Packed:
    """What `rlsys.files.pack_lines` says of a line."""

    begin: int
    end: int
    within: int


NOT_PACKED = Packed(UNKNOWN, UNKNOWN, UNKNOWN)


def packed_of(row: Mapping[str, Any]) -> Packed:
    """Of a row of the index. What has another shape is of a file that is read from its beginning."""
    packed = row.get("packed")
    if not isinstance(packed, list) or len(packed) != 3 or not all(type(number) is int for number in packed):
        return NOT_PACKED
    begin, end, within = packed
    return Packed(begin, end, within) if 0 <= begin < end < 2**62 and 0 <= within < 2**31 else NOT_PACKED


def read_places(path: Path, places: Iterable[Place]) -> Iterator[bytes]:
    """The line at each, in one pass over the file. places: in the order of the file. Raises OSError, EOFError and
    zlib.error where it is damaged."""
    with path.open("rb") as file:
        packed = path.suffix == ".gz"
        source: IO[bytes] | None = None if packed else file
        member = UNKNOWN
        for place in places:
            if packed and (source is None or place.member != member):
                member = place.member
                file.seek(max(member, 0))
                source = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
            assert source is not None
            source.seek(place.offset if member == UNKNOWN else place.within)
            yield source.read(place.length)
