"""What disturbs the parts of a run on one machine: signals to their processes, a full disk, a link that is down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from launch.tools.chaos.faults import Fault
from launch.tools.chaos.processes import find_target, signal_all

FILLER = ".filler"
LEFT_BYTES = 2**16  # on a disk that is filled
TURN_S = 0.2  # of a part that is slowed: stopped, then not
# Neither a child of this process, which Ray ends with its actor, nor of its session: what is down is to come up again.
APART = 'setsid sh -c "$1" </dev/null >/dev/null 2>&1 &'
# The answer to the call leaves before the link goes down.
CUT = "sleep 1; ip link set dev {link} down"
# Into a file of its own: two links may be down at once, and a name that can be guessed is anybody's to make.
SAVE = 'routes=$(mktemp) && ip route save dev {link} > "$routes"; '
MEND = '; sleep {lasts:g}; ip link set dev {link} up; ip route restore < "$routes"; rm -f "$routes"'
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}  # of the others: SIGSTOP


class Hand:
    """On one machine. Of several nodes each has one, as a Ray actor."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._stopped: list[psutil.Process] = []  # at some time

    def disturb(self, owner: str, fault: Fault) -> int:
        """How many processes were hit. owner: how the tag of the run's driver begins."""
        processes = find_target(owner, fault.target)
        if fault.kind not in SIGNALS:
            self._stopped += processes  # before they are: a signal to this process may come in between
        hit = signal_all(processes, SIGNALS.get(fault.kind, signal.SIGSTOP))
        if hit and fault.lasts_s is not None:
            lasts_s, slowly = fault.lasts_s, fault.kind == "slow"
            self._begin(lambda: self._hold(processes, lasts_s, slowly))
        return hit

    def fill(self, run_dir: Path, lasts_s: float) -> int:
        """The disk of the run directory, but for a little. Returns how many disks are full: 0 where it refuses."""
        path = run_dir / FILLER
        try:
            with path.open("wb") as file:
                free, kept = find_room(run_dir)
                size = max(1, free - LEFT_BYTES)
                os.posix_fallocate(file.fileno(), 0, size)
                if kept:
                    with suppress(OSError):  # ext4 gives what it has and refuses: some of it nobody may have
                        os.posix_fallocate(file.fileno(), size, kept)
            self._begin(lambda: self._empty(path, lasts_s))
        except OSError:
            path.unlink(missing_ok=True)
            return 0
        except BaseException:  # a signal to this process: nobody else would empty it
            path.unlink(missing_ok=True)
            raise
        return 1

    def why_no_cut(self, address: str) -> str:
        """What keeps this machine from taking down the link that has an address; empty where nothing does."""
        if os.geteuid() != 0:
            return "its processes do not run as root"
        if shutil.which("ip") is None:
            return "it has no `ip` (package iproute2)"
        return "" if find_link(address) else f"none of its links has {address}"

    def cut(self, address: str, lasts_s: float | None) -> int:
        """lasts_s: None is for good. The routes of the link are put back with it. Returns how many links are cut."""
        link = find_link(address)
        if link is None:
            return 0
        script = CUT.format(link=link)
        if lasts_s is not None:
            script = SAVE.format(link=link) + script + MEND.format(link=link, lasts=lasts_s)
        subprocess.run(["sh", "-c", APART, "sh", script], check=True)
        return 1

    def end(self) -> None:
        """What is stopped continues, and the disk has its room."""
        self._over.set()
        for thread in self._threads:
            with suppress(RuntimeError):  # a signal came as it was started: once it runs it finds that all is over
                thread.join(timeout=5.0)  # a turn takes a fifth of a second
        signal_all(self._stopped, signal.SIGCONT)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _hold(self, processes: list[psutil.Process], lasts_s: float, slowly: bool) -> None:
        """Stopped for the whole time, or for every second turn of it; then they continue."""
        until, stopped = time.monotonic() + lasts_s, True
        while time.monotonic() < until and not self._over.wait(TURN_S):
            if slowly:
                stopped = not stopped
                signal_all(processes, signal.SIGSTOP if stopped else signal.SIGCONT)
        signal_all(processes, signal.SIGCONT)

    def _empty(self, path: Path, lasts_s: float) -> None:
        self._over.wait(lasts_s)
        path.unlink(missing_ok=True)


def find_room(folder: Path) -> tuple[int, int]:
    """(bytes that are free for everybody, bytes that are kept for root alone; 0 for others) of the disk of a folder."""
    disk = os.statvfs(folder)
    kept = disk.f_bfree - disk.f_bavail if os.geteuid() == 0 else 0
    return disk.f_bavail * disk.f_frsize, kept * disk.f_frsize


def find_link(address: str) -> str | None:
    """The interface of this machine that has the address."""
    return next(
        (name for name, has in psutil.net_if_addrs().items() if any(addr.address == address for addr in has)), None
    )
