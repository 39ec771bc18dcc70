"""Subscriptions to the changes below many prefixes, with few watches.

Theory of operation. A subscription is *alone*, with its own watch, or in a *group*, with one watch
on a common prefix of all members (`shared_watch` determines which). Groups come and go by cost:

- When more than `GROUP_FROM` are alone below a prefix, they become a group: it saves as many
  watches, now and after each loss of the connection. It begins at a recent revision, not at the
  oldest that one of them needs, which could be long ago: it may replay `REPLAYED_EACH` old
  revisions for each of them. A subscription that is further behind stays alone until it has caught
  up.
- When most events of a group are for none of its members, and there are more of those than
  `OTHERS_EACH` for each member in `WINDOW_S`, its watch costs more than separate ones: it is split.
  The prefix is not tried again for a while then, each time for longer, so that this does not go
  back and forth.
- A later subscription joins the group, without a watch of its own if the group has not passed the
  revision at which it starts.

If a group's watch is refused (no permission to read there) or too late (`Compacted`), each member
continues alone from its position; a gap is reported only to those that need compacted revisions.

Subscribers call back from within `on_event`. So subscriptions change watches only between two
revisions: later, in `_arrange`, or when a watch reports that it has passed one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from leasehold.engine.interface import Engine
from leasehold.engine.values import Event
from leasehold.errors import CallRefused, Closed, Compacted, HistoryLost, LeaseholdError
from leasehold.locks.shared_watch import (
    GROUP_FROM,
    MAX_ALONE,
    WHOLE,
    WHOLE_FROM,
    FailedPrefixes,
    SharedWatch,
    WatchSubscription,
    call,
    places_above,
)

__all__ = ["WatchSubscription", "WatchSubscriptions"]

REPLAYED_EACH: Final = 4
"""Revisions per subscription by which a new group may begin before its latest one."""

OTHERS_EACH: Final = 4
"""Allowed events per subscription in a window that are for none of them."""

OTHERS_MIN: Final = 64
"""This many are allowed in any case."""

OTHERS_SHARE: Final = 0.8
"""They are also allowed while their share of all events is below this."""

WINDOW_S: Final = 60.0
"""The window in which events are counted."""


class WatchSubscriptions:
    """Delivers changes below any number of prefixes. For one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watches: dict[SharedWatch, None] = {}
        self._groups: dict[bytes, SharedWatch] = {}
        self._alone: dict[bytes, dict[WatchSubscription, None]] = {}
        """Subscriptions without a group, by all prefixes above them."""
        self._homeless: dict[WatchSubscription, None] = {}
        """Subscriptions without a watch, which get one soon."""
        self._failed_prefixes = FailedPrefixes(lambda: asyncio.get_running_loop().time())
        self._compacted = 0
        """The oldest revision that can be watched, as far as known."""
        self._is_to_arrange = False
        self._is_closed = False

    def subscribe(
        self,
        prefix: bytes,
        start: int,
        on_event: Callable[[Event], None],
        on_gap: Callable[[LeaseholdError], None],
    ) -> WatchSubscription:
        """Call `on_event` with each change of a key that begins with `prefix`, which ends in /.

        From revision `start` on, in order, each once, on the event loop. If that cannot continue,
        `on_gap` is called once with the error, and nothing after it. Both may subscribe and cancel.
        """
        if not prefix.endswith(b"/"):
            raise ValueError(f"prefix must end with a slash, got {prefix!r}")
        if start < 1:
            raise ValueError(f"start must be a revision of at least 1, got {start}")
        if self._is_closed:
            raise Closed("the watch subscriptions were closed")
        subscription = WatchSubscription(prefix, start, on_event, on_gap, self._cancelled)
        self._place_soon(subscription)
        return subscription

    async def close(self) -> None:
        """End all subscriptions; no callback is called any more."""
        self._is_closed = True
        tasks = [watch.task for watch in self._watches]
        everybody = {each: None for watch in self._watches for each in watch} | self._homeless
        for subscription in everybody:
            subscription.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Assigning subscriptions to watches.

    def _place_soon(self, subscription: WatchSubscription) -> None:
        self._homeless[subscription] = None
        if not self._is_to_arrange:
            self._is_to_arrange = True
            asyncio.get_running_loop().call_soon(self._arrange)

    def _arrange(self) -> None:
        """Find a watch for each subscription that has none."""
        self._is_to_arrange = False
        homeless, self._homeless = self._homeless, {}
        for subscription in homeless:
            if (group := self._group_above(subscription.prefix)) is not None:
                self._join(subscription, group)
            else:
                self._be_alone(subscription)
        for subscription in homeless:
            if subscription.home is None:
                place = self._place_to_share(subscription.prefix)
                if place is not None:
                    self._form(place)
                else:
                    self._open_own(subscription)

    def _group_above(self, prefix: bytes) -> SharedWatch | None:
        if prefix in self._groups:
            return self._groups[prefix]
        groups = (self._groups.get(place) for place in places_above(prefix))
        return next((group for group in groups if group is not None), None)

    def _place_to_share(self, prefix: bytes) -> bytes | None:
        """Return the nearest prefix where a group is worth trying."""
        for place in places_above(prefix):
            count = len(self._alone.get(place, ()))
            if place == WHOLE:
                if count > MAX_ALONE and not self._failed_prefixes.is_refused(place):
                    return place  # whatever else happens there: the watches of a stream are limited
                if count > WHOLE_FROM and place not in self._failed_prefixes:
                    return place
            elif count > GROUP_FROM and place not in self._failed_prefixes:
                return place
        return None

    def _form(self, place: bytes) -> None:
        """Make a group of all that are alone below a prefix."""
        members = list(self._alone[place])
        positions = [member.next_revision for member in members]
        latest = max(*positions, self._compacted)
        earliest = max(latest - REPLAYED_EACH * len(members), self._compacted)
        start = min((each for each in positions if each >= earliest), default=latest)
        group = self._groups[place] = self._open(place, start)
        group.ask_progress()  # otherwise only its first event would prove it
        for member in members:
            self._be_not_alone(member)
            self._join(member, group)

    def _join(self, subscription: WatchSubscription, group: SharedWatch) -> None:
        if subscription.home is None:
            if subscription.next_revision >= group.next_revision:
                subscription.set_home(group)
                return
            self._open_own(subscription)
        subscription.move_to(group)

    def _open_own(self, subscription: WatchSubscription) -> None:
        own = self._open(subscription.prefix, subscription.next_revision)
        subscription.set_home(own)

    def _open(self, place: bytes, start: int) -> SharedWatch:
        watch = SharedWatch(self._engine, place, start, self._passed, self._ended)
        self._watches[watch] = None
        watch.task.add_done_callback(lambda _: self._watches.pop(watch, None))
        return watch

    def _be_alone(self, subscription: WatchSubscription) -> None:
        for place in places_above(subscription.prefix):
            self._alone.setdefault(place, {})[subscription] = None

    def _be_not_alone(self, subscription: WatchSubscription) -> None:
        for place in places_above(subscription.prefix):
            alone = self._alone.get(place)
            if alone is not None and alone.pop(subscription, self) is None and not alone:
                del self._alone[place]

    def _cancelled(self, subscription: WatchSubscription) -> None:
        self._homeless.pop(subscription, None)
        self._be_not_alone(subscription)
        group = subscription.target or subscription.home
        subscription.leave_target()
        subscription.leave_home()
        if group is not None and group.is_over and self._groups.get(group.place) is group:
            del self._groups[group.place]

    # Reports of watches.

    def _passed(self, watch: SharedWatch) -> None:
        """Check whether a group is worth its watch."""
        if watch.others > OTHERS_MIN and self._groups.get(watch.place) is watch:
            self._weigh(watch)

    def _weigh(self, group: SharedWatch) -> None:
        """Split a group if that is cheaper."""
        if asyncio.get_running_loop().time() - group.since > WINDOW_S:
            group.count_anew()
            return
        is_mostly_others = group.others > OTHERS_SHARE * (group.others + group.ours)
        is_too_much = group.others > OTHERS_EACH * group.size
        is_room = len(self._alone.get(WHOLE, ())) + group.size <= MAX_ALONE
        if is_mostly_others and is_too_much and is_room:
            self._failed_prefixes.add(group.place)
            self._dissolve(group)

    def _dissolve(self, group: SharedWatch) -> list[WatchSubscription]:
        """Remove all members from a group; return those whose home it was: they need others."""
        del self._groups[group.place]
        members = list(group)
        settled = [member for member in members if member.home is group]
        for member in members:
            if member.home is group:
                member.leave_home()
                self._place_soon(member)
            else:
                member.leave_target()
                self._be_alone(member)
        return settled

    def _ended(self, watch: SharedWatch, error: LeaseholdError) -> None:
        """Continue each subscription without the watch if possible; report a gap to others."""
        if isinstance(error, Compacted):
            self._compacted = max(self._compacted, error.revision)
        elif isinstance(error, HistoryLost):
            self._compacted = 0  # it was a revision of another keyspace
        if self._groups.get(watch.place) is watch:
            lost = self._dissolve(watch)
            if isinstance(error, CallRefused):
                self._failed_prefixes.add_refused(watch.place)
                lost = []
            elif isinstance(error, Compacted):
                lost = [each for each in lost if each.next_revision < error.revision]
        else:
            lost = list(watch)
        for subscription in lost:
            if not subscription.is_over:  # an earlier callback may have cancelled it
                subscription.cancel()
                call(subscription.on_gap, error)
