"""An index of key ranges: finds the ranges that contain a key.

Theory of operation. The distinct ranges are the nodes of an AVL tree, ordered by start, then by
end; the values that have the same range share a node. Each node also has `max_end`, the last end of
its subtree. A subtree whose `max_end` is not after the key contains no match, and neither does the
right subtree of a node that starts after the key. A query visits the paths to its matches, and one
more path down to the key's own place.

So a query is O(log n) with few matches and O(n) with n of them; k matches that lie scattered
between others that do not match are O(k log(n / k)), the worst case.

The tree is balanced by height and not at random: the ranges are chosen by clients, and a client
that can predict the random numbers could choose ranges that turn the tree into a list.

Adding and discarding rebalance the tree on the way up, and stop where nothing changes any more.
There is no table of the nodes beside the tree: each time it grew there would be a pause.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    """One distinct range, and the subtree below it."""

    __slots__ = ("end", "height", "left", "max_end", "right", "start", "values")

    left: "_Node[T]"
    right: "_Node[T]"

    def __init__(self, start: bytes, end: bytes | None) -> None:
        self.start = start
        self.end = end
        self.values: dict[T, None] = {}
        self.left = self.right = _NIL
        self.height = 1
        self.max_end = end


def _make_nil() -> _Node[Any]:
    nil: _Node[Any] = _Node.__new__(_Node)
    nil.start = nil.end = nil.max_end = b""
    nil.values = {}
    nil.left = nil.right = nil
    nil.height = 0
    return nil


_NIL: Final = _make_nil()
"""The empty subtree. No key is before its end, so a query needs no other test."""


class RangeIndex(Generic[T]):
    """Values with ranges of keys, to be looked up by a key."""

    __slots__ = ("_pairs", "_root")

    def __init__(self) -> None:
        self._root: _Node[T] = _NIL
        self._pairs = 0

    def __len__(self) -> int:
        """The number of pairs of a range and a value."""
        return self._pairs

    def __bool__(self) -> bool:
        return self._pairs > 0

    def add(self, start: bytes, end: bytes | None, value: T) -> None:
        """Add the range `[start, end)` to a value, or all from `start` on if `end` is None.

        A range that ends before it starts is kept and counted, and contains no key.
        """
        path = self._path(start, end)
        node = path.pop()
        if node is _NIL:
            node = self._grow(path, start, end)
        if value not in node.values:
            node.values[value] = None
            self._pairs += 1

    def discard(self, start: bytes, end: bytes | None, value: T) -> None:
        """Remove a range from a value, if it has it."""
        path = self._path(start, end)
        node = path[-1]
        if value not in node.values:
            return
        del node.values[value]
        self._pairs -= 1
        if not node.values:
            self._cut(path)

    def at(self, key: bytes) -> Sequence[Collection[T]]:
        """Return the values of each range that contains the key, range by range in their order.

        The values of one range are in the order in which they were added. A value comes once for
        each of its ranges. The result is not a copy: use it before anything is added or discarded.
        """
        node = self._root
        if node is _NIL:
            return ()
        found: list[Collection[T]] = []
        waiting: list[_Node[T]] = []
        while True:
            while (end := node.max_end) is None or end > key:
                if node.start <= key:
                    waiting.append(node)
                node = node.left
            if not waiting:
                return found
            node = waiting.pop()
            if (end := node.end) is None or end > key:
                found.append(node.values)
            node = node.right

    def ranges(self) -> Iterator[tuple[bytes, bytes | None, Collection[T]]]:
        """Iterate over all ranges in their order, each with its values, which are not copied."""
        waiting: list[_Node[T]] = []
        node = self._root
        while waiting or node is not _NIL:
            while node is not _NIL:
                waiting.append(node)
                node = node.left
            node = waiting.pop()
            yield node.start, node.end, node.values
            node = node.right

    def _path(self, start: bytes, end: bytes | None) -> list[_Node[T]]:
        """Return the path from the root to the node of a range, or to the `_NIL` in its place."""
        node = self._root
        path = [node]
        while node is not _NIL and (start != node.start or end != node.end):
            node = node.left if _is_before(start, end, node) else node.right
            path.append(node)
        return path

    def _grow(self, path: list[_Node[T]], start: bytes, end: bytes | None) -> _Node[T]:
        """Add a node for a new range below the last of the path."""
        node: _Node[T] = _Node(start, end)
        if not path:
            self._root = node
        elif _is_before(start, end, path[-1]):
            path[-1].left = node
        else:
            path[-1].right = node
        self._mend(path, len(path))
        return node

    def _cut(self, path: list[_Node[T]]) -> None:
        """Remove the range of the last node of the path from the tree."""
        node = path[-1]
        depth = len(path)
        if node.left is _NIL or node.right is _NIL:
            path.pop()
        else:
            node = _give_to(node, path)
        self._replace(path, node, node.right if node.left is _NIL else node.left)
        self._mend(path, depth)

    def _mend(self, path: list[_Node[T]], depth: int) -> None:
        """Update the nodes of a path, from the last one up to where nothing changes any more.

        The node at `depth` is visited in any case: its own range changed.
        """
        while path:
            node = path.pop()
            height, max_end = node.height, node.max_end
            top = _balanced(node)
            if top is not node:
                self._replace(path, node, top)
            if top.height == height and top.max_end == max_end and len(path) < depth:
                return

    def _replace(self, path: list[_Node[T]], old: _Node[T], new: _Node[T]) -> None:
        """Replace a node below the last of the path by another."""
        if not path:
            self._root = new
        elif path[-1].left is old:
            path[-1].left = new
        else:
            path[-1].right = new


def _is_before(start: bytes, end: bytes | None, node: _Node[T]) -> bool:
    """Return whether a range, other than the node's own, belongs on the left of it."""
    if start != node.start:
        return start < node.start
    return node.end is None or (end is not None and end < node.end)


def _give_to(node: _Node[T], path: list[_Node[T]]) -> _Node[T]:
    """Move the next range in order into a node with two subtrees; return the node that had it.

    The path is lengthened to that node's parent.
    """
    heir = node.right
    while heir.left is not _NIL:
        path.append(heir)
        heir = heir.left
    node.start, node.end, node.values = heir.start, heir.end, heir.values
    return heir


def _balanced(node: _Node[T]) -> _Node[T]:
    """Rebalance a node whose subtrees are balanced; return the node to take its place."""
    left, right = node.left, node.right
    lean = left.height - right.height
    if lean > 1:
        if left.left.height < left.right.height:
            node.left = _turned_left(left)
        return _turned_right(node)
    if lean < -1:
        if right.right.height < right.left.height:
            node.right = _turned_right(right)
        return _turned_left(node)
    _sum_up(node)
    return node


def _turned_right(node: _Node[T]) -> _Node[T]:
    top = node.left
    node.left, top.right = top.right, node
    _sum_up(node)
    _sum_up(top)
    return top


def _turned_left(node: _Node[T]) -> _Node[T]:
    top = node.right
    node.right, top.left = top.left, node
    _sum_up(node)
    _sum_up(top)
    return top


def _sum_up(node: _Node[T]) -> None:
    """Compute the attributes of a node that depend on its subtrees."""
    left, right = node.left, node.right
    node.height = 1 + (left.height if left.height > right.height else right.height)
    node.max_end = _later(_later(left.max_end, right.max_end), node.end)


def _later(end: bytes | None, other: bytes | None) -> bytes | None:
    if end is None or other is None:
        return None
    return end if end > other else other
