"""The size of an answer: counted while a read collects it, and for a write before it is executed.

Theory of operation. Each answer of a server is limited (`MAX_ANSWER_BYTES`). A read adds the size
of each range to an `AnswerSize` before the next range is read, and before anything is encoded: up
to then the keys found are references to stored pairs, which take no further memory. Values of the
past are loaded from the journal, so they count as soon as they are loaded.

A write must not be refused once it is executed. So `AnswerBound` computes an upper bound before
the first change: a range finds at most what is in it now and what the transaction puts into it.
Ranges of an earlier revision do not depend on the transaction; they are read before it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import itemgetter
from typing import Final

from leasehold.errors import TooLarge
from leasehold.keyspace.keyspace import FROM_KEY, Item, Keyspace
from leasehold.keyspace.operations import Delete, Put, Range, SortBy
from leasehold.keyspace.ranges import SLICE, Steps, sort_steps

MAX_ANSWER_BYTES: Final = 128 * 1024 * 1024
"""The largest answer of a server. Half of what a Leasehold client accepts and half of
`grpc.read_slots.MAX_HELD_BYTES`, so that one answer leaves room for others. etcd has no limit of
its own; it fails above 2 GiB, after the transaction was executed."""

PAIR_BYTES: Final = 6
"""The tag and the length that precede a pair in an answer."""

NAME_BYTES: Final = 64
"""The maximum size of a pair beside its name and value: revisions, version, lease."""

OPERATION_BYTES: Final = 32
"""The maximum size of the answer to an operation beside its pairs."""


def items_bytes(items: Sequence[Item], *, keys_only: bool = False) -> int:
    """Return the maximum size of these pairs in an answer."""
    if keys_only:
        return sum([len(item[5]) for item in items]) + NAME_BYTES * len(items)
    return sum([len(item[0]) for item in items]) + PAIR_BYTES * len(items)


class AnswerSize:
    """The bytes of one answer so far, and their limit (None for no limit)."""

    __slots__ = ("_bytes", "max_bytes")

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes
        self._bytes = 0

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether the limit allows for this many bytes more."""
        return self.max_bytes is None or self._bytes + size_bytes <= self.max_bytes

    def check(self, size_bytes: int) -> None:
        """Raise `TooLarge` if this many bytes more would exceed the limit."""
        if not self.has_room_for(size_bytes):
            raise TooLarge(
                f"answer would be larger than {self.max_bytes} bytes; use a limit (pages), a "
                "smaller range, or several transactions"
            )

    def add(self, size_bytes: int) -> None:
        """Count bytes of the answer; raise `TooLarge` if they exceed the limit."""
        self.check(size_bytes)
        self._bytes += size_bytes

    def add_items(self, items: Sequence[Item], *, keys_only: bool = False) -> Steps[None]:
        """Count pairs of the answer, in slices."""
        self.add(OPERATION_BYTES)
        if self.max_bytes is None:
            return
        for start in range(0, len(items), SLICE):
            self.add(items_bytes(items[start : start + SLICE], keys_only=keys_only))
            yield []


class AnswerBound:
    """An upper bound for the answer to operations that are executed together."""

    def __init__(self, keyspace: Keyspace, size: AnswerSize) -> None:
        self._keyspace = keyspace
        self._size = size
        self._names: list[bytes] = []
        """The keys that are put, sorted."""
        self._sums: list[int] = [0]
        """The sums of the bytes of the first n of them."""
        self._deleted = 0
        """The maximum number of keys that are deleted."""

    def add(
        self, shown: Sequence[Put | Delete | Range], changes: Sequence[Put | Delete]
    ) -> Steps[None]:
        """Count the operations whose answers contain keys, beside all changes that are made.

        Raises `TooLarge` if the answer may exceed the limit.
        """
        size, keyspace = self._size, self._keyspace
        if size.max_bytes is None:
            return
        size.add(OPERATION_BYTES * (len(shown) + len(changes)))
        put_bytes = 0
        for start in range(0, len(changes), SLICE):
            some = changes[start : start + SLICE]
            put_bytes += sum([_put_bytes(keyspace, each) for each in some if isinstance(each, Put)])
            yield []
        each_bytes = keyspace.encoded_bytes + PAIR_BYTES * len(keyspace) + put_bytes
        if size.has_room_for(len(shown) * each_bytes):
            return  # even if each operation returned every key
        yield from self._prepare(changes)
        for count, step in enumerate(shown, 1):
            if isinstance(step, Put):
                item = keyspace.get(step.key)
                size.add(0 if item is None else items_bytes([item]))
            else:
                yield from self._add_range(step)
            if count % SLICE == 0:
                yield []

    def _prepare(self, changes: Sequence[Put | Delete]) -> Steps[None]:
        """Sort the puts, so that the bytes in a range are a difference of two sums."""
        keyspace = self._keyspace
        puts = [(step.key, _put_bytes(keyspace, step)) for step in changes if isinstance(step, Put)]
        puts = yield from sort_steps(puts, itemgetter(0))
        self._names = [name for name, _ in puts]
        self._sums = [0, *accumulate([data for _, data in puts])]
        deletes = [step for step in changes if isinstance(step, Delete)]
        self._deleted = sum([keyspace.count(step.key, step.end) for step in deletes])

    def _add_range(self, step: Delete | Range) -> Steps[None]:
        if isinstance(step, Delete):
            yield from self._add_live(step.key, step.end)
            self._size.add(self._put_into(step.key, step.end))
            return
        if step.count_only:
            return
        most = step.limit + self._deleted if step.limit else None
        if most is not None and (step.sort_by != SortBy.KEY or step.is_filtered):
            yield from self._add_some(step, most)
        else:
            yield from self._add_live(
                step.key, step.end, most, reverse=step.descending, keys_only=step.keys_only
            )
        self._size.add(self._put_into(step.key, step.end))

    def _add_live(
        self,
        key: bytes,
        end: bytes,
        most: int | None = None,
        *,
        reverse: bool = False,
        keys_only: bool = False,
    ) -> Steps[None]:
        """Count the first keys of a range: those after them are found only if some are deleted."""
        names = islice(self._keyspace.names(key, end, reverse=reverse), most)
        while items := self._items(list(islice(names, SLICE))):
            self._size.add(items_bytes(items, keys_only=keys_only))
            yield []

    def _add_some(self, query: Range, most: int) -> Steps[None]:
        """Count the largest keys of a range: any of them may come first in another order."""
        names = self._keyspace.names(query.key, query.end)
        total = largest = 0
        while items := self._items(list(islice(names, SLICE))):
            each = [items_bytes([item], keys_only=query.keys_only) for item in items]
            total += sum(each)
            largest = max(largest, *each)
            yield []
        self._size.add(min(total, most * largest))

    def _items(self, names: list[bytes]) -> list[Item]:
        get = self._keyspace.get
        return [item for name in names if (item := get(name)) is not None]

    def _put_into(self, key: bytes, end: bytes) -> int:
        names = self._names
        first = bisect_left(names, key)
        last = len(names) if end == FROM_KEY else bisect_left(names, end or key + b"\0")
        return self._sums[max(first, last)] - self._sums[first]


def _put_bytes(keyspace: Keyspace, put: Put) -> int:
    """Return the maximum size of the pair that a put makes."""
    value_bytes = 0
    if put.value is not None:
        value_bytes = len(put.value)
    elif (kept := keyspace.get(put.key)) is not None:
        value_bytes = len(kept[0])
    return len(put.key) + value_bytes + NAME_BYTES
