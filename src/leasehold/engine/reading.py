"""Reading ranges: at once, or in slices at a fixed revision, with old values from disk."""

from collections.abc import Callable, Generator
from typing import TypeVar

from leasehold.core.keyspace import Item
from leasehold.core.ops import Found, Range
from leasehold.core.ranges import Wanted, scan
from leasehold.engine.committer import Committer
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
        found = await self.at(revision, scan(store.keyspace, query, revision))
        return found, position

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
        if missing:
            found += await self._committer().do(
                lambda journal: journal.values(missing), is_ours=is_ours
            )
        return found
