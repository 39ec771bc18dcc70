"""Shards: which server serves which part of the objects of the services.

Every object has an id, and its shard is a hash of the id. The number of shards is written once per
engine, at `leasehold/services/shards`. On an engine in this process there is one server, which owns
all shards (`LocalShards`). On a cluster several servers share them (`services.elected_shards`).

A shard of a cluster has a key, which its owner has created. The create revision of that key is the
*fence*: every write to an object of the shard compares it, so a former owner cannot write.
"""

import asyncio
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import Final, Protocol

from leasehold.basics.backoff import Backoff, exponential
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import RangeResult, TxnResult
from leasehold.errors import (
    ShardLost,
)
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target
from leasehold.sessions.lease_keeper import retry_until_answered
from leasehold.sessions.session import CALL_MAX_S, RETRIES

logger = logging.getLogger(__name__)

PREFIX: Final = b"leasehold/services/"
COUNT_KEY: Final = PREFIX + b"shards"

SHARD_COUNT: Final = 16
"""The number of shards that is written for a new engine."""

MAX_SHARDS: Final = 256
"""The limit of that number: a shard has two hexadecimal digits in keys."""


LOAD_RETRIES: Final = exponential(1.0, 30.0)
"""The waits between attempts to load a shard."""


class ShardOwnership:
    """One shard that this server owns, until it is lost. A shard gained again has another one."""

    __slots__ = ("_is_held", "_is_lost", "_on_found_lost", "fence", "number")

    def __init__(
        self,
        number: int,
        fence: Compare | None = None,
        is_held: Callable[[], bool] = lambda: True,
        on_found_lost: "Callable[[ShardOwnership], object]" = lambda _: None,
    ) -> None:
        """`is_held` is the clock's answer; `on_found_lost` is called by `found_lost`."""
        self.number = number
        self.fence = fence
        """A condition of every write; None for an engine in this process: it has one server."""
        self._is_held = is_held
        self._on_found_lost = on_found_lost
        self._is_lost = False

    @property
    def is_valid(self) -> bool:
        """Whether this server owns the shard now, by the clock as well as by record."""
        return not self._is_lost and self._is_held()

    def check(self) -> None:
        """Raise `ShardLost` unless this server owns the shard now."""
        if not self.is_valid:
            raise ShardLost(self.number, "this server no longer owns the shard")

    def lost(self) -> None:
        """Record that it is lost, for good."""
        self._is_lost = True

    def found_lost(self) -> None:
        """Report that a write was refused by the fence."""
        if not self._is_lost:
            self._on_found_lost(self)

    def __repr__(self) -> str:
        return f"<Ownership of shard {self.number:02x}: {'valid' if self.is_valid else 'lost'}>"


class ShardListener(Protocol):
    """A service whose objects are spread over shards: `LeasedRecords` is one."""

    async def shard_gained(self, ownership: ShardOwnership) -> None:
        """Load the objects of a shard. Cancelled if the shard is lost meanwhile."""
        ...

    def shard_lost(self, ownership: ShardOwnership) -> None:
        """Stop everything of that shard, now."""
        ...


class Shards(ABC):
    """The shards of an engine, as one server has them."""

    def __init__(self, engine: Engine, server: str, address: str, random: Random | None) -> None:
        self.engine = engine
        self.random = random or SystemRandom()
        self.server = server or f"{self.random.getrandbits(128):032x}"
        """The id of this server. Other servers of the cluster can read it, clients cannot."""
        self.address = address
        """Where other servers reach this one."""
        self.count = 0
        """The number of shards; 0 until it is started."""
        self._owned: dict[int, ShardOwnership] = {}
        self._listeners: tuple[ShardListener, ...] = ()
        self._gaining: dict[ShardOwnership, asyncio.Task[None]] = {}

    def shard_of(self, id: str) -> int:  # noqa: A002  as in the record
        """Return the shard of an object. Raises `ShardLost` before the start."""
        if not self.count:
            raise ShardLost(0, "the server is starting")
        return zlib.crc32(id.encode()) % self.count

    def owned(self, number: int) -> ShardOwnership | None:
        """Return the ownership of a shard; None if this server does not own it now."""
        ownership = self._owned.get(number)
        return ownership if ownership is not None and ownership.is_valid else None

    @property
    def all_owned(self) -> list[ShardOwnership]:
        """The shards that this server owns now."""
        return [ownership for ownership in self._owned.values() if ownership.is_valid]

    @abstractmethod
    def address_of(self, number: int) -> str:
        """Return where the owner of a shard is reached; empty if there is none."""

    @abstractmethod
    def is_server(self, server: str) -> bool:
        """Return whether this is the id of a server that is alive."""

    @abstractmethod
    async def start(self, listeners: Sequence[ShardListener]) -> None:
        """Begin to own shards; each gain and loss is reported to the listeners."""

    @abstractmethod
    async def close(self) -> None:
        """Give up all shards, in order; nothing is owned afterwards."""

    async def store_count(self) -> None:  # noqa: B027  a cluster has it from the start
        """Store the number of shards, if it is not; called before the first object is stored."""

    async def _fix_count(self) -> None:
        """Read the number of shards; the first server of an engine writes it."""
        is_new = Compare(COUNT_KEY, Target.CREATE_REVISION, Relation.EQUAL, 0)
        first = b"%d" % SHARD_COUNT

        async def call() -> TxnResult:
            async with time_limit(CALL_MAX_S, self.engine):
                return await self.engine.txn([is_new], [Put(COUNT_KEY, first)], [Range(COUNT_KEY)])

        done = await retry_until_answered(call, Backoff(RETRIES, self.random))
        self.count = _count_of(first if done.succeeded else done.results[0].pairs[0].value)

    def _gain(self, ownership: ShardOwnership) -> "asyncio.Task[None]":
        """Own a shard from now on, and have its objects loaded."""
        self._owned[ownership.number] = ownership
        task = asyncio.get_running_loop().create_task(self._load(ownership))
        self._gaining[ownership] = task
        task.add_done_callback(lambda _: self._gaining.pop(ownership, None))
        return task

    async def _load(self, ownership: ShardOwnership) -> None:
        for listener in self._listeners:
            backoff = Backoff(LOAD_RETRIES, self.random)
            while ownership.is_valid:
                try:
                    await listener.shard_gained(ownership)
                except Exception:
                    logger.exception("shard %02x is not loaded yet", ownership.number)
                    await asyncio.sleep(backoff.next_s())
                else:
                    break

    def _lose(self, ownership: ShardOwnership) -> None:
        """Stop everything of a shard."""
        ownership.lost()
        if self._owned.get(ownership.number) is ownership:
            del self._owned[ownership.number]
        if (task := self._gaining.pop(ownership, None)) is not None:
            task.cancel()
        for listener in self._listeners:
            try:
                listener.shard_lost(ownership)
            except Exception:
                logger.exception("shard %02x could not be stopped in order", ownership.number)

    def _lose_all(self) -> None:
        for ownership in list(self._owned.values()):
            self._lose(ownership)


class LocalShards(Shards):
    """All shards of an engine in this process: there is no other server."""

    def __init__(self, engine: Engine, *, address: str = "", random: Random | None = None) -> None:
        super().__init__(engine, "", address, random)
        self._is_stored = False

    async def store_count(self) -> None:
        """Store the number of shards, if it is not.

        A server that is used as an etcd, and for nothing else, writes no keys of its own.
        """
        if not self._is_stored:
            await self._fix_count()
            self._is_stored = True

    def address_of(self, number: int) -> str:
        return self.address if self.owned(number) is not None else ""

    def is_server(self, server: str) -> bool:
        return server == self.server

    async def start(self, listeners: Sequence[ShardListener]) -> None:
        """Own all shards; return when their objects are loaded."""

        async def read() -> RangeResult:
            async with time_limit(CALL_MAX_S, self.engine):
                return await self.engine.range(COUNT_KEY)

        found = await retry_until_answered(read, Backoff(RETRIES, self.random))
        stored = found.pairs
        self._is_stored = bool(stored)
        self.count = _count_of(stored[0].value) if stored else SHARD_COUNT
        self._listeners = tuple(listeners)
        await asyncio.gather(*[self._gain(ShardOwnership(number)) for number in range(self.count)])

    async def close(self) -> None:
        self._lose_all()


def _count_of(text: bytes) -> int:
    """Return the stored number of shards; `SHARD_COUNT` if another program has changed it."""
    if not text.isdigit() or not 1 <= int(text) <= MAX_SHARDS:
        logger.error("key %r must have a number from 1 to %d, got %r", COUNT_KEY, MAX_SHARDS, text)
        return SHARD_COUNT
    return int(text)
