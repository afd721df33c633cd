"""A node's weight store: keeps its folder of versions, brings what ranks on other nodes wrote, and passes it on.

One for each node with learner ranks or engines. Its life is the folder's: it holds the folder's lock.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from actors.addresses import interfaces, resolve_listen_address
from rlsys.system import memory, stack_signal
from rlsys.system.weight_folder import WeightFolder, WeightManifest, digest_of, folder_name

if TYPE_CHECKING:
    from actors.weights.transfer import FlightTransfer


class NodeWeightStore:
    """Plain class; `actors.weights.distributor` makes it a Ray actor whose calls run on threads."""

    def __init__(self, versions: WeightFolder, host: str | None = None) -> None:
        """host: as `cluster.service_host`."""
        stack_signal.answer()
        self.versions = versions
        self._host = host
        self._one = threading.Lock()
        self._transfer: FlightTransfer | None = None
        self.known: set[tuple[Path, int | None]] = set()  # files and their digests, brought or looked at

    def __repr__(self) -> str:
        """What Ray's dashboard calls it."""
        return "weight store"

    def start(self, version: int | None) -> None:
        """Own the node's folder, with what an earlier weight store of this run left there; others' that are dead go.

        version: the one that every engine has been given; older ones are of no more use.
        """
        self._lock = memory.lock(self.versions.folder)
        self._guard = memory.guard(self.versions.folder)
        memory.sweep(self.versions.folder.parent)
        if version is not None:
            self.versions.forget_older(version)

    def serve(self, token: str) -> str:
        """Join the movers of the other nodes. Returns the address."""
        import ray.util

        from actors.weights.transfer import FlightTransfer  # pyarrow behind it

        with self._one:
            if self._transfer is None:
                place = resolve_listen_address(self._host, ray.util.get_node_ip_address(), interfaces())
                self._transfer = FlightTransfer(self.versions.folder, place.bind, token, announce=place.announce)
        return self._transfer.address

    def stand(self) -> None:
        """Ends when this process does: a caller that waits for it notices at once."""
        threading.Event().wait()

    def list_present(self, published: WeightManifest) -> list[int]:
        """The parts of a version that lie here whole, by their numbers."""
        folder = self.versions.folder / folder_name(published.version)
        numbers = []
        for number, part in enumerate(published.parts):
            file = folder / part.name
            # What a rank wrote here, or this process brought, bears its name only since it was whole.
            trusted = part.node == self.versions.node or (file, part.digest) in self.known
            if file.is_file() and (trusted or digest_of(file) == (part.bytes, part.digest)):
                numbers.append(number)
                self.known.add((file, part.digest))
        return numbers

    def fetch(self, published: WeightManifest, number: int, address: str, timeout_s: float) -> None:
        """Bring one part from another node's weight store. Raises SourceFailed, and OSError for what is wrong here."""
        assert self._transfer is not None  # `serve` comes first
        part, folder = published.parts[number], folder_name(published.version)
        assert part.digest is not None
        self._transfer.fetch(address, f"{folder}/{part.name}", part.bytes, part.digest, timeout_s)
        self.known.add((self.versions.folder / folder / part.name, part.digest))

    def keep(self, version: int) -> None:
        self.versions.keep(version)
        self.known = {(file, digest) for file, digest in self.known if file.exists()}

    def stop(self) -> None:
        if self._transfer is not None:
            self._transfer.close()
        self.versions.close()
