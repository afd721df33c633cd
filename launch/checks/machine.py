"""Where a run runs, as far as is known before Ray answers: this machine, a Ray job, a cluster; on which device.

Whether its GPUs can be used by the torch that is installed is found without touching one.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from rlsys.config.cluster import ClusterConfig
from rlsys.errors import BadInput
from rlsys.system.card_memory import cards_of_machine, visible_cards
from rlsys.system.cards import cards_shown
from rlsys.system.device import DEVICES, Device, choose

DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")  # one of them is there where CUDA is (dxg: WSL)

ASK_CUDA = "import torch; card = torch.cuda.get_device_properties(0); print(card.total_memory, card.name)"
ASK_CUDA_S = 60.0  # torch and a context take ten seconds, from a slow disk more
STOP_WAIT, STOP_WAIT_S = "RAY_JOB_STOP_WAIT_TIME_S", 3.0  # Ray's variable, and what it is without it
END_S = 20.0  # that a stopped run takes to end its actors, at most
NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
MODULE = Path(DRIVERS[0])
# The oldest release of the driver that knows a CUDA version, by its first number (NVIDIA's table of compatibility).
OLDEST_DRIVER = {12: "525", 13: "580"}


def inside_ray_job() -> bool:
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def stop_wait_s(stop_deadline_s: float) -> int:
    """What STOP_WAIT has to be for `checkpoint.stop_deadline_s`. Ray reads a whole number alone."""
    return math.ceil(stop_deadline_s + END_S)


def advise_stop_deadline(stop_deadline_s: float) -> str | None:
    """What to do where `ray job stop` would kill this job before its last checkpoint is written."""
    if not inside_ray_job():
        return None
    wait, least_wait = float(os.environ.get(STOP_WAIT, STOP_WAIT_S)), stop_wait_s(stop_deadline_s)
    if wait >= least_wait:
        return None
    return (
        f"`ray job stop` kills this job after {wait:g} s: for checkpoint.stop_deadline_s={stop_deadline_s:g} submit it "
        f'with --runtime-env-json \'{{"env_vars": {{"{STOP_WAIT}": "{least_wait}"}}}}\''
    )


def is_local(config: ClusterConfig) -> bool:
    """Whether the run starts its own cluster, on this machine alone."""
    return config.address is None and "RAY_ADDRESS" not in os.environ and not inside_ray_job()


def expected_device(config: ClusterConfig) -> Device:
    """As far as it can be known before Ray answers: `auto` is what this machine has."""
    return choose(config.device, local_gpus() if config.device == "auto" else 0)


def smallest_device(config: ClusterConfig) -> Device:
    """The same for what is refused before Ray answers: a cluster that is joined may have GPUs, whose weights are
    smaller."""
    joined = config.device == "auto" and not is_local(config)
    return DEVICES["cuda"] if joined else expected_device(config)


def has_driver() -> bool:
    """Whether this machine has NVIDIA's."""
    return any(map(os.path.exists, DRIVERS))


def local_gpus() -> int:
    """GPUs of this machine."""
    if not has_driver():
        return 0  # torch takes seconds to load, and would count none
    import torch

    with cards_shown():
        return torch.cuda.device_count()


@cache
def first_card() -> tuple[str, int] | None:
    """The name of the first GPU that a run here would see, and its bytes; asked once. None where there is none, or
    nobody says it.

    NVIDIA's tool knows whole cards, and is not in every container: of an instance (MIG) and without the tool CUDA is
    asked, by a process of its own.
    """
    with cards_shown():
        card = next(iter(visible_cards(cards_of_machine())), None)
    if card is not None and card.mib and not card.parted:
        return card.name, card.mib * 2**20
    return ask_cuda() if local_gpus() else None


def ask_cuda() -> tuple[str, int] | None:
    with cards_shown():
        try:
            child = subprocess.run([sys.executable, "-c", ASK_CUDA], capture_output=True, text=True, timeout=ASK_CUDA_S)
        except subprocess.TimeoutExpired:
            return None
    size, _, name = child.stdout.strip().partition(" ")
    return (name, int(size)) if child.returncode == 0 and size.isdigit() else None


def runs_elsewhere(config: ClusterConfig, device: Device) -> bool:
    """Whether a run for GPUs is looked at on a machine that has none: this one's disk and RAM are not the run's."""
    return is_local(config) and device.gpus_per_actor > 0 and not has_driver()


def check_cuda() -> None:
    """Raises BadInput where no GPU of this machine would work, or each actor would take the same one."""
    if os.environ.get(NOSET, "0").lower() not in ("", "0", "false"):
        raise BadInput(
            f"{NOSET}={os.environ[NOSET]} is set for Ray: every rank and engine would take GPU 0; "
            "unset it where `ray start` is called, or give it as 0"
        )
    problem = cuda_unusable()
    if problem is not None:
        raise BadInput(problem)


def cuda_unusable() -> str | None:
    """Why CUDA cannot be used here, in one line; None where the driver knows torch's version of it.

    Does not look for GPUs, which may be hidden from this process.
    """
    import torch

    return explain_cuda(torch.__version__, torch.version.cuda, driver_cuda(), driver_release())


def explain_cuda(torch_version: str, built_for: str | None, newest_cuda: int | None, release: str | None) -> str | None:
    """built_for: the CUDA version of torch. newest_cuda: the newest that the driver's library knows, 13000 for 13.0.

    release: of the driver. A newer library with an older driver (NVIDIA's cuda-compat) counts: it is what torch asks.
    """
    if built_for is None:
        return f"no CUDA: torch {torch_version} is a build for CPUs: `make setup-gpu` installs the one for GPUs"
    major = int(built_for.partition(".")[0])
    requirement = f"torch {torch_version} needs CUDA {built_for}"
    if major in OLDEST_DRIVER:
        requirement += f", which NVIDIA's driver {OLDEST_DRIVER[major]} or newer has"
    if newest_cuda is None and release is None:
        return f"no CUDA: there is no NVIDIA driver here (libcuda.so.1 does not load); {requirement}"
    driver = f"NVIDIA driver {release or 'of unknown release'}"
    if newest_cuda is None:
        return f"no CUDA: {driver}, but libcuda.so.1 does not load: is the container started with GPUs? {requirement}"
    if newest_cuda // 1000 < major:
        return f"no CUDA: {driver} knows CUDA up to {newest_cuda // 1000}.{newest_cuda % 1000 // 10}; {requirement}"
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
        match = re.search(r"(?:Module|for \S+)\s+(\d+\.[\d.]+)", MODULE.read_text())
    except OSError:
        return None
    return match[1] if match else None
