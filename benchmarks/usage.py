"""What a command and all processes that it starts use, looked at while it runs: memory and processor seconds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import psutil

SAMPLE_S = 2.0


@dataclass(frozen=True)
class Usage:
    """At each look: when (seconds since 1970), the processor seconds until then, bytes of memory."""

    looks: list[tuple[float, float, int]] = field(default_factory=list)

    def processor_s(self, begin: float, end: float) -> float:
        """Between two times, interpolated between looks."""
        times, seconds, _ = zip(*self.looks, strict=True)
        return float(np.interp(end, times, seconds) - np.interp(begin, times, seconds))

    def peak_gb(self, begin: float = 0.0, end: float = float("inf")) -> float:
        return max(memory for at, _, memory in self.looks if begin <= at <= end) / 1e9


def use(command: Sequence[str], env: Mapping[str, str], folder: str) -> Usage:
    """Run it in `folder`, and no longer than this call: Ctrl-C ends it, and those below it. Raises
    CalledProcessError."""
    process, usage, seconds = subprocess.Popen(command, cwd=folder, env=env), Usage(), dict[int, float]()
    try:
        while process.poll() is None:
            memory = look_at_tree(process.pid, seconds)
            usage.looks.append((time.time(), sum(seconds.values()), memory))
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_S)
    finally:
        if process.poll() is None:
            end_tree(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill it with all below it."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in below:
        with suppress(psutil.Error):
            child.kill()
    process.wait()


def look_at_tree(pid: int, seconds: dict[int, float]) -> int:
    """The memory of a process and all below it: what they share with n others counts as an n-th of it (PSS).

    seconds: by process what it has computed until now, which is brought up to date and keeps those that have ended.
    """
    total = 0
    with suppress(psutil.Error):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error):  # it has ended
                times = process.cpu_times()
                seconds[process.pid] = times.user + times.system
                total += process.memory_full_info().pss
    return total
