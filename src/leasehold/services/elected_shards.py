"""`ElectedShards`: the shards of a cluster, shared by several servers.

The keys, below `leasehold/services/`:

    shards            the number of shards, as decimal text
    shards/<nn>       the server that owns shard nn, under that server's lease
    servers/<server>  a server that is alive, under its lease

A server owns a shard while the shard's key is under the lease of its current session, and that
lease is held by the clock. Ownership follows from the keys only, as they are read and watched: so
it does not matter if the answer to a put was lost. Its key is recognized by server id and lease.
The one exception is a shard that this server has begun to give up: it is not used again until its
key is gone, because the delete may be executed late.

Each server takes at most its share, the number of shards divided by the number of servers, rounded
up; a server that has more for `REBALANCE_S` gives up the rest. A server with its share or less
gives up nothing, so the distribution is stable once every server has at most its share.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from leasehold.basics.backoff import Backoff
from leasehold.basics.callbacks import ignore
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue, TxnResult
from leasehold.errors import (
    LeaseholdError,
    LeaseLost,
    UnknownLease,
    is_definite,
)
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Step, Target
from leasehold.services.shards import COUNT_KEY, PREFIX, ShardListener, ShardOwnership, Shards
from leasehold.sessions.client_session import SESSION_TTL_S
from leasehold.sessions.kept_lease import KeptLease
from leasehold.sessions.lease_keeper import Keeper
from leasehold.sessions.session import CALL, CALL_MAX_S, OVER, RETRIES
from leasehold.wire import services_pb2 as pb

logger = logging.getLogger(__name__)

SHARDS: Final = COUNT_KEY + b"/"
SERVERS: Final = PREFIX + b"servers/"

REBALANCE_S: Final = 2.0
"""How long a server has more than its share before it gives up the rest: a server that starts and
fails repeatedly moves nothing."""


def shard_key(number: int) -> bytes:
    """Return the key of a shard's owner."""
    return SHARDS + b"%02x" % number


class ShardOwner(NamedTuple):
    """The key of a shard, as it was last read."""

    server: str
    address: str
    lease: int
    create_revision: int


def share_of(count: int, servers: int) -> int:
    """Return how many shards each of some servers may have."""
    return -(-count // max(1, servers))


def shards_to_take(
    server: str, count: int, servers: int, owners: Mapping[int, ShardOwner], owned: int
) -> list[int]:
    """Return the free shards that a server should try to take, up to its share.

    Each server has its own order, so that those that start together seldom try the same shard.
    """
    free = [number for number in range(count) if number not in owners]
    free.sort(key=lambda number: zlib.crc32(b"%s/%d" % (server.encode(), number)))
    return free[: max(0, share_of(count, servers) - owned)]


def shards_to_give_up(count: int, servers: int, owned: Sequence[int]) -> list[int]:
    """Return the shards that a server has beyond its share."""
    return sorted(owned)[share_of(count, servers) :]


class ElectedShards(Shards):
    """The shards of a cluster, shared with other servers."""

    def __init__(
        self,
        engine: Engine,
        address: str,
        *,
        server: str = "",
        ttl_s: float = SESSION_TTL_S,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        """`address` is where other servers reach this one, `ttl_s` the TTL of its lease.

        After a crash the shards are taken over when that lease has ended.
        """
        super().__init__(engine, server, address, random)
        self._ttl_s = ttl_s
        self._keeper = Keeper(engine, clock, self.random)
        self._lease: KeptLease | None = None
        self._record = b""
        self._servers: dict[str, int] = {}
        """The leases of the servers that are alive, by id."""
        self._owners: dict[int, ShardOwner] = {}
        self._given_up: dict[int, int] = {}
        """The create revisions of shard keys that are being deleted, by shard."""
        self._revisions: dict[bytes, int] = {}
        """The revision at which each key was last seen: a watch may be behind an answer."""
        self._changed = asyncio.Event()
        """Set if there may be something to take or to give up."""
        self._over_since: float | None = None
        self._begun_at = 0.0
        self._running: asyncio.Task[None] | None = None
        self.on_session: Callable[[], object] = ignore
        """Called when this server has another session, and so another lease."""

    def address_of(self, number: int) -> str:
        owner = self._owners.get(number)
        return "" if owner is None else owner.address

    def is_server(self, server: str) -> bool:
        return server in self._servers

    @property
    def session(self) -> int | None:
        """The id of the lease that keys of this server may be under; None while it has none."""
        return None if self._lease is None or not self._lease.is_held else self._lease.id

    @property
    def servers(self) -> frozenset[str]:
        """The ids of the servers that are alive, as far as is known here."""
        return frozenset(self._servers)

    async def start(self, listeners: Sequence[ShardListener]) -> None:
        """Begin to compete for shards; return when their number is known."""
        record = pb.ServerRecord(server=self.server, address=self.address)
        self._record = record.SerializeToString()
        await self._fix_count()
        self._listeners = tuple(listeners)
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Give up all shards, and end the lease: the keys are deleted with it."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self._lose_all()
        await self._keeper.close()

    # The session.

    async def _run(self) -> None:
        backoff = Backoff(RETRIES, self.random)
        while True:
            try:
                await self._compete(await self._begin())
            except OVER as error:
                logger.error("this server serves no shards any more: %s", error)
                self._lose_all()
                return
            except (LeaseholdError, OSError) as error:
                logger.warning("competing for shards has failed, and is tried again: %s", error)
            except Exception:
                logger.exception("competing for shards has failed, and is tried again")
            if await self._end_session() >= self._ttl_s:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    async def _begin(self) -> KeptLease:
        async with time_limit(self._call_s, self.engine):
            lease = await self._keeper.grant(self._ttl_s, on_loss=self._session_lost)
        self._lease, self._begun_at = lease, asyncio.get_running_loop().time()
        self.on_session()
        return lease

    def _session_lost(self, lease: KeptLease, _error: BaseException | None) -> None:
        if lease is self._lease:
            self._lose_all()
            self._changed.set()

    async def _end_session(self) -> float:
        """Leave nothing of a session that is given up, and return how long it has lasted."""
        lease, self._lease = self._lease, None
        self._lose_all()
        self._given_up.clear()
        if lease is None:
            return 0.0
        await self._keeper.end(lease)
        return asyncio.get_running_loop().time() - self._begun_at

    @property
    def _call_s(self) -> float:
        return min(CALL_MAX_S, self._ttl_s * CALL)

    # The keys, as they are read and watched.

    async def _compete(self, lease: KeptLease) -> None:
        """Take and give up shards, while the session lives."""
        backoff = Backoff(RETRIES, self.random)
        while lease.is_held:
            revision = await self._read_all(lease)
            watch = self.engine.watch(PREFIX, prefix_end(PREFIX), start=revision + 1)
            following = asyncio.ensure_future(self._follow(watch, lease))
            following.add_done_callback(lambda _: self._changed.set())
            try:
                await self._balance(lease, following)
            finally:
                following.cancel()
                watch.cancel()
                await asyncio.wait([following])
            if following.cancelled() or (error := following.exception()) is None:
                continue
            if not isinstance(error, LeaseholdError | OSError) or isinstance(error, OVER):
                raise error
            logger.info("the watch of shards has ended, all keys are read again: %s", error)
            await asyncio.sleep(backoff.next_s())
        raise lease.as_lost()

    async def _read_all(self, lease: KeptLease) -> int:
        async with time_limit(self._call_s, self.engine):
            read = await self.engine.range(PREFIX, prefix_end(PREFIX))
        found = {pair.key for pair in read.pairs}
        for key in [key for key in self._revisions if key not in found]:
            self._see(key, None, read.revision, lease)
        for pair in read.pairs:
            self._see(pair.key, pair, read.revision, lease)
        return read.revision

    async def _follow(self, watch: Watch, lease: KeptLease) -> None:
        async for revision, events in watch:
            for event in events:
                self._see(event.key, event.pair, revision, lease)

    def _see(self, key: bytes, pair: KeyValue | None, revision: int, lease: KeptLease) -> None:
        """Record a key as it was at a revision; gain or lose its shard accordingly."""
        if revision < self._revisions.get(key, 0):
            return
        self._revisions[key] = revision  # kept for a deleted shard: the watch may be behind
        if key.startswith(SERVERS):
            if pair is None:
                del self._revisions[key]
            self._see_server(key[len(SERVERS) :].decode(errors="replace"), pair)
        elif key.startswith(SHARDS) and (number := _number(key, self.count)) is not None:
            self._see_shard(number, pair, lease)
        self._changed.set()

    def _see_server(self, server: str, pair: KeyValue | None) -> None:
        if pair is None:
            self._servers.pop(server, None)
        else:
            self._servers[server] = pair.lease

    def _see_shard(self, number: int, pair: KeyValue | None, lease: KeptLease) -> None:
        owner = None if pair is None else _owner(pair)
        owned = self._owned.get(number)
        if owner is None:
            self._owners.pop(number, None)
        else:
            self._owners[number] = owner
        if owner is None or owner.create_revision != self._given_up.get(number):
            self._given_up.pop(number, None)
        is_mine = owner is not None and (owner.server, owner.lease) == (self.server, lease.id)
        if owned is not None:
            fence = owned.fence
            assert fence is not None, "every shard of a cluster has a fence"
            if owner is not None and is_mine and owner.create_revision == fence.operand:
                return
            self._lose(owned)
        if owner is not None and is_mine and number not in self._given_up and lease.is_held:
            logger.info("this server serves shard %02x now", number)
            key, revision = shard_key(number), owner.create_revision
            fence = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)
            self._gain(ShardOwnership(number, fence, lambda: lease.is_held, self._found_lost))

    def _found_lost(self, ownership: ShardOwnership) -> None:
        logger.warning("shard %02x has another owner, or its key was deleted", ownership.number)
        self._lose(ownership)

    # Taking and giving up.

    async def _balance(self, lease: KeptLease, following: "asyncio.Future[None]") -> None:
        """Change the keys until each server has its share, again after each change."""
        backoff = Backoff(RETRIES, self.random)
        while lease.is_held and not following.done():
            self._changed.clear()
            try:
                wait_s = await self._balance_once(lease)
            except (LeaseholdError, OSError) as error:
                if isinstance(error, (UnknownLease, LeaseLost, *OVER)) or is_definite(error):
                    raise
                logger.info("a shard could not be taken or given up: %s", error)
                wait_s = backoff.next_s()
            else:
                backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _balance_once(self, lease: KeptLease) -> float | None:
        """Take or give up shards as the keys require; return when to look again, or None."""
        if self._servers.get(self.server) != lease.id:
            key = SERVERS + self.server.encode()
            done = await self._ask([], [Put(key, self._record, lease.id)], [])
            self._see_server_put(key, lease, done.revision)
        servers = len(self._servers)
        for number, revision in list(self._given_up.items()):
            await self._delete(number, revision, lease)
        for number in shards_to_take(
            self.server, self.count, servers, self._owners, len(self._owned)
        ):
            await self._take(number, lease)
        over = shards_to_give_up(self.count, servers, list(self._owned))
        if not over:
            self._over_since = None
            return None
        now = asyncio.get_running_loop().time()
        if self._over_since is None:
            self._over_since = now
        if (left_s := self._over_since + REBALANCE_S - now) > 0.0:
            return left_s
        for number in over:
            await self._give_up(number, lease)
        self._over_since = None
        return None

    def _see_server_put(self, key: bytes, lease: KeptLease, revision: int) -> None:
        if revision >= self._revisions.get(key, 0):
            self._revisions[key] = revision
            self._servers[self.server] = lease.id

    async def _take(self, number: int, lease: KeptLease) -> None:
        key = shard_key(number)
        is_free = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        put = Put(key, self._record, lease.id)
        done = await self._ask([is_free], [put, Range(key)], [Range(key)])
        pairs = done.results[-1].pairs
        self._see(key, pairs[0] if pairs else None, done.revision, lease)

    async def _give_up(self, number: int, lease: KeptLease) -> None:
        """Stop using a shard, then delete its key."""
        owned = self._owned.get(number)
        if owned is None or owned.fence is None:
            return
        assert isinstance(owned.fence.operand, int), "it is a revision"
        logger.info("this server gives up shard %02x, for another server", number)
        self._given_up[number] = owned.fence.operand
        self._lose(owned)
        await self._delete(number, owned.fence.operand, lease)

    async def _delete(self, number: int, revision: int, lease: KeptLease) -> None:
        key = shard_key(number)
        is_same = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)
        done = await self._ask([is_same], [Delete(key), Range(key)], [Range(key)])
        pairs = done.results[-1].pairs
        self._see(key, pairs[0] if pairs else None, done.revision, lease)

    async def _ask(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step]
    ) -> TxnResult:
        async with time_limit(self._call_s, self.engine):
            return await self.engine.txn(compares, success, failure)


def _number(key: bytes, count: int) -> int | None:
    """Return the shard that a key is for; None if it is for none."""
    text = key[len(SHARDS) :]
    try:
        number = int(text, 16)
    except ValueError:
        return None
    return number if number < count and shard_key(number) == key else None


def _owner(pair: KeyValue) -> ShardOwner:
    try:
        record = pb.ServerRecord.FromString(pair.value)
    except DecodeError:
        record = pb.ServerRecord()  # written by another program: the shard is not ours
    return ShardOwner(record.server, record.address, pair.lease, pair.create_revision)
