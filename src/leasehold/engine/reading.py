"""Reading ranges: at once, or in slices at a fixed revision, with old values from disk."""

from collections.abc import Callable

from leasehold.core.keyspace import Item
from leasehold.core.ops import Found, Range
from leasehold.core.ranges import Wanted, scan
from leasehold.engine.committer import Committer
from leasehold.engine.slices import Slicer
from leasehold.engine.store import Store


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
        store.pins[revision] += 1
        try:
            slicer = Slicer(store.leases.monotonic)
            found = await slicer.run(scan(store.keyspace, query, revision), self.load)
        finally:
            store.pins[revision] -= 1
            if not store.pins[revision]:
                del store.pins[revision]
        return found, position

    async def load(self, wanted: Wanted) -> list[Item]:
        """Get old values: from memory if they are recent, else from disk."""
        found: list[Item] = []
        missing: Wanted = []
        for key, revision in wanted:
            item = self._store.recent.find(key, revision)
            if item is None:
                missing.append((key, revision))
            else:
                found.append(item)
        if missing:
            found += await self._committer().do(lambda journal: journal.values(missing))
        return found
