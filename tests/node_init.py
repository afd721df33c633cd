"""The first process of a node of `tests.nodes`: it makes file systems and a name of its own, then waits for its end.

Run by `unshare` in new namespaces, with the standard library alone. It is pid 1 there: when it ends, so does every
process of the node. It ends with its standard input, which the test process holds: also when that one is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

RDONLY, REMOUNT, BIND, REC = 1, 32, 4096, 16384  # of mount(2)
PRIVATE = {"/dev/shm": "mode=1777", "/tmp": "mode=1777", "/run": "mode=755"}
DEVICES = ("/proc", "/sys", "/dev")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    raw = [None if value is None else value.encode() for value in (source, target, kind, options)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(raw[0], raw[1], raw[2], ctypes.c_ulong(flags), raw[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount on {target}: {os.strerror(ctypes.get_errno())}")


def main(number: int, addresses: list[str], shm: str, shared: str, visible: list[str]) -> None:
    """visible: folders that stay visible, to read; shared: one to write in, the same on every node."""
    handles = {path: os.open(path, os.O_PATH) for path in [*visible, shared]}  # some lie below what is hidden next
    for point in {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}:
        if not point.startswith(DEVICES):
            mount("none", point, None, REMOUNT | BIND | RDONLY)
    for path, options in PRIVATE.items():
        mount("tmpfs", path, "tmpfs", 0, f"{options},size={shm}" if path == "/dev/shm" else options)
    for path, descriptor in handles.items():
        if not os.path.isdir(path):
            os.makedirs(path)
            mount(f"/proc/self/fd/{descriptor}", path, None, BIND | REC)
            mount("none", path, None, REMOUNT | BIND | RDONLY)
    mount(f"/proc/self/fd/{handles[shared]}", shared, None, BIND | REC)
    mount("none", shared, None, REMOUNT | BIND)
    os.mkdir("/tmp/home")
    name = f"node{number}"
    peers = [f"{address} node{node}" for node, address in enumerate(addresses, 1) if node != number]
    # As Debian has it: who announces the address of the host name announces one that only this machine can reach.
    Path("/run/hosts").write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {name}", *peers, ""]))
    mount("/run/hosts", "/etc/hosts", None, BIND)
    socket.sethostname(name)
    subprocess.run([shutil.which("ip") or "ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as pid 1 it inherits orphans, and none may stay a zombie
    print("ready", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4], sys.argv[5:])
