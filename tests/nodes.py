"""A Ray cluster of several nodes on one Linux machine, in which whatever is shared by accident fails.

    with nodes(2, shared=tmp_path) as cluster:
        result = cluster.run(["rlsys", "train", "quickstart", "--run-dir", f"{tmp_path}/run"])
        cluster.sh(2, "ls /dev/shm")

Each node is a tree of processes in namespaces of its own: network, mounts, pids, IPC and host name, with a private
/dev/shm, /tmp and /run. All else of the machine is there to be read, and `shared` to be written in, as over NFS. A
bridge in one more network joins the nodes; their addresses exist nowhere else. Node N has a Ray resource `nodeN`, 1000
of it. Its host name stands for an address that no other node reaches, and no variable says which interface to use.

Needs root, and `ip` and `unshare` of Linux: mark tests with `needs_nodes`. Nothing is left behind, also when the test
process is killed: a node lives as long as its first process, and that one as long as the pipe to the test.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import ROOT, Result

OWN = ("--net", "--mount", "--uts", "--ipc", "--pid")  # the namespaces of a node
PORT = 6379
PASSED_ON = ("RLSYS_TEST_SESSION", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "VLLM_NO_USAGE_STATS", "WANDB_MODE")

FILL = """
import ray
ray.init(log_to_driver=False, namespace="full")

@ray.remote(num_cpus={cpus}, resources={{"node{node}": 1}}, lifetime="detached", name="full{node}")
class Full:
    def there(self):
        return "taken"

print(ray.get(Full.remote().there.remote()))
"""
GONE = """
import time
import ray
ray.init(log_to_driver=False)
while any(node["Alive"] and node["NodeManagerAddress"] == "{address}" for node in ray.nodes()):
    time.sleep(0.2)
"""
FREE = """
import ray
ray.init(log_to_driver=False, namespace="full")
ray.kill(ray.get_actor("full{node}"))
"""


@functools.cache
def why_not() -> str:
    """What this machine lacks; empty where nodes can be made."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux, to make network and mount namespaces"
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (packages iproute2 and util-linux)"
    links = "mount -t tmpfs none /tmp && ip link add one type bridge && ip link add two type veth peer name three"
    trial = subprocess.run(["unshare", *OWN, "--fork", "sh", "-c", links], capture_output=True, text=True)
    return f"this machine makes no namespaces: {trial.stderr.strip().splitlines()[-1:]}" if trial.returncode else ""


needs_nodes = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Cluster:
    """Made by `nodes`. Nodes are numbered from 1; the first is Ray's head."""

    def __init__(
        self, num: int, *, shared: Path, cpus: int, gpus: int, shm: str, store_mb: int, dashboard: bool, ray: bool
    ) -> None:
        self.addresses = [f"10.77.0.{number}" for number in range(1, num + 1)]
        self._shared, self._shm, self._dashboard = shared.resolve(), shm, str(dashboard).lower()
        self._starts_ray = ray
        self._ray = ["--object-store-memory", f"{store_mb * 10**6}", "--num-cpus", f"{cpus}", "--num-gpus", f"{gpus}"]
        self._first: dict[int, psutil.Process] = {}  # the first process of each node
        self._holders: list[subprocess.Popen[str]] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._switch = self._hold(["unshare", "--net", "sh", "-c", "echo ready; exec cat"])
        self._bridge("ip link add switch type bridge && ip link set switch up")

    # -- what tests do --------------------------------------------------------------------------------------------

    def run(
        self, argv: Sequence[str], *, timeout: float = 300, node: int = 1, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command in the project's folder; the machine's `rlsys` and `python` are those of this test."""
        with tempfile.NamedTemporaryFile("w+") as output:
            process = self.start(argv, node=node, env=env, output=output.fileno())
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.signal(process, signal.SIGKILL)
                tail = Path(output.name).read_text()[-3000:]
                raise AssertionError(f"{' '.join(argv)}: not done after {timeout:g} s; it said: {tail}") from None
            return Result(process.returncode, Path(output.name).read_text())

    def start(
        self,
        argv: Sequence[str],
        *,
        node: int = 1,
        env: Mapping[str, str] | None = None,
        output: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """The same without waiting. The process that is returned stands outside of the node: see `signal`."""
        variables = [f"{key}={value}" for key, value in {**self._env(), **(env or {})}.items()]
        process = subprocess.Popen(
            [*self._inside(node), "env", "-i", *variables, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        self._started.append(process)
        return process

    def signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what `start` started, as a user of the node would, and not to what waits for it outside."""
        for child in psutil.Process(process.pid).children():
            child.send_signal(number)

    def sh(self, node: int, command: str) -> str:
        """What a shell command prints on a node."""
        result = self.run(["sh", "-c", command], node=node, timeout=60)
        assert result.code == 0, f"node {node}: {command}: {result.output}"
        return result.output

    def fill(self, node: int, cpus: int) -> None:
        """Take CPUs of a node for good: what is placed from now on finds them on another one."""
        result = self.run(["python", "-c", FILL.format(node=node, cpus=cpus)])
        assert result.output.endswith("taken\n"), result.output

    def free(self, node: int) -> None:
        """Give back what `fill` took."""
        result = self.run(["python", "-c", FREE.format(node=node)])
        assert result.code == 0, result.output

    def kill(self, node: int) -> None:
        """The machine is gone, with everything on it."""
        first = self._first.pop(node)
        first.kill()
        first.wait(60)

    def boot(self, node: int) -> None:
        """Start a node, or one that was killed: it joins the cluster with empty memory."""
        namespaces = ["unshare", *OWN, "--fork", "--kill-child=KILL", "--mount-proc"]
        script = [sys.executable, "-S", str(Path(__file__).with_name("node_init.py"))]
        arguments = [f"{node}", ",".join(self.addresses), self._shm, str(self._shared)]
        visible = {str(ROOT), sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix}
        holder = self._hold([*namespaces, *script, *arguments, *sorted(visible)])
        (self._first[node],) = psutil.Process(holder.pid).children()
        self._bridge(f"ip link delete port{node} 2>/dev/null; true")
        self._bridge(f"ip link add port{node} type veth peer name eth0 netns {self._first[node].pid}")
        self._bridge(f"ip link set port{node} master switch up")
        address = self.addresses[node - 1]
        self.sh(node, f"ip addr add {address}/24 dev eth0 && ip link set eth0 up")
        if self._starts_ray:
            self._join(node)

    def rejoin(self, node: int, wrapper: Sequence[str] = ()) -> None:
        """Stop Ray on a node and start it again, below a command such as `prlimit --nofile=256`."""
        stopped = self.run(["ray", "stop", "--force"], node=node, timeout=60)
        assert stopped.code == 0, stopped.output
        result = self.run(["python", "-c", GONE.format(address=self.addresses[node - 1])])
        assert result.code == 0, result.output
        self._join(node, wrapper)

    def switch(self, command: str) -> None:
        """A shell command where the nodes' cables end: `ip link set port2 mtu 1400`."""
        self._bridge(command)

    def cut(self, node: int) -> None:
        """The network of a node is dead: nothing is refused, nothing arrives. Ray notices after about a minute."""
        self._bridge(f"ip link set port{node} down")

    def mend(self, node: int) -> None:
        self._bridge(f"ip link set port{node} up")
        for peer in self._first:  # whom nobody answered for stays unknown for seconds
            self.sh(peer, "ip neigh flush all")

    # -- how ------------------------------------------------------------------------------------------------------

    @property
    def _head(self) -> str:
        return f"{self.addresses[0]}:{PORT}"

    def _join(self, node: int, wrapper: Sequence[str] = ()) -> None:
        role = (
            ["--head", f"--port={PORT}", f"--include-dashboard={self._dashboard}"]
            if node == 1
            else ["--address", self._head]
        )
        options = [f"--node-ip-address={self.addresses[node - 1]}", f'--resources={{"node{node}": 1000}}']
        argv = [*wrapper, "ray", "start", *role, *options, "--disable-usage-stats", *self._ray]
        result = self.run(argv, node=node, timeout=120)
        assert result.code == 0, result.output

    def _hold(self, argv: list[str]) -> subprocess.Popen[str]:
        """A process that says a line when it is ready, and ends when its standard input does."""
        holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise RuntimeError(f"no node: {' '.join(argv)} ended with {holder.wait()}")
        return holder

    def _bridge(self, command: str) -> None:
        subprocess.run(["nsenter", "-t", f"{self._switch.pid}", "--net", "sh", "-c", command], check=True)

    def _inside(self, node: int) -> list[str]:
        return ["nsenter", "-t", f"{self._first[node].pid}", *OWN, f"--wdns={ROOT}", "--"]

    def _env(self) -> dict[str, str]:
        """Of a fresh login on a node whose image has the project."""
        return {
            "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RAY_ADDRESS": self._head,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        }

    def close(self) -> None:
        for holder in self._holders:
            assert holder.stdin is not None and holder.stdout is not None
            holder.stdin.close()
            holder.stdout.close()
        for holder in self._holders:
            holder.wait(60)  # until the last process of the node is gone
        for started in self._started:
            started.wait(60)


@contextlib.contextmanager
def nodes(
    num: int,
    *,
    shared: Path,
    cpus: int = 2,
    gpus: int = 0,
    shm: str = "2g",
    store_mb: int = 200,
    dashboard: bool = False,
    ray: bool = True,
) -> Iterator[Cluster]:
    """A running cluster. cpus, gpus: what each node says that it has. shm, store_mb: its memory and the store in it.

    dashboard: of the first node, on port 8265, where `ray job submit` wants it. ray: whether it is started.
    """
    cluster = Cluster(
        num, shared=shared, cpus=cpus, gpus=gpus, shm=shm, store_mb=store_mb, dashboard=dashboard, ray=ray
    )
    try:
        for node in range(1, num + 1):
            cluster.boot(node)
        yield cluster
    finally:
        cluster.close()
