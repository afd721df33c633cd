"""On a node: what there is to be reported of it. Nothing is judged here, and nothing that hangs holds up the rest."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil

from actors.addresses import interfaces
from envs import make_world, new_player
from envs.tools.sandbox import SandboxConfig
from envs.tools.sandbox.pool import probe as probe_sandbox
from launch.checks import hub, machine
from launch.checks.software import look_at_software
from launch.driver.checkpoints.disk_space import nearest_folder
from launch.driver.run.nodes import NodeRequirements, check_node
from launch.tools.doctor.facts import Cards, Limits, NodeFacts, Space
from rlsys.errors import BadInput, describe_error
from rlsys.system import memory
from rlsys.system.card_memory import ask_cards

T = TypeVar("T")

CARDS_S = 20.0  # a driver that is being loaded takes seconds for each card


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every node is asked."""

    address: str  # of the node that is asked, as Ray knows it
    local: bool  # whether this is the user's own process, and no cluster
    weights_dir: str | None = None
    disk: str = "."
    needs: Mapping[str, NodeRequirements] = field(default_factory=dict)  # of the config, by kind


def read_space(path: Path) -> Space:
    path = nearest_folder(path)
    usage, inodes = shutil.disk_usage(path), os.statvfs(path)
    return Space(path=str(path), free=usage.free, total=usage.total, inodes=inodes.f_favail if inodes.f_files else None)


def read_limits(request: Request) -> Limits:
    def read_soft_limit(kind: int) -> int | None:
        limit = resource.getrlimit(kind)[0]
        return None if limit == resource.RLIM_INFINITY else limit

    return Limits(
        files=read_soft_limit(resource.RLIMIT_NOFILE),
        processes=read_soft_limit(resource.RLIMIT_NPROC),
        locked_bytes=read_soft_limit(resource.RLIMIT_MEMLOCK),
        pids=_pids_max(),
    )


def _pids_max() -> int | None:
    """Of this process's control group, version 2 or 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if kinds and "pids" not in kinds.split(","):
            continue
        file = Path("/sys/fs/cgroup") / ("pids" if kinds else "") / group.lstrip("/") / "pids.max"
        try:
            return int(file.read_text())
        except (OSError, ValueError):  # "max", or no such file in this container's view
            continue
    return None


def read_walls(request: Request) -> dict[str, str]:
    layers = asyncio.run(probe_sandbox(SandboxConfig(preload=[])))
    return {layer.name: layer.remark for layer in layers if not layer.active}


def read_interface(request: Request) -> tuple[str, int] | None:
    name = next((name for name, address in interfaces().items() if address == request.address), None)
    return (name, psutil.net_if_stats()[name].mtu) if name else None


def read_cards(request: Request) -> Cards:
    if not machine.has_driver():
        return Cards(count=0)
    cards = ask_cards(CARDS_S, holders=False)
    return Cards(
        count=len(cards),
        names=tuple(sorted({card.name for card in cards})),
        driver=machine.driver_release(),
        problem=machine.cuda_unusable(),
        ecc_errors=sum(card.ecc_errors for card in cards),
    )


def read_needs(request: Request) -> dict[str, str]:
    """What the checks of a run say, by kind: an empty text where nothing is wrong."""
    problems = {}
    for kind, needs in request.needs.items():
        try:
            check_node(needs, (), make_world if request.local else new_player)
            for key, path in needs.models:
                if not Path(path).is_dir():
                    hub.require(path, f"{key}={path!r}")
            problems[kind] = ""
        except BadInput as error:
            problems[kind] = str(error)
    return problems


READERS: Mapping[str, Callable[[Request], Any]] = {
    "software": lambda _: look_at_software(),
    "memory": lambda request: read_space(memory.memory_root(request.weights_dir)),
    "disk": lambda request: read_space(Path(request.disk)),
    "limits": read_limits,
    "walls": read_walls,
    "interface": read_interface,
    "cards": read_cards,
    "auth": lambda _: os.environ.get("RAY_AUTH_MODE", "unset"),
    "needs": read_needs,
}


def collect(
    request: Request, deadline_s: float, readers: Mapping[str, Callable[[Request], Any]] = READERS
) -> NodeFacts:
    """All parts at once; one that hangs or breaks is named in `failed`."""
    facts, failed = read_all({part: partial(reader, request) for part, reader in readers.items()}, deadline_s)
    return NodeFacts(address=request.address, **facts, failed=failed)


def read_all(readers: Mapping[str, Callable[[], T]], deadline_s: float) -> tuple[dict[str, T], dict[str, str]]:
    """(what they return, why others do not), by name. One that does not end in time stays where it hangs."""
    results: dict[str, T] = {}
    failed: dict[str, str] = {}

    def read(name: str, reader: Callable[[], T]) -> None:
        try:
            results[name] = reader()
        except Exception as error:  # fault boundary: whatever a machine has in store for us is a line of the report
            failed[name] = describe_error(error)

    threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in readers.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    ready, broken = dict(results), dict(failed)
    late = {name: f"no answer after {deadline_s:g} s" for name in readers if name not in ready and name not in broken}
    return ready, broken | late
