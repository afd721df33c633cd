"""Whether this machine's GPUs can be used by the torch that is installed, told without touching one."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from rlsys.errors import BadInput

NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
MODULE = Path("/proc/driver/nvidia/version")
# The oldest release of the driver that knows a CUDA version, by its first number (NVIDIA's table of compatibility).
OLDEST_DRIVER = {12: "525", 13: "580"}


def check() -> None:
    """Raises BadInput where no GPU of this machine would work, or each actor would take the same one."""
    if os.environ.get(NOSET, "0").lower() not in ("", "0", "false"):
        raise BadInput(
            f"{NOSET}={os.environ[NOSET]} is set for Ray: every rank and engine would take GPU 0; "
            "unset it where `ray start` is called, or give it as 0"
        )
    problem = unusable()
    if problem is not None:
        raise BadInput(problem)


def unusable() -> str | None:
    """Why CUDA cannot be used here, in one line; None where the driver knows torch's version of it.

    Does not look for GPUs, which may be hidden from this process.
    """
    import torch

    return explain(torch.__version__, torch.version.cuda, driver_cuda(), driver_release())


def explain(torch_version: str, built_for: str | None, known: int | None, release: str | None) -> str | None:
    """built_for: the CUDA version of torch. known: the newest that the driver's library knows, 13000 for 13.0.

    release: of the driver. A newer library beside an older driver (NVIDIA's cuda-compat) counts: it is what torch asks.
    """
    if built_for is None:
        return f"no CUDA: torch {torch_version} is a build for CPUs: `make setup-gpu` installs the one for GPUs"
    major = int(built_for.partition(".")[0])
    needed = f"torch {torch_version} needs CUDA {built_for}"
    if major in OLDEST_DRIVER:
        needed += f", which NVIDIA's driver {OLDEST_DRIVER[major]} or newer has"
    if known is None and release is None:
        return f"no CUDA: there is no NVIDIA driver here (libcuda.so.1 does not load); {needed}"
    found = f"NVIDIA driver {release or 'of unknown release'}"
    if known is None:
        return f"no CUDA: {found}, but libcuda.so.1 does not load: is the container started with GPUs? {needed}"
    if known // 1000 < major:
        return f"no CUDA: {found} knows CUDA up to {known // 1000}.{known % 1000 // 10}; {needed}"
    return None


def driver_cuda() -> int | None:
    """As the driver's library says it, which needs neither a GPU nor torch."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    return version.value if library.cuDriverGetVersion(ctypes.byref(version)) == 0 else None


def driver_release() -> str | None:
    """ "580.65.06", of the kernel's module."""
    try:
        found = re.search(r"(?:Module|for \S+)\s+(\d+\.[\d.]+)", MODULE.read_text())
    except OSError:
        return None
    return found[1] if found else None
