"""Somebody else's lock: the recipe of Go's `concurrency.Mutex`, which knows no recall and no marks.

Its key is `<name>/<lease in hex>`, with an empty value. It waits for the one before it, looks
whether its own key is there still, and deletes it in the end. After a call without an answer it
ends its session and begins with another one.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType

from leasehold import Client, HeldLease, LeaseLost
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.fencing.token import Token
from leasehold.keyspace.operations import Compare, Put, Range, Relation, SortBy, Target

CALL_S = 3.0


@dataclass
class GoGuard:
    """Holds the lock as long as its lease can be relied on."""

    lease: HeldLease
    revision: int
    is_released: bool = False

    @property
    def token(self) -> Token:
        """Its fencing token: what Go's calls the header's revision."""
        return Token(self.revision, 0)

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now."""
        return self.lease.is_held and not self.is_released

    def check(self) -> None:
        """Raise `LeaseLost` unless it can be relied on now."""
        self.lease.check()


class GoMutex:
    """One acquisition: an async context manager."""

    def __init__(self, client: Client, name: str, ttl_s: float) -> None:
        self._client = client
        self._engine: Engine = client.engine
        self._prefix = name.encode() + b"/"
        self._ttl_s = ttl_s
        self._lease: HeldLease | None = None
        self._guard: GoGuard | None = None

    async def __aenter__(self) -> GoGuard:
        self._lease = await self._client.lease(self._ttl_s)
        try:
            self._guard = GoGuard(self._lease, await self._wait_in_line(self._lease))
        except BaseException:
            await self._lease.end()
            raise
        return self._guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._lease is not None
        assert self._guard is not None
        self._guard.is_released = True
        try:
            async with asyncio.timeout(CALL_S):
                await self._engine.delete(self._key(self._lease))
        finally:
            await self._lease.end()

    def _key(self, lease: HeldLease) -> bytes:
        return self._prefix + b"%x" % lease.id

    async def _wait_in_line(self, lease: HeldLease) -> int:
        key = self._key(lease)
        is_new = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        async with asyncio.timeout(CALL_S):
            done = await self._engine.txn([is_new], [Put(key, b"", lease.id)], [Range(key)])
        mine = done.revision
        while True:
            async with asyncio.timeout(CALL_S):
                before = await self._engine.range(
                    self._prefix,
                    prefix_end(self._prefix),
                    limit=1,
                    sort_by=SortBy.CREATE_REVISION,
                    descending=True,
                    max_create_revision=mine - 1,
                )
            if not before.pairs:
                break
            await self._until_gone(lease, before.pairs[0].key, before.revision + 1)
        async with asyncio.timeout(CALL_S):
            found = await self._engine.range(key)
        if not found.pairs or found.pairs[0].create_revision != mine or not lease.is_held:
            raise LeaseLost(lease.id, "it ended while it was in line")
        return mine

    async def _until_gone(self, lease: HeldLease, key: bytes, start: int) -> None:
        watch = self._engine.watch(key, start=start)
        try:
            gone = asyncio.ensure_future(self._gone(watch))
            lost = asyncio.ensure_future(lease.lost.wait())
            try:
                await asyncio.wait((gone, lost), return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise LeaseLost(lease.id, "it ended while it was in line")
                await gone
            finally:
                gone.cancel()
                lost.cancel()
                await asyncio.gather(gone, lost, return_exceptions=True)
        finally:
            watch.cancel()

    async def _gone(self, watch: Watch) -> None:
        async for events in watch:
            if any(event.is_delete for event in events.events):
                return
