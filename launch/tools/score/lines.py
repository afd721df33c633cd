"""The lines of a file or a pipe, compressed by gzip or not, as they come, in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import os
import select
from collections.abc import Iterator

from envs.tasks.files import BROKEN_PACK
from rlsys.errors import BadInput
from rlsys.files import is_packed

CHUNK = 1 << 16  # bytes: what a pipe holds
MAX_LINE = 64 << 20  # bytes; a longer line is dropped as it comes

Line = tuple[int, bytes | None]  # its number from 1; None in the place of one that is too long


class LineReader:
    """Iterates over the lines that are not blank. None stands for: nothing more is there for now.

    So a program that writes a line and waits for its score gets it. Raises BadInput when the file cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._fd).st_size  # 0 for a pipe
        except OSError as error:
            raise self._unreadable(error) from error
        self.bytes_read = 0
        self._rest = b""  # of what is compressed: read and not unpacked yet
        self._unpacked: gzip.GzipFile | None = None

    def __iter__(self) -> Iterator[Line | None]:
        parts: list[bytes] = []  # of the line that is not whole yet
        length = number = 0
        while chunk := self._read():
            *pieces, rest = chunk.split(b"\n")
            for piece in pieces:
                number += 1
                yield from _line(number, parts, piece, length + len(piece))
                parts, length = [], 0
            length += len(rest)
            if length > MAX_LINE:
                parts = []
            else:
                parts.append(rest)
            if not select.select([self._fd], [], [], 0)[0]:
                yield None
        yield from _line(number + 1, parts, b"", length)

    def reads(self, path: str) -> bool:
        """Whether `path` is the file that is read here."""
        try:
            return self.size > 0 and os.path.samestat(os.stat(path), os.fstat(self._fd))
        except OSError:
            return False

    @property
    def _name(self) -> str:
        return "standard input" if self._path == "-" else self._path

    def close(self) -> None:
        if self._path != "-":
            os.close(self._fd)

    def _read(self) -> bytes:
        """The next part of the content; nothing at its end."""
        if self._unpacked is None:
            first, chunk = self.bytes_read == 0, self._raw()
            if not (first and is_packed(chunk)):
                return chunk
            self._rest, self._unpacked = chunk, gzip.GzipFile(fileobj=self)  # type: ignore[call-overload]
        try:
            return self._unpacked.read1(CHUNK)
        except BROKEN_PACK as error:
            raise BadInput(f"compressed, and damaged ({error})", key="--input", found=self._name) from error

    def read(self, size: int) -> bytes:
        """Of what lies there: gzip reads it."""
        self._rest = self._rest or self._raw()
        chunk, self._rest = self._rest[:size], self._rest[size:]
        return chunk

    def _raw(self) -> bytes:
        try:
            chunk = os.read(self._fd, CHUNK)
        except OSError as error:
            raise self._unreadable(error) from error
        self.bytes_read += len(chunk)
        return chunk

    def _unreadable(self, error: OSError) -> BadInput:
        return BadInput(
            f"cannot be read ({error.strerror})", key="--input", found=self._name, expected="a JSON-lines file"
        )


def _line(number: int, parts: list[bytes], last: bytes, length: int) -> Iterator[Line]:
    if length > MAX_LINE:
        yield number, None
        return
    line = b"".join([*parts, last])
    line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    if line.strip():
        yield number, line
