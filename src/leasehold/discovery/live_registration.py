"""A registration of the discovery service in the memory of its server, and its one plain key.

The key has everything: interests, registrars, the number of the last event, and the events that
were not delivered. So each change is one put, and an event is stored before it is sent.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from leasehold.discovery.announced import Registrar
from leasehold.discovery.discard_waits import Discarded, DiscardWaits
from leasehold.discovery.discovery_messages import KIND, found_message, groups_in, groups_message
from leasehold.discovery.locators import Locator
from leasehold.discovery.registration import BY_GROUP, Cover, RegistrationState
from leasehold.discovery.state import EventKind
from leasehold.events.listeners import target_message, target_of
from leasehold.events.state import EventQueue, EventTarget
from leasehold.keyspace.operations import Put
from leasehold.services.leased_record import LeasedRecord
from leasehold.wire import discovery_pb2 as pb

SUFFIX: Final = b"s"
"""The plain key of a registration, below its own key."""

MAX_UNDELIVERED: Final = 1_000
"""Registrars in the undelivered events of a registration; the oldest are dropped for others."""

MAX_UNDELIVERED_BYTES: Final = 512 * 1024
"""Bytes of these events, unless the last one alone has more."""

MAX_EVENT_REGISTRARS: Final = 100
MAX_EVENT_BYTES: Final = 64 * 1024
"""The largest event; one registrar may be larger."""

Interests: TypeAlias = RegistrationState[Locator]


class StoredListener(NamedTuple):
    """The listener of a registration, which does not change."""

    target: EventTarget
    handback: bytes


class NewEvent(NamedTuple):
    """An event that is stored with a change."""

    payload: bytes | None
    """None if it is only counted."""
    registrars: int

    @property
    def size_bytes(self) -> int:
        """The size of its payload."""
        return len(self.payload or b"")


class LiveRegistration:
    """A registration that this server serves."""

    def __init__(
        self,
        service: str,
        record: "LeasedRecord[LiveRegistration | None] | None",
        listener: StoredListener,
        interests: Interests,
        *,
        number: int = 0,
        undelivered: Iterable[tuple[int, bytes]] = (),
    ) -> None:
        self.record: LeasedRecord[LiveRegistration | None]
        self.listener = listener
        self.interests = interests
        pending = list(undelivered)
        self._registrars = {
            number: len(pb.RegistrarsPayload.FromString(payload).registrars)
            for number, payload in pending
        }
        """The number of registrars in each undelivered event."""
        self.queue = EventQueue(
            service,
            "",
            KIND,
            number=number,
            target=listener.target,
            handback=listener.handback,
            pending=pending,
            max_events=MAX_UNDELIVERED,
            give_up_s=float("inf"),
        )
        self.is_stopped = False
        self.unexamined: set[str] = set()
        """Registrars that may have changed for this registration."""
        self.stored: list[asyncio.Future[None]] = []
        """Resolved once the progress of deliveries is stored."""
        if record is not None:
            self.serve(record)

    def serve(self, record: "LeasedRecord[LiveRegistration | None]") -> None:
        """Belong to a record from now on."""
        self.record = record
        self.queue.source = record.id
        self.queue.may_send = lambda: not record.is_over

    def stop(self) -> None:
        """Record that it has ended, or that another object or server serves it."""
        self.is_stopped = True
        self.resolve()

    def resolve(self) -> None:
        """Resolve those that wait until something is stored."""
        waiting, self.stored = self.stored, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    # Events.

    def make_room(self, events: Sequence[NewEvent]) -> tuple[list[NewEvent], int]:
        """Drop the oldest undelivered events if there are too many with new ones.

        Return the new events, of which the first may have been dropped as well and are only
        counted, and the number of events that were dropped.
        """
        sizes = {number: len(payload) for number, payload in self.queue.undelivered}
        self._registrars = {number: self._registrars[number] for number in sizes}
        registrars = sum(self._registrars.values()) + sum(each.registrars for each in events)
        size_bytes = sum(sizes.values()) + sum(each.size_bytes for each in events)
        made, dropped = list(events), 0
        while registrars > MAX_UNDELIVERED or size_bytes > MAX_UNDELIVERED_BYTES:
            if number := self.queue.drop_first():
                registrars -= self._registrars.pop(number)
                size_bytes -= sizes[number]
            else:
                place = next((at for at, each in enumerate(made[:-1]) if each.payload), None)
                if place is None:
                    break
                registrars -= made[place].registrars
                size_bytes -= made[place].size_bytes
                made[place] = NewEvent(None, 0)
            dropped += 1
        return made, dropped

    def append(self, events: Iterable[NewEvent]) -> None:
        """Queue events that are stored."""
        for event in events:
            if event.payload is None:
                self.queue.number += 1
            else:
                self.queue.append(event.payload)
                self._registrars[self.queue.number] = event.registrars

    # The key.

    def put(self, interests: Interests, events: Sequence[NewEvent], wall_minus_now: float) -> Put:
        """Return the step that stores interests and further events."""
        first = self.queue.number + 1
        new = [(at, each.payload) for at, each in enumerate(events, first) if each.payload]
        value = stored_value(
            self.listener,
            interests,
            self.queue.number + len(events),
            [*self.queue.undelivered, *new],
            wall_minus_now,
        )
        return Put(self.record.key + b"/" + SUFFIX, value)

    @classmethod
    def load(
        cls,
        service: str,
        record: "LeasedRecord[LiveRegistration | None]",
        value: bytes,
        wall_minus_now: float,
    ) -> "LiveRegistration":
        """Return a registration from the value of its key."""
        stored = pb.StoredDiscovery.FromString(value)
        interests = Interests(groups_in(stored.groups), map(Locator.parse, stored.locators))
        interests.found = dict.fromkeys(stored.found_by_group, BY_GROUP)
        for each in stored.found:
            at = frozenset(interests.locators[place] for place in each.locators)
            interests.found[each.id] = Cover(each.by_group, at)
        waits = interests.waits
        waits.discarded = _discards_in(stored.discarded, wall_minus_now)
        waits.returned = _discards_in(stored.returned, wall_minus_now)
        return cls(
            service,
            record,
            StoredListener(target_of(stored.listener), stored.handback),
            interests,
            number=stored.number,
            undelivered=[(each.number, each.payload) for each in stored.undelivered],
        )


def stored_value(
    listener: StoredListener,
    interests: Interests,
    number: int,
    undelivered: Iterable[tuple[int, bytes]],
    wall_minus_now: float,
) -> bytes:
    """Return the value of the key of a registration."""
    waits = interests.waits
    stored = pb.StoredDiscovery(
        groups=groups_message(interests.groups),
        locators=map(str, interests.locators),
        listener=target_message(listener.target),
        handback=listener.handback,
        number=number,
        discarded=_discard_messages(waits, wall_minus_now, is_returned=False),
        returned=_discard_messages(waits, wall_minus_now, is_returned=True),
    )
    places = {locator: place for place, locator in enumerate(interests.locators)}
    by_group = []
    for registrar, cover in interests.found.items():
        if cover is BY_GROUP or not cover.locators:
            by_group.append(registrar)
        else:
            at = [places[each] for each in cover.locators]
            stored.found.add(id=registrar, by_group=cover.by_group, locators=at)
    stored.found_by_group.extend(by_group)
    for place, payload in undelivered:
        stored.undelivered.add(number=place, payload=payload)
    return stored.SerializeToString()


def _discard_messages(
    waits: DiscardWaits, wall_minus_now: float, *, is_returned: bool
) -> list[pb.StoredDiscard]:
    discards = waits.returned if is_returned else waits.discarded
    return [
        pb.StoredDiscard(id=each, times=times, at_ms=round((at + wall_minus_now) * 1000))
        for each, (times, at) in discards.items()
    ]


def _discards_in(stored: Iterable[pb.StoredDiscard], wall_minus_now: float) -> dict[str, Discarded]:
    return {each.id: Discarded(each.times, each.at_ms / 1000 - wall_minus_now) for each in stored}


def new_events(kind: EventKind, registrars: Iterable[Registrar]) -> list[NewEvent]:
    """Return the events about registrars: as few as the limits of an event allow."""
    events: list[NewEvent] = []
    payload = pb.RegistrarsPayload(discarded=kind is EventKind.DISCARDED)
    for registrar in registrars:
        message = found_message(registrar)
        is_full = len(payload.registrars) >= MAX_EVENT_REGISTRARS
        if payload.registrars and (
            is_full or payload.ByteSize() + message.ByteSize() > MAX_EVENT_BYTES
        ):
            events.append(NewEvent(payload.SerializeToString(), len(payload.registrars)))
            del payload.registrars[:]
        payload.registrars.append(message)
    if payload.registrars:
        events.append(NewEvent(payload.SerializeToString(), len(payload.registrars)))
    return events
