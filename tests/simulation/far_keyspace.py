"""An engine for simulated clients: a keyspace with leases on another host.

It is to `far_server` what the remote engine is to a real server, and promises the same: a call
waits for a connection, a call that was under way when the connection was lost is `ConnectionLost`
unless it only reads, whose keyspace answers is looked at on each new connection (the shipped
`History`), and watches are the shipped ones, which go on where they were.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from leasehold.engine.arguments import ttl_of
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.remote.caller import Caller, History
from leasehold.engine.remote.etcd_leases import KeepAlives
from leasehold.engine.remote.watch_hub import WatchHub
from leasehold.engine.values import (
    DeleteResult,
    Features,
    LeaseInfo,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import Closed, ConnectionLost, HistoryLost
from leasehold.keyspace.operations import Compare, Step
from leasehold.testing import Connection, Host
from leasehold.wire import rpc_pb2 as pb
from tests.simulation.far_server import ASK, Answer, KeyspaceServer

LOST_S: Final = 4.0
"""A call without an answer is given up then: its connection is taken to be lost."""

RECONNECT_S: Final = 0.2

NOT_CONNECTED: Final = 0


class FarKeyspace(Engine):
    """The keyspace of a server on another host. `start` it first, on the client's host."""

    features = Features()

    def __init__(self, server: KeyspaceServer, host: Host) -> None:
        self.limits = server.limits
        self.server = server
        self.host = host
        self.messages = 0
        """How many calls were sent."""
        self._random = server.sim.random
        self._history = History(self._history_lost)
        self._line = _Line(self)
        line = cast(Caller, self._line)
        self._hub = WatchHub(line, self._trusts_progress, self._random)
        self._renewals = KeepAlives(line, host.clock) if server.streams_renewals else None
        self._connection = NOT_CONNECTED
        """To which start of the server there is a connection that leads to our keyspace."""
        self._settling = asyncio.Lock()
        self._is_closed = False

    async def start(self) -> None:
        """Connect, however long that takes."""
        await self.settle_in()

    async def close(self) -> None:
        """Let the server go."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._hub.close()
        if self._renewals is not None:
            await self._renewals.close()

    @property
    def cluster_id(self) -> int:
        return self._history.cluster_id

    @property
    def history(self) -> History:
        return self._history

    @property
    def is_connected(self) -> bool:
        """Whether the connection is to the server as it is now; calls find out by themselves."""
        if self._connection != self.server.host.incarnation:
            self._connection = NOT_CONNECTED
        return self._connection != NOT_CONNECTED

    def check(self) -> None:
        if self._is_closed:
            raise Closed("the engine was closed")
        self._history.check()

    def give_up_connection(self, why: str) -> None:
        """Let the next calls go over another connection."""
        self._disconnect(why)

    def _history_lost(self, error: HistoryLost) -> None:
        self._hub.fail_all(error)
        self.on_history_lost(error)

    async def _trusts_progress(self) -> bool:
        return True

    # How calls go.

    def _disconnect(self, why: str) -> None:
        self._connection = NOT_CONNECTED
        self._line.hang_up(why)

    async def settle_in(self) -> None:
        """Have a connection, and see that it leads to the keyspace that we know."""
        async with self._settling:
            while self._connection == NOT_CONNECTED:
                floor = self._history.floor
                try:
                    answer = await self._send("connect")
                except OSError:  # a TimeoutError is one
                    await asyncio.sleep(RECONNECT_S)
                    continue
                self._history.check_answer(answer.cluster_id, answer.revision, floor)
                self._connection = answer.result

    async def _send(self, name: str, *args: Any, **named: Any) -> Answer:
        server = self.server
        request = (self._connection, name, args, named)
        self.messages += 1
        stragglers = server.stragglers
        if name != "connect" and stragglers.share and self._random.random() < stragglers.share:
            server.straggle(request)
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
            raise ConnectionResetError("the connection was lost")
        answer: Answer = await server.network.call(
            self.host, server.host, ASK, request, timeout=LOST_S
        )
        return answer

    async def _ask(self, name: str, *args: Any, idempotent: bool = False, **named: Any) -> Any:
        self.check()
        while True:
            await self.settle_in()
            floor, connection = self._history.floor, self._connection
            try:
                answer = await self._send(name, *args, **named)
            except ConnectionRefusedError as error:
                self._lost(connection, error)  # nothing was sent: it waits for a connection
                await asyncio.sleep(RECONNECT_S)
            except OSError as error:
                self._lost(connection, error)
                if not idempotent:
                    raise ConnectionLost(f"{name}: {error}") from error
            else:
                if answer.revision:
                    self._history.check_answer(answer.cluster_id, answer.revision, floor)
                else:
                    self._history.check_cluster_id(answer.cluster_id)
                return answer.result

    def _lost(self, connection: int, error: OSError) -> None:
        if self._connection == connection:
            self._disconnect(str(error))

    # Keys.

    async def range(self, key: bytes, end: bytes = b"", **options: Any) -> RangeResult:
        found: RangeResult = await self._ask("range", key, end, idempotent=True, **options)
        return found

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        done: PutResult = await self._ask("put", key, value, lease=lease)
        return done

    async def delete(self, key: bytes, end: bytes = b"", *, previous: bool = False) -> DeleteResult:
        done: DeleteResult = await self._ask("delete", key, end, previous=previous)
        return done

    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        done: TxnResult = await self._ask("txn", tuple(compares), tuple(success), tuple(failure))
        return done

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        now: int = await self._ask("compact", revision, wait=wait)
        return now

    def watch(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        start: int = 0,
        previous: bool = False,
        puts: bool = True,
        deletes: bool = True,
    ) -> Watch:
        self.check()
        request = pb.WatchCreateRequest(
            key=key, range_end=end, start_revision=start, prev_kv=previous
        )
        if not puts:
            request.filters.append(pb.WatchCreateRequest.NOPUT)
        if not deletes:
            request.filters.append(pb.WatchCreateRequest.NODELETE)
        return self._hub.add(request)

    # Leases.

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        granted: LeaseInfo = await self._ask("grant", ttl_of(ttl, self.limits), lease=lease)
        return granted

    async def renew(self, lease: int) -> float:
        renewed = await self.renew_all([lease])
        for error in renewed.failures.values():
            raise error
        return renewed.terms[lease]

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        self.check()
        wanted = list(leases)
        if not wanted:
            return Renewed({}, {})
        if self._renewals is not None:
            return await self._renewals.renew_all(wanted)
        renewed: Renewed = await self._ask("renew_all", wanted)
        return renewed

    async def revoke(self, lease: int) -> int:
        revision: int = await self._ask("revoke", lease)
        return revision

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        found: LeaseInfo = await self._ask("time_to_live", lease, idempotent=True, keys=keys)
        return found

    async def leases(self) -> Sequence[LeaseInfo]:
        found: Sequence[LeaseInfo] = await self._ask("leases", idempotent=True)
        return found


class _Line:
    """What the shipped streams ask of their caller, its channel and its history."""

    address = "the server"

    def __init__(self, engine: FarKeyspace) -> None:
        self.channel = self
        self._engine = engine
        self._open: dict[Connection, None] = {}
        """In the order in which they were opened, so that a run can be replayed."""

    @property
    def history(self) -> History:
        return self._engine.history

    async def settle_in(self) -> None:
        await self._engine.settle_in()

    def leave_if_useless(self, _error: BaseException) -> None:
        """There is one server only."""

    def hang_up(self, _why: str) -> None:
        """End all streams: they go over the one connection."""
        for connection in list(self._open):
            connection.close()

    @asynccontextmanager
    async def stream(self, method: str, **_named: object) -> "AsyncIterator[_Call]":
        connection = await self._connect(method)
        if not self._engine.is_connected:
            connection.close()
            raise ConnectionLost("the server was started again meanwhile")
        self._open[connection] = None
        try:
            yield _Call(connection)
        finally:
            del self._open[connection]
            connection.close()

    async def _connect(self, method: str) -> Connection:
        server = self._engine.server
        while True:
            try:
                return await server.network.connect(self._engine.host, server.host, method)
            except OSError:
                await asyncio.sleep(RECONNECT_S)


class _Call:
    """A stream of messages over a simulated connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        try:
            self._connection.send(message)
        except (OSError, EOFError, BufferError) as error:
            raise ConnectionLost(str(error)) from error

    async def receive(self) -> bytes:
        try:
            message: bytes = await self._connection.receive()
        except (OSError, EOFError) as error:
            raise ConnectionLost(str(error)) from error
        return message
