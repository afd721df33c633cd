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
    data, at, payload = path.read_bytes(), HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        payload = piece if kind in (FULL, FIRST) else payload + piece
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(payload)
            yield record


def pairs(items: Any) -> dict[str, Any]:
    """Keys, nested ones with dots, and their values."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def rows(folder: Path) -> list[dict[str, Any]]:
    """What was logged, in order."""
    return [pairs(record.history.item) for record in records(folder) if record.HasField("history")]


def exit_codes(folder: Path) -> list[int]:
    return [record.exit.exit_code for record in records(folder) if record.HasField("exit")]


def run_record(folder: Path) -> Any:
    return next(record.run for record in records(folder) if record.HasField("run"))
