"""Bugs of the renewal service to switch on, to see that the simulation finds them.

As in `seeded_bugs`. The last two were real ones, which this simulation has found.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from leasehold.basics.durations import NEVER
from leasehold.engine.values import TxnResult
from leasehold.events.state import Attempt, EventQueue, EventTarget
from leasehold.keyspace.operations import Compare, Delete, Put, Relation, Step, Target
from leasehold.leases import renewal_plan
from leasehold.leases.renewal_times import MIN_INTERVAL_S
from leasehold.renewal import member_renewals, stored
from leasehold.renewal.live_set import LiveSet
from leasehold.renewal.member_renewals import MemberRenewals
from leasehold.renewal.state import Leaving, Member, MemberTerms, WarningState
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.record_storage import RecordStorage, StoredEnd, StoredRecord
from leasehold.services.shards import ShardOwnership
from tests.simulation import renewal_scenarios as scenarios
from tests.simulation.seeded_bugs import Patch, SeededBug

# Renewals.


def _nothing_is_checked_before_a_send() -> Patch:
    return patch.object(member_renewals, "_may_send", lambda _record: None)


def _the_desired_end_is_ignored() -> Patch:
    original = MemberRenewals._manage

    def manage(self: MemberRenewals, live: Any, member: Member, *args: Any) -> None:
        wanted, member.terms = member.terms, MemberTerms(NEVER, member.terms.renew)
        original(self, live, member, *args)
        member.terms = wanted

    return patch.object(MemberRenewals, "_manage", manage)


def _a_stored_end_is_an_upper_bound() -> Patch:
    def resume(self: MemberRenewals, live: LiveSet) -> None:
        wall = self._clock.wall()
        for member in list(live.state.members.values()):
            self.begin(live, member, max(0.0, member.end - wall))

    return patch.object(MemberRenewals, "resume", resume)


def _members_are_not_renewed_after_a_restart() -> Patch:
    return patch.object(MemberRenewals, "resume", lambda *_: None)


# Numbers and events.


def _the_number_is_not_written_with_the_event() -> Patch:
    original = LiveSet.put_registration

    def put_registration(self: LiveSet, *args: Any, number: int | None = None, **named: Any) -> Put:
        del number
        return original(self, *args, **named)

    return patch.object(LiveSet, "put_registration", put_registration)


def _events_are_forgotten_at_a_restart() -> Patch:
    original = stored.queue_of

    def queue_of(rows: Mapping[bytes, bytes], *args: Any) -> Any:
        kept = {key: row for key, row in rows.items() if not key.startswith(stored.EVENTS)}
        return original(kept, *args)

    return patch.object(stored, "queue_of", queue_of)


def _a_replacing_listener_gets_only_new_events() -> Patch:
    original = EventQueue.replace

    def replace(self: EventQueue, target: EventTarget, handback: bytes) -> None:
        self._pending.clear()
        original(self, target, handback)

    return patch.object(EventQueue, "replace", replace)


def _events_are_deleted_before_they_are_delivered() -> Patch:
    original = LiveSet.delete_events

    def delete_events(self: LiveSet, queue: EventQueue, up_to: int) -> Delete:
        return original(self, queue, up_to + 1_000)

    return patch.object(LiveSet, "delete_events", delete_events)


def _one_success_delivers_the_whole_queue() -> Patch:
    original = EventQueue.succeeded

    def succeeded(self: EventQueue, attempt: Attempt) -> bool:
        is_current = original(self, attempt)
        if is_current:
            self._pending.clear()
        return is_current

    return patch.object(EventQueue, "succeeded", succeeded)


def _a_lease_that_expires_leaves_without_an_event() -> Patch:
    original = LiveSet.departures

    def departures(self: LiveSet, batch: Sequence[Leaving]) -> Any:
        return original(self, [each._replace(is_failure=False) for each in batch])

    return patch.object(LiveSet, "departures", departures)


def _it_is_not_stored_that_a_warning_was_sent() -> Patch:
    original = stored.registration_value

    def registration_value(number: int, target: Any, handback: bytes, *args: Any) -> bytes:
        if args and args[0] is not None:
            args = (WarningState(args[0].min_warning_s), *args[1:])
        return original(number, target, handback, *args)

    return patch.object(stored, "registration_value", registration_value)


# Ends of sets.


def _the_end_in_the_key_is_ignored() -> Patch:
    original = StoredEnd.decode

    def decode(value: bytes) -> StoredEnd:
        return original(value)._replace(end_wall_s=NEVER)

    return patch.object(StoredEnd, "decode", decode)


def _a_renewed_end_is_not_written() -> Patch:
    async def store_end(*_args: Any) -> None:
        return

    return patch.object(LeasedRecords, "_store_end", store_end)


def _keys_of_ended_sets_are_left() -> Patch:
    async def collect(*_args: Any) -> None:
        return

    return patch.object(RecordStorage, "collect", collect)


# Several servers, and writes without an answer.


def _the_fence_is_not_compared() -> Patch:
    def fence(self: StoredRecord) -> list[Compare]:
        real = self.ownership.fence
        if real is None:
            return []
        return [Compare(real.key, Target.VERSION, Relation.GREATER, -1)]

    return patch.object(StoredRecord, "fence", property(fence))


def _the_epoch_is_not_compared() -> Patch:
    def compare(self: StoredRecord) -> Compare:
        return Compare(self.key, Target.VERSION, Relation.GREATER, 0)

    return patch.object(StoredRecord, "_epoch_compare", property(compare))


def _shards_are_kept_after_the_session() -> Patch:
    return _all(
        patch.object(ShardOwnership, "is_valid", property(lambda self: not self._is_lost)),
        patch.object(ElectedShards, "_session_lost", lambda *_: None),
    )


def _a_write_without_an_answer_is_taken_for_not_executed() -> Patch:
    async def write(
        self: LeasedRecords[Any], record: Any, success: Sequence[Step], compares: Any = ()
    ) -> TxnResult:
        return await self._storage.write(record, success, compares)

    return patch.object(LeasedRecords, "write", write)


def _the_state_before_a_reload_is_still_used() -> Patch:
    never = property(lambda _self: False, lambda _self, _value: None)
    return patch.object(LiveSet, "is_stopped", never)


# Real ones.


def _a_write_beside_a_renewal_is_dropped() -> Patch:
    original = StoredRecord.refused

    def refused(self: StoredRecord, done: TxnResult, epoch: int) -> bool:
        del epoch
        return original(self, done, self.epoch)

    return patch.object(StoredRecord, "refused", refused)


def _a_lease_of_unknown_end_lasts_long_enough() -> Patch:
    def lasts(managed: Any, view: Any) -> bool:
        return bool(max(view.end, view.promised_end) >= managed.terms.desired_end - MIN_INTERVAL_S)

    return patch.object(renewal_plan, "_lasts", lasts)


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
    (_nothing_is_checked_before_a_send, scenarios.one_server),
    (_the_desired_end_is_ignored, scenarios.one_server),
    (_a_stored_end_is_an_upper_bound, scenarios.one_server),
    (_members_are_not_renewed_after_a_restart, scenarios.one_server),
    (_the_number_is_not_written_with_the_event, scenarios.eventful),
    (_events_are_forgotten_at_a_restart, scenarios.eventful),
    (_a_replacing_listener_gets_only_new_events, scenarios.eventful),
    (_events_are_deleted_before_they_are_delivered, scenarios.eventful),
    (_one_success_delivers_the_whole_queue, scenarios.one_server),
    (_a_lease_that_expires_leaves_without_an_event, scenarios.one_server),
    (_it_is_not_stored_that_a_warning_was_sent, scenarios.eventful),
    (_the_end_in_the_key_is_ignored, scenarios.restarts),
    (_a_renewed_end_is_not_written, scenarios.one_server),
    (_keys_of_ended_sets_are_left, scenarios.one_server),
    (_the_fence_is_not_compared, scenarios.takeovers),
    (_the_epoch_is_not_compared, scenarios.stragglers),
    (_shards_are_kept_after_the_session, scenarios.several_servers),
    (_a_write_without_an_answer_is_taken_for_not_executed, scenarios.stragglers),
    (_the_state_before_a_reload_is_still_used, scenarios.reloads),
    (_a_write_beside_a_renewal_is_dropped, scenarios.eventful),
    (_a_lease_of_unknown_end_lasts_long_enough, scenarios.restarts),
)

RENEWAL_BUGS = [SeededBug(make.__name__.strip("_"), make, found) for make, found in _FOUND_BY]
