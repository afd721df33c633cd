"""Join the Ray cluster, or start a local one, and find out what it is made of."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from actors.placement import ResourceRequest, check
from launch.checks import machine
from launch.checks.machine import expected_device, inside_ray_job, is_local
from launch.driver.run import cleanup, parent
from rlsys.config.cluster import ClusterConfig
from rlsys.errors import BadInput, RunFailed, describe_error
from rlsys.system.cards import cards_shown
from rlsys.system.device import Device, choose, require_resolved, resolve_cluster


def connect(config: ClusterConfig, needs: Callable[[Device], Sequence[ResourceRequest]], *, run: str = "") -> Device:
    """`cluster.address`, else RAY_ADDRESS, else a local cluster of this machine's cores.

    needs: what the actors take on a device. A local cluster must hold them; one that was joined may still grow.
    run: named in the metadata of the driver, as the dashboard's list of jobs shows it.
    """
    _set_env_vars()
    import ray

    address = config.address or os.environ.get("RAY_ADDRESS")
    local = is_local(config)
    if address == "auto" and not inside_ray_job():
        address = _address_of_node()
    alternative = ", or unset RAY_ADDRESS" if "RAY_ADDRESS" in os.environ else ""
    silent = f"no Ray cluster answers at {address}: start one with `ray start --head`{alternative}"
    if address is not None and not inside_ray_job() and not reachable(address):
        raise BadInput(silent)
    options: dict[str, Any] = {}  # inside a Ray job: of the job's own cluster
    if local:
        # As many CPUs as the actors ask for: on a small machine they share the cores, and Ray must not refuse.
        expected = expected_device(config)
        num_cpus = int(sum(request.cpus for request in needs(expected)))
        options = {
            "address": "local",
            "num_cpus": max(num_cpus + 1, psutil.cpu_count() or 1),
            "object_store_memory": require_resolved(resolve_cluster(config, expected).object_store_mb) * 2**20,
            "include_dashboard": config.dashboard_port is not None,
            "dashboard_port": config.dashboard_port,
        }
    elif not inside_ray_job():
        root = str(Path(__file__).resolve().parents[3])
        options = {"address": address, "runtime_env": {"env_vars": {"PYTHONPATH": root}}}
    if not inside_ray_job():  # there they are the job's, from `ray job submit --metadata-json`
        options["job_config"] = ray.job_config.JobConfig(metadata={"rlsys_run": run})
    try:
        with cards_shown():  # Ray counts them here, and what it starts inherits the variable
            ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # fault boundary: of a node that starts too slowly Ray says so with a plain Exception
        if not local and isinstance(error, (ConnectionError, RuntimeError, ValueError)):
            raise BadInput(silent) from error
        subject = "a local Ray cluster" if local else "Ray's part of this process"
        reason = describe_error(error).strip().splitlines()[0]
        if "timed out during startup" in reason:  # after 30 s, which no setting of Ray's moves
            reason += f" (load {os.getloadavg()[0]:.0f} on {psutil.cpu_count()} cores): the same command tries again"
        raise RunFailed(f"{subject} does not start: {reason}") from error
    finally:
        cleanup.stop_if_asked()
    parent.tell(log=_own_log())
    if local:  # the token of a cluster that was joined may be shared with others on purpose
        close_token()
    counted = ray.cluster_resources().get("GPU", 0)
    device = choose(config.device, counted)
    if local and device.gpus_per_actor and counted:  # by Ray, which asks neither torch nor whether the driver fits it
        machine.check_cuda()
    if local:
        check(needs(device))
    return device


def _set_env_vars() -> None:
    """Of this process and of every one that starts from here; what a user has set of Ray's stays."""
    os.environ[cleanup.VARIABLE] = cleanup.tag()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Of a cluster that starts here. At Ray's own 15 one busy program beside the run takes nearly all of a core from it.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Calls that were given up, at a stop or when ranks are started again, fail later: Ray would print each whole.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if not sys.stdout.isatty():
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")  # what Ray itself says, of a lost node for one
    # Ray 2.60 warns that this will become the default: actors with num_gpus=0 keep their view of the devices.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def driver_node() -> str:
    """The id of the node that this process is on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def close_token() -> None:
    """Ray lets everybody read the token that it makes: who may enter the home folder would have the run."""
    token = Path("~/.ray/auth_token").expanduser()
    with contextlib.suppress(OSError):  # there is none, or it is another user's
        if (mode := token.stat().st_mode) & 0o077:
            token.chmod(mode & 0o700)


def _own_log() -> str | None:
    """Where Ray's part of this process writes, and says last what ended it."""
    from ray._private.worker import global_worker

    name = f"python-core-driver-{global_worker.worker_id.hex()}_{os.getpid()}.log"
    return str(Path(global_worker.node.get_logs_dir_path()) / name) if global_worker.node is not None else None


def _address_of_node() -> str:
    """Of the cluster that this node is or was part of, which Ray keeps in a file. Raises BadInput without one."""
    from ray._private.services import get_ray_address_from_environment

    try:
        return str(get_ray_address_from_environment("auto", None))
    except (ConnectionError, OSError) as error:
        raise BadInput("no Ray cluster runs on this node: start one with `ray start`, or give an address") from error


def reachable(address: str) -> bool:
    """Ray itself would try for minutes. `ray://` addresses are left to it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return True
    try:
        socket.create_connection((host, int(port)), timeout=3).close()  # one packet there and back
    except OSError:
        return False
    return True
