"""What a weight channel is: the learner's ranks send a version, every engine gets it whole (docs/laws.md, law 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

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
class Published:
    """What one rank sent of a version or, joined, the whole of it. Plain values: it crosses every process boundary.

    Published(channel="rlsys.channels.shm.SharedMemory", version=17, places=("/dev/shm/.../bucket-000.safetensors",),
              tensors=41, bytes=3403776)
    """

    channel: str  # dotted path of the class that receives it
    version: int  # never of two sets of weights, as long as a driver lives
    places: tuple[str, ...] = ()  # where its parts lie, in loading order: files, or addresses
    tensors: int = 0  # how many an engine must have loaded
    bytes: int = 0
    parts: tuple[Part, ...] = ()  # one for each place, of a channel whose versions are carried from node to node


def joined(shares: Sequence[Published]) -> Published:
    """One version, out of what each rank sent of it."""
    places = tuple(place for share in shares for place in share.places)
    parts = tuple(part for share in shares for part in share.parts)
    tensors, size = sum(share.tensors for share in shares), sum(share.bytes for share in shares)
    return replace(shares[0], places=places, tensors=tensors, bytes=size, parts=parts)


class WeightChannel(Protocol):
    """The driver opens one for a run; it is pickled to every rank. An engine gets a `Published` and nothing else.

    Nothing heavy at the file's import: the driver loads all of the table.
    """

    one_node: ClassVar[bool]  # whether engines must run on the node of the ranks
    carried: ClassVar[bool]  # whether a version lies in folders of the nodes: `actors.carriers` brings it to the others

    @classmethod
    def open(cls, owner: str, root: Path | None) -> WeightChannel:
        """root: `cluster.weights_dir`."""

    @classmethod
    def sweep(cls) -> None:
        """Remove from this machine what runs left behind that are no more."""

    @classmethod
    def room(cls, root: Path | None, needed: int) -> str:
        """Asked on every node with ranks or engines, before anything starts: what is wrong with it for versions of so
        many bytes; empty where nothing is."""

    def on_node(self, node: str) -> WeightChannel:
        """The same channel, as a process on that node of Ray's has it."""

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> Published:
        """Called on every rank with all buckets; which of them it sends is the channel's choice.

        A bucket can be called only until the next one is drawn. A rank that sends nothing may return at once: the
        caller draws what is left.
        """

    @staticmethod
    def check(published: Published) -> None:
        """Called while the engine goes on generating. Raises WeightsRejected unless the whole version is there."""

    @staticmethod
    def receive(published: Published) -> Iterator[tuple[str, torch.Tensor]]:
        """Called in the process that loads: every tensor under its hub name, each once."""

    def keep(self, version: int) -> None:
        """Every engine has this version, or will have a newer one: older ones go. Engines may still be reading one.

        Called by the driver, or where versions are carried by the carrier of each node; so is `close`.
        """

    def close(self) -> None:
        """The run is over: nothing of it stays."""
