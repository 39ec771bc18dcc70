"""The keyspace: live keys in order, each with its revisions, as etcd counts them.

Theory of operation. The keyspace has one revision, which every change raises by one, whether it
touches one key or a thousand. A key remembers the revision that created it, the one that changed it
last, and how often it was changed since it was created. A key that is deleted and put again is new.

Keys are in a dict, and their names in a sorted list beside it, which is touched only when a key
comes or goes. What is stored of a key is an `Item`, a plain tuple of bytes and ints: the garbage
collector does not look into those, and at a million keys its pauses are what everybody would
notice. The value is there only in encoded form, in which it is journaled, read and watched;
`encode` makes it.

This skeleton keeps no history: the keyspace behaves as one that is compacted at every revision.
"""

from collections.abc import Callable, Iterator
from typing import Final

from sortedcontainers import SortedList

Item = tuple[bytes, int, int, int, int]
"""A key's encoded pair, create revision, mod revision, version, and lease (0 for none)."""

Encode = Callable[[bytes, int, int, int, bytes, int], bytes]
"""Encodes key, create revision, mod revision, version, value and lease."""

FIRST_REVISION: Final = 1
"""The revision of an empty keyspace that nobody has changed."""

FROM_KEY: Final = b"\0"
"""The range end that means: from the key on, without an end."""


class Change:
    """What one revision did to one key; `item` is None if it was deleted."""

    __slots__ = ("encoded", "item", "key", "previous", "revision")

    def __init__(self, key: bytes, revision: int, item: Item | None, previous: Item | None) -> None:
        self.key = key
        self.revision = revision
        self.item = item
        self.previous = previous
        self.encoded: bytes | None = None
        """The event, encoded by whoever needs it first and shared by all who get it."""


class Keyspace:
    """Live keys and the revision they are at."""

    __slots__ = ("_encode", "_items", "_names", "revision")

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._items: dict[bytes, Item] = {}
        self._names: SortedList[bytes] = SortedList()
        self.revision = FIRST_REVISION

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: bytes) -> Item | None:
        """Look a key up."""
        return self._items.get(key)

    def names(self, key: bytes, end: bytes) -> Iterator[bytes]:
        """Name the keys of a range in order: one, `[key, end)`, or all from `key` on."""
        if not end:
            return iter((key,) if key in self._items else ())
        if end == FROM_KEY:
            return self._names.irange(key, None)
        return self._names.irange(key, end, (True, False))

    def range(self, key: bytes, end: bytes) -> list[Item]:
        """Look a range up, in the order of its keys."""
        items = self._items
        return [items[name] for name in self.names(key, end)]

    def put(self, key: bytes, value: bytes, lease: int) -> Item:
        """Set a key, at a new revision."""
        revision = self.revision + 1
        previous = self._items.get(key)
        if previous is None:
            create_revision, version = revision, 1
        else:
            create_revision, version = previous[1], previous[3] + 1
        encoded = self._encode(key, create_revision, revision, version, value, lease)
        item = (encoded, create_revision, revision, version, lease)
        if previous is None:
            self._names.add(key)
        self._items[key] = item
        self.revision = revision
        return item

    def delete(self, names: list[bytes]) -> list[Change]:
        """Delete keys that are there, all at one new revision; with none nothing changes."""
        if not names:
            return []
        self.revision = revision = self.revision + 1
        return [Change(name, revision, None, self._drop(name)) for name in sorted(names)]

    def _drop(self, name: bytes) -> Item:
        self._names.remove(name)
        return self._items.pop(name)

    # What is read back from a journal.

    def restore(self, key: bytes, item: Item) -> Item | None:
        """Set a key as it was, and return what it was before."""
        previous = self._items.get(key)
        if previous is None:
            self._names.add(key)
        self._items[key] = item
        self.revision = item[2]
        return previous

    def restore_deleted(self, key: bytes, revision: int) -> Item:
        """Delete a key as it was deleted."""
        self.revision = revision
        return self._drop(key)


def covers(key: bytes, end: bytes, name: bytes) -> bool:
    """Say whether a range has a key in it."""
    if not end:
        return name == key
    return key <= name and (end == FROM_KEY or name < end)
