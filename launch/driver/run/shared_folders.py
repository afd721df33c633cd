"""Whether a folder is one on all nodes: each reads a file of the driver's there, and the driver one of each node's."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlsys.errors import BadInput

SEEN_S = 10.0  # for a file that another node wrote to be seen: NFS remembers for a while what was not there


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFolderProbe:
    """A file of the driver's that every node has to see: it distinguishes two folders of the same name."""

    key: str  # what names the folder: "--run-dir /shared/run"
    file: str
    nonce: str


@contextmanager
def mark_folders(shared: Sequence[tuple[str, Path]]) -> Iterator[list[SharedFolderProbe]]:
    """A mark in each folder, and none of it left behind."""
    marks = []
    try:
        for key, folder in shared:
            marks.append(
                SharedFolderProbe(
                    key=key, file=str(folder / f".seen-{secrets.token_hex(8)}"), nonce=secrets.token_hex(16)
                )
            )
            try:
                Path(marks[-1].file).write_text(marks[-1].nonce)
            except OSError as error:
                raise BadInput(f"{folder} cannot be written ({error.strerror})", where=key) from error
        yield marks
    finally:
        for mark in marks:
            for path in Path(mark.file).parent.glob(f"{Path(mark.file).name}*"):
                path.unlink(missing_ok=True)


def answer_probe(mark: SharedFolderProbe) -> None:
    """On a node: read the driver's file, whose name ends before the node's address, and write one next to it."""
    driver = mark.file.rpartition(" ")[0]
    if not _seen(driver, mark.nonce):
        raise BadInput("not the driver's folder there", where=mark.key, expected="one that all nodes share")
    try:
        Path(mark.file).write_text(mark.nonce)
    except OSError as error:
        raise BadInput(f"cannot be written there ({error.strerror})", where=mark.key) from error


def check_answers(marks: Sequence[SharedFolderProbe], addresses: Sequence[str]) -> None:
    """Raises BadInput for a node whose file does not reach the driver."""
    for mark in marks:
        for address in addresses:
            if not _seen(f"{mark.file} {address}", mark.nonce):
                raise BadInput(f"node {address}: {mark.key}: what it writes there does not reach the driver")


def _seen(file: str, content: str) -> bool:
    end = time.monotonic() + SEEN_S
    while True:
        try:
            os.listdir(os.path.dirname(file))  # makes a network file system look again
            if Path(file).read_text() == content:
                return True
        except OSError:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(0.2)  # of SEEN_S
