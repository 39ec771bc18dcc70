"""Sorting in slices: runs are sorted one by one, and merged a piece at a time."""

from collections.abc import Callable, Generator
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


def in_order(
    items: list[T],
    key: Callable[[T], Any],
    slice_items: int,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Generator[None, None, list[T]]:
    """Sort as `sorted` does, the first `limit` only, with a pause after each slice."""
    runs: list[list[T]] = []
    for start in range(0, len(items), slice_items):
        runs.append(sorted(items[start : start + slice_items], key=key, reverse=reverse))
        yield
    merged = merge(*runs, key=key, reverse=reverse)
    ordered: list[T] = []
    wanted = len(items) if limit is None else limit
    while more := list(islice(merged, min(slice_items, wanted - len(ordered)))):
        ordered += more
        yield
    return ordered
