"""A node's carrier: keeps its folder of versions, brings what ranks on other nodes wrote, and passes it on.

One for each node with learner ranks or engines. Its life is the folder's: it holds the folder's lock.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from actors.addresses import interfaces, listening
from rlsys.channels import memory
from rlsys.channels.base import Published
from rlsys.channels.shm import SharedMemory, digest_of, folder_name

if TYPE_CHECKING:
    from actors.mover import Mover


class Carrier:
    """Plain class; `actors.carriers` makes it a Ray actor whose calls run on threads."""

    def __init__(self, channel: SharedMemory, host: str | None = None) -> None:
        """host: as `cluster.service_host`."""
        self.channel = channel
        self._host = host
        self._one = threading.Lock()
        self._mover: Mover | None = None
        self._known: set[tuple[Path, int | None]] = set()  # files and their digests, brought or looked at

    def __repr__(self) -> str:
        """What Ray's dashboard calls it."""
        return "weight carrier"

    def start(self, kept: int | None) -> None:
        """Own the node's folder, with what an earlier carrier of this run left there; others' that are dead go.

        kept: the only version that is still of use.
        """
        self._lock = memory.lock(self.channel.folder)
        self._guard = memory.guard(self.channel.folder)
        memory.sweep(self.channel.folder.parent)
        if kept is not None:
            self.keep(kept)

    def serve(self, token: str) -> str:
        """Join the movers of the other nodes. Returns the address."""
        import ray.util

        from actors.mover import Mover

        with self._one:
            if self._mover is None:
                place = listening(self._host, ray.util.get_node_ip_address(), interfaces())
                self._mover = Mover(self.channel.folder, place.bind, token, announce=place.announce)
        return self._mover.address

    def stand(self) -> None:
        """Ends when this process does: whoever waits for it hears that at once."""
        threading.Event().wait()

    def found(self, published: Published) -> list[int]:
        """The parts of a version that lie here whole, by their numbers."""
        folder = self.channel.folder / folder_name(published.version)
        whole = []
        for number, part in enumerate(published.parts):
            file = folder / part.name
            # What a rank wrote here, or this process brought, bears its name only since it was whole.
            trusted = part.node == self.channel.node or (file, part.digest) in self._known
            if file.is_file() and (trusted or digest_of(file) == (part.bytes, part.digest)):
                whole.append(number)
                self._known.add((file, part.digest))
        return whole

    def fetch(self, published: Published, number: int, address: str, timeout_s: float) -> None:
        """Bring one part from another node's carrier. Raises SourceFailed, and OSError for what is wrong here."""
        assert self._mover is not None  # `serve` comes first
        part, folder = published.parts[number], folder_name(published.version)
        assert part.digest is not None
        self._mover.fetch(address, f"{folder}/{part.name}", part.bytes, part.digest, timeout_s)
        self._known.add((self.channel.folder / folder / part.name, part.digest))

    def keep(self, version: int) -> None:
        self.channel.keep(version)
        self._known = {(file, digest) for file, digest in self._known if file.exists()}

    def stop(self) -> None:
        if self._mover is not None:
            self._mover.close()
        self.channel.close()
