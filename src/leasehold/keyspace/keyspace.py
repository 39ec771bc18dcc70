"""The keyspace: sorted live keys, and an index of their past, with revisions counted as in etcd.

Theory of operation. The keyspace has one revision, which every change raises by one, whether it
touches one key or a thousand. A key has the revision that created it, the one that changed it last,
and the number of changes since it was created. A key that is deleted and put again is new.

Live keys are in a dict, and their names in a sorted list beside it, which changes only when a key
is created or deleted. A key is stored as an `Item`, a plain tuple of bytes and ints: the garbage
collector does not look into those, and at a million keys its pauses would be noticeable. The value
is stored in encoded form only, in which it is journaled, read and watched.

The past is kept as an index only: for each key that was changed or deleted since the last
compaction, the revisions at which that happened, as *marks* (`revision << 1`, plus 1 if it was
deleted then), in an array, which the garbage collector does not look into either. The values are in
the journal, and those of the last revisions also in `Recent`.

    a key that was put once           an item, and no marks
    a key that was put again          an item, and a mark for each put before the last
    a key that was deleted            no item, and marks, the last of them odd; its name is in
                                      `_dead`, so that reads of the past find it

`compacted` is the oldest revision that can be read. Versions not visible from it on may be
removed, key by key (`trim`).
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from sortedcontainers import SortedList

Item = tuple[bytes, int, int, int, int, bytes]
"""A key's encoded pair, create revision, mod revision, version, lease (0 for none), and name."""


class PairCodec(NamedTuple):
    """How pairs are encoded."""

    encode: Callable[[bytes, int, int, int, bytes, int], bytes]
    """Encodes key, create revision, mod revision, version, value and lease."""
    value_of: Callable[[Item], bytes]


FIRST_REVISION: Final = 1
"""The revision of an empty keyspace that was never changed."""

NEVER_COMPACTED: Final = -1
"""The value of `compacted` before any compaction: revision 0 may be compacted."""

FROM_KEY: Final = b"\0"
"""The range end for a range from the key on, without an end."""

ITEM_BYTES: Final = 400
"""The approximate memory of a live key beside its encoded pair (measured by `make bench`)."""

MARK_BYTES: Final = 24
"""The approximate memory of a mark: eight bytes, and a share of the overhead per such key."""


class Change:
    """The change of one key at one revision; `item` is None if it was deleted."""

    __slots__ = ("encoded", "item", "key", "previous", "revision")

    def __init__(self, key: bytes, revision: int, item: Item | None, previous: Item | None) -> None:
        self.key = key
        self.revision = revision
        self.item = item
        self.previous = previous
        self.encoded: bytes | None = None
        """The event, encoded on first use and shared by all watches that get it."""


class Keyspace:
    """Live keys, the revision they are at, and the index of their past."""

    __slots__ = (
        "_dead",
        "_encode",
        "_items",
        "_names",
        "_past",
        "codec",
        "compacted",
        "encoded_bytes",
        "marks",
        "newest",
        "revision",
    )

    def __init__(self, codec: PairCodec) -> None:
        self.codec = codec
        self._encode = codec.encode
        self._items: dict[bytes, Item] = {}
        self._names: SortedList[bytes] = SortedList()
        self._past: dict[bytes, array[int]] = {}
        self._dead: SortedList[bytes] = SortedList()
        self.revision = FIRST_REVISION
        self.compacted = NEVER_COMPACTED
        """The last compaction: reads before this revision are refused."""
        self.encoded_bytes = 0
        """The length of all encoded pairs together."""
        self.newest = FIRST_REVISION
        """The revision of the last change: beyond `revision` while one is being made."""
        self.marks = 0
        """The number of marks of all keys: how much of the past is kept."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory taken by all this."""
        return self.encoded_bytes + ITEM_BYTES * len(self._items) + MARK_BYTES * self.marks

    # Reading live keys.

    def get(self, key: bytes) -> Item | None:
        """Return a live key; None if it does not exist."""
        return self._items.get(key)

    def names(self, key: bytes, end: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Iterate over the names of the live keys of a range in order.

        The range is one key, `[key, end)`, or all from `key` on.
        """
        if not end:
            return iter((key,) if key in self._items else ())
        if end == FROM_KEY:
            return self._names.irange(key, None, reverse=reverse)
        return self._names.irange(key, end, (True, False), reverse=reverse)

    def count(self, key: bytes, end: bytes) -> int:
        """Count the live keys of a range, without iterating over it."""
        if not end:
            return int(key in self._items)
        names = self._names
        last = len(names) if end == FROM_KEY else names.bisect_left(end)
        return max(0, last - names.bisect_left(key))

    def range(self, key: bytes, end: bytes) -> list[Item]:
        """Return a range of live keys, in the order of their names."""
        items = self._items
        return [items[name] for name in self.names(key, end)]

    # Reading the past.

    def at(self, key: bytes, revision: int) -> Item | int | None:
        """Return a key as it was at a revision; an int is the revision that has the value.

        The revision must not be before the last compaction.
        """
        item = self._items.get(key)
        if item is not None and item[2] <= revision:
            return item
        past = self._past.get(key)
        if past is None:
            return None
        place = bisect_right(past, revision << 1 | 1)
        if place == 0 or past[place - 1] & 1:
            return None
        return past[place - 1] >> 1

    def before(self, change: Change) -> int | None:
        """Return the revision of a key's previous value before a change; None if there was none."""
        past = self._past.get(change.key)
        if past is None:
            return None
        place = bisect_right(past, (change.revision << 1) - 1)
        if place == 0 or past[place - 1] & 1:
            return None
        return past[place - 1] >> 1

    def all_names(self, key: bytes, end: bytes, after: bytes | None = None) -> Iterator[bytes]:
        """Iterate over the names in a range, including keys deleted since the last compaction.

        Begins after the name `after`, if one is given.
        """
        if not end:
            return iter((key,) if after is None else ())
        first, bounds = (key, (True, False)) if after is None else (after, (False, False))
        last = None if end == FROM_KEY else end
        live = self._names.irange(first, last, bounds)
        return merge(live, self._dead.irange(first, last, bounds)) if self._dead else live

    # Changing.

    def put(self, key: bytes, value: bytes, lease: int, revision: int) -> Change:
        """Set a key. The caller sets `revision` after all changes of a revision are made."""
        previous = self._items.get(key)
        if previous is None:
            encoded = self._encode(key, revision, revision, 1, value, lease)
            item = (encoded, revision, revision, 1, lease, key)
            self.newest = revision
            self._replace(key, item, None)
            return Change(key, revision, item, None)
        # The usual case, with `_replace` and `_mark` inlined: they are a tenth of a put.
        before, create_revision, changed_at, version, _, _ = previous
        encoded = self._encode(key, create_revision, revision, version + 1, value, lease)
        self.newest = revision
        self._items[key] = item = (encoded, create_revision, revision, version + 1, lease, key)
        self.encoded_bytes += len(encoded) - len(before)
        self.marks += 1
        past = self._past.get(key)
        if past is None:
            self._past[key] = array("q", (changed_at << 1,))
        else:
            past.append(changed_at << 1)
        return Change(key, revision, item, previous)

    def _replace(self, key: bytes, item: Item, previous: Item | None) -> None:
        self._items[key] = item
        self.encoded_bytes += len(item[0])
        if previous is not None:
            self.encoded_bytes -= len(previous[0])
            self._mark(key, previous[2] << 1)
            return
        self._names.add(key)
        if self._dead and key in self._past:
            self._dead.remove(key)

    def _mark(self, key: bytes, mark: int) -> None:
        self.marks += 1
        past = self._past.get(key)
        if past is None:
            self._past[key] = array("q", (mark,))
        else:
            past.append(mark)

    def _mark_end(self, key: bytes, changed_at: int, revision: int) -> None:
        """Mark the last value of a key, and that it was deleted."""
        self.marks += 2
        past = self._past.get(key)
        if past is None:
            self._past[key] = array("q", (changed_at << 1, revision << 1 | 1))
        else:
            past.append(changed_at << 1)
            past.append(revision << 1 | 1)

    def delete(self, key: bytes, revision: int) -> Change:
        """Delete a key that exists."""
        previous = self._items.pop(key)
        self.newest = revision
        self.encoded_bytes -= len(previous[0])
        self._names.remove(key)
        self._mark_end(key, previous[2], revision)
        self._dead.add(key)
        return Change(key, revision, None, previous)

    # Compaction.

    def past_names(self) -> list[bytes]:
        """Return the names of the keys that have a past."""
        return list(self._past)

    def trim(self, key: bytes, until: int) -> None:
        """Forget the part of a key's past that no read at `until` or later can see."""
        past = self._past.get(key)
        if past is None:
            return
        item = self._items.get(key)
        seen = bisect_right(past, until << 1 | 1)
        if seen and not past[seen - 1] & 1 and (item is None or item[2] > until):
            seen -= 1  # a read at `until` sees this one
        del past[:seen]
        self.marks -= seen
        if not past:
            del self._past[key]
            if item is None:
                self._dead.remove(key)

    # Loading a journal: `load`, any number of changes, then `complete`. The names are sorted once
    # at the end, which takes a third of the time.

    def load(self, items: Iterator[Item]) -> None:
        """Begin with these keys, which have no past."""
        assert not self._items, "only an empty keyspace is loaded"
        self._items = {item[5]: item for item in items}

    def restore(self, item: Item) -> Item | None:
        """Set a key as recorded, and return its previous item."""
        key = item[5]
        previous = self._items.get(key)
        self._items[key] = item
        if previous is not None:
            self._mark(key, previous[2] << 1)
        self.revision = item[2]
        return previous

    def restore_deleted(self, key: bytes, revision: int) -> Item:
        """Delete a key as recorded, and return its previous item."""
        previous = self._items.pop(key)
        self._mark_end(key, previous[2], revision)
        self.revision = revision
        return previous

    def complete(self) -> None:
        """Sort the names, and forget compacted revisions."""
        self._names = SortedList(self._items)
        self._dead = SortedList(key for key in self._past if key not in self._items)
        self.encoded_bytes = sum(len(item[0]) for item in self._items.values())
        for key in self.past_names():
            self.trim(key, self.compacted)


def covers(key: bytes, end: bytes, name: bytes) -> bool:
    """Return whether a key is in a range."""
    if not end:
        return name == key
    return key <= name and (end == FROM_KEY or name < end)
