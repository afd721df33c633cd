"""Whether the weights of a run directory are those that its journal has sealed. A resume asks it as an audit does.

A seal of a checkpoint is a digest of its step and of the digests of its files. `model/`, the policy that a run built,
has one over its files, and a folder in `bases/` is called by its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.driver.checkpoints.best import BEST
from launch.driver.checkpoints.checkpoint import CARD, Damaged, file_digests, read_digests, read_state, verify
from rlsys.adapters import BASES, MODEL
from rlsys.journal import Begin, Row, Sealed, read_journal
from rlsys.seals import digest_of, links

CHECKPOINTS = "checkpoints"
GONE = ""  # the digest of a checkpoint that the run itself has removed
BASE = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealBook:
    """What a journal says of folders of weights."""

    digests: Mapping[str, Sequence[str]]  # by name, the newest last; of void rows too
    since: int | None  # rows before the first process that sealed weights; None where none did
    chains: Sequence[str] = ()  # of each row, where they were compared

    def newest(self, name: str) -> str:
        return next((digest for digest in reversed(self.digests.get(name, ())) if digest != GONE), "")


def seal_book(rows: Sequence[Row]) -> SealBook:
    by_name: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, Sealed):
            by_name.setdefault(row.name, []).append(row.digest)
    since = next((at for at, row in enumerate(rows) if isinstance(row, Begin) and row.seals), None)
    return SealBook(digests=by_name, since=since)


def checkpoint_seal(step: int, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Of what stays as it is: the driver's part of `driver.json` may be renewed."""
    return digest_of(json.dumps([step, files], sort_keys=True).encode())


def model_seal(folder: Path) -> str:
    """Of a folder of weights, read once to its end."""
    return digest_of(json.dumps(file_digests(folder), sort_keys=True).encode())


def base_name(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Of a model in `bases/`, by the digests of its files."""
    hashes = [entry["sha256"] for _, entry in sorted(files.items())]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:12]


def compare_checkpoint(folder: Path, book: SealBook, say: Callable[[str], None]) -> bool:
    """The state, the folder's name, the seal and every file. Returns False where it was saved without digests, by an
    earlier rlsys. Raises Damaged."""
    best = BEST.fullmatch(folder.name) is not None
    state, files = read_state(folder), read_digests(folder)
    name = f"{CHECKPOINTS}/{folder.name.removeprefix('best-')}"
    sealed = [digest for digest in book.digests.get(name, ()) if digest != GONE]
    valid_seals = sealed if best else sealed[-1:]  # a best one stays when its step is taken again
    if sealed and (files is None or checkpoint_seal(state.step, files) not in valid_seals):
        raise Damaged(f"{folder}: damaged: its digests are not those that journal.jsonl has sealed")
    if not sealed and book.since is not None and state.mark > book.since and (files is not None or state.chain):
        raise Damaged(f"{folder}: damaged: journal.jsonl has no seal of it")
    if state.chain and state.mark and book.chains and book.chains[min(state.mark, len(book.chains)) - 1] != state.chain:
        raise Damaged(f"{folder}: damaged: row {state.mark} of journal.jsonl is not the one that it was saved after")
    return verify(folder, say, within="hf/" if best else "")


def compare_models(run: Path, book: SealBook, say: Callable[[str], None]) -> None:
    """What adapters and references stand on, `model/` and `bases/`. Raises Damaged for the first that differs."""
    for name in [MODEL, *sorted(base for base in book.digests if base.startswith(f"{BASES}/"))]:
        if book.newest(name) and not (run / name).is_dir():
            raise Damaged(f"{run / name}: damaged: the model is missing")
    sealed = book.newest(MODEL)
    if sealed:
        say(f"comparing {MODEL}/ with its digest")
        if model_seal(run / MODEL) != sealed:
            raise Damaged(f"{run / MODEL}: damaged: its files are not those that the run began with")
    for folder in sorted(run.glob(f"{BASES}/*")):
        if BASE.fullmatch(folder.name) is None:
            continue  # of a checkpoint without digests, or a draft
        say(f"comparing {BASES}/{folder.name} with its name")
        files = file_digests(folder) or {}
        if base_name({name: entry for name, entry in files.items() if name != CARD.name}) != folder.name:
            raise Damaged(f"{folder}: damaged: its files are not those that its name is a digest of")


def read_book(journal: Path) -> SealBook:
    """Raises Damaged where a row is not as it was written: its seals prove nothing then."""
    book = seal_book(read_journal(journal))
    if not journal.exists():
        return book
    with journal.open("rb") as lines:
        chain = list(links(line for line in lines if line.endswith(b"\n")))
    broken = next((number for number, link in enumerate(chain, start=1) if not link.fits), None)
    if broken is not None:
        raise Damaged(f"{journal} line {broken}: damaged: it was changed, or a line before it is missing")
    return replace(book, chains=[link.chain for link in chain])
