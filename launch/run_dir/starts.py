"""`run.json` as records: with what, where and on which data each process of a run began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The GPUs of a node, by the first kind of them."""

    count: int | None = None
    name: str | None = None
    memory_gb: float | None = None  # of one, in 10^9 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str | None = None
    cores: int | None = None
    memory_gb: float | None = None
    gpus: Cards | None = None
    parts: tuple[str, ...] = ()  # of the run that are on it


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Of data, or a lock of packages."""

    file: str | None = None  # its name; of data the key that it stands under
    bytes: int | None = None
    sha256: str | None = None  # None: not computed yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The beginning of a run, or of its continuation. What an earlier rlsys did not write is None or empty."""

    time: float | None = None  # since 1970
    utc: str | None = None
    from_step: int | None = None
    command: tuple[str, ...] = ()
    overrides: tuple[str, ...] | None = None
    version: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    source: str | None = None  # a digest of it, where it is no checkout
    python: str | None = None
    platform: str | None = None
    lock: File | None = None
    packages: Mapping[str, Any] = field(default_factory=dict)  # versions
    differs: Mapping[str, Any] = field(default_factory=dict)  # [in the lock, here] by package
    nodes: tuple[Node, ...] = ()
    data: Mapping[str, File] = field(default_factory=dict)
