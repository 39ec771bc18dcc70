"""One watch of the engine, its reader, and the subscriptions that it serves.

Theory of operation. A subscription has a *home*, the watch that delivers its events, and a
position: the first revision that was not delivered. The position advances with every revision that
its home has passed, whether or not it had events for this subscription.

To move, a subscription also gets a *target*, and receives events from its home until the target can
continue: when its position has reached `needs`. That is where the target was when the move began,
or the revision after the last event that the target has had for it and not delivered since. As the
home delivers that event as well, the position gets there. No event is missed or delivered twice,
whichever watch is ahead.

A watch that has delivered nothing yet may turn out to be too late: its first revision may have been
compacted. So a subscription that has a home leaves it only for a target that is *proven*.

Which watch could serve many subscriptions? One of `a/b/17/` could be served by a watch on `a/b/`,
or on `a/`. For a flat name it is the part before its last word or number: `lock-` for `lock-17/`,
and `lock` for `lock17/`. The last resort is the whole keyspace, which pays off only for very many
names without a common prefix.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.values import Event, Events
from leasehold.errors import LeaseholdError
from leasehold.keyspace.keyspace import FROM_KEY

logger = logging.getLogger(__name__)

T = TypeVar("T")

GROUP_FROM: Final = 16
"""With more subscriptions than this below a prefix, one watch on it is tried instead of theirs."""

WHOLE_FROM: Final = 2_000
"""The same for the whole keyspace."""

MAX_ALONE: Final = 5_000
"""A group is not split if there would be more watches than this, half of what a stream takes."""

LEVELS: Final = 4
"""How many prefixes are considered for a subscription, the nearest ones, besides the keyspace."""

COOL_S: Final = 60.0
COOL_MAX_S: Final = 3600.0
"""Bounds of the pause before a watch is tried again on a prefix; each is twice as long as the
last."""

MAX_COOLING: Final = 1_000
"""Limit of prefixes with a pause; beyond it the oldest is dropped, and may be tried again."""

WHOLE: Final = b""
"""The prefix of all others: the whole keyspace."""

_STEM: Final = re.compile(rb"(.*[^0-9A-Za-z])[0-9A-Za-z]+|(.*?[^0-9])[0-9]+", re.DOTALL)
"""A flat name up to its last word, or else up to its last number."""


class WatchSubscription:
    """A subscription to the events of one prefix."""

    __slots__ = (
        "_on_cancel",
        "_position",
        "home",
        "is_over",
        "needs",
        "on_event",
        "on_gap",
        "prefix",
        "target",
    )

    def __init__(
        self,
        prefix: bytes,
        start: int,
        on_event: Callable[[Event], None],
        on_gap: Callable[[LeaseholdError], None],
        on_cancel: "Callable[[WatchSubscription], None]",
    ) -> None:
        self.prefix = prefix
        self.on_event = on_event
        self.on_gap = on_gap
        self._on_cancel = on_cancel
        self._position = start
        self.home: SharedWatch | None = None
        self.target: SharedWatch | None = None
        self.needs = 0
        """The position from which the target can continue."""
        self.is_over = False

    @property
    def next_revision(self) -> int:
        """The first revision that was not delivered."""
        passed = self.home.next_revision if self.home is not None else 0
        return max(self._position, passed)

    def cancel(self) -> None:
        """Stop delivery. It may be called again, and from a callback."""
        if not self.is_over:
            self.is_over = True
            self._on_cancel(self)

    # Used by `WatchSubscriptions`.

    def set_home(self, home: "SharedWatch") -> None:
        """Use a watch that has not passed the position."""
        assert self.home is None
        assert self._position >= home.next_revision
        self.home = home
        home.add(self)

    def move_to(self, target: "SharedWatch") -> None:
        """Use another watch, as soon as that can continue."""
        assert self.home is not None
        assert self.target is None
        self.target = target
        self.needs = target.next_revision
        target.add(self)
        if self.next_revision < self.needs:
            self.home.ask_progress()
        self.settle()

    def settle(self) -> None:
        """Leave the home if the target can continue in its place."""
        if self.target is not None and self.target.is_proven and self.next_revision >= self.needs:
            target, self.target = self.target, None
            self.leave_home()
            self.home = target

    def leave_home(self) -> None:
        """Leave the watch, and keep the position."""
        self._position = self.next_revision
        home, self.home = self.home, None
        if home is not None:
            home.discard(self)

    def leave_target(self) -> None:
        """Stay with its home."""
        target, self.target = self.target, None
        if target is not None:
            target.discard(self)

    def event_received(self, event: Event, source: "SharedWatch") -> None:
        """Handle an event from one of its two watches."""
        if source is self.target:
            self.settle()
        if source is self.home:
            if event.revision >= self._position:
                call(self.on_event, event)
        elif source is self.target:
            self.needs = event.revision + 1


def range_of(place: bytes) -> tuple[bytes, bytes]:
    """Return key and end of a watch on a prefix."""
    return (place, prefix_end(place)) if place else (FROM_KEY, FROM_KEY)


def places_above(prefix: bytes) -> Iterator[bytes]:
    """Return the prefixes that could serve a subscription, the nearest first."""
    slash = len(prefix) - 1
    for _ in range(LEVELS):
        above = prefix.rfind(b"/", 0, slash)
        if above < 0:
            if (stem := _STEM.fullmatch(prefix, 0, slash)) is not None:
                yield stem[1] or stem[2]
            break
        slash = above
        yield prefix[: slash + 1]
    yield WHOLE


class SharedWatch:
    """Delivers events from a revision on to the subscriptions below a prefix."""

    __slots__ = (
        "_engine",
        "_is_asked",
        "_longest",
        "_on_ended",
        "_on_passed",
        "_subscriptions",
        "_watch",
        "is_over",
        "is_proven",
        "next_revision",
        "others",
        "ours",
        "place",
        "since",
        "size",
        "task",
    )

    def __init__(
        self,
        engine: Engine,
        place: bytes,
        start: int,
        on_passed: "Callable[[SharedWatch], object]",
        on_ended: "Callable[[SharedWatch, LeaseholdError], object]",
    ) -> None:
        """Both are called between two revisions.

        `on_passed` when a revision was delivered to all subscriptions, `on_ended` when the watch
        has ended and was not cancelled.
        """
        self._engine = engine
        self._on_passed = on_passed
        self._on_ended = on_ended
        self.place = place
        self.next_revision = start
        """The first revision that it has not passed."""
        self.is_proven = False
        """Whether it has received anything, so that it did not begin too late."""
        self.is_over = False
        self.size = 0
        """The number of its subscriptions."""
        self.since = 0.0
        """When it began to count."""
        self.ours = 0
        self.others = 0
        """Events since then that were for a subscription, and that were not."""
        self.count_anew()
        self._subscriptions: dict[bytes, dict[WatchSubscription, None]] = {}
        self._longest = 0
        """The length of the longest prefix of a subscription, or more."""
        self._is_asked = False
        self._watch: Watch | None = None
        self.task = asyncio.get_running_loop().create_task(self._read())

    def __iter__(self) -> Iterator[WatchSubscription]:
        for alike in self._subscriptions.values():
            yield from alike

    def add(self, subscription: WatchSubscription) -> None:
        """Add a subscription, or be its target."""
        prefix = subscription.prefix
        assert prefix.startswith(self.place)
        self._subscriptions.setdefault(prefix, {})[subscription] = None
        self._longest = max(self._longest, len(prefix))
        self.size += 1

    def discard(self, subscription: WatchSubscription) -> None:
        """Remove a subscription; without any left, cancel the watch."""
        alike = self._subscriptions[subscription.prefix]
        del alike[subscription]
        if not alike:
            del self._subscriptions[subscription.prefix]
        self.size -= 1
        if not self.size:
            self.close()

    def ask_progress(self) -> None:
        """Request the current revision of the watch."""
        self._is_asked = True
        if self._watch is not None:
            self._watch.request_progress()

    def count_anew(self) -> None:
        """Reset the counts."""
        self.since = asyncio.get_running_loop().time()
        self.ours = self.others = 0

    def close(self) -> None:
        """Cancel the watch."""
        self.is_over = True
        if self._watch is not None:
            self._watch.cancel()

    async def _read(self) -> None:
        if self.is_over:
            return
        try:
            key, end = range_of(self.place)
            self._watch = self._engine.watch(key, end, start=self.next_revision)
            if self._is_asked:
                self._watch.request_progress()
            while not self.is_over:
                self._take(await anext(self._watch))
        except Exception as error:  # noqa: BLE001  subscribers get every failure
            if not self.is_over:
                self.is_over = True
                self._on_ended(self, _ours(error))
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def _take(self, received: Events) -> None:
        """Deliver a revision to its subscriptions."""
        is_first, self.is_proven = not self.is_proven, True
        ours = sum(map(self._hand_out, received.events))
        self.ours += ours
        self.others += len(received.events) - ours
        self.next_revision = max(self.next_revision, received.revision + 1)
        if is_first or self.size == 1:  # else an event settles the subscriptions it is for
            for subscription in tuple(self):
                subscription.settle()
        if not self.is_over:
            self._on_passed(self)

    def _hand_out(self, event: Event) -> bool:
        """Deliver one event; return whether it was for a subscription. Prefixes end at a slash."""
        key, is_ours = event.key, False
        slash = key.find(b"/", max(len(self.place) - 1, 0), self._longest)
        while slash >= 0:
            alike = self._subscriptions.get(key[: slash + 1])
            if alike is not None:
                is_ours = True
                for subscription in tuple(alike):
                    subscription.event_received(event, self)
            slash = key.find(b"/", slash + 1, self._longest)
        return is_ours


def call(callback: Callable[[T], None], what: T) -> None:
    """Call a subscriber, and log its exceptions."""
    try:
        callback(what)
    except Exception:
        logger.exception("a watch subscriber has failed; it still receives later events")


def _ours(error: Exception) -> LeaseholdError:
    if isinstance(error, LeaseholdError):
        return error
    logger.error("a watch has failed", exc_info=error)
    return LeaseholdError(f"a watch has failed: {error!r}")


class FailedPrefixes:
    """Prefixes at which a shared watch has failed, each with a pause."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pauses: dict[bytes, tuple[float, float]] = {}
        """The length of each pause, and its end."""

    def __contains__(self, place: bytes) -> bool:
        return place in self._pauses and self._now() < self._pauses[place][1]

    def is_refused(self, place: bytes) -> bool:
        """Return whether it has the longest pause, because access was denied."""
        return place in self and self._pauses[place][0] >= COOL_MAX_S

    def add(self, place: bytes) -> None:
        """Begin a pause for a prefix and those above it: they receive the same events."""
        self._add(place, COOL_S, COOL_MAX_S / 2)
        if place:
            for above in places_above(place if place.endswith(b"/") else place + b"/"):
                self._add(above, COOL_S, COOL_MAX_S / 2)

    def add_refused(self, place: bytes) -> None:
        """Begin a pause for a prefix that cannot be watched; those above it may be allowed."""
        self._add(place, COOL_MAX_S, COOL_MAX_S)

    def _add(self, place: bytes, min_s: float, max_s: float) -> None:
        now = self._now()
        pause, end = self._pauses.pop(place, (0.0, 0.0))
        if now - end > COOL_MAX_S:
            pause = 0.0  # the last pause ended long ago
        pause = max(min(2 * pause, max_s), min_s)
        if len(self._pauses) >= MAX_COOLING:
            del self._pauses[next(iter(self._pauses))]
        self._pauses[place] = (pause, now + pause)
