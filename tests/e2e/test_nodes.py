"""The nodes that other tests run on: they share nothing but a folder, and leave nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import ROOT
from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, needs_nodes]

WHERE = """
import os, ray, socket
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def seen():
    return [socket.gethostname(), ray.util.get_node_ip_address(), os.path.exists("/dev/shm/marker")]

@ray.remote(num_cpus=0)
def total(array):
    return float(array.sum())

import numpy
print([ray.get(seen.options(resources={f"node{number}": 1}).remote()) for number in (1, 2)])
print(ray.get(total.options(resources={"node2": 1}).remote(ray.put(numpy.ones(10**6)))))
"""
KILLED = """
import pathlib
from tests.nodes import nodes

with nodes(1, shared=pathlib.Path({shared!r})) as cluster:
    print(flush=True)
    cluster.sh(1, "sleep 600")
"""
CONNECT = "import socket; socket.create_connection(('10.77.0.1', 6379), timeout=2)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with nodes(2, shared=tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


def test_objects_travel_and_memory_does_not(cluster: Cluster, tmp_path: Path) -> None:
    for place in ("/dev/shm", "/tmp", "/run"):
        cluster.sh(1, f"touch {place}/marker")
        assert cluster.sh(2, f"ls {place}/marker || true").startswith("ls: cannot access")
        assert not Path(place, "marker").exists()
    first, total = cluster.run(["python", "-c", WHERE]).output.splitlines()[-2:]
    assert first == "[['node1', '10.77.0.1', True], ['node2', '10.77.0.2', False]]"
    assert total == "1000000.0"


def test_one_folder_is_shared_and_the_rest_is_read_only(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = next(tmp_path_factory.getbasetemp().glob("shared*"))
    cluster.sh(2, f"echo two > {shared}/file")
    assert cluster.sh(1, f"cat {shared}/file") == "two\n" == (shared / "file").read_text()
    assert "Read-only file system" in cluster.run(["touch", f"{ROOT}/pyproject.toml"]).output


def test_a_cut_network_is_silent_and_can_be_mended(cluster: Cluster) -> None:
    connect = ["python", "-c", CONNECT]
    cluster.cut(2)
    refused = cluster.run(connect, node=2)
    assert refused.code == 1
    # The kernel itself gives up after three seconds without an answer to ARP, or at once when it did so before.
    assert "TimeoutError" in refused.output or "No route to host" in refused.output
    cluster.mend(2)
    assert cluster.run(connect, node=2).code == 0


def test_a_killed_machine_takes_all_its_processes_and_comes_back_empty(cluster: Cluster) -> None:
    cluster.sh(2, "touch /dev/shm/marker2")
    sleeping = cluster.start(["sleep", "600"], node=2)
    cluster.kill(2)
    assert sleeping.wait(60) != 0
    cluster.boot(2)
    assert "marker2" not in cluster.sh(2, "ls /dev/shm")


def test_nothing_outlives_a_test_process_that_is_killed(tmp_path: Path) -> None:
    code = KILLED.format(shared=str(tmp_path))
    test = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert test.stdout is not None
    test.stdout.readline()
    started = psutil.Process(test.pid).children(recursive=True)
    assert any("raylet" in process.name() for process in started)
    test.send_signal(signal.SIGKILL)
    test.wait()
    test.stdout.close()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
