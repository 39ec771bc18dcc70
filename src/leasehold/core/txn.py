"""Transactions: what may be in one, and which branches it takes.

All conditions, those of nested transactions too, are decided on the keyspace as it is before the
transaction, as etcd does; then the operations of the branches that are taken are done in order.

In one branch no key may be put twice, nor put and deleted: its operations have one revision, and
it could not be told which came last. Two exceptions are etcd's: a delete of everything from a key
on, and one in a later transaction within this one. There the order of the operations counts.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from operator import eq, gt, lt, ne
from typing import Final, NamedTuple

from leasehold.core.keyspace import FROM_KEY, Item, Keyspace, covers
from leasehold.core.ops import Compare, Delete, Put, Range, Step, Target, Txn
from leasehold.core.ranges import SLICE
from leasehold.errors import DuplicateKey, EmptyKey, TooManyOperations

MAX_OPERATIONS: Final = 128
"""Conditions, and operations of a branch; those of a nested transaction count on top."""

# By number, because to look an enumeration's member up in a dict takes several times as long.
_RELATIONS: Final = (eq, gt, lt, ne)
"""In the order of `Relation`."""
_COLUMNS: Final = (3, 1, 2, -1, 4)
"""Where an item has what is compared, in the order of `Target`; a value has to be decoded."""
_VALUE: Final = Target.VALUE


def check(txn: Txn, max_operations: int = MAX_OPERATIONS) -> None:
    """Refuse a transaction that nobody could execute, whatever is in the keyspace."""
    _check_sizes(txn, max_operations)
    check_overlaps(txn)


def check_overlaps(txn: Txn) -> None:
    """Refuse a transaction with a branch that changes a key twice."""
    for branch in (txn.success, txn.failure):
        if len(branch) > 1 or (branch and type(branch[0]) is Txn):
            _check_overlaps(branch)


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
    """Refuse a key without a name."""
    if not key:
        raise EmptyKey


class _Touched(NamedTuple):
    """What the operations of a branch do, whichever branches are taken within it."""

    put: set[bytes]
    deleted: list[tuple[bytes, bytes]]

    def add_put(self, key: bytes, harmless: frozenset[bytes] = frozenset()) -> None:
        """Take a put; `harmless` are those that cannot happen together with it."""
        if key in self.put and key not in harmless:
            raise DuplicateKey(key)
        for start, end in self.deleted:
            if covers(start, end, key):
                raise DuplicateKey(key)
        self.put.add(key)


def _check_overlaps(steps: Sequence[Step]) -> _Touched:
    deleted = [
        (step.key, step.end) for step in steps if isinstance(step, Delete) and step.end != FROM_KEY
    ]
    touched = _Touched(set(), deleted)
    for step in steps:
        if isinstance(step, Txn):
            then, otherwise = _check_overlaps(step.success), _check_overlaps(step.failure)
            for key in then.put:
                touched.add_put(key)
            for key in otherwise.put:
                touched.add_put(key, frozenset(then.put))
            touched.deleted.extend(then.deleted + otherwise.deleted)
    for step in steps:
        if isinstance(step, Put):
            touched.add_put(step.key)
    return touched


class Branch(NamedTuple):
    """What a transaction comes to, once its conditions are decided."""

    succeeded: bool
    steps: list["Put | Delete | Range | Branch"]

    def flat(self) -> Iterator[Put | Delete | Range]:
        """Give all operations in order, those of nested transactions too."""
        for step in self.steps:
            if isinstance(step, Branch):
                yield from step.flat()
            else:
                yield step

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return any(not isinstance(step, Range) for step in self.flat())


def decide(txn: Txn, keyspace: Keyspace) -> Generator[None, None, Branch]:
    """Decide all conditions, with pauses while ranges of very many keys are compared."""
    succeeded = True
    for compare in txn.compares:
        succeeded = yield from _holds(compare, keyspace)
        if not succeeded:
            break
    steps: list[Put | Delete | Range | Branch] = []
    for step in txn.success if succeeded else txn.failure:
        if isinstance(step, Txn):
            steps.append((yield from decide(step, keyspace)))
        else:
            steps.append(step)
    return Branch(succeeded, steps)


def choose(txn: Txn, keyspace: Keyspace) -> tuple[bool, Put | None] | None:
    """Decide a transaction that comes to one put or to nothing; None if it may be any other.

    Almost all transactions are like this, and such a put needs nothing of what others need.
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
        if len(some) == SLICE:
            yield
    return not is_empty or compares(compare, None, keyspace)


def compares(compare: Compare, item: Item | None, keyspace: Keyspace) -> bool:
    """Say whether a condition holds for one key, or for one that is not there."""
    target = compare.target
    if target == _VALUE:
        if item is None:
            return False
        return bool(_RELATIONS[compare.relation](keyspace.codec.value_of(item), compare.operand))
    found = 0 if item is None else item[_COLUMNS[target]]
    return bool(_RELATIONS[compare.relation](found, compare.operand))
