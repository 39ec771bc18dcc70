"""Bugs of the discovery service to switch on, to see that the simulation finds them.

As in `seeded_bugs`. The last ones were real.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from leasehold.basics.durations import NEVER
from leasehold.discovery import live_registration, service
from leasehold.discovery.announced import AnnouncedSearch, Announcement, Registrar
from leasehold.discovery.cluster_search import ClusterSearch
from leasehold.discovery.discard_waits import DiscardWaits
from leasehold.discovery.interest_index import InterestIndex
from leasehold.discovery.known_registrars import KnownRegistrars
from leasehold.discovery.live_registration import LiveRegistration, NewEvent
from leasehold.discovery.registration import RegistrationState
from leasehold.discovery.registration_drafts import Draft, RegistrationDrafts
from leasehold.discovery.registration_writer import RegistrationWriter
from leasehold.discovery.service import DiscoveryService
from leasehold.discovery.state import DiscoveryState, EventKind
from leasehold.events import delivery
from leasehold.events.state import Attempt, EventQueue
from leasehold.services.leased_records import LeasedRecords
from tests.simulation import discovery_scenarios as scenarios
from tests.simulation.seeded_bugs import Patch, SeededBug

# Which events result.


def _a_found_registrar_is_discovered_again() -> Patch:
    original = RegistrationState.examine

    def examine(self: Any, registrar: str, reached: Any, *args: Any) -> EventKind | None:
        kind = original(self, registrar, reached, *args)
        is_kept = kind is None and registrar in self.found and reached is not None
        return EventKind.DISCOVERED if is_kept else kind

    return patch.object(RegistrationState, "examine", examine)


def _a_lost_registrar_is_kept() -> Patch:
    original = RegistrationState.examine

    def examine(self: Any, registrar: str, reached: Any, *args: Any) -> EventKind | None:
        return None if reached is None else original(self, registrar, reached, *args)

    return patch.object(RegistrationState, "examine", examine)


def _a_registrar_that_left_the_groups_is_kept() -> Patch:
    original = RegistrationState.examine

    def examine(self: Any, registrar: str, reached: Any, *args: Any) -> EventKind | None:
        before = self.found.get(registrar)
        kind = original(self, registrar, reached, *args)
        if kind is EventKind.DISCARDED and reached is not None:
            self.found[registrar] = before
            return None
        return kind

    return patch.object(RegistrationState, "examine", examine)


def _withdrawn_groups_keep_their_registrars() -> Patch:
    original = DiscoveryService._all_registrars

    def all_registrars(self: DiscoveryService, live: LiveRegistration) -> set[str]:
        return original(self, live) - set(live.interests.found)

    return patch.object(DiscoveryService, "_all_registrars", all_registrars)


def _new_interest_waits_for_the_next_change() -> Patch:
    original = DiscoveryService._all_registrars

    def all_registrars(self: DiscoveryService, live: LiveRegistration) -> set[str]:
        return original(self, live) & set(live.interests.found)

    return patch.object(DiscoveryService, "_all_registrars", all_registrars)


def _a_further_group_is_not_noticed() -> Patch:
    original = InterestIndex.concerned

    def concerned(self: InterestIndex, registrar: str, reached: Any) -> list[LiveRegistration]:
        return self.registrations_with(registrar) or original(self, registrar, reached)

    return patch.object(InterestIndex, "concerned", concerned)


# Discards.


def _a_discarded_registrar_is_taken_again_immediately() -> Patch:
    return patch.object(DiscardWaits, "end", lambda *_: float("-inf"))


def _a_discarded_registrar_is_never_checked() -> Patch:
    return patch.object(RegistrationDrafts, "check_again", lambda *_: None)


# Numbers and events.


def _the_number_is_not_stored() -> Patch:
    original = live_registration.stored_value

    def stored_value(listener: Any, interests: Any, number: int, *args: Any) -> bytes:
        return original(listener, interests, 0 if not args[0] else number, *args)

    return _all(
        patch.object(live_registration, "stored_value", stored_value),
        patch.object(service, "stored_value", stored_value),
    )


def _events_are_forgotten_at_a_restart() -> Patch:
    original = live_registration.stored_value

    def stored_value(listener: Any, interests: Any, number: int, *args: Any) -> bytes:
        return original(listener, interests, number, (), *args[1:])

    return patch.object(live_registration, "stored_value", stored_value)


def _registrars_are_forgotten_at_a_restart() -> Patch:
    original = LiveRegistration.load.__func__  # type: ignore[attr-defined]

    def load(cls: Any, *args: Any) -> LiveRegistration:
        made: LiveRegistration = original(cls, *args)
        made.interests.found.clear()
        return made

    return patch.object(LiveRegistration, "load", classmethod(load))


def _an_event_is_sent_before_it_is_stored() -> Patch:
    original = RegistrationDrafts.make

    def make(self: RegistrationDrafts, live: LiveRegistration, *args: Any) -> Draft:
        made = original(self, live, *args)
        before = live.queue.number
        live.append(made.events)
        live.queue.number = before
        return made._replace(events=[])

    return patch.object(RegistrationDrafts, "make", make)


def _one_success_delivers_the_whole_queue() -> Patch:
    original = EventQueue.succeeded

    def succeeded(self: EventQueue, attempt: Attempt) -> bool:
        is_current = original(self, attempt)
        if is_current:
            self._pending.clear()
        return is_current

    return patch.object(EventQueue, "succeeded", succeeded)


def _events_of_one_registrar_cancel_each_other() -> Patch:
    original = LiveRegistration.append

    def append(self: LiveRegistration, events: Iterable[NewEvent]) -> None:
        if len(self.queue) > 1:
            self.queue.drop_first()
        original(self, events)

    return patch.object(LiveRegistration, "append", append)


def _a_refused_listener_keeps_its_registration() -> Patch:
    async def rejected(*_args: Any) -> None:
        return

    return patch.object(DiscoveryService, "rejected", rejected)


def _events_are_sent_after_the_end() -> Patch:
    original = DiscoveryService.stopped

    def stopped(self: DiscoveryService, record: Any, reason: Any) -> None:
        if reason is None:
            original(self, record, reason)

    return _all(
        patch.object(DiscoveryService, "stopped", stopped),
        patch.object(delivery, "_check_source", lambda _queue: None),
    )


# Restarts and writes without an answer.


def _registrars_are_not_called_after_a_restart() -> Patch:
    def adopt(self: DiscoveryState[Any], registrar: Registrar, now: float) -> None:
        self._touched.add(registrar.id)

    return patch.object(DiscoveryState, "adopt", adopt)


def _waits_are_forgotten_at_a_restart() -> Patch:
    return patch.object(live_registration, "_discards_in", lambda *_: {})


def _a_write_without_an_answer_is_taken_for_not_executed() -> Patch:
    async def write_together(self: LeasedRecords[Any], writes: Any) -> list[Exception | None]:
        steps = [step for _, some in writes for step in some]
        is_done = await self._storage.write_together([record for record, _ in writes], steps)
        assert is_done or writes
        return [None if is_done else ConnectionError("lost") for _ in writes]

    async def write(self: LeasedRecords[Any], record: Any, success: Any) -> Any:
        return await self._storage.write(record, success, ())

    return patch.multiple(LeasedRecords, write_together=write_together, write=write)


# Real ones.


def _a_registrar_that_left_the_groups_is_lost() -> Patch:
    def is_lost(self: Any, reached: Any) -> bool:
        return reached is None or not reached.by_group

    return patch.object(RegistrationState, "_is_lost", is_lost)


def _registrars_found_during_a_change_of_interests_are_missed() -> Patch:
    original = RegistrationWriter.note
    changing: set[LiveRegistration] = set()
    set_interests = DiscoveryService._set_interests

    async def changes(self: DiscoveryService, live: LiveRegistration, *args: Any) -> None:
        changing.add(live)
        try:
            await set_interests(self, live, *args)
        finally:
            changing.discard(live)

    def note(self: RegistrationWriter, live: LiveRegistration, registrars: Any) -> None:
        if live not in changing or not isinstance(registrars, set):
            original(self, live, registrars)

    return _all(
        patch.object(DiscoveryService, "_set_interests", changes),
        patch.object(RegistrationWriter, "note", note),
    )


def _the_former_registrar_at_a_locator_is_kept() -> Patch:
    return patch.object(service, "_found_at", lambda *_: [])


def _registrars_are_not_stored() -> Patch:
    async def write(self: KnownRegistrars) -> None:
        self._unwritten.clear()

    return patch.object(KnownRegistrars, "write", write)


def _an_announcement_ends_a_check() -> Patch:
    original = AnnouncedSearch.add

    def add(self: AnnouncedSearch, announcement: Announcement, now: float) -> None:
        if not self.servers:
            self.calling, self.next_at = 0, NEVER
        original(self, announcement, now)

    return patch.object(AnnouncedSearch, "add", add)


def _a_discard_waits_for_ever() -> Patch:
    return patch.object(ClusterSearch, "discarded", _never_end_wait)


def _never_end_wait(self: ClusterSearch, registrar: str) -> None:
    self.waits.discard(registrar, 1e12)


def _all(*patches: Any) -> Patch:
    stack = ExitStack()

    class Together:
        def __enter__(self) -> None:
            for each in patches:
                stack.enter_context(each)

        def __exit__(self, *exc_info: object) -> None:
            stack.close()

    return Together()


_FOUND_BY: Sequence[tuple[Callable[[], Patch], Callable[[int], object]]] = (
    (_a_found_registrar_is_discovered_again, scenarios.storm),
    (_a_lost_registrar_is_kept, scenarios.storm),
    (_a_registrar_that_left_the_groups_is_kept, scenarios.interests),
    (_withdrawn_groups_keep_their_registrars, scenarios.interests),
    (_new_interest_waits_for_the_next_change, scenarios.interests),
    (_a_further_group_is_not_noticed, scenarios.interests),
    (_a_discarded_registrar_is_taken_again_immediately, scenarios.discards),
    (_a_discarded_registrar_is_never_checked, scenarios.discards),
    (_the_number_is_not_stored, scenarios.restarts),
    (_events_are_forgotten_at_a_restart, scenarios.restarts),
    (_registrars_are_forgotten_at_a_restart, scenarios.restarts),
    (_an_event_is_sent_before_it_is_stored, scenarios.restarts),
    (_one_success_delivers_the_whole_queue, scenarios.interests),
    (_events_of_one_registrar_cancel_each_other, scenarios.storm),
    (_a_refused_listener_keeps_its_registration, scenarios.storm),
    (_events_are_sent_after_the_end, scenarios.storm),
    (_registrars_are_not_called_after_a_restart, scenarios.restarts),
    (_waits_are_forgotten_at_a_restart, scenarios.discards),
    (_a_write_without_an_answer_is_taken_for_not_executed, scenarios.stragglers),
    (_a_registrar_that_left_the_groups_is_lost, scenarios.both_ways),
    (_registrars_found_during_a_change_of_interests_are_missed, scenarios.slow_writes),
    (_the_former_registrar_at_a_locator_is_kept, scenarios.patient),
    (_registrars_are_not_stored, scenarios.restarts),
    (_an_announcement_ends_a_check, scenarios.newcomers),
    (_a_discard_waits_for_ever, scenarios.discards),
)

DISCOVERY_BUGS = [SeededBug(make.__name__.strip("_"), make, found) for make, found in _FOUND_BY]
