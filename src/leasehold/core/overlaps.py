"""Whether a transaction would change a key twice at one revision, which etcd refuses.

The rules are etcd's. In one branch no key may be put twice, and no key may be put that the same
branch deletes. Three cases are allowed, because the order of the operations decides:

- a delete of everything from a key on (`FROM_KEY`);
- a delete in a nested transaction that comes after the nested transaction with the put;
- operations in the two branches of one transaction, of which only one is executed.

Theory of operation. A branch is reduced to the keys that it may put and the ranges that it may
delete, whichever way its nested transactions go. Its own deletes come first, then its nested
transactions in order, then its own puts: in this order a put conflicts with exactly the deletes
before it. When two sets are compared or combined, the smaller one is iterated and the larger one is
searched. So n operations take O(n log² n) comparisons, however deep they are nested.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from sortedcontainers import SortedList

from leasehold.core.keyspace import FROM_KEY, covers
from leasehold.core.ops import Delete, Put, Step, Txn
from leasehold.errors import DuplicateKey

KEYS_AT_ONCE: Final = 250
"""Keys and ranges that are compared between two pauses, which takes about half a millisecond."""

FEW: Final = 16
"""Operations of a branch that are compared with each other one by one, which is then faster."""

Pauses = Generator[None, None, None]


def check_overlaps(txn: Txn) -> None:
    """Raise `DuplicateKey` if a branch changes a key twice."""
    for branch in (txn.success, txn.failure):
        if len(branch) > 1 or (branch and type(branch[0]) is Txn):
            if len(branch) > FEW or any(type(step) is Txn for step in branch):
                for _ in _touched(branch):
                    pass
            else:
                _check_few(branch)


def check_overlaps_steps(txn: Txn) -> Pauses:
    """Do what `check_overlaps` does, with pauses."""
    yield from _touched(txn.success)
    yield from _touched(txn.failure)


def _check_few(branch: Sequence[Step]) -> None:
    """Check a branch without nested transactions, as almost all are."""
    puts = [step.key for step in branch if type(step) is Put]
    if not puts:
        return
    if len(set(puts)) < len(puts):
        raise DuplicateKey(next(key for key in puts if puts.count(key) > 1))
    for step in branch:
        if type(step) is Delete and step.end != FROM_KEY:
            for key in puts:
                if covers(step.key, step.end, key):
                    raise DuplicateKey(key)


class _Touched:
    """The keys that operations may put, and the ranges that they may delete."""

    __slots__ = ("deleted", "put")

    def __init__(self) -> None:
        self.put = _Keys()
        self.deleted = _Ranges()

    def check(self, later: "_Touched") -> Pauses:
        """Refuse puts that come after these operations, and change a key of theirs again."""
        again = self.put.names
        if not again.isdisjoint(later.put.names):
            raise DuplicateKey(min(again & later.put.names))
        yield from self.deleted.check(later.put)

    def add(self, other: "_Touched") -> Pauses:
        """Take everything of another one, which is not used any more."""
        if len(other.put.names) > len(self.put.names):
            self.put, other.put = other.put, self.put
        if len(other.deleted) > len(self.deleted):
            self.deleted, other.deleted = other.deleted, self.deleted
        yield from self.put.add(other.put)
        yield from self.deleted.add(other.deleted)


def _touched(branch: Sequence[Step]) -> Generator[None, None, _Touched]:
    touched = _Touched()
    puts: list[bytes] = []
    nested: list[Txn] = []
    for step in branch:
        kind = type(step)
        if kind is Put:
            assert isinstance(step, Put)
            puts.append(step.key)
        elif kind is Delete:
            assert isinstance(step, Delete)
            touched.deleted.add_one(step.key, step.end)
        elif kind is Txn:
            assert isinstance(step, Txn)
            nested.append(step)
    for txn in nested:
        then, otherwise = (yield from _touched(txn.success)), (yield from _touched(txn.failure))
        yield from touched.check(then)
        yield from touched.check(otherwise)
        yield from then.add(otherwise)
        yield from touched.add(then)
        yield
    if puts:
        own = _Touched()
        own.put.add_own(puts)
        yield from touched.check(own)
        yield from touched.add(own)
    return touched


class _Keys:
    """Keys, to be looked up one by one or by a range."""

    __slots__ = ("_sorted", "names")

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self._sorted: SortedList[bytes] | None = None
        """The same keys in order, once there are any."""

    def add_own(self, names: list[bytes]) -> None:
        """Set the keys that are put by the operations of one branch, each once."""
        for name in names:
            if name in self.names:
                raise DuplicateKey(name)
            self.names.add(name)

    def add(self, others: "_Keys") -> Pauses:
        """Add keys, of which some may be here already."""
        if not others.names:
            return
        new = [name for name in others.names if name not in self.names]
        ordered = self.ordered()
        for start in range(0, len(new), KEYS_AT_ONCE):
            some = new[start : start + KEYS_AT_ONCE]
            ordered.update(some)
            self.names.update(some)
            yield

    def ordered(self) -> "SortedList[bytes]":
        """Give the keys in order."""
        if self._sorted is None:  # at most the operations of one branch
            self._sorted = SortedList(self.names)
        return self._sorted


class _Ranges:
    """A union of ranges of keys, as ranges that neither overlap nor touch."""

    __slots__ = ("_starts", "ends")

    def __init__(self) -> None:
        self._starts: SortedList[bytes] | None = None
        self.ends: dict[bytes, bytes] = {}
        """The ranges: the end of each by its start."""

    def __len__(self) -> int:
        return len(self.ends)

    def add_one(self, start: bytes, end: bytes) -> None:
        """Add what a delete covers; nothing, if that is everything from a key on."""
        if not end:
            end = start + b"\0"
        elif end == FROM_KEY or end <= start:
            return
        self._insert(start, end)

    def add(self, others: "_Ranges") -> Pauses:
        """Add all ranges of another union."""
        for count, (start, end) in enumerate(others.ends.items(), 1):
            self._insert(start, end)
            if count % KEYS_AT_ONCE == 0:
                yield

    def _insert(self, start: bytes, end: bytes) -> None:
        starts, ends = self._starts, self.ends
        if starts is None:
            starts = self._starts = SortedList()
        place = starts.bisect_right(start)
        if place and ends[starts[place - 1]] >= start:
            place -= 1
            start = starts[place]
            end = max(end, ends[start])
        else:
            starts.add(start)
        ends[start] = end
        place += 1
        while place < len(starts) and starts[place] <= end:
            end = ends[start] = max(end, ends.pop(starts.pop(place)))

    def check(self, keys: _Keys) -> Pauses:
        """Raise `DuplicateKey` if one of the keys is in one of the ranges."""
        if not self.ends or not keys.names:
            return
        pairs = self._by_keys(keys.names) if len(keys.names) <= len(self) else self._by_ranges(keys)
        for count, key in enumerate(pairs, 1):
            if key is not None:
                raise DuplicateKey(key)
            if count % KEYS_AT_ONCE == 0:
                yield

    def _by_keys(self, names: Iterable[bytes]) -> Iterable[bytes | None]:
        starts, ends = self._starts, self.ends
        assert starts is not None
        for name in names:
            place = starts.bisect_right(name)
            yield name if place and name < ends[starts[place - 1]] else None

    def _by_ranges(self, keys: _Keys) -> Iterable[bytes | None]:
        ordered = keys.ordered()
        for start, end in self.ends.items():
            yield next(ordered.irange(start, end, (True, False)), None)
