"""Where a service of a run listens, and the address that the other nodes get: `cluster.service_host`."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from rlsys.errors import BadInput

LOOPBACK = "127.0.0.1"
KEY = "cluster.service_host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Listening(bind="0.0.0.0", announce="10.0.3.7")"""

    bind: str  # the address that the server takes
    announce: str  # the address by which others reach it

    def url(self, port: int) -> str:
        host = f"[{self.announce}]" if ":" in self.announce else self.announce
        return f"http://{host}:{port}"


def resolve_listen_address(host: str | None, node: str, interfaces: Mapping[str, str]) -> Listening:
    """What `cluster.service_host` means on a node.

    host: None is the node's own address; an address of all interfaces (0.0.0.0, ::) is announced as the node's; any
    other is taken and announced; else the name of an interface. node: the address by which Ray knows the node.
    interfaces: their addresses by name. Raises BadInput for what is no address and no interface of this node.
    """
    if host is None:
        return Listening(bind=node, announce=node)
    if host in interfaces:
        return Listening(bind=interfaces[host], announce=interfaces[host])
    try:
        everywhere = ip_address(host).is_unspecified
    except ValueError:
        has = ", ".join(sorted(interfaces))
        raise BadInput(f"node {node} has no such interface (it has {has})", key=KEY, found=host) from None
    return Listening(bind=host, announce=node if everywhere else host)


def interfaces() -> dict[str, str]:
    """The IPv4 addresses of this machine's network interfaces."""
    import psutil

    return {
        name: address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET
    }


def free_port(place: Listening, earlier: str) -> int:
    """The port of the `earlier` url where it was here and is free again, else 0: any. Raises BadInput where this
    machine does not have the address.
    """
    earlier_port = urlsplit(earlier).port if earlier else None
    port = earlier_port if earlier_port is not None and place.url(earlier_port) == earlier else 0
    with socket.socket(socket.AF_INET6 if ":" in place.bind else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.bind, port))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port:
                return 0
            reason = error.strerror or str(error)
            raise BadInput(
                f"{place.bind} on node {place.announce}: {reason}",
                where=KEY,
                expected="an interface or an address of the node, or 0.0.0.0",
            ) from error
    return port


def only_node() -> bool:
    """Whether the cluster has never had another node than this one, so that loopback reaches every client."""
    import ray

    return len(ray.nodes()) <= 1
