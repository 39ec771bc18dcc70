"""Reading ranges: at once, or in slices at a fixed revision, with old values from disk."""

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from leasehold.core.keyspace import Item
from leasehold.core.ops import Found, Outcome, Range, Txn
from leasehold.core.ranges import Wanted
from leasehold.engine.committer import Committer
from leasehold.engine.journal import Journal
from leasehold.engine.slices import Slicer
from leasehold.engine.store import Store

T = TypeVar("T")


class Reader:
    """Reads the keys of a store."""

    def __init__(self, store: Store, committer: Callable[[], Committer]) -> None:
        self._store = store
        self._committer = committer

    async def scan(self, query: Range) -> tuple[Found, int]:
        """Read a range in slices, at a fixed revision, with the position it may be shown at."""
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
        """Take steps in slices, while nothing is forgotten that they read at a revision."""
        pins = self._store.pins
        pins[revision] += 1
        try:
            return await Slicer(self._store.leases.monotonic).run(steps, self.load)
        finally:
            pins[revision] -= 1
            if not pins[revision]:
                del pins[revision]

    async def load(self, wanted: Wanted) -> list[Item]:
        """Get old values: from memory if they are recent, else from disk. Raises `TooBusy`."""
        return await self._load(wanted, is_ours=False)

    async def load_always(self, wanted: Wanted) -> list[Item]:
        """Do the same, however many wait for the disk already."""
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
