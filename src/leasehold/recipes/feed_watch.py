"""One watch of the engine, its reader, and the subscriptions that it serves.

Theory of operation. A subscription has a *home*, the watch that tells it of changes, and all it has
to know of the past is its position: the first revision that it was not told of. That moves on with
everything its home has passed, whether or not it was for this subscription.

To move, it gets a *target* besides, and hears from its home until the target can go on in its
place: when its position has reached `needs`. That is where the target was when this began, or
behind the last change that the target had for it and kept to itself since. As the home tells of
that change as well, it gets there. Nothing is missed and nothing told twice, whichever is ahead.

A watch that has told nothing yet may turn out to be too late: what it should begin with may have
been compacted. So a subscription that has a home leaves it only for a target that is *proven*.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import Event, Events
from leasehold.errors import LeaseholdError
from leasehold.recipes.feed_places import range_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Subscription:
    """What one subscriber is told of one prefix."""

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
        on_cancel: "Callable[[Subscription], None]",
    ) -> None:
        self.prefix = prefix
        self.on_event = on_event
        self.on_gap = on_gap
        self._on_cancel = on_cancel
        self._position = start
        self.home: FeedWatch | None = None
        self.target: FeedWatch | None = None
        self.needs = 0
        """The position from which the target can go on."""
        self.is_over = False

    @property
    def next_revision(self) -> int:
        """The first revision that it was not told of."""
        passed = self.home.next_revision if self.home is not None else 0
        return max(self._position, passed)

    def cancel(self) -> None:
        """Tell nothing more. It may be called again, and by whoever is being told."""
        if not self.is_over:
            self.is_over = True
            self._on_cancel(self)

    # What feeds do with it.

    def lives_in(self, home: "FeedWatch") -> None:
        """Be told by a watch that has passed nothing of what it is to be told."""
        assert self.home is None
        assert self._position >= home.next_revision
        self.home = home
        home.add(self)

    def moves_to(self, target: "FeedWatch") -> None:
        """Be told by another watch, as soon as that can."""
        assert self.home is not None
        assert self.target is None
        self.target = target
        self.needs = target.next_revision
        target.add(self)
        if self.next_revision < self.needs:
            self.home.ask_progress()
        self.settle()

    def settle(self) -> None:
        """Let the home go if the target can go on in its place."""
        if self.target is not None and self.target.is_proven and self.next_revision >= self.needs:
            target, self.target = self.target, None
            self.leave_home()
            self.home = target

    def leave_home(self) -> None:
        """Be told by nobody, and keep the position."""
        self._position = self.next_revision
        home, self.home = self.home, None
        if home is not None:
            home.discard(self)

    def leave_target(self) -> None:
        """Stay where it is."""
        target, self.target = self.target, None
        if target is not None:
            target.discard(self)

    def hears(self, event: Event, source: "FeedWatch") -> None:
        """Take a change from one of its two watches."""
        if source is self.target:
            self.settle()
        if source is self.home:
            if event.revision >= self._position:
                call(self.on_event, event)
        elif source is self.target:
            self.needs = event.revision + 1


class Owner(Protocol):
    """Who is told how watches fare, always between two revisions."""

    def passed(self, watch: "FeedWatch") -> None:
        """Something was told, and everybody has heard."""

    def ended(self, watch: "FeedWatch", error: LeaseholdError) -> None:
        """It can tell nothing more, and nobody has asked for that."""


class FeedWatch:
    """Tells subscriptions below a place what happens from a revision on."""

    __slots__ = (
        "_engine",
        "_is_asked",
        "_longest",
        "_owner",
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

    def __init__(self, engine: Engine, owner: Owner, place: bytes, start: int) -> None:
        self._engine = engine
        self._owner = owner
        self.place = place
        self.next_revision = start
        """The first revision that it has not passed."""
        self.is_proven = False
        """Whether it has told anything, so that it did not come too late."""
        self.is_over = False
        self.size = 0
        """How many subscriptions it has."""
        self.since = 0.0
        """When it began to count."""
        self.ours = 0
        self.others = 0
        """Changes since then that concerned a subscription, and that did not."""
        self.count_anew()
        self._subscriptions: dict[bytes, dict[Subscription, None]] = {}
        self._longest = 0
        """No prefix of a subscription is longer."""
        self._is_asked = False
        self._watch: Watch | None = None
        self.task = asyncio.get_running_loop().create_task(self._read())

    def __iter__(self) -> Iterator[Subscription]:
        for alike in self._subscriptions.values():
            yield from alike

    def add(self, subscription: Subscription) -> None:
        """Tell one more, or be its target."""
        prefix = subscription.prefix
        assert prefix.startswith(self.place)
        self._subscriptions.setdefault(prefix, {})[subscription] = None
        self._longest = max(self._longest, len(prefix))
        self.size += 1

    def discard(self, subscription: Subscription) -> None:
        """Tell one less; the last takes the watch along."""
        alike = self._subscriptions[subscription.prefix]
        del alike[subscription]
        if not alike:
            del self._subscriptions[subscription.prefix]
        self.size -= 1
        if not self.size:
            self.close()

    def ask_progress(self) -> None:
        """Have it find out how far it is."""
        self._is_asked = True
        if self._watch is not None:
            self._watch.request_progress()

    def count_anew(self) -> None:
        """Forget what was counted."""
        self.since = asyncio.get_running_loop().time()
        self.ours = self.others = 0

    def close(self) -> None:
        """Watch no longer."""
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
        except Exception as error:  # noqa: BLE001  whatever it is, subscribers hear of it
            if not self.is_over:
                self.is_over = True
                self._owner.ended(self, _ours(error))
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def _take(self, told: Events) -> None:
        """Hand a revision to those whom it concerns."""
        is_first, self.is_proven = not self.is_proven, True
        ours = sum(map(self._hand_out, told.events))
        self.ours += ours
        self.others += len(told.events) - ours
        self.next_revision = max(self.next_revision, told.revision + 1)
        if is_first or self.size == 1:  # in a group that goes on, a change settles whom it is for
            for subscription in tuple(self):
                subscription.settle()
        if not self.is_over:
            self._owner.passed(self)

    def _hand_out(self, event: Event) -> bool:
        """Tell of one change; whether anybody was to be told. Prefixes end where a slash is."""
        key, is_ours = event.key, False
        slash = key.find(b"/", max(len(self.place) - 1, 0), self._longest)
        while slash >= 0:
            alike = self._subscriptions.get(key[: slash + 1])
            if alike is not None:
                is_ours = True
                for subscription in tuple(alike):
                    subscription.hears(event, self)
            slash = key.find(b"/", slash + 1, self._longest)
        return is_ours


def call(callback: Callable[[T], None], what: T) -> None:
    """Tell a subscriber. What it raises is its own affair."""
    try:
        callback(what)
    except Exception:
        logger.exception("a subscriber has failed; it is told what comes next all the same")


def _ours(error: Exception) -> LeaseholdError:
    if isinstance(error, LeaseholdError):
        return error
    logger.error("a watch has failed", exc_info=error)
    return LeaseholdError(f"a watch has failed: {error!r}")
