"""Weights from one node of a Ray cluster to the others: `RAY_ADDRESS=10.0.0.2:6379 python benchmarks/transports.py`.

Needs two nodes or more; each gives `--mb` of its /dev/shm. First what moves bytes from a file on one node into a file
on another: a plain stream with sendfile, which is the ceiling, Arrow Flight as `actors/weights/transfer.py` ships it,
and Ray's object store. Then whole versions through the distributor, to one node and to all. Best of five. With
`--engine` instead how long an engine of this machine is paused by such a version.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.util
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from report import Report, parser

from actors.weights.distributor import ALLOCATOR, DistributorOptions, WeightDistributor
from actors.weights.transfer import FlightTransfer
from rlsys.system import memory
from rlsys.system.weight_folder import WeightFolder, WeightManifest, digest_of

ROOT = str(Path(__file__).resolve().parents[1])
BUCKET = 64 << 20  # as the learner's
CHUNK = 4 << 20
STREAMS = (1, 4, 8)
TRIALS = 5


class End:
    """On one node: sends and receives files of a folder in its memory, in every way that is compared."""

    def __init__(self, owner: str) -> None:
        self.folder = memory.memory_root() / f"{memory.PREFIX}{owner}-{os.getpid()}"
        self._lock = memory.lock(self.folder)
        self._guard = memory.guard(self.folder)
        self.transfer = FlightTransfer(self.folder, ray.util.get_node_ip_address(), owner)
        self._files: dict[str, tuple[int, int]] = {}

    def write(self, count: int) -> dict[str, tuple[int, int]]:
        """Buckets, by name with size and digest."""
        (self.folder / "v000001").mkdir()
        for index in range(count):
            name = f"v000001/bucket-{index:03d}.safetensors"
            (self.folder / name).write_bytes(np.random.default_rng(index).bytes(BUCKET))
            self._files[name] = digest_of(self.folder / name)
        return self._files

    def addresses(self) -> tuple[str, tuple[str, int]]:
        """Of the transfer, and of plain streams."""
        listening = socket.create_server((ray.util.get_node_ip_address(), 0))

        def send(connection: socket.socket) -> None:
            with connection, (self.folder / connection.recv(200).decode()).open("rb") as file:
                connection.sendfile(file)

        def accept() -> None:
            while True:
                threading.Thread(target=send, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return self.transfer.address, listening.getsockname()[:2]

    def put(self, name: str) -> Any:
        return np.frombuffer((self.folder / name).read_bytes(), dtype=np.uint8)

    def take(self, name: str, content: Any) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(content)

    def fetch(self, address: Any, files: dict[str, tuple[int, int]], streams: int) -> float:
        """Seconds until all files are here, by as many streams."""
        (self.folder / "v000001").mkdir(exist_ok=True)
        plain = not isinstance(address, str)

        def one(names: list[str]) -> None:
            for name in names:
                if plain:
                    self._read(address, name)
                else:
                    self.transfer.fetch(address, name, *files[name], 60.0)

        names = list(files)
        threads = [threading.Thread(target=one, args=(names[start::streams],)) for start in range(streams)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        assert all((self.folder / name).stat().st_size == BUCKET for name in names)
        return seconds

    def _read(self, address: tuple[str, int], name: str) -> None:
        buffer = memoryview(bytearray(CHUNK))
        with socket.create_connection(address) as connection, (self.folder / name).open("wb", buffering=0) as file:
            connection.sendall(name.encode())
            while count := connection.recv_into(buffer):
                file.write(buffer[:count])

    def close(self) -> None:
        self.transfer.close()
        shutil.rmtree(self.folder)


def place_actor(node: str, actor: type, *arguments: Any, **options: Any) -> Any:
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    environment = {"env_vars": {"PYTHONPATH": ROOT, **ALLOCATOR}}
    factory = ray.remote(actor).options(num_cpus=0, scheduling_strategy=where, runtime_env=environment, **options)
    return factory.remote(*arguments)


def transports(report: Report, nodes: list[str], megabytes: int) -> None:
    sender, receiver = (place_actor(node, End, f"bench{os.getpid()}", max_concurrency=4) for node in nodes[:2])
    files = ray.get(sender.write.remote(megabytes * 10**6 // BUCKET))
    flight, plain = ray.get(sender.addresses.remote())
    total = len(files) * BUCKET

    def through_the_store() -> float:
        started, pending = time.perf_counter(), []
        for name in files:
            pending.append(receiver.take.remote(name, sender.put.remote(name)))
            if len(pending) > 2:
                ray.get(pending.pop(0))
        ray.get(pending)
        return time.perf_counter() - started

    def fetching(address: Any, streams: int) -> float:
        return float(ray.get(receiver.fetch.remote(address, files, streams)))

    ways: dict[tuple[str, str], Callable[[], float]] = {("Ray's object store", "3 at a time"): through_the_store}
    for streams in STREAMS:
        ways["sendfile", str(streams)] = partial(fetching, plain, streams)
        ways["Arrow Flight", str(streams)] = partial(fetching, flight, streams)
    best = dict.fromkeys(ways, 0.0)
    for _ in range(TRIALS):  # in turn, so that what else the machine does falls on all of them
        for way, measured in ways.items():
            best[way] = max(best[way], total / measured() / 1e9)
    ceiling = max(rate for (name, _), rate in best.items() if name == "sendfile")
    report.head("way", "streams", "GB/s", "of the best sendfile")
    for (name, streams_label), rate in best.items():
        report.row(name, streams_label, rate, rate / ceiling)
    ray.get([end.close.remote() for end in (sender, receiver)])
    for end in (sender, receiver):
        ray.kill(end)


class Writer:
    """A rank on its node."""

    def send(self, folder: WeightFolder, version: int, megabytes: float) -> tuple[WeightManifest, float]:
        import torch

        size = int(megabytes * 1e6)
        count = max(1, size // BUCKET)
        tensors = [torch.rand(size // count // 4) for _ in range(count)]
        started = time.perf_counter()
        buckets = [lambda index=index: {f"w{index}": tensors[index]} for index in range(count)]
        return folder.send(version, buckets, 0, 1), time.perf_counter() - started


async def deliveries(report: Report, nodes: list[str], sizes: list[float]) -> None:
    folder = WeightFolder.open(f"bench{os.getpid()}")
    options = DistributorOptions(env_vars={"PYTHONPATH": ROOT}, start_timeout_s=120.0, fetch_timeout_s=120.0)
    distributor, writer = WeightDistributor(folder, options), place_actor(nodes[0], Writer)
    await distributor.ensure(nodes)
    report.head("MB", "receivers", "written in s", "carried in s", "GB/s to each")
    version = 0
    for size in sizes:
        for receivers in dict.fromkeys((1, len(nodes) - 1)):
            trials = []
            for _ in range(TRIALS):
                version += 1
                manifest, writing = await writer.send.remote(folder.on_node(nodes[0]), version, size)
                started = time.perf_counter()
                await asyncio.gather(*(distributor.bring(manifest, node) for node in nodes[1 : 1 + receivers]))
                trials.append((time.perf_counter() - started, writing))
                await distributor.keep(version)
            carrying, writing = min(trials)
            report.row(size, receivers, writing, carrying, manifest.bytes / carrying / 1e9)
    await distributor.stop()


async def pauses(report: Report, sizes: list[float]) -> None:
    """A model of each size from nothing, on this machine, loaded again while nothing runs."""
    from actors.engine import Engine
    from actors.specs import make_engine_spec
    from launch.checks.machine import expected_device
    from launch.config.compose import compose
    from launch.driver.run import wire
    from learners.export import export_version
    from rlsys.system.device import resolve

    report.head("MB", "engine paused for s")
    for size in sizes:
        width = round((size * 1e6 / 4 / 150) ** 0.5 / 64) * 64  # 16 layers
        scratch = [f"model.scratch.hidden_size={width}", f"model.scratch.intermediate_size={3 * width}"]
        recipe = compose("quickstart", [*scratch, "model.scratch.num_layers=16"]).recipe
        device = expected_device(recipe.cluster)
        recipe = resolve(recipe, device)
        with tempfile.TemporaryDirectory() as folder:
            wire.build_scratch_model(recipe, Path(folder) / "model")
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(Path(folder) / "model")
            path, threads = str(Path(folder) / "model"), recipe.rollout.threads or 1
            spec = make_engine_spec(
                recipe.engine, device, model_path=path, dtype=recipe.model.dtype, seed=0, threads=threads
            )
            engine = await Engine.start(spec)
            try:
                trials = []
                for version in (1, 2, 3):
                    weights = WeightFolder(Path(folder) / "weights")
                    manifest = export_version(model, weights, version, rank=0, num_ranks=1)
                    started = time.perf_counter()
                    await engine.load(manifest)
                    trials.append(time.perf_counter() - started)
                report.row(manifest.bytes / 1e6, min(trials))
            finally:
                engine.stop()


def measure(report: Report, options: argparse.Namespace) -> None:
    if options.engine:
        asyncio.run(pauses(report, options.versions))
        return
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, logging_level="ERROR")
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        raise SystemExit("a Ray cluster of one node: expected two or more (RAY_ADDRESS)")
    transports(report, nodes, options.mb)
    asyncio.run(deliveries(report, nodes, options.versions))


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--mb", type=int, default=512, help="moved in each way that is compared")
    cli.add_argument("--versions", type=float, nargs="+", default=[13, 1000], metavar="MB", help="sizes of versions")
    cli.add_argument("--engine", action="store_true", help="measure an engine's pause instead, on this machine")
    options = cli.parse_args()
    with Report(options) as report:
        measure(report, options)


if __name__ == "__main__":
    main()
