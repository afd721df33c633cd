"""A published version of the weights: a folder of safetensors buckets and a manifest, renamed into place when whole.

    v000017/manifest.json   {"version": 17, "tensors": 41, "bytes": 3403776, "buckets": ["bucket-000.safetensors"]}
    v000017/bucket-000.safetensors ...

The learner writes it (`learners.export`), every engine of the node maps it (`actors.engine`). Buckets bound the memory
of both sides; a folder appears under its final name only when complete, so a reader never sees half a version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    version: int
    tensors: int  # how many the engine must confirm to have loaded
    bytes: int
    buckets: tuple[str, ...]  # file names, in loading order


def folder_name(version: int) -> str:
    return f"v{version:06d}"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest)))


def read_manifest(folder: Path) -> Manifest:
    raw = json.loads((folder / MANIFEST).read_text())
    return Manifest(version=raw["version"], tensors=raw["tensors"], bytes=raw["bytes"], buckets=tuple(raw["buckets"]))
