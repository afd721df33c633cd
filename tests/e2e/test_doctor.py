"""`rlsys doctor --cluster` on two nodes: nothing is said of a sound cluster, and each planted fault is one line."""

import importlib.metadata
import json
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import Cluster, needs_nodes, nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_nodes]

SECOND = "10.77.0.2"
PACKAGE = "bm25s"  # of the lock; no probe imports it


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With `small`, a file system of 1 MB."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "runs").mkdir()
    (folder / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder / "small")], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder / "small")], check=True)


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[Cluster]:
    with nodes(2, shared=shared, cpus=2) as cluster:
        for node in (1, 2):
            cluster.sh(node, f"mount -o remount,bind,rw {shared}/small")
        yield cluster


def doctor(cluster: Cluster, *argv: str, run: Path) -> tuple[int, list[dict[str, Any]]]:
    command = ["python", "-m", "launch", "doctor", *argv, "--cluster", "--run-dir", str(run), "--json"]
    result = cluster.run(command, timeout=240)
    report = result.output[result.output.index("{\n") :]
    return result.code, json.loads(report)["findings"]


def check_fault(cluster: Cluster, shared: Path, look: str, *argv: str, run: str = "runs/r1") -> dict[str, Any]:
    """That the doctor finds this and nothing else. Returns its finding."""
    code, findings = doctor(cluster, *(argv or ["quickstart"]), run=shared / run)
    wrong = [finding for finding in findings if finding["level"] in ("error", "warning")]
    assert [finding["look"] for finding in wrong] == [look], wrong
    assert code == 1 and wrong[0]["level"] == "error" and wrong[0]["cure"]
    return wrong[0]


def test_nothing_is_said_of_a_sound_cluster(cluster: Cluster, shared: Path) -> None:
    for config in ("quickstart", "worlds/python"):
        code, findings = doctor(cluster, config, run=shared / "runs" / "r1")
        assert [finding for finding in findings if finding["level"] not in ("ok", "skipped")] == []
        assert code == 0
    looks = {finding["look"] for finding in findings if finding["level"] == "ok"}
    assert looks >= {"software", "ports", "packets", "shared folder", "object store", "bandwidth", "collectives"}


def test_a_small_shared_memory(cluster: Cluster, shared: Path) -> None:
    used = "$(df -k --output=used /dev/shm | tail -1)"  # by Ray's store
    smaller = f"mount -o remount,size=$(({used} + 1024))k /dev/shm"
    with undone(cluster, smaller, "mount -o remount,size=2g /dev/shm"):
        finding = check_fault(cluster, shared, "weights")
    assert finding["node"] == SECOND and "--shm-size" in finding["cure"]


@pytest.mark.parametrize("fault", ["missing", "other version"])
def test_packages_that_are_not_the_drivers(cluster: Cluster, shared: Path, fault: str) -> None:
    meta = Path(str(importlib.metadata.distribution(PACKAGE).locate_file("")))
    with overlay(cluster, meta) as folder:
        if fault == "missing":
            cluster.sh(2, f"rm -r {folder}/{PACKAGE} {folder}/{PACKAGE}-*.dist-info")
        else:
            cluster.sh(2, f"sed -i 's/^Version: .*/Version: 0.0.1/' {folder}/{PACKAGE}-*.dist-info/METADATA")
        finding = check_fault(cluster, shared, "software")
    assert finding["node"] == SECOND and PACKAGE in finding["text"]
    assert ("missing" if fault == "missing" else "0.0.1") in finding["text"]


def test_a_full_disk(cluster: Cluster, shared: Path) -> None:
    finding = check_fault(cluster, shared, "disk", run="small/r1")
    assert "checkpoints" in finding["text"]


def test_a_folder_that_is_not_shared(cluster: Cluster, shared: Path) -> None:
    runs = shared / "runs"
    with undone(cluster, f"mount -t tmpfs none {runs}", f"umount {runs}"):
        finding = check_fault(cluster, shared, "shared folder")
    assert finding["node"] == SECOND


def test_a_closed_port(cluster: Cluster, shared: Path) -> None:
    """As a firewall that knows Ray's ports alone: those that services of a run open are new ones."""
    listening = cluster.sh(2, "ss -ltnH | awk '{print $4}' | sed 's/.*://' | sort -un").split()
    rule = f"tcp flags & (syn|ack) == syn tcp dport 20000-65535 tcp dport != {{ {', '.join(listening)} }} drop"
    chain = "nft add table inet wall && nft add chain inet wall in '{ type filter hook input priority 0; }'"
    with undone(cluster, f"{chain} && nft add rule inet wall in '{rule}'", "nft delete table inet wall"):
        finding = check_fault(cluster, shared, "ports")
    assert finding["node"] == SECOND


def test_packets_that_vanish(cluster: Cluster, shared: Path) -> None:
    """Large packets are lost between the nodes, and nothing says so: an MTU that is smaller on the way."""
    command = "ip link set dev eth0 gso_max_segs {}"  # else packets cross this machine in one piece of 64 KB
    for node in (1, 2):
        cluster.sh(node, command.format(1))
    cluster.switch("ip link set port2 mtu 1400")
    try:
        finding = check_fault(cluster, shared, "packets")
    finally:
        cluster.switch("ip link set port2 mtu 1500")
        for node in (1, 2):
            cluster.sh(node, command.format(65535))
    assert finding["node"] == SECOND and "MTU" in finding["text"]


def test_a_slow_link(cluster: Cluster, shared: Path) -> None:
    slow = "tc qdisc add dev eth0 root tbf rate 80mbit burst 128kb latency 100ms"
    with undone(cluster, slow, "tc qdisc del dev eth0 root"):
        finding = check_fault(cluster, shared, "bandwidth")
    assert finding["text"].startswith(f"weights {SECOND} -> ")


def test_few_open_files(cluster: Cluster, shared: Path) -> None:
    with rejoined(cluster, "prlimit", "--nofile=256:256"):
        finding = check_fault(cluster, shared, "limits")
    assert finding["node"] == SECOND and "256 open files" in finding["text"]


def test_no_user_namespaces(cluster: Cluster, shared: Path) -> None:
    """Only a namespace of the node's own is changed: the limit holds below it."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    with rejoined(cluster, "unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"):
        finding = check_fault(cluster, shared, "sandbox", "worlds/python")
    assert finding["node"] == SECOND and "docs/sandbox.md" in finding["cure"]


def test_a_clock_that_is_behind(cluster: Cluster, shared: Path) -> None:
    """A warning: nothing of a run depends on it. Namespaces of time leave this clock alone, so Python's is changed."""
    script = "import time\nreal = time.time\ntime.time = lambda: real() - 4.2\n"
    with overlay(cluster, Path(sysconfig.get_paths()["purelib"])) as folder:
        cluster.sh(2, f"printf '{script}' > {folder}/sitecustomize.py")
        code, findings = doctor(cluster, "quickstart", run=shared / "runs" / "r1")
    wrong = [(row["level"], row["look"], row["node"]) for row in findings if row["level"] not in ("ok", "skipped")]
    assert wrong == [("warning", "clock", SECOND)] and code == 0


@contextmanager
def undone(cluster: Cluster, make: str, undo: str) -> Iterator[None]:
    """A fault of the second node, by a shell command there."""
    cluster.sh(2, make)
    try:
        yield
    finally:
        cluster.sh(2, undo)


@contextmanager
def rejoined(cluster: Cluster, *wrapper: str) -> Iterator[None]:
    cluster.rejoin(2, wrapper)
    try:
        yield
    finally:
        cluster.rejoin(2)


@contextmanager
def overlay(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """A folder of the second node that can be changed there alone."""
    upper = "/tmp/overlay"
    options = f"lowerdir={folder},upperdir={upper}/new,workdir={upper}/work"
    make = f"mkdir -p {upper}/new {upper}/work && mount -t overlay overlay -o {options} {folder}"
    with undone(cluster, make, f"umount -l {folder} && rm -rf {upper}"):
        yield folder
