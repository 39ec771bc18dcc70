"""One registration for events of the registry: its numbers, queue and progress.

Events are not stored. They follow from the items: the events of a registration are those of the
changes after a revision, in order, and are numbered from a number on. Both are its *progress*. So a
server that examines the same changes again, after a restart or in the place of another server,
gives every event the number that it had.

Progress is always at the end of a revision, because changes are examined again from there. It moves
when the listener has received all events of a revision.

A *resync* event has no item: events were lost, and the listener has to look up again. It takes the
place of the events in the queue. Progress stays before the lost events until it is received.
"""

from collections import deque
from typing import Final, NamedTuple

from leasehold.events.state import MAX_QUEUED, EventQueue, EventTarget
from leasehold.registry.item_feed import IndexChange
from leasehold.registry.state import ALL_TRANSITIONS, Template, Transition, transition
from leasehold.wire import registry_pb2 as pb

KIND: Final = 1
"""The kind of all events of the registry."""

MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events of one registration that were not received. A single event may have more."""

MAX_SKIPPED: Final = 1 << 50
"""Numbers that are left out at one time: revisions of a restored store jump far ahead."""

SKIPPED_PER_REVISION: Final = 1 << 20
"""Numbers that are left out for each revision whose changes are lost: one revision may delete all
items of a lease, and a lease has at most a million keys."""


def transitions_of(number: int) -> Transition:
    """Return the transitions that a request has; ValueError if there are none, or others."""
    if not 0 < number <= ALL_TRANSITIONS:
        raise ValueError(f"transitions must be a sum of 1, 2 and 4, got {number}")
    return Transition(number)


class EventRequest(NamedTuple):
    """The events that a listener has registered for."""

    template: Template
    transitions: Transition
    target: EventTarget
    handback: bytes


class ReplayProgress(NamedTuple):
    """Events up to `number`, of changes up to `revision`, were received."""

    number: int
    revision: int


class _Queued(NamedTuple):
    """An event that was not received."""

    number: int
    start: ReplayProgress
    """The progress before its revision; of a resync event, before the events that it replaces."""
    size_bytes: int


class ListenerRegistration:
    """A registration that this server serves."""

    def __init__(
        self,
        request: EventRequest,
        progress: ReplayProgress,
        service: str,
        max_events: int = MAX_QUEUED,
    ) -> None:
        self.request = request
        self.stored = progress
        """The progress as it was last written."""
        self.since = progress.revision
        """Changes up to this revision are ignored: they were examined before."""
        self.queue = EventQueue(
            service,
            "",
            KIND,
            number=progress.number,
            target=request.target,
            handback=request.handback,
            max_events=max_events,
            give_up_s=float("inf"),
        )
        self.writes_before = 0
        """How often the server had written progress of any registration before that."""
        self._queued: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._start = progress
        """The progress before the events of the last revision that had some."""

    def progress(self, examined: int) -> ReplayProgress:
        """Return the progress, if changes up to a revision were examined."""
        if self._queued:
            return self._queued[0].start
        return ReplayProgress(self.queue.number, max(self.since, examined))

    def examine(self, change: IndexChange) -> bool:
        """Queue the event of a change, if it is one; return True if that is a resync event."""
        if change.revision <= self.since or self.queue.target is None:
            return False
        kind = transition(self.request.template, change.before, change.after)
        if kind is None or not kind & self.request.transitions:
            return False
        if self._start.revision != change.revision - 1:
            self._start = ReplayProgress(self.queue.number, change.revision - 1)
        payload = change.event(kind)
        is_large = self._queued_bytes + len(payload) > MAX_QUEUED_BYTES
        if not self.queue.keeps_next or (is_large and self._queued):
            self._resync(self._start, change.revision, 0)
            return True
        self.queue.append(payload)
        self._queued.append(_Queued(self.queue.number, self._start, len(payload)))
        self._queued_bytes += len(payload)
        return False

    def lost(self, examined: int, revision: int) -> None:
        """Queue a resync event: changes after `examined`, up to `revision`, cannot be examined."""
        start = ReplayProgress(self.queue.number, examined)
        self.since = revision
        skipped = min(SKIPPED_PER_REVISION * max(1, revision - examined), MAX_SKIPPED)
        self._resync(start, revision, skipped)

    def _resync(self, start: ReplayProgress, revision: int, skipped: int) -> None:
        payload = pb.ItemEvent(revision=revision).SerializeToString()
        dropped = set(self.queue.resync(payload, skipped))
        kept = [each for each in self._queued if each.number not in dropped]
        if dropped:
            start = next(each.start for each in self._queued if each.number in dropped)
        self._queued = deque([*kept, _Queued(self.queue.number, start, len(payload))])
        self._queued_bytes = sum(each.size_bytes for each in self._queued)

    def received(self, up_to: int) -> None:
        """Record that the listener has received the events up to a number."""
        while self._queued and self._queued[0].number <= up_to:
            self._queued_bytes -= self._queued.popleft().size_bytes
