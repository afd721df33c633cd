"""Weight stores on real Ray nodes: a version comes whole to every node, whoever dies meanwhile, and nothing is left."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from actors.weights.distributor import DistributorOptions, WeightDistributor
from rlsys.errors import RunFailed
from rlsys.system import memory
from rlsys.system.weight_folder import WeightFolder, WeightManifest, join_manifests
from tests.paths import ROOT

pytestmark = pytest.mark.ray

PARTS = 12


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """Three nodes of Ray's on this machine. They share its memory: every node has a folder of its own all the same."""
    cluster = Cluster()
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def names() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def send(folder: WeightFolder, nodes: list[str], version: int, numbers: int = 1000) -> WeightManifest:
    """What a rank on each of the nodes writes there."""
    buckets = [lambda i=i: {f"w{i}": torch.full((numbers,), float(i + version))} for i in range(PARTS)]
    ranks = enumerate(nodes)
    return join_manifests([folder.on_node(node).send(version, buckets, rank, len(nodes)) for rank, node in ranks])


def values(published: WeightManifest) -> dict[str, float]:
    WeightFolder.check(published)
    return {name: float(tensor[-1]) for name, tensor in WeightFolder.receive(published)}


def expected(version: int) -> dict[str, float]:
    return {f"w{i}": float(i + version) for i in range(PARTS)}


Scenario = Callable[[WeightDistributor, WeightFolder, list[str]], Awaitable[None]]


def run(scenario: Scenario, tmp_path: Path) -> None:
    folder = WeightFolder.open("test", tmp_path)
    environment = {"PYTHONPATH": str(ROOT)}
    options = DistributorOptions(env_vars=environment, start_timeout_s=60, fetch_timeout_s=20, run=tmp_path.name)

    async def whole() -> None:
        distributor, nodes = WeightDistributor(folder, options), names()
        await distributor.ensure(nodes)
        await scenario(distributor, folder, nodes)
        await distributor.stop()
        assert list(tmp_path.iterdir()) == []

    asyncio.run(asyncio.wait_for(whole(), 120))


def pid_of(distributor: WeightDistributor, node: str) -> int:
    pid: int = ray.get(distributor.nodes[node].life.handle.__ray_call__.remote(lambda _: os.getpid()))
    return pid


def test_what_ranks_on_two_nodes_wrote_comes_whole_to_all_and_old_versions_go(tmp_path: Path) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        for version in (-1, 1, 2):
            manifest = send(folder, nodes[:2], version)
            brought = await asyncio.gather(*(distributor.bring(manifest, node) for node in nodes))
            folders = [{Path(place).parents[1] for place in copy.places} for copy in brought]
            assert folders == [{folder.on_node(node).folder} for node in nodes]
            assert all(values(copy) == expected(version) for copy in brought)
            size = sum(part.bytes for part in manifest.parts)
            assert distributor.transfer_progress()[0] == 2 * size  # half to each of the two, all to the third
            await distributor.keep(version)
            versions = {path.name for node in nodes for path in folder.on_node(node).folder.iterdir()}
            assert versions == {f"v{version:06d}"}
        assert await distributor.bring(manifest, nodes[2]) == brought[2]  # a worker that came up late
        assert distributor.transfer_progress()[0] == 2 * size

    run(scenario, tmp_path)


def test_on_one_node_nothing_is_moved(tmp_path: Path) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        manifest = send(folder, nodes[:1], 1)
        assert await distributor.bring(manifest, nodes[0]) == manifest
        assert distributor.transfer_progress()[0] == 0
        manifest = send(replace(folder, digests=False), nodes[:1], 2)
        assert await distributor.bring(manifest, nodes[0]) == manifest
        with pytest.raises(RunFailed, match="version 2, sent when the run had one node, is not on node"):
            await distributor.bring(manifest, nodes[1])
        assert distributor.folder.digests

    run(scenario, tmp_path)


@pytest.mark.parametrize("victim", [0, 1], ids=["source", "receiver"])
def test_a_store_that_is_killed_in_a_delivery_takes_over_what_it_had(tmp_path: Path, victim: int) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        manifest = send(folder, nodes[:1], 5, numbers=2_000_000)  # 8 MB each
        bringing = [asyncio.create_task(distributor.bring(manifest, node)) for node in nodes[1:]]
        pid = await asyncio.to_thread(pid_of, distributor, nodes[victim])
        while not distributor.transfer_progress()[0]:
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        brought = await asyncio.gather(*bringing)
        assert [values(copy) for copy in brought] == [expected(5)] * 2
        assert await asyncio.to_thread(pid_of, distributor, nodes[victim]) != pid

    run(scenario, tmp_path)


@pytest.mark.slow
def test_when_the_node_that_wrote_it_is_gone_the_next_one_sends_it(tmp_path: Path, cluster: Cluster) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        machine = next(iter(cluster.worker_nodes))
        first, receivers = machine.node_id, [node for node in nodes if node != machine.node_id]
        manifest = send(folder, [first], 5)
        await distributor.bring(manifest, receivers[0])
        await asyncio.to_thread(cluster.remove_node, machine)
        assert values(await distributor.bring(manifest, receivers[1])) == expected(5)
        while folder.on_node(first).folder.exists():  # a moment later its own process removes it
            await asyncio.sleep(0.2)
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    run(scenario, tmp_path)


def test_what_the_dead_held_is_removed_soon_and_by_any_run_that_starts(tmp_path: Path) -> None:
    """Also where the driver, the weight store and Ray are killed at once."""
    hold = (
        "import sys, time; from pathlib import Path; from rlsys.system import memory; memory.GRACE_S = 1.0\n"
        "folder = Path(sys.argv[1]); lock = memory.lock(folder)\n"
        "pipe = memory.guard(folder) if len(sys.argv) > 2 else None\n"
        "(folder / 'v000001').mkdir(); print('held', flush=True); time.sleep(600)"
    )
    guarded, bare = tmp_path / f"{memory.PREFIX}guarded", tmp_path / f"{memory.PREFIX}bare"
    holders = []
    for arguments in ([str(guarded), "guard"], [str(bare)]):
        command = [sys.executable, "-c", hold, *arguments]
        holders.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}))
        assert holders[-1].stdout is not None and holders[-1].stdout.readline() == "held\n"
    memory.sweep(tmp_path)
    assert guarded.is_dir() and bare.is_dir()
    for holder in holders:
        holder.kill()
        holder.wait()
    until = time.monotonic() + 30
    while guarded.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not guarded.exists() and bare.is_dir()
    memory.sweep(tmp_path)
    assert not bare.exists()
    alive = [proc for proc in psutil.process_iter(["cmdline"]) if str(guarded) in (proc.info["cmdline"] or [])]
    assert not psutil.wait_procs(alive, 10)[1]


def test_a_node_that_cannot_hold_a_version_says_why_and_the_others_have_it(tmp_path: Path) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        (folder.on_node(nodes[1]).folder / "v000001").write_text("in the way, as a full disk would be")
        source = send(folder, nodes[:1], 1)
        answers = await asyncio.gather(*(distributor.bring(source, node) for node in nodes[1:]), return_exceptions=True)
        assert isinstance(answers[0], RunFailed) and f"node {nodes[1][:8]} doing fetch: " in str(answers[0])
        assert isinstance(answers[1], WeightManifest) and values(answers[1]) == expected(1)

    run(scenario, tmp_path)


def test_a_store_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    async def scenario(distributor: WeightDistributor, folder: WeightFolder, nodes: list[str]) -> None:
        life = distributor.nodes[nodes[0]].life
        life.max_restarts = 1
        for _ in range(2):
            handle = life.handle
            os.kill(await asyncio.to_thread(pid_of, distributor, nodes[0]), signal.SIGKILL)
            while life.handle is handle:
                await asyncio.sleep(0.05)
            try:
                await distributor.ensure([nodes[0]])
            except RunFailed as error:
                assert "was restarted 1 times" in str(error)
        with pytest.raises(RunFailed, match="was restarted 1 times"):
            await distributor.ensure([nodes[0]])
        memory.sweep(tmp_path)

    run(scenario, tmp_path)
