"""Weights through the memory of one node: a folder of safetensors buckets, renamed into place when it is whole.

    rlsys-weights-OWNER/v000017/manifest.json   the `Published` that was returned
    rlsys-weights-OWNER/v000017/bucket-000.safetensors ...

Rank 0 writes it and every engine of the node maps the files. Buckets bound the memory of both sides.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlsys.channels.base import Bucket, Published, WeightsRejected

if TYPE_CHECKING:
    import torch

MANIFEST = "manifest.json"
PREFIX = "rlsys-weights-"


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A `WeightChannel`."""

    folder: Path
    one_node: ClassVar[bool] = True

    @classmethod
    def open(cls, owner: str) -> SharedMemory:
        return cls(_memory_root() / f"{PREFIX}{owner}")

    @classmethod
    def remove_stale(cls, dead: Callable[[str], bool]) -> None:
        for path in _memory_root().glob(f"{PREFIX}*"):
            if dead(path.name.removeprefix(PREFIX)):
                shutil.rmtree(path, ignore_errors=True)

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> Published:
        """Rank 0 writes everything. A folder of the same version is replaced."""
        nothing = Published(channel=f"{__name__}.SharedMemory", version=version)
        if rank != 0:
            return nothing
        from safetensors.torch import save_file

        target = self.folder / folder_name(version)
        draft = self.folder / f".{target.name}.{os.getpid()}.tmp"
        shutil.rmtree(draft, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.mkdir()
        files: list[str] = []
        num_tensors = num_bytes = 0
        for index, bucket in enumerate(buckets):
            tensors = dict(bucket())
            files.append(f"bucket-{index:03d}.safetensors")
            save_file(tensors, draft / files[-1])
            num_tensors += len(tensors)
            num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        places = tuple(str(target / file) for file in files)
        published = replace(nothing, places=places, tensors=num_tensors, bytes=num_bytes)
        (draft / MANIFEST).write_text(json.dumps(asdict(published)))
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        return published

    def forget(self, newest: int) -> None:
        """The version before the newest stays too: an engine may still be mapping it."""
        for old in self.folder.glob("v*"):
            if old.name not in (folder_name(newest), folder_name(newest - 1)):
                shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def check(published: Published) -> None:
        for folder in {Path(place).parent for place in published.places}:
            try:
                found = json.loads((folder / MANIFEST).read_text())["version"]
            except (OSError, KeyError, ValueError) as error:
                raise WeightsRejected(f"{folder}: no readable manifest: {error!r}") from error
            if found != published.version:
                raise WeightsRejected(f"{folder}: holds version {found}, expected {published.version}")

    @staticmethod
    def receive(published: Published) -> Iterator[tuple[str, torch.Tensor]]:
        """Mapped from the files and not copied."""
        from safetensors import safe_open

        for bucket in published.places:
            with safe_open(bucket, framework="pt", device="cpu") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                    yield name, tensors.get_tensor(name)


def folder_name(version: int) -> str:
    return f"v{version:06d}"


def _memory_root() -> Path:
    """tmpfs where the system has one: engines map the weights from memory."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
