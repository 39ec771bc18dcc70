"""Drafts: changes of registrations of the discovery service that are to be stored.

A draft has interests that were compared with the registrars that the service finds now, and the
events that result. Making one changes no registration: the service takes it once it is stored.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from leasehold.basics.durations import NEVER
from leasehold.clock import Clock
from leasehold.discovery.announced import Registrar
from leasehold.discovery.cluster_search import ClusterSearch
from leasehold.discovery.known_registrars import KnownRegistrars
from leasehold.discovery.live_registration import (
    Interests,
    LiveRegistration,
    NewEvent,
    new_events,
)
from leasehold.discovery.locators import Locator
from leasehold.discovery.registration import ReachableRegistrar
from leasehold.discovery.state import EventKind
from leasehold.keyspace.operations import Put

MAX_LAST_EVENTS: Final = 100
"""Events that are kept for other registrations; each is at most `MAX_EVENT_BYTES` long."""

Find: TypeAlias = Callable[[str], "ReachableRegistrar[Locator] | None"]
"""Returns a registrar by its id, as it is found now."""


class Draft(NamedTuple):
    """A change of a registration that is to be stored."""

    live: LiveRegistration
    interests: Interests
    events: list[NewEvent]
    examined: frozenset[str]

    def put(self, wall_minus_now: float) -> Put:
        """Return the step that stores it."""
        return self.live.put(self.interests, self.events, wall_minus_now)


class RegistrationDrafts:
    """Makes drafts for all registrations of a server."""

    def __init__(self, search: ClusterSearch, known: KnownRegistrars, clock: Clock) -> None:
        self._search = search
        self._known = known
        self._clock = clock
        self._last_events: dict[tuple[EventKind, tuple[str, ...]], list[NewEvent]] = {}
        """Events that were made since a registrar has changed."""
        self.dropped = 0
        """Events that were dropped because too many were not delivered."""

    def make(
        self,
        live: LiveRegistration,
        interests: Interests,
        registrars: Iterable[str],
        events: Iterable[NewEvent] = (),
        find: Find | None = None,
    ) -> Draft:
        """Examine registrars on a copy of the interests, and return the change."""
        now, examined = asyncio.get_running_loop().time(), frozenset(registrars)
        find = find or self._search.get
        changed: dict[EventKind, list[str]] = {}
        for registrar in sorted(examined):
            before = interests.found.get(registrar)
            at = before.locators if before is not None else ()
            taken = self._search.taken(at, registrar) if at else ()
            kind = interests.examine(registrar, find(registrar), taken, self._search.waits, now)
            if kind is not None:
                changed.setdefault(kind, []).append(registrar)
            if kind is EventKind.DISCOVERED and (found := find(registrar)) is not None:
                self._known.set(found.registrar)
        made = list(events)
        for kind in (EventKind.DISCARDED, EventKind.DISCOVERED):
            if kind in changed:
                made += self._events(kind, tuple(changed[kind]))
        if made:
            made, dropped = live.make_room(made)
            self.dropped += dropped
        return Draft(live, interests, made, examined)

    def _events(self, kind: EventKind, registrars: tuple[str, ...]) -> list[NewEvent]:
        """Return the events about registrars: the same for all registrations that they concern."""
        events = self._last_events.get((kind, registrars))
        if events is None:
            if len(self._last_events) >= MAX_LAST_EVENTS:
                self._last_events.clear()
            events = new_events(kind, map(self.describe, registrars))
            self._last_events[kind, registrars] = events
        return events

    def registrars_changed(self) -> None:
        """Describe registrars anew in the events of further drafts."""
        self._last_events.clear()

    def describe(self, registrar: str) -> Registrar:
        """Return a registrar as it is found now, or as it was last described."""
        reached = self._search.get(registrar)
        if reached is not None:
            return reached.registrar
        return self._known.get(registrar) or Registrar(registrar)

    def check_again(self, live: LiveRegistration, registrar: str) -> None:
        """Have a registrar called that is wanted, and waits after a discard."""
        reached = self._search.get(registrar)
        if reached is None:
            return
        at = live.interests.check_at(registrar, reached, self._search.waits)
        if at != NEVER and reached.answered_at < at:
            self._search.check_at(registrar, at)

    def wall_minus_now(self) -> float:
        """Return the difference between the wall clock and the time of the event loop."""
        return self._clock.wall() - asyncio.get_running_loop().time()
