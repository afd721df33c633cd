"""A corpus: passages by row number, and a fingerprint that ties an index to it.

A file is read lazily. Only where each line starts is kept (12 bytes a passage: 250 MB for Wikipedia's 21 million), so a
passage costs one read from the page cache and the corpus never sits in memory.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from pydantic_core import from_json

from envs.tasks.files import text_field
from rlsys.errors import BadInput
from rlsys.jsonl import kind_of

CHUNK = 1 << 24  # bytes read at once by the scan
SHORT = 8  # bytes; no record is this short, so only such lines are looked at for being blank


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A passage in Search-R1's form: the title in quotes on the first line, then the text.

    >>> Document(id="0", contents='"Evan Morris"\\nEvan Morris was a lobbyist.').title
    'Evan Morris'
    """

    id: str
    contents: str

    @property
    def title(self) -> str:
        """The first line, without the quotes around it."""
        line = self.contents.partition("\n")[0].strip()
        return line[1:-1] if len(line) >= 2 and line[0] == line[-1] == '"' else line

    @property
    def text(self) -> str:
        """What follows the first line."""
        return self.contents.partition("\n")[2]


def contents(title: str, text: str) -> str:
    """Search-R1's one string for a title and a text."""
    return f'"{title}"\n{text}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Equal for equal corpora: an index that was built from another one is refused."""

    documents: int
    bytes: int
    digest: str  # blake2b of the whole file


class Corpus(Protocol):
    name: str  # for messages

    @property
    def fingerprint(self) -> Fingerprint: ...

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Document: ...


class ListCorpus:
    """Passages in memory: small and made-up worlds."""

    def __init__(self, documents: Sequence[Document], name: str = "corpus") -> None:
        self.name = name
        self._documents = tuple(documents)
        if not self._documents:
            raise BadInput("no passages", where=name)

    @property
    def fingerprint(self) -> Fingerprint:
        lines = [json.dumps([document.id, document.contents]).encode() for document in self._documents]
        digest = hashlib.blake2b(b"\n".join(lines), digest_size=16).hexdigest()
        return Fingerprint(documents=len(lines), bytes=sum(map(len, lines)), digest=digest)

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, row: int) -> Document:
        return self._documents[row]


class FileCorpus:
    """JSON lines: `{"id", "contents"}` (Search-R1, ReSearch) or `{"id", "title", "text"}`. Blank lines are skipped.

    Raises BadInput for a file that cannot be read or is empty and, when the row is read, for a malformed line.
    Rows may be read from several threads.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115  kept open: rows are read as they are asked for
            self._starts, self._lengths, self.fingerprint = _scan(self._file.fileno())
        except OSError as error:
            raise BadInput(
                f"cannot be read ({error.strerror})", where=path, expected="a corpus as JSON lines"
            ) from error
        if not len(self._starts):
            raise BadInput("no passages", where=path, expected='one {"id", "contents"} per line')

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> Document:
        line = os.pread(self._file.fileno(), int(self._lengths[row]), int(self._starts[row]))
        if (usual := usual_document(line)) is not None:
            return usual
        try:
            if row == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            return document(json.loads(line))
        except (ValueError, RecursionError, BadInput) as error:
            reason = error if isinstance(error, BadInput) else f"not JSON ({getattr(error, 'msg', error)})"
            raise BadInput(reason, where=f"{self.name} line {self._line_number(row)}") from error

    def close(self) -> None:
        self._file.close()

    def _line_number(self, row: int) -> int:
        """From 1. Counted only for an error message."""
        number, position, start = 1, 0, int(self._starts[row])
        while position < start:
            chunk = os.pread(self._file.fileno(), min(CHUNK, start - position), position)
            if not chunk:
                break
            number, position = number + chunk.count(b"\n"), position + len(chunk)
        return number


def usual_document(line: bytes) -> Document | None:
    """`{"id", "contents"}`, both texts: eight times as fast as `document`, which None leaves the rest to."""
    try:
        record = from_json(line)  # takes no half of a surrogate pair
    except ValueError:
        return None
    identity, text = (record.get("id"), record.get("contents")) if isinstance(record, dict) else (None, None)
    if isinstance(identity, str) and isinstance(text, str) and text.strip():
        return Document(id=identity, contents=text)
    return None


def document(record: Any) -> Document:
    """One record as a passage. Raises BadInput, without the place."""
    if not isinstance(record, dict):
        raise BadInput(f"found {type(record).__name__}", expected="a JSON object")
    identity = record.get("id")
    if isinstance(identity, bool) or not isinstance(identity, (str, int)):
        description = "missing" if identity is None else repr(identity)
        raise BadInput(key='"id"', found=description, expected="a text or a number")
    if "contents" not in record and "text" in record:
        title = record.get("title")
        if not isinstance(title, str | None):
            raise BadInput(key='"title"', found=kind_of(title), expected="a text")
        record = {"contents": contents(title or "", text_field(record, "text", ""))}
    return Document(id=str(identity), contents=text_field(record, "contents", ""))


def _scan(descriptor: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Fingerprint]:
    """Where each record starts (int64), how long it is (uint32), and the fingerprint, in one pass over the file."""
    digest = hashlib.blake2b(digest_size=16)
    ends: list[np.ndarray[Any, Any]] = []
    size = 0
    while chunk := os.pread(descriptor, CHUNK, size):
        digest.update(chunk)
        ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + size)
        size += len(chunk)
    stops = np.concatenate([*ends, np.array([size])])
    starts = np.concatenate([np.array([0]), stops[:-1] + 1])
    lengths = (stops - starts).astype(np.uint32)
    mask = lengths > 0
    for row in np.flatnonzero(mask & (lengths <= SHORT)):
        mask[row] = bool(os.pread(descriptor, int(lengths[row]), int(starts[row])).strip())
    starts, lengths = starts[mask], lengths[mask]
    return starts, lengths, Fingerprint(documents=len(starts), bytes=size, digest=digest.hexdigest())
