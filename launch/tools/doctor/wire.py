"""Plain sockets between two nodes: whether a port is reached, and whether a packet of the full size arrives.

A full packet is sent alone and its arrival is read from the kernel's count of bytes that the other side has confirmed:
so any open port of the other node will do, whatever listens there.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time

CONNECT_S = 5.0  # several tries of a kernel: 1, 3 s
PACKET_S = 4.0  # several retransmissions: 0.2, 0.4, 0.8, 1.6 s
# A server of Ray's reads it whole before it finds out that what follows makes no sense, and breaks off.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = 40  # of IP and TCP, without options


class Door:
    """A port that a program opens, as services of a run do: it reads whatever is sent."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_server((address, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits, which would keep the port open
        self._socket.close()


def _drain(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(CONNECT_S + PACKET_S)
        try:
            while connection.recv(65536):
                pass
        except OSError:
            pass


def reach(target: str, port: int) -> tuple[str, int]:
    """From this node to a port of another one: (`Reach.state`, bytes of the packet)."""
    try:
        connection = socket.create_connection((target, port), timeout=CONNECT_S)
    except OSError:
        return "closed", 0
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        full = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        small, large = _arrives(connection, GREETING[:1]), False
        if small:
            large = _arrives(connection, GREETING[1:].ljust(full, b"\0"))
        state = "reached" if large else "stalled" if small else "closed"
        return state, full + HEADERS


def _arrives(connection: socket.socket, content: bytes) -> bool:
    """Whether the other side's kernel confirms these bytes. One that breaks off has had them."""
    try:
        connection.sendall(content)
        until = time.monotonic() + PACKET_S
        while _unconfirmed(connection) and not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)  # of PACKET_S
    except (BrokenPipeError, ConnectionResetError):
        pass
    return True


def _unconfirmed(connection: socket.socket) -> int:
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))  # SIOCOUTQ, of a TCP socket
    return int(struct.unpack("i", answer)[0])
