"""The probe of a node: a Ray actor that reports it, and takes part in what is measured between nodes."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from actors.weights.transfer import FlightTransfer, SourceFailed
from launch.driver.run.shared_folders import SharedFolderProbe, answer_probe
from launch.tools.doctor.facts import NodeFacts
from launch.tools.doctor.probe import Request, collect
from launch.tools.doctor.wire import Door, reach
from learners.meeting import measure_gbps, open_store
from rlsys import VERSION
from rlsys.errors import BadInput
from rlsys.system import memory
from rlsys.system.weight_folder import digest_of

SENT_BYTES = 32 * 2**20  # a quarter of a second at 1 Gbit/s
TRIES = 2  # the first one opens connections and fills caches


@dataclass(frozen=True, slots=True)
class ServedFile:
    address: str  # of the carrier
    name: str
    size: int
    digest: int


class DoctorProbe:
    """Plain class; `launch.tools.doctor.cluster` makes it a Ray actor whose calls run on threads."""

    def __init__(self, address: str, secret_env: Mapping[str, str]) -> None:
        """secret_env: secrets, by environment variable."""
        os.environ.update(secret_env)
        self._address = address
        self._door: Door | None = None
        self._transfer: FlightTransfer | None = None
        self._store: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def collect(self, version: str, request: Request, deadline_s: float) -> NodeFacts:
        if version != VERSION:
            raise BadInput(f"rlsys {VERSION} is installed there, the driver's is {version}; install the driver's")
        return collect(request, deadline_s)

    def clock(self) -> float:
        return time.time()

    def open_door(self) -> int:
        self._door = Door(self._address)
        return self._door.port

    def reach(self, target: str, port: int) -> tuple[str, int]:
        return reach(target, port)

    def answer(self, marks: Sequence[SharedFolderProbe]) -> None:
        """Raises BadInput where a folder is not the driver's."""
        for mark in marks:
            answer_probe(mark)

    def make_object(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def serve_weights(self, token: str, number: int, weights_dir: str | None) -> ServedFile:
        """A file that the carrier of weights gives away. number: of this node, for the name of its file."""
        root = memory.memory_root(weights_dir)
        self._folder = tempfile.TemporaryDirectory(prefix="rlsys-doctor-", dir=root)
        name = f"v000000/node-{number}.safetensors"  # a name that the carrier gives away
        file = Path(self._folder.name) / name
        file.parent.mkdir()
        size = min(SENT_BYTES, os.statvfs(root).f_bavail * os.statvfs(root).f_frsize // 4)
        file.write_bytes(secrets.token_bytes(size))
        self._transfer = FlightTransfer(Path(self._folder.name), self._address, token)
        return ServedFile(self._transfer.address, name, *digest_of(file))

    def fetch(self, source: ServedFile, timeout_s: float) -> float:
        """Seconds for the file of another node, at best. Raises BadInput where it does not come whole."""
        assert self._transfer is not None  # `serve_weights` comes first
        took: list[float] = []
        until = time.monotonic() + timeout_s
        while len(took) < TRIES and (not took or time.monotonic() + took[0] < until):
            started = time.monotonic()
            try:
                self._transfer.fetch(source.address, source.name, source.size, source.digest, until - started)
            except SourceFailed as error:
                raise BadInput(str(error)) from error
            took.append(time.monotonic() - started)
        return min(took)

    def open_store(self) -> int:
        """The port where all probes meet."""
        self._store = open_store(self._address)
        return int(self._store.port)

    def all_reduce(self, rank: int, ranks: int, address: str, port: int, timeout_s: float) -> float:
        """GB/s of an all-reduce, as learner ranks measure it."""
        import torch
        import torch.distributed as dist
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        from learners.actor import interface_of  # Ray behind it, as behind everything here

        if interface := interface_of(self._address):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        limit = timedelta(seconds=timeout_s)
        store = self._store or TCPStore(address, port, is_master=False, timeout=limit)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
        try:
            return measure_gbps(torch.device("cpu"))
        finally:
            dist.destroy_process_group()

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._transfer is not None:
            self._transfer.close()
        if self._folder is not None:
            self._folder.cleanup()
