"""Files that are ours: replaced whole, and errors that say of which file they are."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from rlsys.errors import BadInput

GZIP_LEVEL = 3  # twice as fast as the usual 6, for a tenth more bytes
REMOVED = ".gone-"  # before the name of a folder that is being removed
MEMBER = 2**20  # bytes of lines: an episode of 32k tokens is half of it, and what is read for one is a hundredth second


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """The system's error of a write or a flush (a full disk) does not say of which file: now it does."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextlib.contextmanager
def files_or_bad_input() -> Iterator[None]:
    """A file that cannot be read or written is bad input, as long as nothing was started."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot be read or written ({error.strerror})", where=error.filename or "a file") from error


def as_readable_as_its_folder(path: Path) -> None:
    """safetensors makes files for their owner alone, whatever the umask says: others may read what they may enter."""
    path.chmod(path.parent.stat().st_mode & 0o666)


def replace_file(path: Path, content: str | bytes) -> None:
    """Written next to its place, synced to the disk and renamed into it: there is the old file or the new one."""
    with whole_file(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Brought to the disk and renamed into its place once it is whole; on an error nothing of it stays."""
    temporary = path.with_name(f".{path.name}.tmp")
    with naming(path):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)


def rename_synced(folder: Path, final: Path) -> Path:
    """Into its place, with all that was written below it on the disk before, and its name after: a loss of power leaves
    the whole of it there or nothing."""
    for parent, _, names in os.walk(folder):
        for name in (*names, "."):
            _fsync_path(Path(parent, name))
    folder.rename(final)
    _fsync_path(final.parent)
    return final


def _fsync_path(path: Path) -> None:
    with naming(path):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def remove_tree(folder: Path) -> None:
    """At once for whoever looks for its name: a kill in the middle of it leaves nothing that looks whole."""
    trash = folder.with_name(f"{REMOVED}{folder.name}")
    shutil.rmtree(trash, ignore_errors=True)  # of a process that was killed
    with contextlib.suppress(FileNotFoundError):  # who begins a checkpoint meanwhile removes it too
        shutil.rmtree(folder.rename(trash))


def link_or_copy(source: str | Path, target: str | Path) -> str:
    """Another name for a file that is never changed, where the disk has hard links. Also for `shutil.copytree`."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)
    return str(target)


def is_packed(head: bytes) -> bool:
    """Whether a file that begins so is compressed by gzip: no text begins with this byte."""
    return head[:1] == b"\x1f"


def is_there(path: Path) -> bool:
    """Raises BadInput for what cannot be read to its end: opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise BadInput(where=path, expected="a file, found a pipe, a socket or a device")
    return True


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines as they stand, by their numbers from 1; none where there is no file. Raises BadInput as `is_there`.

    A last one without an end is being written, or was torn by a crash.
    """
    with open(path if is_there(path) else os.devnull, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):
                yield number, line


def pack_lines(source: IO[bytes], lengths: Sequence[int], target: IO[bytes]) -> list[tuple[int, int, int]]:
    """By gzip, whole lines in members of about MEMBER bytes: any reader reads the whole file, and one that knows where
    a member begins decompresses that one alone.

    lengths: bytes of each line. Returns for each (where in the file its member begins, where it ends, bytes of the
    member before the line).
    """
    places: list[tuple[int, int, int]] = []
    begin, size, before = 0, 0, list[int]()  # bytes before each line of the member
    for number, length in enumerate(lengths, start=1):
        before.append(size)
        size += length
        if size < MEMBER and number < len(lengths):
            continue
        end = begin + target.write(gzip.compress(source.read(size), GZIP_LEVEL, mtime=0))
        places += [(begin, end, place) for place in before]
        begin, size, before = end, 0, []
    return places


def unpack(path: Path) -> Path:
    """The file, or where it is compressed a plain copy, which has no name and is gone with this process.

    Of a file that has not changed meanwhile the copy is the same one.
    """
    with path.open("rb") as file:
        if not is_packed(file.read(1)):
            return path
    info = path.stat()
    return _plain_copy(path.resolve(), info.st_ino, info.st_mtime_ns, info.st_size)


@cache
def _plain_copy(path: Path, *_: int) -> Path:
    with gzip.open(path) as packed, tempfile.TemporaryFile() as copy:
        try:
            shutil.copyfileobj(packed, copy)
        except (EOFError, zlib.error) as error:
            raise gzip.BadGzipFile(errno.EINVAL, f"damaged: {error}", str(path)) from error
        copy.flush()
        return Path(f"/proc/{os.getpid()}/fd/{os.dup(copy.fileno())}")


def shorten_path(path: Path) -> Path:
    """As a person at this prompt would write it."""
    with contextlib.suppress(FileNotFoundError):  # the working folder may be gone by the end
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return path
