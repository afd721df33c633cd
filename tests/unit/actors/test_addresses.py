"""What `cluster.service_host` means on a node."""

from __future__ import annotations

import socket

import pytest

from actors.addresses import Listening, free_port, interfaces, resolve_listen_address
from rlsys.errors import BadInput
from tests.refused import refused

NODE, HAS = "10.0.3.7", {"lo": "127.0.0.1", "ib0": "192.168.9.7"}


@pytest.mark.parametrize(
    ("host", "bind", "announce"),
    [
        (None, NODE, NODE),
        ("0.0.0.0", "0.0.0.0", NODE),
        ("::", "::", NODE),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("ib0", "192.168.9.7", "192.168.9.7"),
        ("192.168.9.7", "192.168.9.7", "192.168.9.7"),
    ],
)
def test_what_is_bound_and_what_is_announced(host: str | None, bind: str, announce: str) -> None:
    assert resolve_listen_address(host, NODE, HAS) == Listening(bind=bind, announce=announce)


def test_no_interface_and_no_address() -> None:
    with refused("cluster.service_host", found="eth7"):
        resolve_listen_address("eth7", NODE, HAS)
    assert interfaces()["lo"] == "127.0.0.1"


def test_an_address_as_a_url() -> None:
    assert Listening(bind="::", announce="fd00::7").url(80) == "http://[fd00::7]:80"


def test_the_earlier_port_where_it_was_here_and_is_free() -> None:
    interface = Listening(bind="127.0.0.1", announce="127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert free_port(interface, interface.url(port)) == 0  # somebody has it
    assert free_port(interface, interface.url(port)) == port
    assert free_port(interface, f"http://10.0.3.8:{port}") == 0  # of another node
    assert free_port(interface, "") == 0


def test_an_address_of_another_machine_cannot_be_taken() -> None:
    with refused(where="cluster.service_host", says="192.0.2.1 on node 192.0.2.1: Cannot assign") as caught:
        free_port(Listening(bind="192.0.2.1", announce="192.0.2.1"), "")
    assert "Errno" not in str(caught.value)  # the system's words, not its number
    with pytest.raises(BadInput):  # and a port that was there before is no port of this machine
        free_port(Listening(bind="192.0.2.1", announce="192.0.2.1"), "http://192.0.2.1:40001")
