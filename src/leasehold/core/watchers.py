"""Who is to be told of a change.

A watcher of one key costs a change of that key a lookup, and other changes nothing. Watchers of
ranges are asked one by one; an index for those comes with the engine.
"""

from collections.abc import Sequence
from typing import Protocol

from leasehold.core.keyspace import Change, covers


class Watcher(Protocol):
    """One watch of one client."""

    key: bytes
    range_end: bytes

    def notify(self, changes: Sequence[Change], position: int) -> None:
        """Take the changes of one revision that concern this watch.

        Nobody may see them before the journal is on disk up to `position`.
        """
        ...


class Watchers:
    """All watches of a store."""

    __slots__ = ("_of_key", "_of_ranges")

    def __init__(self) -> None:
        self._of_key: dict[bytes, dict[Watcher, None]] = {}
        self._of_ranges: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._of_ranges) + sum(map(len, self._of_key.values()))

    def __bool__(self) -> bool:
        return bool(self._of_key or self._of_ranges)

    def add(self, watcher: Watcher) -> None:
        """Tell a watcher from the next change on."""
        if watcher.range_end:
            self._of_ranges[watcher] = None
        else:
            self._of_key.setdefault(watcher.key, {})[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        """Tell a watcher nothing more."""
        if watcher.range_end:
            self._of_ranges.pop(watcher, None)
            return
        of_key = self._of_key.get(watcher.key)
        if of_key is not None:
            of_key.pop(watcher, None)
            if not of_key:
                del self._of_key[watcher.key]

    def publish(self, changes: Sequence[Change], position: int) -> None:
        """Tell everybody whom the changes of one revision concern, each in one piece."""
        concerned: dict[Watcher, list[Change]] = {}
        for change in changes:
            for watcher in self._of_key.get(change.key, ()):
                concerned.setdefault(watcher, []).append(change)
            for watcher in self._of_ranges:
                if covers(watcher.key, watcher.range_end, change.key):
                    concerned.setdefault(watcher, []).append(change)
        for watcher, its_changes in concerned.items():
            watcher.notify(its_changes, position)
