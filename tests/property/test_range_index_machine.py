"""`RangeIndex` against a dict of ranges that is searched from end to end."""

from math import log2
from random import Random
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.keyspace.range_index import _NIL, RangeIndex, _Node
from tests.property.support import effort

Range = tuple[bytes, bytes | None]
Held = tuple[bytes, bytes | None, int]

AFTER_ALL: Final = b"\xff" * 9
"""After every key that a strategy draws: what stands for no end where ends are compared."""


def in_order(of: Range) -> tuple[bytes, bytes]:
    return of[0], AFTER_ALL if of[1] is None else of[1]


class NaiveIndex:
    """An index and its model."""

    def __init__(self) -> None:
        self.index: RangeIndex[int] = RangeIndex()
        self.model: dict[Range, list[int]] = {}

    def add(self, start: bytes, end: bytes | None, value: int) -> None:
        values = self.model.setdefault((start, end), [])
        if value not in values:
            values.append(value)
        self.index.add(start, end, value)

    def discard(self, start: bytes, end: bytes | None, value: int) -> None:
        values = self.model.get((start, end), [])
        if value in values:
            values.remove(value)
            if not values:
                del self.model[start, end]
        self.index.discard(start, end, value)

    def held(self) -> list[Held]:
        return [(*of, value) for of, values in self.model.items() for value in values]

    def check_at(self, key: bytes) -> None:
        expected = [
            self.model[start, end]
            for start, end in sorted(self.model, key=in_order)
            if start <= key and (end is None or key < end)
        ]
        assert [list(values) for values in self.index.at(key)] == expected

    def check_everything(self) -> None:
        pairs = len(self.held())
        assert (len(self.index), bool(self.index)) == (pairs, pairs > 0)
        ranges_in_order = sorted(self.model, key=in_order)
        assert [(start, end, [*values]) for start, end, values in self.index.ranges()] == [
            (*of, self.model[of]) for of in ranges_in_order
        ]
        nodes = check_subtree(self.index._root)
        ranges = [(node.start, node.end) for node in nodes]
        assert ranges == sorted(self.model, key=in_order), "out of order"
        assert [list(node.values) for node in nodes] == [self.model[of] for of in ranges]
        assert self.index._root.height <= 1.4405 * log2(len(nodes) + 2)
        check_nil()


def check_subtree(node: _Node[int]) -> list[_Node[int]]:
    """Check what each node knows of what is below it, and return the nodes in order."""
    if node is _NIL:
        return []
    nodes = [*check_subtree(node.left), node, *check_subtree(node.right)]
    left, right = node.left.height, node.right.height
    assert abs(left - right) <= 1, "out of balance"
    assert node.height == 1 + max(left, right)
    ends = [below.end for below in nodes]
    known = [end for end in ends if end is not None]
    assert node.max_end == (max(known) if known == ends else None)
    return nodes


def check_nil() -> None:
    assert (_NIL.start, _NIL.end, _NIL.max_end, _NIL.height) == (b"", b"", b"", 0)
    assert _NIL.left is _NIL.right is _NIL
    assert not _NIL.values


def ordered(ranges: list[Held], order: str, random: Random) -> list[Held]:
    """In one of the orders that are hard for a tree, or in none."""
    ranges = sorted(ranges, key=lambda held: in_order(held[:2]), reverse=order == "descending")
    if order == "random":
        random.shuffle(ranges)
    if order == "inwards":
        ranges[::2] = reversed(ranges[::2])
    return ranges


few_keys = st.binary(max_size=2) | st.text("ab", max_size=4).map(str.encode)
"""Few enough that starts, ends and whole ranges come together often."""

ends = few_keys | st.none()
values = st.integers(0, 3)
randoms = st.integers(0, 2**32).map(Random)
counts = st.sampled_from([1, 3, 20, 150])
orders = st.sampled_from(["ascending", "descending", "inwards", "random"])
SHAPES: Final = ["disjoint", "nested", "prefixes", "one start", "one end", "any"]
shapes = st.sampled_from(SHAPES)


def shaped(shape: str, number: int, random: Random) -> Range:
    """One of many ranges that lie to each other in a certain way."""
    name = b"%04d" % number
    if shape == "disjoint":
        return name, b"%04d" % (number + 1)
    if shape == "nested":
        return name, b"%04d" % (9999 - number)
    if shape == "prefixes":
        prefix = bytes(random.choices(b"ab", k=random.randint(1, 8)))
        return prefix, prefix[:-1] + bytes([prefix[-1] + 1])
    if shape == "one start":
        return b"5", b"5" + name
    if shape == "one end":
        return name, random.choice([b"7", None])
    return random.randbytes(2), random.choice([random.randbytes(2), None])


class RangeIndexMachine(RuleBasedStateMachine):
    """Single operations and bulk ones, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.naive = NaiveIndex()

    @initialize(count=counts, shape=shapes, order=orders, random=randoms)
    def begin(self, count: int, shape: str, order: str, random: Random) -> None:
        self.add_many(count, shape, order, random)

    @rule(start=few_keys, end=ends, value=values)
    def add_one(self, start: bytes, end: bytes | None, value: int) -> None:
        self.naive.add(start, end, value)

    @rule(count=counts, shape=shapes, order=orders, random=randoms)
    def add_many(self, count: int, shape: str, order: str, random: Random) -> None:
        drawn = [
            (*shaped(shape, number, random), random.randint(0, 3))
            for number in random.choices(range(4000), k=count)
        ]
        for held in ordered(drawn, order, random):
            self.naive.add(*held)

    @precondition(lambda self: self.naive.model)
    @rule(random=randoms)
    def add_one_again(self, random: Random) -> None:
        self.naive.add(*random.choice(self.naive.held()))

    @rule(start=few_keys, end=ends, value=values)
    def discard_any(self, start: bytes, end: bytes | None, value: int) -> None:
        self.naive.discard(start, end, value)

    @precondition(lambda self: self.naive.model)
    @rule(random=randoms)
    def discard_one(self, random: Random) -> None:
        self.naive.discard(*random.choice(self.naive.held()))

    @precondition(lambda self: self.naive.model)
    @rule(fraction=st.sampled_from([0.1, 0.5, 0.9, 1.0]), order=orders, random=randoms)
    def discard_many(self, fraction: float, order: str, random: Random) -> None:
        held = ordered(self.naive.held(), order, random)
        for one in held[: int(len(held) * fraction)]:
            self.naive.discard(*one)

    @precondition(lambda self: self.naive.model)
    @rule(random=randoms)
    def discard_at_the_root(self, random: Random) -> None:
        """Take ranges with two subtrees out, which is where another takes their place."""
        for _ in range(random.randint(1, 30)):
            root = self.naive.index._root
            for value in list(root.values):
                self.naive.discard(root.start, root.end, value)

    @rule(key=few_keys)
    def ask_for_any(self, key: bytes) -> None:
        self.naive.check_at(key)

    @precondition(lambda self: self.naive.model)
    @rule(random=randoms)
    def ask_at_the_edges(self, random: Random) -> None:
        for start, end in random.choices(list(self.naive.model), k=5):
            for key in (start, start + b"\0", start[:-1], end or b"", (end or b"")[:-1]):
                self.naive.check_at(key)

    @invariant()
    def the_tree_is_what_it_should_be(self) -> None:
        self.naive.check_everything()

    def teardown(self) -> None:
        """Whatever was done, what is held can be discarded, and nothing is left."""
        for held in self.naive.held():
            self.naive.discard(*held)
        self.naive.check_everything()
        assert self.naive.index._root is _NIL


TestRangeIndex = RangeIndexMachine.TestCase
TestRangeIndex.settings = effort(120, steps=30)


def test_the_tree_is_right_after_every_single_step_of_coming_and_going() -> None:
    naive, random = NaiveIndex(), Random(1)
    for number in range(3000):
        held = naive.held()
        if held and random.random() < len(held) / 120:
            naive.discard(*random.choice(held))
        else:
            naive.add(*shaped(random.choice(SHAPES), number, random), random.randint(0, 3))
        naive.check_everything()
        naive.check_at(random.randbytes(random.randint(0, 3)))
