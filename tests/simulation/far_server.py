"""A server with a full keyspace on a simulated host: the shipped engine, reached over a network.

A connection belongs to one start of the server's process: what was sent to an earlier one is not
done. Watches and renewals may go over streams, in etcd's messages, so that clients can use the
shipped code for them.

*Stragglers*: a request may stay behind on a connection that its client has given up, and be
executed seconds later, after what the client has sent over a new one.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Watch
from leasehold.engine.remote import etcd_leases, watch_hub
from leasehold.engine.values import Event, KeyValue, LeaseInfo, Limits, Renewed
from leasehold.errors import Closed, Compacted
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.testing import Connection, Host, Network, Simulation
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb
from tests.simulation import far_disk

ASK: Final = "ask"
METHODS: Final = frozenset(
    {
        "range",
        "put",
        "delete",
        "txn",
        "compact",
        "grant",
        "renew_all",
        "revoke",
        "time_to_live",
        "leases",
    }
)


class Answer(NamedTuple):
    """What comes back: whose it is, how far that has come (0 if it does not say), and a result."""

    cluster_id: int
    revision: int
    result: Any


@dataclass(slots=True)
class Stragglers:
    """How often a request stays behind, and how much later it is executed."""

    share: float = 0.0
    late_s: tuple[float, float] = (0.5, 8.0)


class KeyspaceServer:
    """A Leasehold server; `crash`, `restart` and `restore` it as often as you like."""

    limits = Limits()
    streams_renewals = False
    """Whether clients renew over a stream, a message for each lease."""

    def __init__(self, sim: Simulation, network: Network, host: Host) -> None:
        self.sim = sim
        self.network = network
        self.host = host
        self.stragglers = Stragglers()
        self.disk: bytes | None = None
        self.straggled = 0
        """How many requests were executed that had stayed behind."""
        self.histories: dict[int, int] = {}
        """Its cluster ids, numbered: another one with each time that it was restored."""
        self._start()

    def _start(self) -> None:
        self.engine: EmbeddedEngine = far_disk.open_engine(self.host, self.sim.random, self.disk)
        self.histories.setdefault(self.engine.cluster_id, len(self.histories))
        self.network.serve(self.host, ASK, self._asked)
        self.network.listen(self.host, watch_hub.METHOD, self._watch)
        self.network.listen(self.host, etcd_leases.METHOD, self._keep_alive)

    # What befalls it.

    def crash(self) -> None:
        """End, in the middle of whatever it does. What is on disk stays."""
        self.disk = far_disk.image_of(self.engine)
        self.host.crash()
        self.engine.discard()

    def restart(self) -> None:
        """Start again with what is on disk."""
        if not self.host.down:
            self.crash()
        self.host.restart()
        self._start()

    def backup(self) -> bytes:
        """Copy what is on disk."""
        if self.host.down:
            assert self.disk is not None
            return self.disk
        return far_disk.image_of(self.engine)

    def restore(self, image: bytes, *, by_the_book: bool) -> None:
        """Start again from a backup: by `leasehold restore`, or with its file as it is."""
        if not self.host.down:
            self.crash()
        self.disk = far_disk.restored(image) if by_the_book else image
        self.restart()

    @property
    def history(self) -> int:
        """The number of its cluster id."""
        return self.histories[self.engine.cluster_id]

    # What a test looks at; it costs no time and goes over no network.

    def pairs(self) -> dict[bytes, KeyValue]:
        """Give all keys, as they are in memory."""
        found = self.engine._store.keyspace.range(b"\0", FROM_KEY)
        return {item[5]: KeyValue(item) for item in found}

    def lease_ids(self) -> set[int]:
        """Give the leases that are there."""
        return {leased.resource.id for leased in self.engine._store.leases.table}

    # What clients ask.

    async def _asked(self, request: tuple[int, str, tuple[Any, ...], dict[str, Any]]) -> Answer:
        connection, name, args, named = request
        if name == "connect":
            revision = (await self.engine.range(b"\0", count_only=True)).revision
            return Answer(self.engine.cluster_id, revision, self.host.incarnation)
        if connection != self.host.incarnation:
            raise ConnectionResetError("that was another process")
        assert name in METHODS, name
        return await self.execute(name, args, named)

    async def execute(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Answer:
        """Do what was asked for."""
        if name in ("grant", "renew_all", "time_to_live"):
            result = await getattr(self, name)(*args, **named)
        else:
            result = await getattr(self.engine, name)(*args, **named)
        is_latest = name in ("put", "delete", "txn") or (
            name == "range" and not named.get("revision")
        )
        return Answer(self.engine.cluster_id, result.revision if is_latest else 0, _plain(result))

    def straggle(self, request: tuple[int, str, tuple[Any, ...], dict[str, Any]]) -> None:
        """Let a request stay behind: it is executed later, if its connection stands by then."""
        self.sim.record(f"{request[1]} stays behind", self.host.name)

        def arrive() -> None:
            if not self.host.down and self.host.incarnation == request[0]:
                self.host.deliver(lambda: self._straggler(request))

        self.sim.carry(self.sim.random.uniform(*self.stragglers.late_s), arrive)

    def _straggler(self, request: tuple[int, str, tuple[Any, ...], dict[str, Any]]) -> None:
        self.straggled += 1
        self.sim.record(f"{request[1]} is executed late", self.host.name)
        task = asyncio.get_running_loop().create_task(self._asked(request))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Begin a lease."""
        return await self.engine.grant(ttl, lease=lease)

    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases, each for itself."""
        return await self.engine.renew_all(leases)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Say how long a lease has to run."""
        return await self.engine.time_to_live(lease, keys=keys)

    # Streams, in etcd's messages.

    async def _keep_alive(self, connection: Connection) -> None:
        try:
            while True:
                asked = pb.LeaseKeepAliveRequest.FromString(await connection.receive())
                renewed = await self.renew_all([asked.ID])
                answer = pb.LeaseKeepAliveResponse(
                    ID=asked.ID, TTL=round(renewed.terms.get(asked.ID, 0.0))
                )
                answer.header.cluster_id = self.engine.cluster_id
                connection.send(answer.SerializeToString())
        except (OSError, EOFError, BufferError):
            connection.close()

    async def _watch(self, connection: Connection) -> None:
        watches = _Watches(self.engine, connection)
        try:
            while True:
                watches.take(pb.WatchRequest.FromString(await connection.receive()))
        except (OSError, EOFError):
            connection.close()
        finally:
            watches.close()


class EtcdLikeServer(KeyspaceServer):
    """Leases as an etcd has them: whole seconds, a stream of renewals, and late ends.

    After a restart each lease has its full term again; so it has with the shipped engine, which
    does not checkpoint leases of short terms.
    """

    limits = Limits(min_ttl=1.0, ttl_unit=1.0)
    streams_renewals = True
    LATE_S: Final = 0.5

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Begin a lease; it will end a little later than it says."""
        told_s = math.ceil(ttl)
        late_s = self.sim.random.uniform(0.0, self.LATE_S)
        granted = await self.engine.grant(told_s + late_s, lease=lease)
        return granted._replace(ttl=float(told_s), remaining=float(told_s))

    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases; none of them says how late it will end."""
        renewed = await self.engine.renew_all(leases)
        terms = {lease: float(math.floor(term_s)) for lease, term_s in renewed.terms.items()}
        return renewed._replace(terms=terms)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Say how long a lease has to run, in whole seconds."""
        found = await self.engine.time_to_live(lease, keys=keys)
        left_s = float(math.floor(found.remaining))
        return found._replace(ttl=float(math.floor(found.ttl)), remaining=left_s)


class _Watches:
    """The watches of one stream."""

    def __init__(self, engine: EmbeddedEngine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._live: dict[int, tuple[Watch, asyncio.Task[None]]] = {}

    def take(self, request: pb.WatchRequest) -> None:
        """Do what a client asks for."""
        match request.WhichOneof("request_union"):
            case "create_request":
                self._create(request.create_request)
            case "cancel_request":
                self._cancel(request.cancel_request.watch_id)
            case _:
                for watch, _ in self._live.values():
                    watch.request_progress()

    def close(self) -> None:
        """End all of them."""
        for number in list(self._live):
            self._stop(number)

    def _create(self, wanted: pb.WatchCreateRequest) -> None:
        watch = self._engine.watch(
            wanted.key,
            wanted.range_end,
            start=wanted.start_revision,
            previous=wanted.prev_kv,
            puts=pb.WatchCreateRequest.NOPUT not in wanted.filters,
            deletes=pb.WatchCreateRequest.NODELETE not in wanted.filters,
        )
        self._send(pb.WatchResponse(watch_id=wanted.watch_id, created=True))
        task = asyncio.get_running_loop().create_task(self._tell(wanted.watch_id, watch))
        self._live[wanted.watch_id] = watch, task

    def _cancel(self, number: int) -> None:
        if number in self._live:
            self._stop(number)
            self._send(pb.WatchResponse(watch_id=number, canceled=True))

    def _stop(self, number: int) -> None:
        watch, task = self._live.pop(number)
        watch.cancel()
        task.cancel()

    async def _tell(self, number: int, watch: Watch) -> None:
        try:
            async for told in watch:
                answer = pb.WatchResponse(watch_id=number, events=map(_event, told.events))
                self._send(answer, told.revision)
        except Compacted as error:
            answer = pb.WatchResponse(
                watch_id=number, canceled=True, compact_revision=error.revision
            )
            self._send(answer)
        except Closed:
            return

    def _send(self, answer: pb.WatchResponse, revision: int = 0) -> None:
        answer.header.cluster_id = self._engine.cluster_id
        answer.header.revision = revision or self._engine._store.revision
        try:
            self._connection.send(answer.SerializeToString())
        except (OSError, EOFError, BufferError):
            self._connection.close()


def _event(event: Event) -> kv_pb2.Event:
    told = kv_pb2.Event(kv=_pair(event.pair)) if event.pair is not None else _gone(event)
    if event.previous is not None:
        told.prev_kv.CopyFrom(_pair(event.previous))
    return told


def _gone(event: Event) -> kv_pb2.Event:
    gone = kv_pb2.KeyValue(key=event.key, mod_revision=event.revision)
    return kv_pb2.Event(type=kv_pb2.Event.DELETE, kv=gone)


def _pair(pair: KeyValue) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(
        key=pair.key,
        value=pair.value,
        create_revision=pair.create_revision,
        mod_revision=pair.mod_revision,
        version=pair.version,
        lease=pair.lease,
    )


def _plain(result: Any) -> Any:
    """Give a result as something that can be sent."""
    if isinstance(result, Sequence) and not isinstance(result, tuple | str | bytes):
        return list(result)
    return result
