"""A weight channel of a test's own: every bucket is a pickle, and every rank sends those that are its turn."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from rlsys.channels.base import Bucket, Published, WeightsRejected


@dataclass(frozen=True, slots=True)
class Pickled:
    folder: Path
    one_node: ClassVar[bool] = False  # every node sees the folder
    carried: ClassVar[bool] = False

    @classmethod
    def open(cls, owner: str, root: Path | None) -> Pickled:
        return cls((root or Path(tempfile.gettempdir())) / f"pickled-{owner}")

    @classmethod
    def sweep(cls) -> None: ...

    @classmethod
    def room(cls, root: Path | None, needed: int) -> str:
        return ""

    def on_node(self, node: str) -> Pickled:
        return self

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> Published:
        self.folder.mkdir(parents=True, exist_ok=True)
        places, count, size = [], 0, 0
        for index, bucket in enumerate(buckets):
            if index % num_ranks == rank:
                tensors = dict(bucket())
                places.append(self.folder / f"{version}-{index}.pkl")
                places[-1].write_bytes(pickle.dumps(tensors))
                count, size = count + len(tensors), size + sum(tensor.nbytes for tensor in tensors.values())
        channel = f"{__name__}.Pickled"
        return Published(channel=channel, version=version, places=tuple(map(str, places)), tensors=count, bytes=size)

    @staticmethod
    def check(published: Published) -> None:
        if not all(Path(place).is_file() for place in published.places):
            raise WeightsRejected(f"{published.places}: not all there")

    @staticmethod
    def receive(published: Published) -> Iterator[tuple[str, torch.Tensor]]:
        for place in published.places:
            yield from pickle.loads(Path(place).read_bytes()).items()

    def keep(self, version: int) -> None:
        for file in self.folder.glob("*.pkl"):
            if not file.name.startswith(f"{version}-"):
                file.unlink()

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
