"""Watchers, and which of them receive a change.

Theory of operation. A watcher is *live* or *behind*. Live ones are in an index, and are notified of
each change that concerns them when it is made. A watcher of a single key costs other keys nothing;
one of a range costs keys outside of it nothing but the depth of a tree. A watcher without room for
a notification falls behind, and is not notified until it was brought up to date from the history
(`next_revision` on) and may `join` again. So a watcher that does not read costs the others nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from leasehold.basics.callbacks import ignore
from leasehold.errors import LeaseholdError
from leasehold.keyspace.keyspace import FROM_KEY, Change
from leasehold.keyspace.range_index import RangeIndex
from leasehold.keyspace.ranges import LONG


class Watcher(Hashable, Protocol):
    """One watch of one client."""

    key: bytes
    end: bytes
    next_revision: int
    """The first revision that it has not received; only while it is behind."""

    @property
    def has_room(self) -> bool:
        """Whether it has room for a good deal of changes now."""
        ...

    @property
    def wants_previous(self) -> bool:
        """Whether it needs the values of keys before a change."""
        ...

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision that concern this watch; return False if it has no room.

        They must not be shown before the journal is on disk up to `position`.
        """
        ...

    def settle(self) -> None:
        """Called when these were all changes for now, after changes from the history."""
        ...

    def joined(self, revision: int, position: int) -> None:
        """Called when it was behind and is up to date now."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """End the watch: its next revision cannot be read."""
        ...

    def cancelled(self, compacted: int) -> None:
        """Cancel the watch: its next revision was compacted."""
        ...


@runtime_checkable
class PatientWatcher(Watcher, Protocol):
    """A watch that takes very many changes of one revision in steps.

    It takes no more than `LONG` of them in one call, as if it had no room, and so falls behind.
    """

    def notify_steps(self, changes: Sequence[Change], position: int) -> Generator[None, None, bool]:
        """Like `notify`, with pauses, in each of which it may be given up."""
        ...


class Watchers:
    """All watches of a store."""

    __slots__ = ("_of_key", "_of_ranges", "any_live", "behind", "on_behind")

    def __init__(self) -> None:
        self._of_key: dict[bytes, dict[Watcher, None]] = {}
        self._of_ranges: RangeIndex[Watcher] = RangeIndex()
        self.behind: dict[Watcher, None] = {}
        self.on_behind: Callable[[], None] = ignore
        """Called when some watchers have fallen behind."""
        self.any_live = False
        """Whether there are live watchers."""

    def __len__(self) -> int:
        live = len(self._of_ranges) + sum(map(len, self._of_key.values()))
        return live + len(self.behind)

    def join(self, watcher: Watcher) -> None:
        """Notify a watcher from the next change on."""
        self.behind.pop(watcher, None)
        self.any_live = True
        if watcher.end:
            self._of_ranges.add(watcher.key, _end(watcher), watcher)
        else:
            self._of_key.setdefault(watcher.key, {})[watcher] = None

    def fall_behind(self, watcher: Watcher, next_revision: int) -> None:
        """Stop notifying a watcher until it was brought up to date from this revision on."""
        self.discard(watcher)
        watcher.next_revision = next_revision
        self.behind[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        """Remove a watcher."""
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
        """Notify all watchers that the changes of one revision concern, each in one call."""
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
        """Notify of very many changes, without looking at each of them for each watcher."""
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
        """Iterate over all live watchers, by their ranges."""
        for name, of_key in self._of_key.items():
            yield name, name + b"\0", of_key
        yield from self._of_ranges.ranges()


def _takes(watcher: Watcher, changes: Sequence[Change], position: int) -> bool:
    """Notify a watcher. If it raises, only that watcher falls behind, and will raise again."""
    try:
        return watcher.notify(changes, position)
    except Exception:  # noqa: BLE001  raised again when it catches up
        return False


def _end(watcher: Watcher) -> bytes | None:
    return None if watcher.end == FROM_KEY else watcher.end
