"""A server with leases on one simulated host, and engines for clients on others.

The server is the shipped `Landlord` with a disk that outlives it: after a restart each lease has
its full term again, as an etcd has it. Clients renew in one of two ways, as the remote engine does:
by calls for many leases at once, or by the shipped keep-alive stream, whose answers have no number.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from leasehold import DurationPolicy, Landlord
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.etcd_leases import KeepAlives
from leasehold.engine.values import (
    DeleteResult,
    Features,
    LeaseInfo,
    Limits,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import ConnectionLost, EndReason, LeaseExists, UnknownLease
from leasehold.testing import Connection, Host, Network
from leasehold.wire import rpc_pb2 as pb

LOST_S = 5.0
"""A call without an answer is given up then: its connection is taken to be lost."""

RECONNECT_S = 0.2
METHODS = ("grant", "renew_all", "revoke")


class Server:
    """Grants leases by numbers that clients choose, and has them on disk."""

    def __init__(
        self, network: Network, host: Host, on_ended: Callable[[int, EndReason], object]
    ) -> None:
        self.network = network
        self.host = host
        self.on_ended = on_ended
        self.disk: dict[int, float] = {}
        """The leases that are there, with their terms."""
        self._start()

    def _start(self) -> None:
        ids = list(self.disk)
        self._next = 0
        self._landlord: Landlord[int] = Landlord(
            DurationPolicy(maximum=3600.0, default=30.0),
            on_ended=self._ended,
            cookies=lambda: self._next,
            name="server",
            clock=self.host.clock,
        )
        for lease in ids:
            self.host.call(self._begin, lease, self.disk[lease])
        for name in METHODS:
            self.network.serve(self.host, name, getattr(self, name))
        self.network.listen(self.host, "keepalive", self._keep_alive)

    def crash(self) -> None:
        """End, in the middle of whatever it does."""
        self.host.crash()

    def restart(self) -> None:
        """Start again with what is on disk."""
        self.host.restart()
        self._start()

    def _begin(self, lease: int, ttl_s: float) -> None:
        self._next = lease
        self._landlord.grant(lease, ttl_s)

    def _ended(self, lease: int, reason: EndReason) -> None:
        del self.disk[lease]
        self.on_ended(lease, reason)

    # What clients ask.

    def grant(self, wanted: tuple[int, float]) -> float:
        """Begin a lease."""
        lease, ttl_s = wanted
        if lease in self.disk:
            raise LeaseExists(lease)
        self._begin(lease, ttl_s)
        self.disk[lease] = ttl_s
        return ttl_s

    def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases, each for itself."""
        wants = [(lease, self.disk.get(lease, 1.0)) for lease in leases]
        outcomes = dict(zip(leases, self._landlord.renew_all(wants).outcomes, strict=True))
        terms = {lease: each for lease, each in outcomes.items() if isinstance(each, float)}
        failures = {lease: each for lease, each in outcomes.items() if isinstance(each, Exception)}
        return Renewed(terms, failures)

    def revoke(self, lease: int) -> int:
        """End a lease."""
        self._landlord.cancel(lease)
        return 1

    async def _keep_alive(self, connection: Connection) -> None:
        try:
            while True:
                asked = pb.LeaseKeepAliveRequest.FromString(await connection.receive())
                term_s = self.renew_all([asked.ID]).terms.get(asked.ID, 0.0)
                answer = pb.LeaseKeepAliveResponse(ID=asked.ID, TTL=round(term_s))
                connection.send(answer.SerializeToString())
        except (OSError, EOFError):
            return


class FarEngine(Engine):
    """The leases of a server on another host; it has no keys."""

    limits = Limits()
    features = Features()

    def __init__(self, server: Server, host: Host, *, streams: bool) -> None:
        self._server = server
        self._host = host
        line = cast(Caller, _Line(server, host))
        self._streams = KeepAlives(line, host.clock) if streams else None

    @property
    def cluster_id(self) -> int:
        return 1

    def check(self) -> None:
        return

    def give_up_connection(self, why: str) -> None:
        if self._streams is not None:
            cast(_Line, self._streams._caller).hang_up(why)

    async def _call(self, name: str, payload: object) -> Any:
        server = self._server
        return await server.network.call(self._host, server.host, name, payload, timeout=LOST_S)

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        term_s = await self._call("grant", (lease, ttl))
        return LeaseInfo(lease, term_s, term_s, None, 0)

    async def renew(self, lease: int) -> float:
        renewed = await self.renew_all([lease])
        for error in renewed.failures.values():
            raise error
        return renewed.terms[lease]

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        wanted = list(leases)
        if self._streams is not None:
            return await self._streams.renew_all(wanted)
        renewed: Renewed = await self._call("renew_all", wanted)
        return renewed

    async def revoke(self, lease: int) -> int:
        revision: int = await self._call("revoke", lease)
        return revision

    async def close(self) -> None:
        if self._streams is not None:
            await self._streams.close()

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        raise UnknownLease(lease)

    async def leases(self) -> Sequence[LeaseInfo]:
        raise NotImplementedError

    async def range(self, key: bytes, end: bytes = b"", **_options: Any) -> RangeResult:
        raise NotImplementedError

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        raise NotImplementedError

    async def delete(self, key: bytes, end: bytes = b"", **_options: Any) -> DeleteResult:
        raise NotImplementedError

    async def txn(self, *_parts: Any, **_named: Any) -> TxnResult:
        raise NotImplementedError

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        raise NotImplementedError

    def watch(self, key: bytes, end: bytes = b"", **_options: Any) -> Watch:
        raise NotImplementedError


class _Line:
    """Just what the keep-alive stream asks of its caller, channel and history."""

    def __init__(self, server: Server, host: Host) -> None:
        self.channel = self.history = self
        self._server = server
        self._host = host
        self._connection: Connection | None = None

    def check_cluster_id(self, _cluster_id: int) -> None:
        return

    def hang_up(self, _why: str) -> None:
        if self._connection is not None:
            self._connection.close()

    async def settle_in(self) -> None:
        """There is one keyspace only."""

    def leave_if_useless(self, _error: BaseException) -> None:
        """There is one server only."""

    @asynccontextmanager
    async def stream(self, *_args: object, **_named: object) -> "AsyncIterator[_Call]":
        self._connection = connection = await self._connect()
        try:
            yield _Call(connection)
        finally:
            self._connection = None
            connection.close()

    async def _connect(self) -> Connection:
        server = self._server
        while True:
            try:
                return await server.network.connect(self._host, server.host, "keepalive")
            except OSError:
                await asyncio.sleep(RECONNECT_S)


class _Call:
    """A stream of messages over a simulated connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        try:
            self._connection.send(message)
        except (OSError, EOFError) as error:
            raise ConnectionLost(str(error)) from error

    async def receive(self) -> bytes:
        try:
            message: bytes = await self._connection.receive()
        except (OSError, EOFError) as error:
            raise ConnectionLost(str(error)) from error
        return message
