"""Blocks of a handle that several are in at the same time."""

from collections.abc import Callable

import pytest

from leasehold.locks.guards import Blocks


class Meanwhile:
    """One for whom something happens while it is looked for."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens: list[Callable[[], object]] = [happens]

    def __eq__(self, other: object) -> bool:
        if self._happens:
            self._happens.pop()()
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_each_leaves_its_own_block_the_latest_first() -> None:
    blocks: Blocks[str] = Blocks()
    for who, guard in (("a", "first"), ("b", "b's"), ("a", "second")):
        blocks.enter(who, guard)
    assert [blocks.leave("a"), blocks.leave("a"), blocks.leave("b")] == ["second", "first", "b's"]


def test_who_has_entered_none_leaves_the_only_one_there_is() -> None:
    blocks: Blocks[str] = Blocks()
    blocks.enter("a", "first")
    blocks.enter("a", "second")
    with pytest.raises(RuntimeError, match="several are entered"):
        blocks.leave("another")
    assert blocks.leave("a") == "second"
    assert blocks.leave("another") == "first"
    with pytest.raises(IndexError):
        blocks.leave("a")


def test_each_leaves_its_own_block_while_others_leave_theirs() -> None:
    blocks: Blocks[str] = Blocks()
    left = []
    one = Meanwhile(lambda: left.append(blocks.leave("a")))
    blocks.enter("a", "a's")
    blocks.enter(one, "one's")
    blocks.enter("c", "c's")
    assert blocks.leave(one) == "one's"
    assert [*left, blocks.leave("c")] == ["a's", "c's"]
