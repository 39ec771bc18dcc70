"""Who is to be told of a change.

Theory of operation. A watcher is *live* or *behind*. Live ones are in an index, and are told of
each change that concerns them when it is made: one of a single key costs other keys nothing, one of
a range costs keys outside of it nothing but the depth of a tree. One that has no room for what it
is told falls behind, and is told nothing until somebody has brought it up to date from the history
(`next_revision` on) and lets it `join` again. So one that does not read costs nobody anything.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from leasehold.core.callback import ignore
from leasehold.core.intervals import RangeIndex
from leasehold.core.keyspace import FROM_KEY, Change
from leasehold.core.ranges import LONG
from leasehold.errors import LeaseholdError


class Watcher(Hashable, Protocol):
    """One watch of one client."""

    key: bytes
    end: bytes
    next_revision: int
    """The first revision that it was not told of; only while it is behind."""

    @property
    def has_room(self) -> bool:
        """Whether it would take a good deal of changes now."""
        ...

    @property
    def wants_previous(self) -> bool:
        """Whether it wants to know what keys were before a change."""
        ...

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision that concern this watch, or say that there is no room.

        Nobody may see them before the journal is on disk up to `position`.
        """
        ...

    def settle(self) -> None:
        """Learn that this was all for now, after it was told from the history."""
        ...

    def joined(self, revision: int, position: int) -> None:
        """Learn that it was behind and is up to date now."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """Learn that what it had to be told next cannot be read, so that it is over."""
        ...

    def cancelled(self, compacted: int) -> None:
        """Learn that what it had to be told next was compacted, so that it is over."""
        ...


@runtime_checkable
class PatientWatcher(Watcher, Protocol):
    """A watch that wants very many changes of one revision in steps.

    It takes no more than `LONG` of them at once, as if it had no room, and so falls behind.
    """

    def notify_steps(self, changes: Sequence[Change], position: int) -> Generator[None, None, bool]:
        """Do what `notify` does, with pauses; it may be given up in any of them."""
        ...


class Watchers:
    """All watches of a store."""

    __slots__ = ("_of_key", "_of_ranges", "any_live", "behind", "on_behind")

    def __init__(self) -> None:
        self._of_key: dict[bytes, dict[Watcher, None]] = {}
        self._of_ranges: RangeIndex[Watcher] = RangeIndex()
        self.behind: dict[Watcher, None] = {}
        self.on_behind: Callable[[], None] = ignore
        """Called when some have fallen behind."""
        self.any_live = False
        """Whether anybody might have to be told of a change."""

    def __len__(self) -> int:
        live = len(self._of_ranges) + sum(map(len, self._of_key.values()))
        return live + len(self.behind)

    def join(self, watcher: Watcher) -> None:
        """Tell a watcher from the next change on."""
        self.behind.pop(watcher, None)
        self.any_live = True
        if watcher.end:
            self._of_ranges.add(watcher.key, _end(watcher), watcher)
        else:
            self._of_key.setdefault(watcher.key, {})[watcher] = None

    def fall_behind(self, watcher: Watcher, next_revision: int) -> None:
        """Tell a watcher nothing until it has been brought up to date from this revision on."""
        self.discard(watcher)
        watcher.next_revision = next_revision
        self.behind[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        """Tell a watcher nothing more."""
        self.behind.pop(watcher, None)
        if watcher.end:
            self._of_ranges.discard(watcher.key, _end(watcher), watcher)
        else:
            self._discard_of_key(watcher)
        self.any_live = bool(self._of_key or self._of_ranges)

    def _discard_of_key(self, watcher: Watcher) -> None:
        of_key = self._of_key.get(watcher.key)
        if of_key is not None:
            of_key.pop(watcher, None)
            if not of_key:
                del self._of_key[watcher.key]

    def publish(self, changes: Sequence[Change], position: int) -> None:
        """Tell everybody whom the changes of one revision concern, each in one piece."""
        if len(changes) == 1:
            without_room = self._publish_one(changes, position)
        else:
            without_room = self._publish_many(changes, position)
        for watcher in without_room:
            self.fall_behind(watcher, changes[0].revision)
        if without_room:
            self.on_behind()

    def _publish_one(self, changes: Sequence[Change], position: int) -> list[Watcher]:
        key = changes[0].key
        of_key = self._of_key.get(key, ())
        without_room = [each for each in of_key if not _takes(each, changes, position)]
        if self._of_ranges:
            for of_range in self._of_ranges.at(key):
                without_room += [each for each in of_range if not _takes(each, changes, position)]
        return without_room

    def _publish_many(self, changes: Sequence[Change], position: int) -> list[Watcher]:
        if len(changes) > LONG:
            return self._publish_very_many(changes, position)
        concerned: dict[Watcher, list[Change]] = {}
        for change in changes:
            for watcher in self._of_key.get(change.key, ()):
                concerned.setdefault(watcher, []).append(change)
            for of_range in self._of_ranges.at(change.key):
                for watcher in of_range:
                    concerned.setdefault(watcher, []).append(change)
        return [each for each, its in concerned.items() if not _takes(each, its, position)]

    def _publish_very_many(self, changes: Sequence[Change], position: int) -> list[Watcher]:
        """Tell of very many changes, without a look at each of them for each watcher."""
        names = [change.key for change in changes]
        places: Sequence[int] = range(len(names))
        if names != sorted(names):  # those of a transaction, not of a delete or a lease's end
            places = sorted(places, key=names.__getitem__)
            names = [names[place] for place in places]
        without_room: list[Watcher] = []
        for start, end, watchers in self._live():
            first = bisect_left(names, start)
            last = len(names) if end is None else bisect_left(names, end)
            if first == last:
                continue
            its: list[Change] | None = None
            for each in watchers:
                if last - first > LONG and isinstance(each, PatientWatcher):
                    without_room.append(each)
                    continue
                if its is None:
                    its = [changes[place] for place in sorted(places[first:last])]
                if not _takes(each, its, position):
                    without_room.append(each)
        return without_room

    def _live(self) -> Iterator[tuple[bytes, bytes | None, Iterable[Watcher]]]:
        """Go through all that are live: by the ranges that they have."""
        for name, of_key in self._of_key.items():
            yield name, name + b"\0", of_key
        yield from self._of_ranges.ranges()


def _takes(watcher: Watcher, changes: Sequence[Change], position: int) -> bool:
    """Tell a watcher. What it raises harms nobody else: it falls behind, and will raise again."""
    try:
        return watcher.notify(changes, position)
    except Exception:  # noqa: BLE001  whoever brings it up to date finds out what it is
        return False


def _end(watcher: Watcher) -> bytes | None:
    return None if watcher.end == FROM_KEY else watcher.end
