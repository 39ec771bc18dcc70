"""A server of gRPC: methods on addresses, from the first connection to the last.

    async with Server({"/demo.Greeter/Hello": one_to_one(hello)}) as server:
        await server.start([parse_address("127.0.0.1:50051")])
        await server.wait_closed()

It is closed in good order: no new connections, no new calls, an end for those that there are, each
with a time after which nobody is waited for.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Self

from leasehold.errors import Status
from leasehold.rpc.addresses import Address
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.limits import Limits
from leasehold.rpc.listening import Listening, listen
from leasehold.rpc.pages import Pages
from leasehold.rpc.routes import Methods
from leasehold.rpc.server import MAX_CONNECTIONS, ServerProtocol, Site

DRAIN_CALLS_S: Final = 3.0
"""How long closing waits for calls under way to end, and for clients to hear of it."""

PART_S: Final = 10.0
"""How long closing waits for clients to take their last answers."""

STOPPED: Final = "the server is stopping"


def _nothing() -> None:
    """Do nothing on entry from the event loop."""


class Server:
    """Serves methods, and pages for those who speak plain HTTP.

    `gate` holds answers back that have to wait for something, and `enter` is called first on each
    entry from the event loop.
    """

    def __init__(
        self,
        methods: Methods,
        *,
        pages: Pages | None = None,
        gate: Gate | None = None,
        enter: Callable[[], None] = _nothing,
        limits: Limits | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._site = Site(
            methods,
            pages or {},
            Gate() if gate is None else gate,  # an empty gate is false
            enter,
            limits or Limits(),
            max_connections,
        )
        self._listening: list[Listening] = []
        self._closed = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._site.connections)

    async def bind(self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None) -> None:
        """Take addresses, all with TLS or none, without serving there yet."""
        if not addresses:
            raise ValueError("a server needs at least one address, such as 127.0.0.1:2379")
        try:
            for address in addresses:
                listening = await listen(lambda: ServerProtocol(self._site), address, tls)
                self._listening.append(listening)
        except BaseException:
            self._stop_listening()
            raise

    async def start(
        self, addresses: Sequence[Address] = (), tls: ssl.SSLContext | None = None
    ) -> list[Address]:
        """Begin to serve, also where `bind` was called for; return all addresses."""
        if addresses or not self._listening:
            await self.bind(addresses, tls)
        for each in self._listening:
            await each.start()
        return [address for each in self._listening for address in each.addresses]

    async def wait_closed(self) -> None:
        """Wait until the server is closed."""
        await self._closed.wait()

    # How it ends, step by step.

    async def close(self) -> None:
        """End in good order."""
        await self.stop_taking()
        await self.part(STOPPED)

    async def stop_taking(self) -> None:
        """Take no more connections and calls; wait a while for those that end by themselves."""
        self._stop_listening()
        await self._site.drain(DRAIN_CALLS_S)
        for connection in list(self._site.connections):
            connection.stop_listening()

    def _stop_listening(self) -> None:
        for each in self._listening:
            each.close()
        self._listening.clear()

    async def part(self, why: str) -> None:
        """End all calls, and close all connections, each once it has its answers."""
        for connection in list(self._site.connections):
            connection.good_bye(RpcError(Status.UNAVAILABLE, why))
        try:
            async with asyncio.timeout(PART_S):
                await self._site.all_gone()
        except TimeoutError:
            self.cut_off()
        self._closed.set()

    def cut_off(self) -> None:
        """Close all connections at once: what was not written must not be."""
        for connection in list(self._site.connections):
            connection.cut_off()
        self._closed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
