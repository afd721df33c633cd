"""What probes report. Plain values: they come from other nodes, and the looks are pure functions of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launch.checks.software import Software


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    path: str
    free: int  # bytes
    total: int
    inodes: int | None  # that are free; None: the file system does not count them


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a process that Ray started there; None: no limit."""

    files: int | None
    processes: int | None
    locked_bytes: int | None
    pids: int | None  # of its control group


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    count: int
    names: tuple[str, ...] = ()
    driver: str | None = None
    problem: str | None = None  # why CUDA cannot be used there
    ecc_errors: int = 0  # that were not corrected, of all cards


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node. A part is None where its probe did not end or failed: `failed` says why."""

    address: str
    software: Software | None = None
    memory: Space | None = None  # where versions of the weights lie: /dev/shm, or cluster.weights_dir
    disk: Space | None = None  # of the run directory, else of the working folder
    limits: Limits | None = None
    walls: Mapping[str, str] | None = None  # of the sandbox: what is missing, and why
    interface: tuple[str, int] | None = None  # name and MTU in bytes
    cards: Cards | None = None
    auth: str | None = None  # RAY_AUTH_MODE
    needs: Mapping[str, str] | None = None  # of the config: what is not there, by kind, as one line each
    clock_s: float | None = None  # ahead of the driver's
    failed: Mapping[str, str] = field(default_factory=dict)  # reason by part


@dataclass(frozen=True, slots=True)
class Reach:
    """One direction between two nodes: a port that a program opened, and one packet of the full size."""

    source: str
    target: str
    state: str  # "reached", "closed" or "stalled": connected, and the full packet did not arrive
    packet: int = 0  # bytes of it


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes from one node to another, as weights travel."""

    source: str
    target: str
    size: int
    seconds: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Collective:
    ranks: int
    gbps: float | None  # that each rank moves in an all-reduce
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of Ray's store, made on one node and read on another."""

    source: str
    size: int
    seconds: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the config needs; all of it unknown where none was given."""

    config: str | None = None
    run_dir: str | None = None
    weights: int | None = None  # bytes of one version
    deadline_s: float | None = None  # for their delivery
    sandbox: bool | None = None  # whether an environment runs code; None: not known
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Everything that was found."""

    names: tuple[str, ...]  # of all nodes, the driver's first
    nodes: tuple[NodeFacts, ...]
    lost: Mapping[str, str] = field(default_factory=dict)  # nodes that gave no facts, with the reason
    reaches: tuple[Reach, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    stored: tuple[StoredObject, ...] = ()
    collective: Collective | None = None
    unshared: Mapping[str, str] | None = None  # nodes that do not share the run directory; None: not looked at
    disk: str = ""  # why the checkpoints have no room
    data: tuple[str, ...] = ()  # why environments of the config could not be made on the driver, a line each
    dashboard_port: str = ""  # why it cannot be had
    wandb: str = "offline"
    network: bool = False  # whether there is more than one node
