"""Weights from the learner's ranks to the engines: a version is a folder of safetensors buckets in a node's memory.

    rlsys-versions-OWNER-NODE/v000017/bucket-000.safetensors ...

Every rank writes its share on its own node. The engines of a node map the files that lie there (docs/laws.md, law 8);
the node's weight store (`actors.weights`) fetches those of the other nodes first. A file bears its name once it is
whole. Buckets bound the memory of both sides.
"""

from __future__ import annotations

import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlsys.adapters import Adapter
from rlsys.errors import RunFailed
from rlsys.system import memory

if TYPE_CHECKING:
    import torch

NODE_LETTERS = 12  # of a node's name, in a folder's
Bucket = Callable[[], Mapping[str, "torch.Tensor"]]  # called: some weights by hub name, on the CPU


class WeightsRejected(Exception):
    """A published version is not where it should be, or was not loaded whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of a version, as the rank wrote it that sends it: what brings it to another node, and shows it whole.

    Part(name="bucket-000.safetensors", bytes=1209856, digest=3632233996, node="5e3c0f5a...")
    """

    name: str
    bytes: int  # of the file
    digest: int | None  # zlib.crc32 of it; None where one node has all ranks and engines
    node: str  # on which it was written, as Ray calls it


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightManifest:
    """What one rank sent of a version or, joined, the whole of it. Plain values: it crosses every process boundary.

    WeightManifest(version=17, places=("/dev/shm/.../bucket-000.safetensors",), tensors=41, bytes=3403776, parts=(...,))
    """

    version: int  # never of two sets of weights, as long as a driver lives
    places: tuple[str, ...] = ()  # where its files lie, in loading order
    tensors: int = 0  # how many an engine must have loaded
    bytes: int = 0
    parts: tuple[Part, ...] = ()  # one for each place
    adapter: Adapter | None = None  # whose tensors these are; None: of the whole model


def join_manifests(shares: Sequence[WeightManifest]) -> WeightManifest:
    """One version, out of what each rank sent of it."""
    places = tuple(place for share in shares for place in share.places)
    parts = tuple(part for share in shares for part in share.parts)
    tensors, size = sum(share.tensors for share in shares), sum(share.bytes for share in shares)
    return replace(shares[0], places=places, tensors=tensors, bytes=size, parts=parts)


@dataclass(frozen=True, slots=True)
class WeightFolder:
    """A run's versions on one node. The driver opens it; it is pickled to every rank, an engine gets a `WeightManifest`
    and nothing else."""

    folder: Path  # on this node
    node: str = ""
    digests: bool = True  # of what is sent: on one node they are never checked

    @classmethod
    def open(cls, owner: str, root: str | Path | None = None) -> WeightFolder:
        """`owner` tells a run's folder apart from those of other runs. Nothing is written yet.

        root: `cluster.weights_dir`.
        """
        return cls(memory.memory_root(root) / f"{memory.PREFIX}{owner}")

    def on_node(self, node: str) -> WeightFolder:
        """A separate folder for each node: two Ray nodes may be one machine, or share a disk."""
        return replace(self, folder=self.folder.with_name(f"{self.folder.name}-{node[:NODE_LETTERS]}"), node=node)

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> WeightManifest:
        """Called on every rank with all buckets: each writes every `num_ranks`-th while it gathers the next.

        A bucket can be called only until the next one is drawn.
        """
        folder = self.folder / folder_name(version)
        writing: deque[Future[tuple[Part, int, int]]] = deque()
        written = []
        with ThreadPoolExecutor(1) as writer:
            for index, bucket in enumerate(buckets):
                if index % num_ranks != rank:
                    continue
                tensors = bucket()
                if writing:  # two buckets in memory, not more
                    written.append(writing.popleft().result())
                writing.append(writer.submit(self._write, folder, f"bucket-{index:03d}.safetensors", tensors))
            written += [future.result() for future in writing]
        return WeightManifest(
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
            if lacks := memory.describe_full(folder, size):
                raise RunFailed(lacks) from error
            raise
        digest = digest_of(draft)[1] if self.digests else None
        part = Part(name=name, bytes=draft.stat().st_size, digest=digest, node=self.node)
        draft.rename(folder / name)
        return part, len(tensors), size

    def here(self, published: WeightManifest) -> WeightManifest:
        """The same version, as it lies on this node once it is whole there."""
        folder = self.folder / folder_name(published.version)
        return replace(published, places=tuple(str(folder / part.name) for part in published.parts))

    @staticmethod
    def check(published: WeightManifest) -> None:
        """Called while the engine continues to generate. Raises WeightsRejected unless the whole version is there."""
        if len(published.places) != len(published.parts):
            raise WeightsRejected(f"{len(published.places)} files, expected {len(published.parts)}")
        for place, part in zip(published.places, published.parts, strict=True):
            if Path(place).parent.name != folder_name(published.version):
                raise WeightsRejected(f"{place}: a file of another version, expected {published.version}")
            try:
                size = Path(place).stat().st_size
            except OSError as error:
                raise WeightsRejected(f"version {published.version} is not whole: {error}") from error
            if size != part.bytes:
                raise WeightsRejected(f"{place}: {size} bytes, expected {part.bytes}")

    @staticmethod
    def receive(published: WeightManifest) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor under its hub name, each once: mapped from the files and not copied. All are opened first, since
        they may go while they are read."""
        from safetensors import safe_open

        with ExitStack() as opened:
            buckets = [opened.enter_context(safe_open(place, framework="pt")) for place in published.places]
            for tensors in buckets:
                for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                    yield name, tensors.get_tensor(name)

    def keep(self, version: int) -> None:
        """Every engine has this version, or will have a newer one: the others go. Engines that are reading another one
        have its files open."""
        for old in self.folder.glob("v*"):
            if old.name != folder_name(version):
                shutil.rmtree(old, ignore_errors=True)

    def forget_older(self, version: int) -> None:
        """What was here before this version goes: a newer one may be on its way, or be written at this moment."""
        version_folder = self.folder / folder_name(version)
        with suppress(FileNotFoundError):  # then nothing is known to be older
            when = version_folder.stat().st_mtime_ns
            for old in self.folder.glob("v*"):
                if old.stat().st_mtime_ns < when:
                    shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        """A fetch may be writing in another thread: under its old name it finds the folder no more, and makes none."""
        closed = self.folder.with_name(f"{self.folder.name}.closed")
        with suppress(FileNotFoundError):
            self.folder.rename(closed)
        shutil.rmtree(closed, ignore_errors=True)


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
