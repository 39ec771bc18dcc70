"""Transactions: what may be in one, and which branches it takes.

All conditions, those of nested transactions too, are decided on the keyspace as it is before the
transaction, as etcd does; then the operations of the branches that are taken are done in order.
`core.overlaps` has the rules for operations that change the same key.
"""

from collections.abc import Generator, Iterator
from itertools import islice
from operator import eq, gt, lt, ne
from typing import Final, NamedTuple

from leasehold.core.keyspace import Item, Keyspace
from leasehold.core.ops import Compare, Delete, Put, Range, Target, Txn
from leasehold.core.overlaps import check_overlaps
from leasehold.core.ranges import SLICE
from leasehold.errors import EmptyKey, TooManyOperations

MAX_OPERATIONS: Final = 128
"""Conditions, and operations of a branch; those of a nested transaction count on top."""

# By number, because to look an enumeration's member up in a dict takes several times as long.
_RELATIONS: Final = (eq, gt, lt, ne)
"""In the order of `Relation`."""
_COLUMNS: Final = (3, 1, 2, -1, 4)
"""Where an item has what is compared, in the order of `Target`; a value has to be decoded."""
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
    """Refuse a key without a name."""
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


class Branch(NamedTuple):
    """What a transaction comes to, once its conditions are decided."""

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
