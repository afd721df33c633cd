"""The looks at what lies between nodes: ports, packets, folders, bandwidth. Pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launch.tools.doctor.facts import ClusterFacts, Wanted
from launch.tools.doctor.findings import Finding, make_finding

SLOW = 0.02  # GB/s: no link of 1 Gbit/s gives less, also where the processors are busy


def look_at_ports(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """One line a node: a firewall is one of a node, for all peers."""
    closed = {reach.target: reach for reach in facts.reaches if reach.state == "closed"}
    for node, reach in closed.items():
        text = f"a port that a program opens there is not reached from {reach.source}"
        cure = "let the nodes of the cluster reach each other on all ports (security group, firewall, network policy)"
        yield Finding("ports", "error", text, cure, node)
    if facts.reaches and not closed:
        yield Finding("ports", "ok", "a port that a program opens is reached from the other nodes")


def look_at_packets(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    links = {node.address: node.interface for node in facts.nodes if node.interface is not None}
    stalled = {frozenset((reach.source, reach.target)): reach for reach in facts.reaches if reach.state == "stalled"}
    for reach in stalled.values():
        name, mtu = links.get(reach.source) or ("its interface", 1500)
        text = f"packets of {reach.packet:,} bytes from {reach.source} are lost, small ones arrive ({name}, MTU {mtu})"
        cure = f"set the MTU to what the whole path carries (ip link set dev {name} mtu ...), or mend the switch"
        yield Finding("packets", "error", text, cure, reach.target)
    arrived = [reach for reach in facts.reaches if reach.state == "reached"]
    if arrived and not stalled:
        interfaces = sorted({f"{name} (MTU {mtu})" for name, mtu in links.values()})
        over = f" over {', '.join(interfaces)}" if interfaces else ""
        yield Finding("packets", "ok", f"packets of {max(reach.packet for reach in arrived):,} bytes arrive{over}")


def look_at_sharing(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    if facts.unshared is None:
        if facts.network:
            yield Finding("shared folder", "skipped", "shared folder: give --run-dir to have it looked at")
        return
    for node, why in facts.unshared.items():
        cure = "mount the same volume on every node; for NFS lookupcache=none shortens the wait"
        yield make_finding("shared folder", why, cure, node)
    if not facts.unshared:
        yield Finding("shared folder", "ok", f"{requirements.run_dir} is one folder on all nodes")


def look_at_bandwidth(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """The slowest direction stands for the rest."""
    for transfer in facts.transfers:
        if transfer.seconds is None:
            cure = "see the log of the probes in the Ray dashboard"
            text = f"weights from {transfer.source} do not arrive: {transfer.problem}"
            yield Finding("bandwidth", "error", text, cure, transfer.target)
    rates = [(transfer.size / transfer.seconds / 1e9, transfer) for transfer in facts.transfers if transfer.seconds]
    if not rates:
        return
    rate, slowest = min(rates, key=lambda pair: pair[0])
    text = f"weights {slowest.source} -> {slowest.target}: {slowest.size / 1e6:.0f} MB in {slowest.seconds:.2f} s"
    text += f" ({rate:.2g} GB/s), digest equal"
    version = requirements.weights or 0
    takes = version / rate / 1e9
    if version > slowest.size:
        text += f"; a version of {version / 1e9:.3g} GB would take {takes:.0f} s"
    cure = "a link of 100 Mbit/s, a shaped one, or the wrong interface: see cluster.service_host and ethtool"
    if requirements.deadline_s is not None and takes > requirements.deadline_s:
        text += f", longer than loop.publish_deadline_s={requirements.deadline_s:g}"
        yield Finding("bandwidth", "error", text, cure)
    elif rate < SLOW:
        yield Finding("bandwidth", "error", f"{text}: below {SLOW:g} GB/s", cure)
    else:
        yield Finding("bandwidth", "ok", text)


def look_at_collectives(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    result = facts.collective
    if result is None:
        return
    if result.gbps is None:
        cure = "gloo takes the interface of the node's address: GLOO_SOCKET_IFNAME in cluster.env names another"
        yield Finding("collectives", "error", f"collectives over {result.ranks} nodes (gloo): {result.problem}", cure)
        return
    text = f"collectives over {result.ranks} nodes (gloo): an all-reduce moves {result.gbps:.2g} GB/s"
    yield Finding("collectives", "ok", text)


def look_at_store(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    for entry in facts.stored:
        if entry.seconds is None:
            cure = "Ray's object managers reach each other on --object-manager-port: open it, and see the raylet's log"
            text = f"an object of its store is not read: {entry.problem}"
            yield Finding("object store", "error", text, cure, entry.source)
    arrived = [entry for entry in facts.stored if entry.seconds is not None]
    if arrived and len(arrived) == len(facts.stored):
        slowest = max(arrived, key=lambda entry: entry.seconds or 0.0)
        text = f"object store: {slowest.size / 2**20:.0f} MiB from every node, the slowest in {slowest.seconds:.2f} s"
        yield Finding("object store", "ok", text)


def look_at_skipped(facts: ClusterFacts, requirements: Wanted) -> Iterator[Finding]:
    """Measurements that were skipped: another line says why they would fail, or they would kill the probe."""
    if not facts.network or (facts.transfers and facts.collective is not None):
        return
    blocked = any(reach.state != "reached" for reach in facts.reaches)
    if blocked or not facts.reaches:
        text = "object store, weights and collectives: mend the lines above first"
    else:
        text = "object store and weights: /dev/shm has no room for what would be sent"
    yield Finding("left out", "skipped", text)


LINKS: tuple[Callable[[ClusterFacts, Wanted], Iterator[Finding]], ...] = (
    look_at_ports,
    look_at_packets,
    look_at_sharing,
    look_at_store,
    look_at_bandwidth,
    look_at_collectives,
    look_at_skipped,
)
