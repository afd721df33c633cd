"""Digests that show whether what a run wrote still stands: a chain over the rows of its journal, and seals.

Each row of the journal ends with a digest of itself and of the row before it. So a row that was changed, removed or put
in between is found, and a number of rows with the last digest, kept elsewhere, says that none is missing at the end. A
seal is a row with the digest of something else: a line of metrics.jsonl, a file of episodes. This finds damage and
mistakes; a program that writes all of the files can write all of the digests too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

LENGTH = 16  # letters of a digest
KEY = ', "chain": "'
OWN = "sha256"  # in a JSON object that stands alone in its file: of its other keys


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def own_digest(content: Mapping[str, Any]) -> str:
    """Of an object with or without its `OWN`."""
    body = {key: value for key, value in content.items() if key != OWN}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def with_own_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, OWN: own_digest(content)}


def append_chain_digest(line: str, before: str) -> tuple[str, str]:
    """(a JSON object with the digest of it and of the row before as its last key, that digest)."""
    digest = digest_of((before + line).encode())
    return f'{line[:-1]}{KEY}{digest}"}}', digest


class Link(NamedTuple):
    """A row of the journal in its chain."""

    chain: str  # up to this row; "" of rows before the first one with a digest, which an earlier rlsys wrote
    fits: bool  # whether its digest is that of the row and of the chain before it


def follow(line: bytes, before: str) -> Link:
    """A whole line of the journal, in the chain of the row before it."""
    body, _, end = line.decode("utf-8", "replace").rstrip("\n").rpartition(KEY)
    digest = end[:LENGTH] if end == f'{end[:LENGTH]}"}}' else ""
    fits = digest_of(f"{before}{body}}}".encode()) == digest if digest else not before
    return Link(chain=digest or before, fits=fits)


def links(lines: Iterable[bytes]) -> Iterator[Link]:
    """Of whole lines. Once a row has a digest, all that follow need one."""
    chain = ""
    for line in lines:
        link = follow(line, chain)
        chain = link.chain
        yield link
