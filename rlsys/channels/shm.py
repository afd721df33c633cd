"""Weights through the memory of the nodes: a version is a folder of safetensors buckets.

    rlsys-versions-OWNER-NODE/v000017/bucket-000.safetensors ...

Every rank writes its share on its own node. The engines of a node map the files that lie there; the node's carrier
(`actors.carriers`) brings those of the other nodes first. A file bears its name once it is whole. Buckets bound the
memory of both sides.
"""

from __future__ import annotations

import shutil
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlsys.channels import memory
from rlsys.channels.base import Bucket, Part, Published, WeightsRejected
from rlsys.errors import RunFailed

if TYPE_CHECKING:
    import torch

NODE_LETTERS = 12  # of a node's name, in a folder's


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A `WeightChannel`."""

    folder: Path  # on this node
    node: str = ""
    digests: bool = True  # of what is sent: on one node nobody would look at them
    one_node: ClassVar[bool] = False
    carried: ClassVar[bool] = True

    @classmethod
    def open(cls, owner: str, root: Path | None = None) -> SharedMemory:
        return cls(memory.memory_root(root) / f"{memory.PREFIX}{owner}")

    @classmethod
    def sweep(cls) -> None:
        memory.sweep(memory.memory_root())

    @classmethod
    def room(cls, root: Path | None, needed: int) -> str:
        return memory.room(memory.memory_root(root), needed)

    def on_node(self, node: str) -> SharedMemory:
        """A folder of its own for each node: two nodes of Ray's may be one machine, or share a disk."""
        return replace(self, folder=self.folder.with_name(f"{self.folder.name}-{node[:NODE_LETTERS]}"), node=node)

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> Published:
        """Every rank writes each `num_ranks`-th bucket, beside the gathering of the next."""
        folder = self.folder / folder_name(version)
        writing: deque[Future[tuple[Part, int, int]]] = deque()
        written = []
        with ThreadPoolExecutor(1) as beside:
            for index, bucket in enumerate(buckets):
                if index % num_ranks != rank:
                    continue
                tensors = bucket()
                if writing:  # two buckets in memory, not more
                    written.append(writing.popleft().result())
                writing.append(beside.submit(self._write, folder, f"bucket-{index:03d}.safetensors", tensors))
            written += [each.result() for each in writing]
        return Published(
            channel=f"{__name__}.SharedMemory",
            version=version,
            places=tuple(str(folder / part.name) for part, _, _ in written),
            tensors=sum(count for _, count, _ in written),
            bytes=sum(size for _, _, size in written),
            parts=tuple(part for part, _, _ in written),
        )

    def _write(self, folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> tuple[Part, int, int]:
        """(the file, tensors in it, their bytes). Raises RunFailed where there is no room for them."""
        from safetensors.torch import save_file

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{name}.tmp"
        size = sum(tensor.nbytes for tensor in tensors.values())
        try:
            save_file(dict(tensors), draft)
        except Exception as error:  # whatever the library calls it
            draft.unlink(missing_ok=True)
            if lacks := memory.full(folder, size):
                raise RunFailed(lacks) from error
            raise
        digest = digest_of(draft)[1] if self.digests else None
        part = Part(name=name, bytes=draft.stat().st_size, digest=digest, node=self.node)
        draft.rename(folder / name)
        return part, len(tensors), size

    def here(self, published: Published) -> Published:
        """The same version, as it lies on this node once it is whole there."""
        folder = self.folder / folder_name(published.version)
        return replace(published, places=tuple(str(folder / part.name) for part in published.parts))

    @staticmethod
    def check(published: Published) -> None:
        if len(published.places) != len(published.parts):
            raise WeightsRejected(f"{len(published.places)} files, expected {len(published.parts)}")
        for place, part in zip(published.places, published.parts, strict=True):
            if Path(place).parent.name != folder_name(published.version):
                raise WeightsRejected(f"{place}: a file of another version, expected {published.version}")
            try:
                found = Path(place).stat().st_size
            except OSError as error:
                raise WeightsRejected(f"version {published.version} is not whole: {error}") from error
            if found != part.bytes:
                raise WeightsRejected(f"{place}: {found} bytes, expected {part.bytes}")

    @staticmethod
    def receive(published: Published) -> Iterator[tuple[str, torch.Tensor]]:
        """Mapped from the files and not copied. All are opened first: they may go while they are read."""
        from safetensors import safe_open

        with ExitStack() as opened:
            buckets = [opened.enter_context(safe_open(place, framework="pt")) for place in published.places]
            for tensors in buckets:
                for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                    yield name, tensors.get_tensor(name)

    def keep(self, version: int) -> None:
        """Engines that are reading another one have its files open."""
        for old in self.folder.glob("v*"):
            if old.name != folder_name(version):
                shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def folder_name(version: int) -> str:
    return f"v{version:06d}"


def digest_of(file: Path) -> tuple[int, int]:
    """(bytes, crc32) of a file. Read through a buffer that stays in the cache: mapped, it takes half as long again."""
    size = digest = 0
    buffer = memoryview(bytearray(1 << 18))
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            size, digest = size + count, zlib.crc32(buffer[:count], digest)
    return size, digest
