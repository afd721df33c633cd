"""The records of wandb's own file: LevelDB's log format (blocks of 32 KiB) behind a header of seven bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 1 << 15, 7
FULL, FIRST, LAST = 1, 2, 4


def records(folder: Path) -> Iterator[Any]:
    """Of the only run below `folder`."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, whole = path.read_bytes(), HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        whole = piece if kind in (FULL, FIRST) else whole + piece
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record


def pairs(items: Any) -> dict[str, Any]:
    """Keys, nested ones with dots, and their values."""
    return {each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in items}


def rows(folder: Path) -> list[dict[str, Any]]:
    """What was logged, in order."""
    return [pairs(each.history.item) for each in records(folder) if each.HasField("history")]


def exit_codes(folder: Path) -> list[int]:
    return [each.exit.exit_code for each in records(folder) if each.HasField("exit")]


def run_record(folder: Path) -> Any:
    return next(each.run for each in records(folder) if each.HasField("run"))
