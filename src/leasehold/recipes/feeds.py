"""What happens below many prefixes, each told to whoever wants to know: with few watches.

Theory of operation. A subscription is *alone*, with a watch of its own, or in a *group*, whose one
watch is on a place above all of them (`feed_places` has which those are). Groups come and go by
what is cheaper:

- When more than `GROUP_FROM` are alone below a place, they become a group: it spares as many
  watches, now and after each loss of the connection. It begins at a recent revision, not at the
  oldest that one of them needs, which could be long ago: it may be told of `REPLAYED_EACH` old
  revisions for each of them. Who is further behind stays alone until it has come so far.
- When a group is told mostly of what concerns nobody here, and more of that than `OTHERS_EACH` for
  each of them in `WINDOW_S`, its watch costs more than theirs would have: it is split. The place is
  left alone for a while then, each time for longer, so that this does not go back and forth.
- Who comes later joins the group, without a watch if the group has passed nothing of what it is to
  be told.

If a group's watch is refused (no right to read there) or too late (`Compacted`), each goes on for
itself from where it was; only who needs what was compacted is told of a gap.

Subscribers call back from within `on_event`. So all changes of who is told by whom are made between
two revisions: later, by `_arrange`, or when a watch says that it has passed one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from leasehold.engine.interface import Engine
from leasehold.engine.values import Event
from leasehold.errors import CallRefused, Closed, Compacted, HistoryLost, LeaseholdError
from leasehold.recipes.feed_places import (
    GROUP_FROM,
    MAX_ALONE,
    WHOLE,
    WHOLE_FROM,
    Cooling,
    places_above,
)
from leasehold.recipes.feed_watch import FeedWatch, Subscription, call

__all__ = ["Feeds", "Subscription"]

REPLAYED_EACH: Final = 4
"""Revisions for each subscription by which a new group may begin before its latest one."""

OTHERS_EACH: Final = 4
"""Changes for each subscription, of keys that concern none, which are put up with in a window."""

OTHERS_MIN: Final = 64
"""So many are put up with in any case."""

OTHERS_SHARE: Final = 0.8
"""And as long as they are not this part of all changes."""

WINDOW_S: Final = 60.0
"""For how long changes are counted."""


class Feeds:
    """Tells of changes below any number of prefixes. For one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watches: dict[FeedWatch, None] = {}
        self._groups: dict[bytes, FeedWatch] = {}
        self._alone: dict[bytes, dict[Subscription, None]] = {}
        """Who is in no group, by all the places above."""
        self._homeless: dict[Subscription, None] = {}
        """Who has no watch, and gets one soon."""
        self._cooling = Cooling(lambda: asyncio.get_running_loop().time())
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
    ) -> Subscription:
        """Have `on_event` told of each change of a key that begins with `prefix`, which ends in /.

        From revision `start` on, in order, each once, on the event loop. If that cannot go on,
        `on_gap` is told why, once, and nothing after it. Both may subscribe and cancel.
        """
        if not prefix.endswith(b"/"):
            raise ValueError(f"a prefix must end with a slash, unlike {prefix!r}")
        if start < 1:
            raise ValueError(f"start must be a revision, 1 or later; not {start}")
        if self._is_closed:
            raise Closed("the feeds were closed")
        subscription = Subscription(prefix, start, on_event, on_gap, self._cancelled)
        self._place_soon(subscription)
        return subscription

    async def close(self) -> None:
        """End all subscriptions; none is told anything more."""
        self._is_closed = True
        tasks = [watch.task for watch in self._watches]
        everybody = {each: None for watch in self._watches for each in watch} | self._homeless
        for subscription in everybody:
            subscription.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Who is told by which watch.

    def _place_soon(self, subscription: Subscription) -> None:
        self._homeless[subscription] = None
        if not self._is_to_arrange:
            self._is_to_arrange = True
            asyncio.get_running_loop().call_soon(self._arrange)

    def _arrange(self) -> None:
        """Find a watch for everybody who has none."""
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

    def _group_above(self, prefix: bytes) -> FeedWatch | None:
        if prefix in self._groups:
            return self._groups[prefix]
        groups = (self._groups.get(place) for place in places_above(prefix))
        return next((group for group in groups if group is not None), None)

    def _place_to_share(self, prefix: bytes) -> bytes | None:
        """Give the nearest place where a group is worth trying."""
        for place in places_above(prefix):
            count = len(self._alone.get(place, ()))
            if place == WHOLE:
                if count > MAX_ALONE and not self._cooling.is_refused(place):
                    return place  # whatever else goes on there: a stream takes only so many
                if count > WHOLE_FROM and place not in self._cooling:
                    return place
            elif count > GROUP_FROM and place not in self._cooling:
                return place
        return None

    def _form(self, place: bytes) -> None:
        """Make a group of all that are alone below a place."""
        members = list(self._alone[place])
        positions = [member.next_revision for member in members]
        latest = max(*positions, self._compacted)
        earliest = max(latest - REPLAYED_EACH * len(members), self._compacted)
        start = min((each for each in positions if each >= earliest), default=latest)
        group = self._groups[place] = self._open(place, start)
        group.ask_progress()  # else it would be proven with its first change
        for member in members:
            self._be_not_alone(member)
            self._join(member, group)

    def _join(self, subscription: Subscription, group: FeedWatch) -> None:
        if subscription.home is None:
            if subscription.next_revision >= group.next_revision:
                subscription.lives_in(group)
                return
            self._open_own(subscription)
        subscription.moves_to(group)

    def _open_own(self, subscription: Subscription) -> None:
        own = self._open(subscription.prefix, subscription.next_revision)
        subscription.lives_in(own)

    def _open(self, place: bytes, start: int) -> FeedWatch:
        watch = FeedWatch(self._engine, self, place, start)
        self._watches[watch] = None
        watch.task.add_done_callback(lambda _: self._watches.pop(watch, None))
        return watch

    def _be_alone(self, subscription: Subscription) -> None:
        for place in places_above(subscription.prefix):
            self._alone.setdefault(place, {})[subscription] = None

    def _be_not_alone(self, subscription: Subscription) -> None:
        for place in places_above(subscription.prefix):
            alone = self._alone.get(place)
            if alone is not None and alone.pop(subscription, self) is None and not alone:
                del self._alone[place]

    def _cancelled(self, subscription: Subscription) -> None:
        self._homeless.pop(subscription, None)
        self._be_not_alone(subscription)
        group = subscription.target or subscription.home
        subscription.leave_target()
        subscription.leave_home()
        if group is not None and group.is_over and self._groups.get(group.place) is group:
            del self._groups[group.place]

    # What watches tell.

    def passed(self, watch: FeedWatch) -> None:
        """See whether a group is worth its watch."""
        if watch.others > OTHERS_MIN and self._groups.get(watch.place) is watch:
            self._weigh(watch)

    def _weigh(self, group: FeedWatch) -> None:
        """Split a group if that is cheaper."""
        if asyncio.get_running_loop().time() - group.since > WINDOW_S:
            group.count_anew()
            return
        is_mostly_others = group.others > OTHERS_SHARE * (group.others + group.ours)
        is_too_much = group.others > OTHERS_EACH * group.size
        is_room = len(self._alone.get(WHOLE, ())) + group.size <= MAX_ALONE
        if is_mostly_others and is_too_much and is_room:
            self._cooling.add(group.place)
            self._dissolve(group)

    def _dissolve(self, group: FeedWatch) -> list[Subscription]:
        """Have everybody go on without a group; give those whom it has told, who get others."""
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

    def ended(self, watch: FeedWatch, error: LeaseholdError) -> None:
        """Have everybody go on without a watch who can, and tell the others."""
        if isinstance(error, Compacted):
            self._compacted = max(self._compacted, error.revision)
        elif isinstance(error, HistoryLost):
            self._compacted = 0  # that was another keyspace's
        if self._groups.get(watch.place) is watch:
            lost = self._dissolve(watch)
            if isinstance(error, CallRefused):
                self._cooling.add_refused(watch.place)
                lost = []
            elif isinstance(error, Compacted):
                lost = [each for each in lost if each.next_revision < error.revision]
        else:
            lost = list(watch)
        for subscription in lost:
            if not subscription.is_over:  # one that was told before may have cancelled it
                subscription.cancel()
                call(subscription.on_gap, error)
