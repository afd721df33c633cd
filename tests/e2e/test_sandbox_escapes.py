"""Attempts to leave the sandbox or to break it, against real ones. The host watches for what must not happen."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from envs.tools.sandbox import Execution, Sandbox, SandboxConfig
from rlsys.errors import BadInput
from tests.e2e import sandbox_cases

PROJECT = Path(__file__).parents[2]
SECRET = "9f31c0de-of-the-host"
LIMITS: dict[str, Any] = {"workers": 1, "memory_mb": 256, "file_kb": 2048}


class Running:
    """A started sandbox and the loop that it lives in."""

    def __init__(self, config: SandboxConfig) -> None:
        self._runner = asyncio.Runner()
        self._sandbox = Sandbox(config)
        try:
            self._runner.run(self._sandbox.start())
        except BadInput as error:
            self._runner.close()
            pytest.skip(f"this host forbids what the sandbox needs: {error}")

    def run(self, code: str) -> Execution:
        return self._runner.run(self._sandbox.run(code))

    def close(self) -> None:
        self._runner.run(self._sandbox.close())
        self._runner.close()


@pytest.fixture(scope="module")
def patient() -> Iterator[Running]:
    os.environ["SANDBOX_TEST_SECRET"] = SECRET
    running = Running(SandboxConfig(timeout_s=20, **LIMITS))
    yield running
    running.close()
    del os.environ["SANDBOX_TEST_SECRET"]


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    running = Running(SandboxConfig(timeout_s=1, total_memory_mb=128, **LIMITS))
    yield running
    running.close()


@dataclass(frozen=True, kw_only=True)
class Host:
    """What an escape would reach."""

    names: dict[str, Any]
    victim: subprocess.Popen[bytes]
    listeners: tuple[socket.socket, ...]

    def untouched(self) -> bool:
        """Nobody called, the process lives and is not stopped, the file is as it was."""
        for listener in self.listeners:
            try:
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(1)
                return False
            except BlockingIOError:
                continue
        alive = self.victim.poll() is None and psutil.Process(self.victim.pid).status() != psutil.STATUS_STOPPED
        return alive and Path(self.names["secret_file"]).read_text() == SECRET


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    folder.chmod(0o755)
    secret_file = folder / "sandbox-secret.txt"
    secret_file.write_text(SECRET)
    abstract = f"rlsys-sandbox-test-{os.getpid()}"
    tcp = socket.create_server(("127.0.0.1", 0))
    listeners = [tcp]
    for address in (str(folder / "s"), "\0" + abstract):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            listener = socket.socket(socket.AF_UNIX, kind)
            suffix = "" if kind == socket.SOCK_STREAM else "d"
            listener.bind(address + suffix)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listeners.append(listener)
    for listener in listeners:
        listener.setblocking(False)
    victim = subprocess.Popen(["sleep", "600"], start_new_session=True)
    prefix = Path(sysconfig.get_paths()["stdlib"])
    tops = {path.parts[1] for path in (prefix, PROJECT, Path(sysconfig.get_paths()["purelib"]))}
    names = {
        "secret": SECRET,
        "secret_file": str(secret_file),
        "secret_name": secret_file.name,
        "project": str(PROJECT),
        "tops": sorted(tops),
        "site_packages": [str(prefix / "site-packages"), sysconfig.get_paths()["purelib"]],
        "port": tcp.getsockname()[1],
        "unix_path": str(folder / "s"),
        "abstract": abstract,
        "victim": victim.pid,
        "pool": os.getpid(),
        "host_name": socket.gethostname(),
    }
    yield Host(names=names, victim=victim, listeners=tuple(listeners))
    victim.kill()
    victim.wait()
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("name", sandbox_cases.HELD)
def test_an_escape_is_held(name: str, patient: Running, host: Host) -> None:
    code = sandbox_cases.try_it + sandbox_cases.HELD[name].format(**host.names)
    result = patient.run(code)
    assert set(result.text.splitlines()) == {"held"}, result
    assert SECRET not in result.text
    assert host.untouched()
    assert patient.run("1 + 1").text == "2"


@pytest.mark.parametrize("name", sandbox_cases.ENDS)
def test_an_abuse_ends_and_the_pool_goes_on(name: str, hasty: Running, patient: Running) -> None:
    if "32-bit" in name and platform.machine() != "x86_64":
        pytest.skip("this machine has no such table")
    code, outcome, beginning = sandbox_cases.ENDS[name]
    # What is to end by itself, or by another limit, has time for it also on a busy machine.
    result = (hasty if outcome == "timeout" or "128 MB" in beginning else patient).run(code)
    assert (str(result.outcome), result.text[: len(beginning)]) == (outcome, beginning)
    assert len(result.text.encode()) <= 4 * SandboxConfig().output_kb * 1024
    assert result.seconds < (3 if outcome == "timeout" else 15)
    for running in (hasty, patient):
        assert running.run("1 + 1").text == "2"
    assert _running_below_us() == [2, 2]  # of each pool: a launcher and its zygote


@pytest.mark.parametrize("name", sandbox_cases.STAINS)
def test_nothing_is_left_for_the_next_execution(name: str, patient: Running) -> None:
    stain, look = sandbox_cases.STAINS[name]
    assert patient.run(stain).outcome in ("ok", "error")
    assert patient.run(look).text.strip("'") == "clean"


def test_the_search_for_a_sibling_finds_its_own_text(patient: Running) -> None:
    """Without which the searches above would be clean whatever lies there."""
    mark = "".join(sandbox_cases.MARK)
    assert patient.run(f"kept = {mark!r}\n{sandbox_cases.SEARCH}").text == "left"


def _running_below_us() -> list[int]:
    """Processes of each pool of this test: everything that an execution started is gone."""
    launchers = [child for child in psutil.Process().children() if "zygote" in " ".join(child.cmdline())]
    return [1 + len(launcher.children(recursive=True)) for launcher in launchers]
