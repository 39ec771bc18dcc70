"""What has happened to leases lately, kept once for all who have yet to be told.

Theory of operation. Watchers that want the same have one *feed* together: the events that concern
them, numbered from 0 on. A watcher has nothing but the number of the event that it is told next. So
it costs the same whether it reads or not, and an event costs what there are feeds for it, however
many watchers those have.

All feeds together are limited by the *log*, which has each event once, in the order in which they
happened. What it drops, the oldest first, is dropped from all feeds; a watcher whose number is
below the first one of its feed has missed the difference, neither more nor less.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, Protocol

MAX_EVENTS: Final = 100_000
"""Events that are kept for those who have yet to be told."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""And what they have together, encoded."""

MAX_PLACES: Final = 500_000
"""And the places that they have in feeds."""

EVENTS_PER_MESSAGE: Final = 500
MESSAGE_BYTES: Final = 64 * 1024
"""A message has no further event once it has so many, or so much of them."""

_DEAD: Final = 1_000
"""Places at the beginning of a feed that are cut off together, at least."""


class LeaseFilter(NamedTuple):
    """What a watcher wants: of leases that are named, or of a holder, or both, or of all."""

    leases: frozenset[int]
    holder: str
    key_prefix: bytes
    wants_renewals: bool


class Follower(Hashable, Protocol):
    """A watcher, as its feed sees it."""

    def visit(self) -> None:
        """Tell what there is to be told, as far as that is possible now."""
        ...


class _Entry(NamedTuple):
    encoded: bytes
    position: int
    feeds: "tuple[Feed, ...]"


class Feed:
    """The events for all watchers with one filter, as far as they are still kept."""

    __slots__ = ("_dead", "_entries", "filter", "first", "idle", "lost_position", "watchers")

    def __init__(self, wanted: LeaseFilter) -> None:
        self.filter = wanted
        self.watchers = 0
        """How many it is for."""
        self.idle: dict[Follower, None] = {}
        """Those of them who were told everything."""
        self.first = 0
        """The number of the oldest event that is here, or of the next one to come."""
        self.lost_position = 0
        """What must be durable before it may be told that those before it are lost."""
        self._entries: list[_Entry | None] = []
        self._dead = 0
        """How many places at the beginning are empty."""

    @property
    def end(self) -> int:
        """The number of the next event to come."""
        return self.first + len(self._entries) - self._dead

    def add(self, entry: _Entry) -> None:
        """Take the next event."""
        self._entries.append(entry)

    def drop_first(self, position: int) -> None:
        """Lose the oldest event, which had this position."""
        self._entries[self._dead] = None
        self._dead += 1
        if self._dead >= _DEAD and 2 * self._dead >= len(self._entries):
            del self._entries[: self._dead]
            self._dead = 0
        self.first += 1
        self.lost_position = max(self.lost_position, position)

    def take(self, number: int, durable: int) -> list[bytes]:
        """Give the events from a number on that are on disk: as many as go into a message."""
        at = self._dead + number - self.first
        taken: list[bytes] = []
        octets = 0
        for entry in self._entries[at : at + EVENTS_PER_MESSAGE]:
            assert entry is not None, "only those before the first one are gone"
            if entry.position > durable or octets >= MESSAGE_BYTES:
                break
            octets += len(entry.encoded)
            taken.append(entry.encoded)
        return taken


class LeaseLog:
    """All events that are kept, in order."""

    __slots__ = ("_bytes", "_entries", "_places")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._places = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, encoded: bytes, position: int, feeds: Sequence[Feed]) -> None:
        """Keep an event for these feeds, and as few of the oldest less as the limits allow."""
        entry = _Entry(encoded, position, tuple(feeds))
        self._entries.append(entry)
        self._bytes += len(encoded)
        self._places += len(feeds)
        for feed in feeds:
            feed.add(entry)
        while self._is_over:
            self._drop_first()

    @property
    def _is_over(self) -> bool:
        return (
            len(self._entries) > MAX_EVENTS or self._bytes > MAX_BYTES or self._places > MAX_PLACES
        )

    def drop(self, budget: int) -> None:
        """Drop so many of the oldest, when nobody has yet to be told of them."""
        for _ in range(min(budget, len(self._entries))):
            self._drop_first()

    def _drop_first(self) -> None:
        encoded, position, feeds = self._entries.popleft()
        self._bytes -= len(encoded)
        self._places -= len(feeds)
        for feed in feeds:
            feed.drop_first(position)
