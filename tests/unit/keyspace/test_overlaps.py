"""What it costs to check a transaction for keys that are changed twice."""

from collections.abc import Callable

import pytest

from leasehold.errors import DuplicateKey
from leasehold.keyspace.operations import Delete, Put, Step, Txn
from leasehold.keyspace.transaction_rules import check_overlaps, check_overlaps_steps


class Counted(bytes):
    """A key that counts how often it is compared or hashed."""

    comparisons = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.comparisons += 1
        return bytes(self) < bytes(other)

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return isinstance(other, bytes) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


def key(prefix: bytes, number: int) -> bytes:
    return Counted(prefix + number.to_bytes(3, "big"))


def nested(size: int, step: Callable[[int, int], Step], *, both: bool = False) -> Txn:
    """Make `size` operations, ten to a transaction within a transaction."""
    inner = []
    for first in range(0, size, 10):
        steps = [step(number, size) for number in range(first, first + 10)]
        inner.append(Txn([], steps, steps if both else []))
    return Txn([], inner, [])


SHAPES: dict[str, Callable[[int], Txn]] = {
    "deletes, then puts": lambda size: nested(
        size, lambda n, all_: Delete(key(b"d", n)) if n < all_ / 2 else Put(key(b"p", n), b"")
    ),
    "deletes from a key on, then puts": lambda size: nested(
        size,
        lambda n, all_: Delete(key(b"d", n), b"\0") if n < all_ / 2 else Put(key(b"p", n), b""),
    ),
    "deletes of ranges, then puts": lambda size: nested(
        size,
        lambda n, all_: (
            Delete(key(b"d", 2 * n), key(b"d", 2 * n + 1))
            if n < all_ / 2
            else Put(key(b"p", n), b"")
        ),
    ),
    "puts, then deletes of the same": lambda size: nested(
        size,
        lambda n, all_: (
            Put(key(b"p", n), b"") if n < all_ / 2 else Delete(key(b"p", n - size // 2))
        ),
    ),
    "puts in both branches": lambda size: nested(
        size, lambda n, _: Put(key(b"p", n), b""), both=True
    ),
    "puts, then one delete of everything": lambda size: Txn(
        [],
        [
            nested(size, lambda n, _: Put(key(b"p", n), b"")),
            Txn([], [Delete(b"a", b"z")], []),
        ],
        [],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_operations_take_less_than_three_times_the_comparisons(shape: str) -> None:
    counts = []
    for size in (1_000, 2_000, 4_000):
        txn = SHAPES[shape](size)
        Counted.comparisons = 0
        check_overlaps(txn)
        counts.append(Counted.comparisons)
    assert counts[1] < 3 * counts[0] + 100
    assert counts[2] < 3 * counts[1] + 100


def test_depth_adds_little() -> None:
    counts = []
    for depth in (1, 50):
        txn = SHAPES["deletes, then puts"](1_000)
        for level in range(depth):
            own: list[Step] = [Put(key(b"x", level), b""), Delete(key(b"y", level))]
            txn = Txn([], [txn, *own], [Put(key(b"x", level), b"")])
        Counted.comparisons = 0
        check_overlaps(txn)
        counts.append(Counted.comparisons)
    assert counts[1] < 2 * counts[0]


def test_there_are_pauses() -> None:
    txn = SHAPES["deletes, then puts"](10_000)
    worst = 0
    Counted.comparisons = 0
    for _ in check_overlaps_steps(txn):
        worst = max(worst, Counted.comparisons)
        Counted.comparisons = 0
    assert 0 < worst < 20_000


def test_a_conflict_among_very_many_operations_is_found() -> None:
    steps = list(SHAPES["deletes, then puts"](4_000).success)
    twice = Txn([], [Put(key(b"d", 7), b"")], [])
    check_overlaps(Txn([], [twice, *steps], []))  # the delete comes later
    with pytest.raises(DuplicateKey):
        check_overlaps(Txn([], [*steps, twice], []))
