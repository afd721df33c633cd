"""What a weight channel is: the learner's ranks send a version, every engine gets it whole (docs/laws.md, law 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

Bucket = Callable[[], Mapping[str, "torch.Tensor"]]  # called: some weights by hub name, on the CPU


class WeightsRejected(Exception):
    """A published version is not where it should be, or was not loaded whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one rank sent of a version or, joined, the whole of it. Plain values: it crosses every process boundary.

    Published(channel="rlsys.channels.shm.SharedMemory", version=17, places=("/dev/shm/.../bucket-000.safetensors",),
              tensors=41, bytes=3403776)
    """

    channel: str  # dotted path of the class that receives it
    version: int
    places: tuple[str, ...] = ()  # where its parts lie, in loading order: files, or addresses
    tensors: int = 0  # how many an engine must have loaded
    bytes: int = 0


def joined(shares: Sequence[Published]) -> Published:
    """One version, out of what each rank sent of it."""
    places = tuple(place for share in shares for place in share.places)
    tensors, size = sum(share.tensors for share in shares), sum(share.bytes for share in shares)
    return replace(shares[0], places=places, tensors=tensors, bytes=size)


class WeightChannel(Protocol):
    """The driver opens one for a run; it is pickled to every rank. An engine gets a `Published` and nothing else.

    Nothing heavy at the file's import: the driver loads all of the table.
    """

    one_node: ClassVar[bool]  # whether engines must run on the node of the ranks

    @classmethod
    def open(cls, owner: str) -> WeightChannel: ...

    @classmethod
    def remove_stale(cls, dead: Callable[[str], bool]) -> None:
        """Remove from this machine what owners left behind that are `dead`."""

    def send(self, version: int, buckets: Iterable[Bucket], rank: int, num_ranks: int) -> Published:
        """Called on every rank with all buckets; which of them it sends is the channel's choice.

        A bucket can be called only until the next one is drawn. A rank that sends nothing may return at once: the
        caller draws what is left.
        """

    def forget(self, newest: int) -> None:
        """Called where versions were sent from: those that no engine can still be loading may go."""

    def close(self) -> None:
        """The run is over: nothing of it stays on this machine. Called by the driver and by every rank."""

    @staticmethod
    def check(published: Published) -> None:
        """Called while the engine goes on generating. Raises WeightsRejected unless the whole version is there."""

    @staticmethod
    def receive(published: Published) -> Iterator[tuple[str, torch.Tensor]]:
        """Called in the process that loads: every tensor under its hub name, each once."""
