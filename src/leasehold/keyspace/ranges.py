"""Reading a range of keys: in one step, or at a fixed revision a slice at a time.

Theory of operation. A range of up to `LONG` keys is read in one step (`read_now`). So is a page of
a longer one: its count comes from the index of names, and its keys from one end of the range.

Anything else is a `scan`: a generator that pauses after each slice, while the keyspace continues
changing. It reads at one revision by looking up every key as it was then. After a pause it
continues after the last name seen, and finds names that were deleted meanwhile among the dead. An
old value may be on disk only: a scan yields what it needs from there, in the order of revisions,
and is sent the items.
"""

from collections.abc import Callable, Generator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from leasehold.basics.callbacks import ignore
from leasehold.keyspace.keyspace import Item, Keyspace
from leasehold.keyspace.operations import Found, Range, SortBy
from leasehold.keyspace.recent_changes import Recent

T = TypeVar("T")

LONG: Final = 1_000
"""Operations that touch more items than this are done in slices."""

SLICE: Final = 250
"""Items between two pauses: about a quarter of a millisecond."""

Wanted = list[tuple[bytes, int]]
"""Keys, and the revisions whose values are needed."""

Steps = Generator[Wanted, list[Item], T]
"""An operation in steps: yields the old values that it needs, mostly none, and is sent them."""

Scan = Steps[Found]

_COLUMNS: Final = {SortBy.CREATE_REVISION: 1, SortBy.MOD_REVISION: 2, SortBy.VERSION: 3}


def read_now(keyspace: Keyspace, query: Range) -> Found | None:
    """Read live keys in one step; return None if there are too many of them."""
    names = list(islice(keyspace.names(query.key, query.end), LONG + 1))
    if len(names) > LONG:
        return _read_page(keyspace, query)
    get = keyspace.get
    items: list[Any] = [get(name) for name in names]
    return choose(keyspace, query, items, len(items), keyspace.revision)


def read_past(keyspace: Keyspace, query: Range, recent: Recent) -> Found | None:
    """Read a range at its revision in one step; return None if that needs more than memory."""
    names = list(islice(keyspace.all_names(query.key, query.end), LONG + 1))
    if len(names) > LONG:
        return None
    here, wanted = look_up(keyspace, names, query.revision)
    loaded = [item for each in wanted if (item := recent.find(*each)) is not None]
    if len(loaded) < len(wanted):
        return None
    items = together(here, loaded)
    return choose(keyspace, query, items, len(items), query.revision)


def _read_page(keyspace: Keyspace, query: Range) -> Found | None:
    """Read one end of a long range, if no more is requested."""
    is_page = 0 < query.limit <= LONG and query.sort_by == SortBy.KEY and not query.is_filtered
    if not (is_page or query.count_only):
        return None
    count = keyspace.count(query.key, query.end)
    if query.count_only:
        return Found([], count, more=False, revision=keyspace.revision)
    names = keyspace.names(query.key, query.end, reverse=query.descending)
    items: list[Any] = [keyspace.get(name) for name in islice(names, query.limit)]
    return Found(items, count, more=True, revision=keyspace.revision)


def choose(keyspace: Keyspace, query: Range, items: list[Item], count: int, revision: int) -> Found:
    """Apply the options of a query to the items in its range."""
    if query.count_only:
        return Found([], count, more=False, revision=revision)
    if query.is_filtered:
        items = [item for item in items if query.passes(item)]
    items = _page(query, items)
    if query.sort_by != SortBy.KEY or query.descending:
        key = sort_key(keyspace, query.sort_by)
        items = sorted(items, key=key, reverse=query.descending)
    more = 0 < query.limit < len(items)
    return Found(items[: query.limit] if more else items, count, more, revision)


def _page(query: Range, items: list[Item]) -> list[Item]:
    return items[: query.limit + 1] if query.sorts_page else items


def sort_key(keyspace: Keyspace, sort_by: SortBy) -> Callable[[Item], Any]:
    """Return the function that items are sorted by."""
    if sort_by == SortBy.VALUE:
        return keyspace.codec.value_of
    return itemgetter(_COLUMNS.get(sort_by, 5))


def scan(
    keyspace: Keyspace, query: Range, revision: int, check: Callable[[int], None] = ignore
) -> Scan:
    """Read a range as it was at a revision, a slice at a time.

    `check` is called with the bytes of the past that are loaded so far, and may raise.
    """
    items: list[Item] = []
    wanted: Wanted = []
    count = 0
    name: bytes | None = None
    enough = _enough(query)
    while names := list(islice(keyspace.all_names(query.key, query.end, name), SLICE)):
        name = names[-1]
        here, missing = look_up(keyspace, names, revision)
        count += len(here) + len(missing)
        room = enough + 1 - len(items) - len(wanted)  # one more shows whether there are more
        if 0 < room < len(here) + len(missing):
            here, missing = _first(here, missing, room)
        if room > 0:
            items += here
            wanted += missing
        yield []
    if wanted:
        items = yield from _complete(query, items, wanted, check)
    if query.is_filtered:
        passing: list[Item] = []
        for start in range(0, len(items), SLICE):
            passing += [item for item in items[start : start + SLICE] if query.passes(item)]
            yield []
        items = passing
    items = _page(query, items)
    if query.sort_by != SortBy.KEY or query.descending:
        most = query.limit + 1 if query.limit else None  # one more shows whether there are more
        key = sort_key(keyspace, query.sort_by)
        items = yield from sort_steps(items, key, reverse=query.descending, limit=most)
    return _cut(query, items, count, revision)


def _complete(
    query: Range, items: list[Item], wanted: Wanted, check: Callable[[int], None]
) -> Steps[list[Item]]:
    """Load past values in the order of revisions, so each row is read once; then sort by name."""
    wanted = yield from sort_steps(wanted, itemgetter(1))
    drops_values = query.keys_only and query.sort_by != SortBy.VALUE
    size_bytes = 0
    for start in range(0, len(wanted), SLICE):
        loaded = yield wanted[start : start + SLICE]
        if drops_values:
            loaded = [(b"", *item[1:]) for item in loaded]
        size_bytes += sum([len(item[0]) for item in loaded])
        check(size_bytes)
        items += loaded
    return (yield from sort_steps(items, itemgetter(5)))


def look_up(keyspace: Keyspace, names: list[bytes], revision: int) -> tuple[list[Item], Wanted]:
    """Return the items of some keys at a revision that are in memory, and those to be loaded."""
    here: list[Item] = []
    wanted: Wanted = []
    for name in names:
        state = keyspace.at(name, revision)
        if type(state) is tuple:
            here.append(state)
        elif type(state) is int:
            wanted.append((name, state))
    return here, wanted


def _first(here: list[Item], missing: Wanted, most: int) -> tuple[list[Item], Wanted]:
    """Keep the first of these keys: there is no use in loading further ones."""
    last = sorted([*(item[5] for item in here), *(name for name, _ in missing)])[most - 1]
    here = [item for item in here if item[5] <= last]
    return here, [(name, revision) for name, revision in missing if name <= last]


def together(here: list[Item], loaded: list[Item]) -> list[Item]:
    """Merge the items from memory and the loaded ones in the order of names."""
    return sorted([*here, *loaded], key=itemgetter(5)) if loaded else here


def _enough(query: Range) -> int:
    """Return how many items suffice, because only the first ones are requested."""
    if query.count_only:
        return -1
    is_first = query.sort_by == SortBy.KEY and not query.descending and not query.is_filtered
    return query.limit if is_first and query.limit else 1 << 62


def pausing(steps: Generator[None, None, T]) -> Steps[T]:
    """Turn plain pauses into steps that need nothing from the past."""
    try:
        while True:
            next(steps)
            yield []
    except StopIteration as done:
        result: T = done.value
        return result


def finish(steps: Generator[Any, Any, T]) -> T:
    """Take all steps without a pause; for short work that reads nothing from the disk."""
    try:
        while True:
            wanted = next(steps)
            assert not wanted, "steps that read the history are not run in one go"
    except StopIteration as done:
        result: T = done.value
        return result


def sort_steps(
    items: list[T],
    key: Callable[[T], Any],
    *,
    slice_items: int = SLICE,
    reverse: bool = False,
    limit: int | None = None,
) -> Steps[list[T]]:
    """Sort as `sorted` does, the first `limit` only, a slice at a time.

    Each slice is sorted, then the slices are merged a piece at a time.
    """
    runs: list[list[T]] = []
    for start in range(0, len(items), slice_items):
        runs.append(sorted(items[start : start + slice_items], key=key, reverse=reverse))
        yield []
    merged = merge(*runs, key=key, reverse=reverse)
    ordered: list[T] = []
    wanted = len(items) if limit is None else limit
    while more := list(islice(merged, min(slice_items, wanted - len(ordered)))):
        ordered += more
        yield []
    return ordered


def _cut(query: Range, items: list[Item], count: int, revision: int) -> Found:
    more = 0 < query.limit < len(items)
    return Found(items[: query.limit] if more else items, count, more, revision)
