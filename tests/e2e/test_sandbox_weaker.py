"""A host that forbids namespaces, as many Kubernetes pods do: here a filter refuses `unshare`, in the same way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from envs.tools.sandbox import Execution, Outcome, Sandbox, SandboxConfig, probe, worker
from rlsys.errors import BadInput
from tests.e2e import sandbox_cases

FORBID = """
import errno, os, struct
from jail import linux, seccomp
filter = [(0x20, 0, 0, 0)]
for number in NUMBERS:
    filter += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno.EPERM)]
filter.append((0x06, 0, 0, 0x7FFF0000))
linux.prctl(38, 1)
seccomp.install(b''.join(struct.pack('<HBBI', *line) for line in filter))
zygote.main()
"""
UNSHARE = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
LANDLOCK_CREATE_RULESET = 444
HELD = {  # those that make sense where the host's files have names but cannot be opened
    "reads the password file", "reads a file of the host", "writes to Python's files", "opens a file by handle",
    "keeps an inherited descriptor", "has capabilities", "connects by IPv6", "uses other sockets", "traces",
    "signals processes of the host", "reads another's memory", "makes namespaces", "joins namespaces",
    "calls what it has no business to call", "goes through the x32 table", "takes the filter off", "sets the clock",
    "reads the environment",
}  # fmt: skip
MORE_HELD = {
    "connects by IPv4": "held(socket.socket, socket.AF_INET, socket.SOCK_STREAM); held(os.chroot, '/')",
    "starts a process": "held(os.fork)",
    "writes a file": "held(open, '/tmp/rlsys-sandbox-left', 'w'); held(os.mkdir, '/tmp/rlsys-sandbox-left')",
    "lists directories": "held(os.listdir, '/'); held(os.listdir, '/root'); held(os.listdir, '/proc')",
    "reads processes": "held(open, '/proc/{pool}/environ', 'rb'); held(open, '/proc/self/maps')",
    "signals the zygote": "held(os.kill, os.getppid(), 9); held(os.kill, -1, 9); held(os.killpg, 0, 9)",
}


def _forbid(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    forbid = FORBID.replace("NUMBERS", repr(numbers))
    monkeypatch.setattr(worker, "COMMAND", worker.COMMAND.replace("; ", "\n").replace("zygote.main()", forbid))
    monkeypatch.setenv("SANDBOX_TEST_SECRET", "9f31c0de-weaker")


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _forbid(monkeypatch, UNSHARE)


def test_without_namespaces_it_refuses_and_says_what_to_set(forbidden: None) -> None:
    with pytest.raises(BadInput, match=r"user namespace.*not permitted.*sandbox\.allow_weaker=true"):
        asyncio.run(Sandbox(SandboxConfig(workers=1)).start())


def test_the_probe_tells_what_is_missing_and_what_would_stand(forbidden: None) -> None:
    layers = asyncio.run(probe(SandboxConfig()))
    assert (layers[0].name, layers[0].active) == ("user namespace", False)
    assert {layer.name: layer.active for layer in layers[1:]}["seccomp"]


def test_the_weaker_mode_runs_code_and_holds_what_it_promises(forbidden: None, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("9f31c0de-weaker")
    names = {"secret_file": str(secret), "secret": "9f31c0de-weaker", "victim": os.getppid(), "pool": os.getpid()}
    attempts = {**{name: sandbox_cases.HELD[name] for name in HELD}, **MORE_HELD}
    results = asyncio.run(_weaker([sandbox_cases.try_it + code.format(**names) for code in attempts.values()]))
    escaped = {name: result for name, result in zip(attempts, results, strict=True) if _lines(result) != {"held"}}
    assert escaped == {}
    assert not Path("/tmp/rlsys-sandbox-left").exists()


def test_without_landlock_it_opens_no_file_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _forbid(monkeypatch, UNSHARE, LANDLOCK_CREATE_RULESET)
    codes = ["open('/dev/null')", "import os; open(os.__file__)", "import os; os.listdir('/')"]
    *refused, works = asyncio.run(_weaker([*codes, "import sympy, decimal\nsympy.sqrt(8), decimal.Decimal(1) / 8"]))
    assert [result.text[:43] for result in refused] == ["PermissionError: [Errno 1] Operation not pe"] * 3
    assert works.text == "(2*sqrt(2), Decimal('0.125'))"


def test_the_weaker_mode_ends_what_does_not_end(forbidden: None) -> None:
    codes = [
        "while True: pass",
        "10**10**10",
        "b'x' * 10**10",
        "while True: print('x' * 1000)",
        "import sympy; sympy.factorint(12)",
    ]
    results = asyncio.run(_weaker(codes))
    expected = [Outcome.TIMEOUT, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.OUTPUT, Outcome.OK]
    assert [result.outcome for result in results] == expected
    assert results[-1].text == "{2: 2, 3: 1}"


def test_workers_go_when_the_pool_is_killed() -> None:
    code = (
        "import asyncio\nfrom envs.tools.sandbox import Sandbox, SandboxConfig\nasync def main():\n"
        " s = Sandbox(SandboxConfig(preload=[], allow_weaker=True)); await s.start(); print('up', flush=True)\n"
        " await s.run('import time; time.sleep(60)')\nasyncio.run(main())"
    )
    pool = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert pool.stdout is not None and pool.stdout.readline() == b"up\n"
    below = psutil.Process(pool.pid).children(recursive=True)
    assert below
    pool.send_signal(signal.SIGKILL)
    pool.wait()
    pool.stdout.close()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert alive == []


async def _weaker(codes: list[str]) -> list[Execution]:
    sandbox = Sandbox(SandboxConfig(workers=1, timeout_s=1.5, memory_mb=256, allow_weaker=True))
    await sandbox.start()
    try:
        assert sandbox.weaker
        return [await sandbox.run(code) for code in codes]
    finally:
        await sandbox.close()


def _lines(result: Execution) -> set[str]:
    return set(result.text.splitlines())
