"""A gRPC server: methods on addresses, from the first connection to the last.

    async with GrpcServer({"/demo.Greeter/Hello": one_to_one(hello)}) as server:
        await server.start(["127.0.0.1:50051"])
        await server.wait_closed()

It is closed gracefully: no new connections, no new calls, then the end of the current calls,
each step with a timeout.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, is_local, parse_address
from leasehold.errors import Closed, Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import HttpHandler, Pages, PagesOnly
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange, Methods, Subscription
from leasehold.http2.limits import ConnectionLimits
from leasehold.serving.admission import connections_for, open_files
from leasehold.serving.listening import ListeningSockets, listen
from leasehold.serving.server_protocol import ServerProtocol, SharedState

DRAIN_CALLS_S: Final = 3.0
"""How long closing waits for calls under way to end, and for clients to acknowledge the GOAWAY."""

PART_S: Final = 10.0
"""How long closing waits for clients to read their last answers."""

_PATH: Final = re.compile(r"/[!-.0-~]+/[!-~]+")

STOPPED: Final = "the server is stopping"


def _check_methods(methods: Methods) -> None:
    """Raise for methods that cannot be called."""
    if not isinstance(methods, Mapping):
        raise TypeError(f"methods must be a dict from paths to methods, not {methods!r}")
    for path, method in methods.items():
        if not _PATH.fullmatch(str(path)):
            raise ValueError(
                f"the path of a method must look like '/package.Service/Method', got {path!r}"
            )
        if not isinstance(method, Exchange | Subscription):
            raise TypeError(
                f"the method {path} is {method!r}: make one with Exchange, Subscription, "
                "one_to_one, one_to_many, many_to_one or conversation"
            )


def _check_addresses(addresses: object) -> None:
    if (
        isinstance(addresses, str)
        or not isinstance(addresses, Sequence)
        or not all(isinstance(each, str | TcpAddress | UnixAddress) for each in addresses)
    ):
        raise TypeError(f"addresses must be a list such as ['127.0.0.1:2379'], not {addresses!r}")


def check_local(addresses: Sequence[str]) -> None:
    """Raise ValueError if an address can be reached from other machines."""
    for address in addresses:
        if not is_local(parse_address(address)):
            raise ValueError(
                f"{address!r} can be reached from other machines: pass `tls` (an SSLContext of "
                "the server), or `insecure=True` if the network is trusted"
            )


def _check_tls(tls: object) -> None:
    if not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext such as server_tls(), not {tls!r}")


def _nothing() -> None:
    """The default of `enter`."""


class GrpcServer:
    """Serves methods, and pages for clients of plain HTTP.

    `gate` holds answers back that have to wait for something, and `enter` is called first on each
    entry from the event loop. `web`, if there is one, answers plain HTTP in the place of `pages`.
    Without `max_connections`, the limit on open files decides how many connections there may be.
    """

    def __init__(
        self,
        methods: Methods,
        *,
        pages: Pages | None = None,
        web: HttpHandler | None = None,
        gate: DurabilityGate | None = None,
        enter: Callable[[], None] = _nothing,
        limits: ConnectionLimits | None = None,
        max_connections: int | None = None,
    ) -> None:
        _check_methods(methods)
        self._state = SharedState(
            methods,
            PagesOnly(pages) if web is None else web,
            DurabilityGate() if gate is None else gate,  # an empty gate is false
            enter,
            limits or ConnectionLimits(),
            connections_for(open_files()) if max_connections is None else max_connections,
        )
        self._listening: list[ListeningSockets] = []
        self._started: set[ListeningSockets] = set()
        self._is_closing = False
        self._closed = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._state.connections)

    @property
    def received_bytes(self) -> int:
        """The total bytes received from clients."""
        return self._state.received_bytes

    @property
    def evicted_connections(self) -> int:
        """How many connections were closed so far to make room for others."""
        return self._state.admission.evicted

    @property
    def refused_connections(self) -> int:
        """How many connections were refused so far, because all were in use."""
        return self._state.admission.refused

    @property
    def sent_bytes(self) -> int:
        """The total bytes sent to clients."""
        return self._state.sent_bytes

    @property
    def addresses(self) -> list[Address]:
        """The bound addresses: numbers for names, and the ports that were chosen for 0."""
        return [address for each in self._listening for address in each.addresses]

    async def bind(
        self, addresses: Sequence[Address | str], tls: ssl.SSLContext | None = None
    ) -> None:
        """Bind addresses, all with TLS or none, without serving there yet."""
        _check_addresses(addresses)
        if tls is not None:
            _check_tls(tls)
        if not addresses:
            raise ValueError("a server needs at least one address, such as 127.0.0.1:2379")
        if self._is_closing:
            raise Closed("this server was closed; make another one")
        bound: list[ListeningSockets] = []
        state = self._state
        try:
            for each in addresses:
                address = parse_address(each) if isinstance(each, str) else each
                bound.append(await listen(self._protocol, address, tls, slots=state.admission))
        except BaseException:
            for listening in bound:
                listening.close()
            raise
        self._listening += bound

    def _protocol(self) -> ServerProtocol:
        return ServerProtocol(self._state, has_slot=True)

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another context for new connections, on all addresses with TLS."""
        _check_tls(tls)
        for each in self._listening:
            each.replace_tls(tls)

    async def start(
        self, addresses: Sequence[Address | str] = (), tls: ssl.SSLContext | None = None
    ) -> list[Address]:
        """Begin to serve, also on addresses of earlier calls of `bind`; return all addresses.

        It may be called again for further addresses, for example some with TLS and some without.
        """
        if addresses or not self._listening:
            await self.bind(addresses, tls)
        for each in self._listening:
            if each not in self._started:
                self._started.add(each)
                await each.start()
        return self.addresses

    async def wait_closed(self) -> None:
        """Wait until the server is closed."""
        await self._closed.wait()

    # Closing, step by step.

    async def close(self) -> None:
        """Stop listening, wait for calls under way, and close all connections."""
        await self.stop_taking()
        await self.part(STOPPED)

    async def stop_taking(self) -> None:
        """Accept no more connections and calls; wait a while for those with `ends_by_itself`."""
        self._stop_listening()
        await self._state.drain(DRAIN_CALLS_S)
        for connection in list(self._state.connections):
            connection.stop_listening()

    def _stop_listening(self) -> None:
        self._is_closing = True
        for each in self._listening:
            each.close()
        self._listening.clear()

    async def part(self, why: str) -> None:
        """End all calls, and close each connection once it has its answers."""
        for connection in list(self._state.connections):
            connection.good_bye(RpcError(Status.UNAVAILABLE, why))
        try:
            async with asyncio.timeout(PART_S):
                await self._state.all_gone()
        except TimeoutError:
            self.cut_off()
        self._closed.set()

    def cut_off(self) -> None:
        """Close all connections immediately: unwritten output must not be sent."""
        self.hang_up()
        self._closed.set()

    # Going away for a while.

    async def leave(self) -> None:
        """Unbind all addresses, and cut all connections: `start` may be called again."""
        leaving = self._listening.copy()
        for each in leaving:
            each.close()
        for each in leaving:
            await each.wait_closed()
        self._listening.clear()
        self._started.clear()
        self.hang_up()

    def hang_up(self) -> None:
        """Cut all connections. Clients may connect again."""
        for connection in list(self._state.connections):
            connection.cut_off()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
