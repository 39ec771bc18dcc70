"""Long work in short slices, so that the event loop is never blocked for long.

`Slicer` runs the steps of any such work. `StoreReader` reads ranges in this way: at a fixed
revision, with old values from memory or disk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Final, TypeVar

from leasehold.journal.journal import Journal
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import Found, Outcome, Range, Txn
from leasehold.keyspace.ranges import Wanted
from leasehold.store.committer import Committer
from leasehold.store.store import Store

T = TypeVar("T")

SLICE_S: Final = 0.002
"""How long work may occupy the event loop before others get a turn.

Less than the 5 ms that are promised: a call may have to wait for a slice of two such works.
"""

Load = Callable[[Wanted], Awaitable[list[Item]]]
"""Loads old values from memory or disk."""


class Slicer:
    """Pauses work when its slice is used up."""

    __slots__ = ("_monotonic", "_until")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + SLICE_S

    async def pause(self) -> None:
        """Yield to the event loop if the slice is used up."""
        if self._monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = self._monotonic() + SLICE_S

    async def run(self, steps: Generator[Wanted, list[Item], T], load: Load) -> T:
        """Take all steps, with the old values that they need, and pause between them."""
        loaded: list[Item] = []
        try:
            wanted = next(steps)
            while True:
                loaded = await load(wanted) if wanted else []
                await self.pause()
                wanted = steps.send(loaded)
        except StopIteration as done:
            result: T = done.value
            return result


class StoreReader:
    """Reads keys of a store at a fixed revision, which is pinned meanwhile."""

    def __init__(self, store: Store, committer: Callable[[], Committer]) -> None:
        self._store = store
        self._committer = committer

    async def scan(self, query: Range) -> tuple[Found, int]:
        """Read a range in slices at a fixed revision; return it and its position."""
        store = self._store
        revision = query.revision if query.revision > 0 else store.revision
        position = store.position_of(revision)
        found = await self.at(revision, store.transactions.range_steps(query, revision))
        return found, position

    async def read_txn(self, txn: Txn) -> tuple[Outcome, int]:
        """Execute a transaction that changes nothing, at a fixed revision, in slices."""
        store = self._store
        revision, position = store.revision, store.position
        steps = store.transactions.read_steps(txn, revision)
        return await self.at(store.transactions.oldest_read(txn), steps), position

    async def at(self, revision: int, steps: Generator[Wanted, list[Item], T]) -> T:
        """Run `steps` in slices; what they read at a revision is not forgotten meanwhile."""
        pins = self._store.pins
        pins[revision] += 1
        try:
            return await Slicer(self._store.leases.monotonic).run(steps, self.load)
        finally:
            pins[revision] -= 1
            if not pins[revision]:
                del pins[revision]

    async def load(self, wanted: Wanted) -> list[Item]:
        """Return old values: from memory if they are recent, else from disk. Raise `TooBusy`."""
        return await self._load(wanted, is_ours=False)

    async def load_always(self, wanted: Wanted) -> list[Item]:
        """Like `load`, however many are waiting for the disk."""
        return await self._load(wanted, is_ours=True)

    async def _load(self, wanted: Wanted, *, is_ours: bool) -> list[Item]:
        found: list[Item] = []
        missing: Wanted = []
        for key, revision in wanted:
            item = self._store.recent.find(key, revision)
            if item is None:
                missing.append((key, revision))
            else:
                found.append(item)
        while missing:
            loaded = await self._committer().do(
                partial(Journal.values, wanted=missing), is_ours=is_ours
            )
            found += loaded
            missing = missing[len(loaded) :]
        return found
