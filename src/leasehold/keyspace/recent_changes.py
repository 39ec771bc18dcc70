"""The last changes, by revision: for watches that lag a little, and reads of the recent past.

A window that is bounded in number and bytes. Changes that are not on disk yet are never dropped,
because they are nowhere else; they are bounded by the limit of what may wait for the disk.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from leasehold.keyspace.keyspace import Change, Item

MAX_REVISIONS: Final = 20_000
"""Revisions that are kept in memory."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""The limit of the encoded pairs in them."""

MIN_DROPPED: Final = 1_000
"""The minimum number of revisions that are dropped together, which takes a fraction of a
millisecond."""

MAX_DROPPED: Final = 20_000
"""The maximum, which takes some milliseconds: the rest of a very large batch is dropped later."""


FEW: Final = 8
"""Changes of a revision that are searched one by one; more of them get an index when searched."""


class Recent:
    """The changes of the last revisions, without a gap."""

    __slots__ = ("_bytes", "_entries", "_items", "_sizes", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        """The oldest revision that is here, or the next one to come."""
        self._entries: list[Sequence[Change]] = []
        self._sizes = array("q")
        self._bytes = 0
        self._items: dict[int, dict[bytes, Item]] = {}
        """The items of revisions with many changes, by key: of those that were searched."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, changes: Sequence[Change], size_bytes: int) -> None:
        """Add the changes of the next revision, with the result of `changes_bytes` for them."""
        self._entries.append(changes)
        self._sizes.append(size_bytes)
        self._bytes += size_bytes

    @property
    def is_over(self) -> bool:
        """Whether something should be dropped."""
        return len(self._entries) > MAX_REVISIONS or self._bytes > MAX_BYTES

    def drop(self, durable_revision: int) -> None:
        """Drop the oldest revisions, as far as they are on disk."""
        on_disk = max(0, durable_revision + 1 - self.first)
        most = min(on_disk, MAX_DROPPED, len(self._entries))
        least = max(MIN_DROPPED, len(self._entries) - MAX_REVISIONS)
        dropped = min(least, most)
        self._bytes -= sum(self._sizes[:dropped])
        while dropped < most and self._bytes > MAX_BYTES:
            self._bytes -= self._sizes[dropped]
            dropped += 1
        del self._entries[:dropped], self._sizes[:dropped]
        self.first += dropped
        if self._items:
            self._items = {at: its for at, its in self._items.items() if at >= self.first}

    def at(self, revision: int) -> Sequence[Change] | None:
        """Return the changes of a revision; None if it is not here."""
        place = revision - self.first
        return self._entries[place] if 0 <= place < len(self._entries) else None

    def find(self, key: bytes, revision: int) -> Item | None:
        """Return the item that a revision put to a key; None if that is not here."""
        changes = self.at(revision) or ()
        if len(changes) > FEW:
            return self._items_of(revision, changes).get(key)
        for change in reversed(changes):
            if change.key == key and change.item is not None:
                return change.item
        return None

    def _items_of(self, revision: int, changes: Sequence[Change]) -> dict[bytes, Item]:
        items = self._items.get(revision)
        if items is None:
            items = {change.key: change.item for change in changes if change.item is not None}
            self._items[revision] = items
        return items


def changes_bytes(changes: Sequence[Change]) -> int:
    """Return the size of the pairs that are kept alive by some changes."""
    return sum([_sizes(change.item) + _sizes(change.previous) for change in changes])


def _sizes(item: Item | None) -> int:
    return 0 if item is None else len(item[0])
