"""The looks at what lies between nodes: ports, packets, folders, bandwidth. Pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launch.tools.doctor.facts import ClusterFacts, Wanted
from launch.tools.doctor.findings import Finding, with_cure

SLOW = 0.02  # GB/s: no link of 1 Gbit/s gives less, also where the processors are busy


def look_at_ports(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """One line a node: a firewall is one of a node, for all peers."""
    closed = {each.target: each for each in facts.reaches if each.state == "closed"}
    for node, each in closed.items():
        what = f"a port that a program opens there is not reached from {each.source}"
        cure = "let the nodes of the cluster reach each other on all ports (security group, firewall, network policy)"
        yield Finding("ports", "error", what, cure, node)
    if facts.reaches and not closed:
        yield Finding("ports", "ok", "a port that a program opens is reached from the other nodes")


def look_at_packets(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    links = {node.address: node.interface for node in facts.nodes if node.interface is not None}
    stalled = {frozenset((each.source, each.target)): each for each in facts.reaches if each.state == "stalled"}
    for each in stalled.values():
        name, mtu = links.get(each.source) or ("its interface", 1500)
        what = f"packets of {each.packet:,} bytes from {each.source} are lost, small ones arrive ({name}, MTU {mtu})"
        cure = f"set the MTU to what the whole path carries (ip link set dev {name} mtu ...), or mend the switch"
        yield Finding("packets", "error", what, cure, each.target)
    arrived = [each for each in facts.reaches if each.state == "reached"]
    if arrived and not stalled:
        named = sorted({f"{name} (MTU {mtu})" for name, mtu in links.values()})
        over = f" over {', '.join(named)}" if named else ""
        yield Finding("packets", "ok", f"packets of {max(each.packet for each in arrived):,} bytes arrive{over}")


def look_at_sharing(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    if facts.unshared is None:
        if facts.network:
            yield Finding("shared folder", "skipped", "shared folder: give --run-dir to have it looked at")
        return
    for node, why in facts.unshared.items():
        cure = "mount the same volume on every node; for NFS lookupcache=none shortens the wait"
        yield with_cure("shared folder", why, cure, node)
    if not facts.unshared:
        yield Finding("shared folder", "ok", f"{wanted.run_dir} is one folder on all nodes")


def look_at_bandwidth(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """The slowest direction stands for the rest."""
    for each in facts.transfers:
        if each.seconds is None:
            cure = "see the log of the probes in the Ray dashboard"
            what = f"weights from {each.source} do not arrive: {each.problem}"
            yield Finding("bandwidth", "error", what, cure, each.target)
    done = [(each.size / each.seconds / 1e9, each) for each in facts.transfers if each.seconds]
    if not done:
        return
    rate, slowest = min(done, key=lambda pair: pair[0])
    what = f"weights {slowest.source} -> {slowest.target}: {slowest.size / 1e6:.0f} MB in {slowest.seconds:.2f} s"
    what += f" ({rate:.2g} GB/s), digest equal"
    version = wanted.weights or 0
    takes = version / rate / 1e9
    if version > slowest.size:
        what += f"; a version of {version / 1e9:.3g} GB would take {takes:.0f} s"
    cure = "a link of 100 Mbit/s, a shaped one, or the wrong interface: see cluster.service_host and ethtool"
    if wanted.deadline_s is not None and takes > wanted.deadline_s:
        what += f", longer than loop.publish_deadline_s={wanted.deadline_s:g}"
        yield Finding("bandwidth", "error", what, cure)
    elif rate < SLOW:
        yield Finding("bandwidth", "error", f"{what}: below {SLOW:g} GB/s", cure)
    else:
        yield Finding("bandwidth", "ok", what)


def look_at_collectives(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    found = facts.collective
    if found is None:
        return
    if found.gbps is None:
        cure = "gloo takes the interface of the node's address: GLOO_SOCKET_IFNAME in cluster.env names another"
        yield Finding("collectives", "error", f"collectives over {found.ranks} nodes (gloo): {found.problem}", cure)
        return
    what = f"collectives over {found.ranks} nodes (gloo): an all-reduce moves {found.gbps:.2g} GB/s"
    yield Finding("collectives", "ok", what)


def look_at_store(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    for each in facts.stored:
        if each.seconds is None:
            cure = "Ray's object managers reach each other on --object-manager-port: open it, and see the raylet's log"
            what = f"an object of its store is not read: {each.problem}"
            yield Finding("object store", "error", what, cure, each.source)
    done = [each for each in facts.stored if each.seconds is not None]
    if done and len(done) == len(facts.stored):
        slowest = max(done, key=lambda each: each.seconds or 0.0)
        what = f"object store: {slowest.size / 2**20:.0f} MiB from every node, the slowest in {slowest.seconds:.2f} s"
        yield Finding("object store", "ok", what)


def look_at_what_was_left_out(facts: ClusterFacts, wanted: Wanted) -> Iterator[Finding]:
    """Where a measurement would only repeat what another line says, or would kill its probe."""
    if not facts.network or (facts.transfers and facts.collective is not None):
        return
    blocked = any(each.state != "reached" for each in facts.reaches)
    if blocked or not facts.reaches:
        what = "object store, weights and collectives: mend the lines above first"
    else:
        what = "object store and weights: /dev/shm has no room for what would be sent"
    yield Finding("left out", "skipped", what)


LINKS: tuple[Callable[[ClusterFacts, Wanted], Iterator[Finding]], ...] = (
    look_at_ports,
    look_at_packets,
    look_at_sharing,
    look_at_store,
    look_at_bandwidth,
    look_at_collectives,
    look_at_what_was_left_out,
)
