"""A relay between clients and a server, which counts the traffic.

Two threads carry each connection. That costs time, so nothing is timed through it. This is run in
the environments of other clients too, so it needs nothing but Python.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Final

from benchmarks.locks.messages import PROTOCOLS, Messages

CHUNK: Final = 65536


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has gone through so far: messages of the clients, and bytes of both sides."""

    messages: int
    sent: int
    received: int

    def since(self, before: "Traffic") -> "Traffic":
        """What was added."""
        return Traffic(
            self.messages - before.messages,
            self.sent - before.sent,
            self.received - before.received,
        )


class Relay:
    """Listens on a port of its own, and passes on what comes."""

    def __init__(self, server_port: int, protocol: str) -> None:
        self._server = ("127.0.0.1", server_port)
        self._protocol = PROTOCOLS[protocol]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._counted: list[Messages] = []
        self._sent: list[int] = []
        self._received: list[int] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._start(self._accept)

    def traffic(self) -> Traffic:
        """The traffic so far; thread-safe."""
        return Traffic(
            sum(each.count for each in [*self._counted]), sum(self._sent), sum(self._received)
        )

    def close(self) -> None:
        """End all connections, and wait until all copying tasks have ended."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting task
        self._threads[0].join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                server = socket.create_connection(self._server)
                self._sockets.append(server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connect(client, server)

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        messages = self._protocol()
        self._counted.append(messages)

        def sent(data: bytes) -> None:
            messages.feed(data)
            self._sent.append(len(data))

        def received(data: bytes) -> None:
            self._received.append(len(data))

        self._start(lambda: _carry(client, server, sent))
        self._start(lambda: _carry(server, client, received))


def _carry(one: socket.socket, other: socket.socket, count: Callable[[bytes], None]) -> None:
    """Pass on what one side sends until it ends, and let the other side see that it did."""
    with suppress(OSError):
        while data := one.recv(CHUNK):
            count(data)
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@contextmanager
def relaying(server_port: int, protocol: str) -> Iterator[Relay]:
    """Have a relay to a server."""
    relay = Relay(server_port, protocol)
    try:
        yield relay
    finally:
        relay.close()
