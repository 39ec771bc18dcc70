"""Which ranges have a key in them, in which order, and how many are looked at to find out."""

from math import log2

import pytest

from leasehold.keyspace.range_index import RangeIndex

Range = tuple[bytes, bytes | None]

MANY = 2000


@pytest.fixture
def index() -> RangeIndex[str]:
    return RangeIndex()


def at(index: RangeIndex[str], key: bytes) -> list[list[str]]:
    return [list(values) for values in index.at(key)]


def filled(ranges: list[Range]) -> RangeIndex[int]:
    index: RangeIndex[int] = RangeIndex()
    for value, (start, end) in enumerate(ranges):
        index.add(start, end, value)
    return index


def name(number: int) -> bytes:
    return b"%06d" % number


ORDERS: dict[str, list[Range]] = {
    "ascending": [(name(i), name(i + 1)) for i in range(MANY)],
    "descending": [(name(i), name(i + 1)) for i in reversed(range(MANY))],
    "nested, from the outside": [(name(i), name(9 * MANY - i)) for i in range(MANY)],
    "nested, from the inside": [(name(i), name(9 * MANY - i)) for i in reversed(range(MANY))],
    "with one start": [(b"", name(i)) for i in range(MANY)],
    "with one end": [(name(i), b"9") for i in range(MANY)],
    "without an end": [(name(i), None) for i in range(MANY)],
    "inwards": [(name(i if i % 2 else 2 * MANY - i), b"9") for i in range(MANY)],
}
"""Orders of coming in which a tree that is not balanced is a list."""


class CountedKey(bytes):
    """A key that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: bytes) -> bool:
        self.compared += 1
        return super().__lt__(other)

    def __ge__(self, other: bytes) -> bool:
        self.compared += 1
        return super().__ge__(other)


def comparisons(index: RangeIndex[int], key: bytes, *, matches: int) -> int:
    counted = CountedKey(key)
    assert len(index.at(counted)) == matches
    assert counted.compared
    return counted.compared


COMPARISONS_PER_NODE = 5
"""The last end, the start, the end, and the last ends of both subtrees."""


def levels(ranges: int) -> float:
    """How deep an AVL tree is at most."""
    return 1.4405 * log2(ranges + 2)


# What has a key in it.


def test_an_empty_index_has_nothing_at_any_key(index: RangeIndex[str]) -> None:
    assert (len(index), bool(index)) == (0, False)
    assert not index.at(b"")
    assert not index.at(b"a")


def test_a_range_has_its_start_in_it_and_not_its_end(index: RangeIndex[str]) -> None:
    index.add(b"b", b"d", "x")
    keys = [b"", b"a", b"a\xff", b"b", b"b\0", b"c\xff", b"d", b"d\0", b"e"]
    assert [key for key in keys if index.at(key)] == [b"b", b"b\0", b"c\xff"]


def test_a_range_without_an_end_has_all_from_its_start_on(index: RangeIndex[str]) -> None:
    index.add(b"b", None, "x")
    assert [key for key in [b"", b"a", b"b", b"b\0", b"\xff" * 9] if index.at(key)] == [
        b"b",
        b"b\0",
        b"\xff" * 9,
    ]


def test_a_range_from_the_empty_key_without_an_end_has_every_key(index: RangeIndex[str]) -> None:
    index.add(b"", None, "x")
    assert [at(index, key) for key in [b"", b"\0", b"\xff"]] == [[["x"]]] * 3


@pytest.mark.parametrize("end", [b"", b"a", b"b"])
def test_a_range_that_ends_before_it_starts_has_no_key(index: RangeIndex[str], end: bytes) -> None:
    index.add(b"b", end, "x")
    assert len(index) == 1
    assert not [key for key in [b"", b"a", b"a\0", b"b", b"c"] if index.at(key)]
    index.discard(b"b", end, "x")
    assert not index


def test_a_range_is_found_behind_a_shorter_one_that_starts_later(index: RangeIndex[str]) -> None:
    index.add(b"a", b"z", "long")
    index.add(b"b", b"c", "short")
    index.add(b"d", b"e", "short too")
    assert at(index, b"x") == [["long"]]


@pytest.mark.parametrize("endless", range(7))
def test_a_range_without_an_end_is_found_wherever_it_is(endless: int) -> None:
    index = filled([(name(i), None if i == endless else name(i + 1)) for i in range(7)])
    assert [list(values) for values in index.at(b"9")] == [[endless]]


def test_a_longer_range_does_not_lengthen_those_around_it(index: RangeIndex[str]) -> None:
    index.add(b"b", b"c", "short")
    index.add(b"a", b"z", "long")
    index.add(b"d", b"e", "short too")
    assert at(index, b"c") == at(index, b"e") == [["long"]]


# Values and ranges.


def test_the_values_of_one_range_come_together_in_the_order_they_were_added(
    index: RangeIndex[str],
) -> None:
    for value in "cab":
        index.add(b"a", b"z", value)
    assert at(index, b"k") == [["c", "a", "b"]]


def test_ranges_come_by_start_and_then_by_end_with_no_end_last(index: RangeIndex[str]) -> None:
    ranges: list[Range] = [(b"b", b"y"), (b"a", None), (b"b", None), (b"a", b"z"), (b"b", b"x")]
    for start, end in ranges:
        index.add(start, end, f"{start.decode()}-{end.decode() if end else ''}")
    assert at(index, b"k") == [["a-z"], ["a-"], ["b-x"], ["b-y"], ["b-"]]


def test_a_value_comes_once_for_each_of_its_ranges(index: RangeIndex[str]) -> None:
    for end in (b"m", b"z", None):
        index.add(b"a", end, "x")
    assert len(index) == 3
    assert at(index, b"b") == [["x"]] * 3
    assert at(index, b"n") == [["x"]] * 2


def test_adding_a_value_twice_with_one_range_is_adding_it_once(index: RangeIndex[str]) -> None:
    for value in "xyx":
        index.add(b"a", b"z", value)
    assert len(index) == 2
    assert at(index, b"k") == [["x", "y"]]
    index.discard(b"a", b"z", "x")
    assert at(index, b"k") == [["y"]]


def test_a_discarded_value_leaves_the_others_of_its_range(index: RangeIndex[str]) -> None:
    for value in "xyz":
        index.add(b"a", b"z", value)
    index.discard(b"a", b"z", "y")
    assert (len(index), at(index, b"k")) == (2, [["x", "z"]])


def test_a_range_whose_last_value_is_discarded_is_gone(index: RangeIndex[str]) -> None:
    index.add(b"a", b"z", "x")
    index.add(b"b", b"z", "y")
    index.discard(b"a", b"z", "x")
    assert at(index, b"k") == [["y"]]
    index.discard(b"b", b"z", "y")
    assert (len(index), bool(index), at(index, b"k")) == (0, False, [])


def test_discarding_what_is_not_there_does_nothing(index: RangeIndex[str]) -> None:
    index.discard(b"a", b"z", "x")
    index.add(b"a", b"z", "x")
    absent: list[tuple[bytes, bytes | None, str]] = [
        (b"a", b"z", "y"),
        (b"a", None, "x"),
        (b"a", b"y", "x"),
        (b"b", b"z", "x"),
    ]
    for start, end, value in absent:
        index.discard(start, end, value)
    assert (len(index), at(index, b"k")) == (1, [["x"]])


def test_a_value_that_comes_back_is_the_last_of_its_range(index: RangeIndex[str]) -> None:
    for value in "xy":
        index.add(b"a", b"z", value)
    index.discard(b"a", b"z", "x")
    index.add(b"a", b"z", "x")
    assert at(index, b"k") == [["y", "x"]]


def test_two_indexes_share_nothing() -> None:
    one: RangeIndex[str] = RangeIndex()
    other: RangeIndex[str] = RangeIndex()
    one.add(b"a", b"z", "x")
    assert (len(other), at(other, b"k")) == (0, [])


# What it costs.


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_coming_makes_the_tree_deep(order: str) -> None:
    assert filled(ORDERS[order])._root.height <= levels(MANY)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("direction", [1, -1])
def test_no_order_of_leaving_makes_the_tree_deep(order: str, direction: int) -> None:
    index = filled(ORDERS[order])
    going = list(enumerate(ORDERS[order]))[::direction]
    for value, (start, end) in going:
        index.discard(start, end, value)
        assert index._root.height <= levels(len(index))
    assert not index


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_one_match_among_many_costs_one_way_down_the_tree(order: str) -> None:
    index = filled(ORDERS[order])
    for key in range(0, MANY, 37):
        assert comparisons(index, name(key) + b"x", matches=1) <= (
            COMPARISONS_PER_NODE * levels(MANY)
        )


def test_a_key_after_every_end_costs_one_comparison() -> None:
    assert comparisons(filled(ORDERS["ascending"]), b"9", matches=0) == 1


@pytest.mark.parametrize("gone", range(7))
def test_the_end_of_a_range_that_is_gone_costs_nothing(gone: int) -> None:
    index = filled([(name(i), None if i == gone else name(i + 1)) for i in range(7)])
    index.discard(name(gone), None, gone)
    assert comparisons(index, b"9", matches=0) == 1


def test_nested_ranges_cost_what_matches_and_one_way_down() -> None:
    index = filled(ORDERS["nested, from the outside"])
    for depth in (1, 10, 100, 1000):
        assert comparisons(index, name(depth - 1) + b"x", matches=depth) <= (
            COMPARISONS_PER_NODE * (depth + levels(MANY))
        )


def test_a_scattered_match_costs_no_more_than_its_own_way_down() -> None:
    every = 50
    index = filled([(name(i), b"8" if i % every == 0 else name(i + 1)) for i in range(MANY)])
    assert comparisons(index, b"7", matches=MANY // every) <= (
        COMPARISONS_PER_NODE * (MANY // every) * levels(MANY)
    )


def test_values_of_one_range_cost_a_query_nothing() -> None:
    index: RangeIndex[int] = RangeIndex()
    for value in range(MANY):
        index.add(b"a", b"z", value)
    assert comparisons(index, b"k", matches=1) <= COMPARISONS_PER_NODE
