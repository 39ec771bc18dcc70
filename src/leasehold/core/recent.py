"""The last changes, by revision: for watches that lag a little, and reads of the recent past.

A window that is bounded in number and bytes. What is not on disk yet is never dropped, because
nobody could find it anywhere else; that is bounded by what may wait for the disk.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from leasehold.core.keyspace import Change, Item

MAX_REVISIONS: Final = 20_000
"""Revisions that are kept in memory."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""And the encoded pairs in them."""

DROPPED_AT_ONCE: Final = 1_000
"""Revisions that are dropped together at least, which takes a fraction of a millisecond."""

MOST_AT_ONCE: Final = 20_000
"""And at most, some milliseconds: what a very large batch has added goes with those after it."""


FEW: Final = 8
"""Changes of a revision that are searched one by one; more of them get an index when searched."""


class Recent:
    """The changes of the last revisions, without a gap."""

    __slots__ = ("_bytes", "_entries", "_items", "_octets", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        """The oldest revision that is here, or the next one to come."""
        self._entries: list[Sequence[Change]] = []
        self._octets = array("q")
        self._bytes = 0
        self._items: dict[int, dict[bytes, Item]] = {}
        """What revisions with many changes have put, by key: of those that were searched."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, changes: Sequence[Change], octets: int) -> None:
        """Take the changes of the next revision, and what `octets_of` says of them."""
        self._entries.append(changes)
        self._octets.append(octets)
        self._bytes += octets

    @property
    def is_over(self) -> bool:
        """Whether something should be dropped."""
        return len(self._entries) > MAX_REVISIONS or self._bytes > MAX_BYTES

    def drop(self, durable_revision: int) -> None:
        """Drop the oldest, as far as they are on disk."""
        on_disk = max(0, durable_revision + 1 - self.first)
        most = min(on_disk, MOST_AT_ONCE, len(self._entries))
        least = max(DROPPED_AT_ONCE, len(self._entries) - MAX_REVISIONS)
        dropped = min(least, most)
        self._bytes -= sum(self._octets[:dropped])
        while dropped < most and self._bytes > MAX_BYTES:
            self._bytes -= self._octets[dropped]
            dropped += 1
        del self._entries[:dropped], self._octets[:dropped]
        self.first += dropped
        if self._items:
            self._items = {at: its for at, its in self._items.items() if at >= self.first}

    def at(self, revision: int) -> Sequence[Change] | None:
        """Give the changes of a revision; None if it is not here."""
        place = revision - self.first
        return self._entries[place] if 0 <= place < len(self._entries) else None

    def find(self, key: bytes, revision: int) -> Item | None:
        """Look up what a revision put to a key; None if that is not here."""
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


def octets_of(changes: Sequence[Change]) -> int:
    """Sum up the pairs that are kept alive by some changes."""
    return sum([_octets(change.item) + _octets(change.previous) for change in changes])


def _octets(item: Item | None) -> int:
    return 0 if item is None else len(item[0])
