"""Transactions: which operations are allowed, and which branches are taken.

All conditions, those of nested transactions too, are decided on the keyspace as it is before the
transaction, as etcd does; then the operations of the branches that are taken are done in order.

A transaction that would change a key twice at one revision is refused (`check_overlaps`). In one
branch no key may be put twice, and no key may be put that the same branch deletes. Three cases are
allowed, as in etcd, because the order of the operations decides:

- a delete of everything from a key on (`FROM_KEY`);
- a delete in a nested transaction that comes after the nested transaction with the put;
- operations in the two branches of one transaction, of which only one is executed.

Theory of operation of that check. A branch is reduced to the keys that it may put and the ranges
that it may delete, whichever way its nested transactions go. Its own deletes come first, then its
nested transactions in order, then its own puts: in this order a put conflicts with exactly the
deletes before it. When two sets are compared or combined, the smaller one is iterated and the
larger one is searched. So n operations take O(n log² n) comparisons, however deep they are nested.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from operator import eq, gt, lt, ne
from typing import Final, NamedTuple

from sortedcontainers import SortedList

from leasehold.errors import DuplicateKey, EmptyKey, TooManyOperations
from leasehold.keyspace.keyspace import FROM_KEY, Item, Keyspace, covers
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Step, Target, Txn
from leasehold.keyspace.ranges import SLICE

MAX_OPERATIONS: Final = 128
"""Conditions, and operations of a branch; those of a nested transaction count on top."""

KEYS_PER_SLICE: Final = 250
"""Keys and ranges that are compared between two pauses, which takes about half a millisecond."""

FEW: Final = 16
"""Operations of a branch that are compared with each other one by one, which is then faster."""

Pauses = Generator[None, None, None]

# Indexed by number, because looking an enum member up in a dict takes several times as long.
_RELATIONS: Final = (eq, gt, lt, ne)
"""In the order of `Relation`."""
_COLUMNS: Final = (3, 1, 2, -1, 4)
"""The index of the compared property in an item, in the order of `Target`; values are decoded."""
_VALUE: Final = Target.VALUE


def check(txn: Txn, max_operations: int = MAX_OPERATIONS) -> None:
    """Refuse a transaction that cannot be executed, whatever is in the keyspace."""
    _check_sizes(txn, max_operations)
    check_overlaps(txn)


def _check_sizes(txn: Txn, max_operations: int) -> None:
    size = max(len(txn.compares), len(txn.success), len(txn.failure))
    if size > max_operations:
        raise TooManyOperations(size, max_operations)
    for compare in txn.compares:
        check_key(compare.key)
    for step in (*txn.success, *txn.failure):
        if isinstance(step, Txn):
            _check_sizes(step, max_operations - size)
        else:
            check_key(step.key)


def check_key(key: bytes) -> None:
    """Refuse an empty key."""
    if not key:
        raise EmptyKey


def has_only_ranges(txn: Txn) -> bool:
    """Return whether every step is a range.

    This is etcd's rule for a read-only transaction: a nested transaction counts as a write, even
    one that only reads. See `only_reads`.
    """
    return not any(type(step) is not Range for step in (*txn.success, *txn.failure))


def only_reads(txn: Txn) -> bool:
    """Return whether a transaction changes nothing, whichever branches it takes.

    Nested transactions are searched. See `has_only_ranges` for etcd's rule.
    """
    return all(
        only_reads(step) if isinstance(step, Txn) else isinstance(step, Range)
        for step in (*txn.success, *txn.failure)
    )


# Deciding the conditions.


class Branch(NamedTuple):
    """The operations of a transaction, once its conditions are decided."""

    succeeded: bool
    steps: list["Put | Delete | Range | Branch"]

    def flat(self) -> Iterator[Put | Delete | Range]:
        """Return all operations in order, those of nested transactions included."""
        levels = [iter(self.steps)]
        while levels:
            for step in levels[-1]:
                if isinstance(step, Branch):
                    levels.append(iter(step.steps))
                    break
                yield step
            else:
                levels.pop()


def decide(txn: Txn, keyspace: Keyspace) -> Generator[None, None, Branch]:
    """Decide all conditions, with a pause after each range of keys and nested transaction."""
    succeeded = True
    for compare in txn.compares:
        succeeded = yield from _holds(compare, keyspace)
        if not succeeded:
            break
    steps: list[Put | Delete | Range | Branch] = []
    for step in txn.success if succeeded else txn.failure:
        if isinstance(step, Txn):
            steps.append((yield from decide(step, keyspace)))
            yield
        else:
            steps.append(step)
    return Branch(succeeded, steps)


def choose(txn: Txn, keyspace: Keyspace) -> tuple[bool, Put | None] | None:
    """Decide a transaction that results in one put or nothing; return None for any other.

    Almost all transactions are like this, and such a put needs none of the other preparations.
    """
    succeeded = True
    for compare in txn.compares:
        if compare.end:
            return None
        if not compares(compare, keyspace.get(compare.key), keyspace):
            succeeded = False
            break
    branch = txn.success if succeeded else txn.failure
    if not branch:
        return succeeded, None
    (step,) = branch if len(branch) == 1 else (None,)
    if type(step) is not Put or step.value is None or step.lease is None:
        return None
    return succeeded, step


def _holds(compare: Compare, keyspace: Keyspace) -> Generator[None, None, bool]:
    if not compare.end:
        return compares(compare, keyspace.get(compare.key), keyspace)
    names = keyspace.names(compare.key, compare.end)
    slices = iter(lambda: list(islice(names, SLICE)), [])
    is_empty = True
    for some in slices:
        is_empty = False
        if not all(compares(compare, keyspace.get(name), keyspace) for name in some):
            return False
        yield
    return not is_empty or compares(compare, None, keyspace)


def compares(compare: Compare, item: Item | None, keyspace: Keyspace) -> bool:
    """Return whether a condition holds for one key, or for one that does not exist."""
    target = compare.target
    if target == _VALUE:
        if item is None:
            return False
        return bool(_RELATIONS[compare.relation](keyspace.codec.value_of(item), compare.operand))
    found = 0 if item is None else item[_COLUMNS[target]]
    return bool(_RELATIONS[compare.relation](found, compare.operand))


# Operations that change the same key.


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
    """Like `check_overlaps`, with pauses."""
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
        """Refuse later puts that change a key of these operations again."""
        again = self.put.names
        if not again.isdisjoint(later.put.names):
            raise DuplicateKey(min(again & later.put.names))
        yield from self.deleted.check(later.put)

    def add(self, other: "_Touched") -> Pauses:
        """Add everything of another one, which must not be used afterwards."""
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
        """The same keys, sorted; None until it is needed."""

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
        for start in range(0, len(new), KEYS_PER_SLICE):
            some = new[start : start + KEYS_PER_SLICE]
            ordered.update(some)
            self.names.update(some)
            yield

    def ordered(self) -> "SortedList[bytes]":
        """Return the keys, sorted."""
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
        """Add the range of a delete; nothing, if that is everything from a key on."""
        if not end:
            end = start + b"\0"
        elif end == FROM_KEY or end <= start:
            return
        self._insert(start, end)

    def add(self, others: "_Ranges") -> Pauses:
        """Add all ranges of another union."""
        for count, (start, end) in enumerate(others.ends.items(), 1):
            self._insert(start, end)
            if count % KEYS_PER_SLICE == 0:
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
            if count % KEYS_PER_SLICE == 0:
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
