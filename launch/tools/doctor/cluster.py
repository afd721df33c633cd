"""Ask every node of a running Ray cluster, and measure what lies between them. Every call has a deadline."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from launch.driver.run.nodes import name_node
from launch.driver.run.shared_folders import check_answers, mark_folders
from launch.tools.doctor.facts import Collective, NodeFacts, Reach, StoredObject, Transfer
from launch.tools.doctor.node import DoctorProbe, ServedFile
from launch.tools.doctor.probe import Request
from launch.tools.doctor.wire import reach
from rlsys import VERSION
from rlsys.errors import BadInput, describe_error
from rlsys.system.calls import call, reason

T = TypeVar("T")

CLOSE_S = 5.0  # for probes to end; Ray ends them with the command
SECONDS = "--seconds"
OBJECT_BYTES = 16 * 2**20  # a part of a batch: enough for a rate, and free in every store
THREADS = 4  # of a probe: one that hangs holds up no other call


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    address: str
    port: int  # of its node manager
    name: str  # the address or, of several nodes on one machine, with the id


@dataclass(frozen=True, slots=True)
class Probe:
    node: Node
    actor: Any

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    reaches: tuple[Reach, ...] = ()
    stored: tuple[StoredObject, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    collective: Collective | None = None


def list_nodes() -> list[Node]:
    """Those that live, the driver's first."""
    import ray

    driver_id = ray.get_runtime_context().get_node_id()
    alive = [entry for entry in ray.nodes() if entry["Alive"]]
    alive.sort(key=lambda entry: (entry["NodeID"] != driver_id, entry["NodeManagerAddress"]))
    count = Counter(entry["NodeManagerAddress"] for entry in alive)
    nodes = []
    for entry in alive:
        node, address = entry["NodeID"], entry["NodeManagerAddress"]
        name = address if count[address] == 1 else f"{address}#{node[:6]}"
        nodes.append(Node(node, address, entry["NodeManagerPort"], name))
    return nodes


async def check_ports(nodes: Sequence[Node]) -> list[Reach]:
    """Connect to Ray's own port on every other node: no probe can be started on one where this fails."""
    knocks = [asyncio.to_thread(reach, node.address, node.port) for node in nodes[1:]]
    outcomes = await asyncio.gather(*knocks)
    return [Reach(nodes[0].name, node.name, *outcome) for node, outcome in zip(nodes[1:], outcomes, strict=True)]


def start_probe(node: Node, env_vars: dict[str, str], secret_env: Mapping[str, str]) -> Probe:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor = (
        ray.remote(DoctorProbe)
        .options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=THREADS,
            runtime_env={"env_vars": env_vars},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.id, soft=False),
        )
        .remote(node.address, secret_env)
    )
    return Probe(node, actor)


async def ask_facts(probe: Probe, request: Request, seconds: float) -> NodeFacts | str:
    """What a node reports, or why it reports nothing. The probe has `seconds`, its start as long again."""
    from ray.exceptions import RayError

    node_query = replace(request, address=probe.node.address)
    try:
        facts: NodeFacts = await call(
            probe.actor.collect.remote(VERSION, node_query, seconds), "the probe there", 2 * seconds + CLOSE_S, SECONDS
        )
        return replace(facts, address=probe.name, clock_s=await measure_clock(probe, seconds))
    except RayError as error:
        return str(name_node("", error)).removeprefix(": ")
    except Exception as error:  # fault boundary: what a node does to its probe is a line of the report
        return describe_error(error)


async def measure_clock(probe: Probe, seconds: float) -> float:
    """How far its clock is ahead of this one's: of three answers the one that came quickest."""
    answers = []
    for _ in range(3):
        before, began = time.time(), time.monotonic()
        node_time = await call(probe.actor.clock.remote(), "its clock", seconds, SECONDS)
        took = time.monotonic() - began
        answers.append((took, node_time - (before + took / 2)))
    return float(min(answers)[1])


async def check_sharing(folder: Path, key: str, probes: Sequence[Probe], seconds: float) -> dict[str, str]:
    """Nodes where the folder is not the driver's, with the reason. Raises BadInput where the driver cannot write."""
    unshared: dict[str, str] = {}
    with mark_folders([(key, folder)]) as marks:

        async def ask(probe: Probe) -> None:
            node_marks = [replace(mark, file=f"{mark.file} {probe.name}") for mark in marks]
            try:
                await call(probe.actor.answer.remote(node_marks), f"{key} there", seconds, SECONDS)
                await asyncio.to_thread(check_answers, marks, [probe.name])
            except Exception as error:  # fault boundary: a folder can hang, too
                unshared[probe.name] = _error_text(error)

        await asyncio.gather(*map(ask, probes))
    return unshared


async def measure(probes: Sequence[Probe], weights_dir: str | None, seconds: float, *, room: bool) -> Measured:
    """Ports first: where one is closed, nothing else is tried. Neighbours of a ring stand for all pairs.

    room: whether every node has some for what is sent: Ray's store and the carrier write into /dev/shm, and a process
    that writes where there is none is killed.
    """
    pairs = sorted({pair for a, b in _ring(probes) for pair in ((a, b), (b, a))})
    doors = await asyncio.gather(*(_await(probe.actor.open_door.remote(), "a port", seconds) for probe in probes))
    calls = [_reach(probes[a], probes[b], doors[b], seconds) for a, b in pairs]
    reaches = tuple(await asyncio.gather(*calls))
    if any(reach.state != "reached" for reach in reaches):
        return Measured(reaches=reaches)
    stored = tuple([await _read_object(probe, seconds) for probe in probes[1:]]) if room else ()
    transfers = await _measure_transfers(probes, pairs, weights_dir, seconds) if room else ()
    collective = await _all_reduce(probes, seconds)
    return Measured(reaches=reaches, stored=stored, transfers=transfers, collective=collective)


def _ring(probes: Sequence[Probe]) -> list[tuple[int, int]]:
    count = len(probes)
    return [(number, (number + 1) % count) for number in range(count if count > 2 else count - 1)]


async def _await(ref: Any, label: str, seconds: float) -> Any:
    """The answer, or the reason why there is none, as an exception that is returned."""
    try:
        return await call(ref, label, seconds, SECONDS)
    except Exception as error:  # fault boundary: a line of the report
        return error


async def _reach(source: Probe, target: Probe, port: Any, seconds: float) -> Reach:
    if not isinstance(port, int):
        return Reach(source.name, target.name, "closed")
    outcome = await _await(source.actor.reach.remote(target.node.address, port), "a connection", seconds)
    return Reach(source.name, target.name, *(("closed", 0) if isinstance(outcome, Exception) else outcome))


async def _read_object(probe: Probe, seconds: float) -> StoredObject:
    began = time.monotonic()
    outcome = await _await(probe.actor.make_object.remote(OBJECT_BYTES), "an object of its store", seconds)
    if isinstance(outcome, Exception):
        return StoredObject(probe.name, OBJECT_BYTES, None, _error_text(outcome))
    return StoredObject(probe.name, OBJECT_BYTES, time.monotonic() - began)


async def _measure_transfers(
    probes: Sequence[Probe], pairs: Sequence[tuple[int, int]], weights_dir: str | None, seconds: float
) -> tuple[Transfer, ...]:
    """One after the other: two at once would share the link."""
    token = secrets.token_hex(16)
    serving = [probe.actor.serve_weights.remote(token, number, weights_dir) for number, probe in enumerate(probes)]
    served = await asyncio.gather(*(_await(ref, "a file of its carrier", seconds) for ref in serving))
    transfers = []
    for source, target in pairs:
        file, names = served[source], (probes[source].name, probes[target].name)
        if not isinstance(file, ServedFile):
            transfers.append(Transfer(*names, 0, None, _error_text(file)))
            continue
        took = await _await(probes[target].actor.fetch.remote(file, seconds), "the transfer", seconds + CLOSE_S)
        failed = isinstance(took, Exception)
        transfers.append(Transfer(*names, file.size, None if failed else took, _error_text(took) if failed else ""))
    return tuple(transfers)


async def _all_reduce(probes: Sequence[Probe], seconds: float) -> Collective:
    first = probes[0]
    port = await _await(first.actor.open_store.remote(), "a port to meet at", seconds)
    if isinstance(port, Exception):
        return Collective(len(probes), None, _error_text(port))
    refs = [
        probe.actor.all_reduce.remote(rank, len(probes), first.node.address, port, seconds)
        for rank, probe in enumerate(probes)
    ]
    outcomes = await asyncio.gather(*(_await(ref, "an all-reduce", 2 * seconds) for ref in refs))
    wrong = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
    return Collective(len(probes), None if wrong else min(outcomes), _error_text(wrong) if wrong else "")


def _error_text(error: Exception) -> str:
    cause = getattr(error, "cause", None)
    return str(cause) if isinstance(cause, BadInput) else reason(error)


@contextmanager
def closing(probes: Sequence[Probe]) -> Iterator[None]:
    """No probe stays behind, whatever happened."""
    import ray

    try:
        yield
    finally:
        for probe in probes:
            ray.kill(probe.actor)


async def close(probes: Sequence[Probe]) -> None:
    """Files and ports, in order."""
    await asyncio.gather(*(_await(probe.actor.close.remote(), "its end", CLOSE_S) for probe in probes))
