"""Where a run runs, as far as is known before Ray answers: this machine, a Ray job, a cluster; on which device."""

from __future__ import annotations

import os

from rlsys.config.cluster import ClusterConfig
from rlsys.system.device import DEVICES, Device, choose

DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")  # one of them is there where CUDA is (dxg: WSL)

STOP_WAIT, STOP_WAIT_S = "RAY_JOB_STOP_WAIT_TIME_S", 3.0  # Ray's variable, and what it is without it
END_S = 20.0  # that a stopped run takes to end its actors, at most


def inside_ray_job() -> bool:
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def killed_too_early(stop_deadline_s: float) -> str | None:
    """What to do where `ray job stop` would kill this job before its last checkpoint is written."""
    if not inside_ray_job():
        return None
    wait, needed = float(os.environ.get(STOP_WAIT, STOP_WAIT_S)), stop_deadline_s + END_S
    if wait >= needed:
        return None
    return (
        f"`ray job stop` kills this job after {wait:g} s: for checkpoint.stop_deadline_s={stop_deadline_s:g} submit it "
        f'with --runtime-env-json \'{{"env_vars": {{"{STOP_WAIT}": "{needed:g}"}}}}\''
    )


def is_local(config: ClusterConfig) -> bool:
    """Whether the run starts a cluster of its own, on this machine alone."""
    return config.address is None and "RAY_ADDRESS" not in os.environ and not inside_ray_job()


def expected_device(config: ClusterConfig) -> Device:
    """As far as it can be known before Ray answers: `auto` is what this machine has."""
    return choose(config.device, local_gpus() if config.device == "auto" else 0)


def smallest_device(config: ClusterConfig) -> Device:
    """The same for what is refused before Ray answers: a cluster that is joined may have GPUs, whose weights are
    smaller."""
    joined = config.device == "auto" and not is_local(config)
    return DEVICES["cuda"] if joined else expected_device(config)


def local_gpus() -> int:
    """GPUs of this machine."""
    if not any(map(os.path.exists, DRIVERS)):
        return 0  # torch takes seconds to load, and would count none
    import torch

    return torch.cuda.device_count()


def runs_elsewhere(config: ClusterConfig, device: Device) -> bool:
    """Whether a run for GPUs is looked at on a machine that has none: this one's disk and RAM are not the run's."""
    return is_local(config) and device.gpus_per_actor > 0 and not any(map(os.path.exists, DRIVERS))
