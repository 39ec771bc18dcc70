"""A real server in this process, for tests: over a real socket, with simulated outages.

It has its own event loop and thread, so tests may be plain functions or coroutines, and a client
that blocks does not keep it from answering.
"""

import contextlib
import socket
import sys
import threading
import weakref
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from leasehold.basics.durations import check_seconds
from leasehold.testing.background_loop import ANSWER_S, Background
from leasehold.testing.relay import Wire

if TYPE_CHECKING:
    from datetime import timedelta

    import leasehold.sync
    from leasehold.basics.pending import Pending
    from leasehold.client.client import Client
    from leasehold.server.app import LeaseholdServer

HOST: Final = "127.0.0.1"

FROZEN_MAX_S: Final = 600.0
"""An aborted test leaves no thread behind for longer."""

AnyClient: TypeAlias = "Client | leasehold.sync.Client"

T = TypeVar("T")


class LocalServer:
    """A Leasehold server on a free port of 127.0.0.1, which keeps nothing on disk.

    with LocalServer() as server:
        client = leasehold.sync.connect(server.endpoint)

    While it is stopped or frozen, its port stays reserved. It may be used from any thread.
    """

    def __init__(self) -> None:
        """Start serving, with no keys and no leases."""
        self._place = _Place()
        self.port: int = self._place.port
        """The port, which stays the same."""
        self._thaw = threading.Event()
        self._thaw.set()
        self._is_closed = False
        self._wires: list[Wire] = []
        self._relaying: Background | None = None
        self._server: LeaseholdServer
        self._background = Background("leasehold server")
        try:
            self._background.ask(self._begin())
        except BaseException:
            self._background.close()
            self._place.close()
            raise

    @property
    def endpoint(self) -> str:
        """The address for clients, as `leasehold.connect` takes it."""
        return f"{HOST}:{self.port}"

    def connect(
        self,
        *,
        timeout: "float | timedelta | None" = None,
        session_ttl: "float | timedelta | None" = None,
        name: str | None = None,
    ) -> "Pending[Client]":
        """Return a client for the caller's own event loop, as `leasehold.connect` does.

        It has its own wire, so `disconnect` can cut it off.
        """
        from leasehold.basics.pending import Pending  # noqa: PLC0415
        from leasehold.client.connecting import connect  # noqa: PLC0415  it is long
        from leasehold.engine.time_limits import TIMEOUT_S  # noqa: PLC0415
        from leasehold.sessions.client_session import SESSION_TTL_S  # noqa: PLC0415

        timeout_s = TIMEOUT_S if timeout is None else check_seconds(timeout, "timeout")
        ttl_s = SESSION_TTL_S if session_ttl is None else check_seconds(session_ttl, "session_ttl")

        async def make() -> "Client":
            wire = self.wire()
            try:
                client = await connect(
                    wire.endpoint, timeout=timeout_s, session_ttl=ttl_s, name=name
                )
            except BaseException:
                wire.let_go()
                raise
            weakref.finalize(client, wire.let_go).atexit = False
            return client

        return Pending(make)

    # Faults of one client.

    def wire(self) -> Wire:
        """Return another address of this server, for one client, which may then be cut off.

        with server.wire() as wire, leasehold.sync.connect(wire.endpoint) as client:
            server.disconnect(client, 3.0)

        It is closed with the server, if not before.
        """
        self._check()
        if self._relaying is None:
            self._relaying = Background("leasehold wires")  # not the server's, which may be frozen
        wire = Wire(self.endpoint, background=self._relaying)
        self._wires = [each for each in self._wires if not each.is_closed]
        self._wires.append(wire)
        return wire

    def disconnect(
        self,
        client: AnyClient,
        seconds: "float | timedelta | None" = None,
        *,
        reset: bool = False,
    ) -> None:
        """Cut one client off, for some seconds or until `reconnect`, without effect on others.

        Nothing is closed or refused: its bytes do not arrive, in either direction, on existing and
        new connections. Its leases run on, and expire at their time. Its bytes arrive late; with
        `reset` its connections are reset when the seconds are over.

        It must be made by `connect`, or have the endpoint of a `wire`.
        """
        self.wire_of(client).cut(seconds=seconds, reset=reset)

    def reconnect(self, client: AnyClient, *, reset: bool = False) -> None:
        """Reconnect a client that was cut off: delayed bytes arrive first.

        With `reset` its connections are reset instead, and it makes new ones.
        """
        self.wire_of(client).mend(reset=reset)

    def wire_of(self, client: AnyClient) -> Wire:
        """Return the wire of a client: it can cut one direction, and hold connections."""
        self._check()
        endpoints = _endpoints_of(client)
        for wire in self._wires:
            if wire.endpoint in endpoints:
                return wire
        raise ValueError(
            f"a client of {', '.join(endpoints)} does not use a wire of {self!r}: make the client "
            "with connect(), or with the endpoint of its own wire()"
        )

    # Faults of the server.

    def stop(self) -> None:
        """Make the server unreachable: connections are closed, and new ones refused.

        Keys are kept. Leases run on, and expire at their time.
        """
        self._ask(self._server.leave())

    def start(self) -> None:
        """Serve again, on the same port."""
        self._ask(self._serve())

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Make the server unreachable while the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def hang_up(self) -> None:
        """Close all connections. New ones are accepted."""
        self._check()
        self._background.call(self._server.hang_up)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server while the block runs: connections are accepted, but not answered.

        Like a process that got SIGSTOP, or a machine that is swapping. No lease ages meanwhile.
        """
        frozen = threading.Event()

        def freeze() -> None:
            frozen.set()
            self._thaw.wait(FROZEN_MAX_S)

        self._thaw.clear()
        self._background.post(freeze)
        try:
            if not frozen.wait(ANSWER_S):
                raise TimeoutError(f"the server has not answered for {ANSWER_S:g} s")
            yield
        finally:
            self._thaw.set()

    def wipe(self) -> None:
        """Replace it by an empty server with another cluster id: as if its disk was lost."""
        self._ask(self._wipe())

    # Start and end.

    def close(self) -> None:
        """Close the server."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thaw.set()
        if self._relaying is not None:
            for wire in self._wires:
                wire.close()
            self._relaying.close()
        try:
            self._background.ask(self._end_server())
        finally:
            self._background.close()
            self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalServer {self.endpoint}{', closed' if self._is_closed else ''}>"

    # In its thread.

    async def _begin(self) -> None:
        self._server = _new_server()
        await self._serve()

    async def _serve(self) -> None:
        await self._server.start(HOST, self.port)

    async def _wipe(self) -> None:
        await self._end_server()
        self._server = _new_server()
        await self._serve()

    async def _end_server(self) -> None:
        await self._server.leave()  # otherwise it would wait for open streams
        await self._server.close()

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check()
        except RuntimeError:
            work.close()
            raise
        return self._background.ask(work)

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} is closed: make another one")


class _Place:
    """A port that stays reserved while the server is stopped.

    Another process could get it otherwise. Where a bound socket prevents another one from
    listening, which is so everywhere but on Linux, it is closed.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def _new_server() -> "LeaseholdServer":
    from leasehold.server.app import LeaseholdServer  # noqa: PLC0415  it is long
    from leasehold.server.settings import Settings  # noqa: PLC0415

    return LeaseholdServer(Settings(directory=None))


def _endpoints_of(client: AnyClient) -> tuple[str, ...]:
    """Return the endpoints of a client."""
    from leasehold import sync  # noqa: PLC0415  it is long
    from leasehold.client.client import Client  # noqa: PLC0415
    from leasehold.engine.remote.remote_engine import RemoteEngine  # noqa: PLC0415

    on_loop = client._client if isinstance(client, sync.Client) else client  # noqa: SLF001
    if not isinstance(on_loop, Client):
        raise TypeError(f"client must be a leasehold client, sync or not, not {client!r}")
    if not isinstance(on_loop.engine, RemoteEngine):
        raise ValueError(f"{client!r} has no server: it was made with open(), not with connect()")
    return on_loop.engine.endpoints
