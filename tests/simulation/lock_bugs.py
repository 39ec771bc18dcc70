"""Bugs of locks to switch on, to see that the simulation finds them; as in `seeded_bugs`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from leasehold.engine.values import Event, KeyValue, TxnResult
from leasehold.errors import LeaseholdError, is_definite
from leasehold.fencing.token import Token
from leasehold.keyspace.operations import Compare, Relation, Step, Target
from leasehold.locks.client_lock import ClientLock
from leasehold.locks.guards import LockOptions
from leasehold.locks.lock import LockRegistry
from leasehold.locks.lock_keys import COUNTERS, Claim
from leasehold.locks.lock_queue import LockEntry, LockQueue, QueueSnapshot, Successors
from leasehold.locks.lock_state import State
from leasehold.locks.ownership import Guard, Ownership
from leasehold.locks.queue import QueueEntry
from leasehold.sessions import kept_lease
from leasehold.sessions.client_session import Sessions
from leasehold.sessions.lease_keeper import Keeper
from leasehold.sessions.session import OutcomeUnknown, Session
from leasehold.testing import HostClock
from tests.simulation import lock_scenarios as scenarios
from tests.simulation.seeded_bugs import Patch, SeededBug

# Calls of unknown outcome.


def _doubt_is_not_settled() -> Patch:
    async def settle(self: Session) -> None:
        self.check()

    return patch.object(Session, "_settle", settle)


def _a_write_does_not_look_at_the_session_key() -> Patch:
    async def write(
        self: Session,
        compares: Sequence[Compare],
        success: Sequence[Step],
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        await self._settle()
        try:
            return await self._ask(compares, success, failure)
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
            self._doubted = max(self._doubted, self._epoch)
            await self._settle()
            raise OutcomeUnknown from error

    return patch.object(Session, "write", write)


def _a_delete_takes_whatever_is_there() -> Patch:
    async def write(
        self: QueueEntry,
        steps: Sequence[Step],
        compares: Sequence[Compare] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        anything = Compare(self.key, Target.VERSION, Relation.GREATER, -1)
        return await self.session.write([anything, *compares], steps, failure)

    here = patch.object(QueueEntry, "write", write)
    return _both(here, _a_write_does_not_look_at_the_session_key())


def _what_was_put_without_an_answer_is_forgotten() -> Patch:
    original = LockEntry.withdraw

    async def withdraw(self: LockEntry) -> QueueSnapshot | None:
        return await original(self) if self.created else None

    async def enter(self: LockEntry, claim: Any) -> QueueSnapshot:
        write = self.session.write

        async def once(*args: Any) -> TxnResult:
            try:
                return await write(*args)
            except OutcomeUnknown:
                raise TimeoutError("no answer") from None

        with patch.object(self.session, "write", once):
            return await entering(self, claim)

    entering = LockEntry.enter
    return patch.multiple(LockEntry, withdraw=withdraw, enter=enter)


# The cache, and recall.


def _the_cache_does_not_look_at_the_clock() -> Patch:
    def take(self: Ownership, options: LockOptions) -> Guard | None:
        if self.wanted or not self._slot:
            return None
        self._slot.pop()
        return self.give(options)

    return patch.object(Ownership, "take", take)


def _recalling_is_not_one_step() -> Patch:
    def take_right(self: ClientLock, ownership: Ownership) -> None:
        if ownership._slot:
            self.state = State.YIELDING
            self._kick()

    def update_wanted(self: ClientLock) -> None:
        if self.ownership is not None:
            self.ownership.wanted = False

    return patch.multiple(ClientLock, _take_right=take_right, _update_wanted=update_wanted)


def _marks_for_others_count() -> Patch:
    def read_mark(self: LockEntry, ahead: KeyValue) -> None:
        claim = Claim.decode(ahead.value)
        if claim is not None and claim.denies:
            self.is_refused = True

    return patch.object(LockEntry, "_read_mark", read_mark)


def _waiters_are_not_seen() -> Patch:
    return patch.object(Successors, "_add", lambda *_: None)


def _local_waiters_come_first() -> Patch:
    def pass_on(self: ClientLock, ownership: Ownership) -> None:
        if ownership is self.ownership and ownership.is_live:
            self._grant_next(ownership)

    return patch.object(ClientLock, "pass_on", pass_on)


def _clients_hand_it_round() -> Patch:
    original = ClientLock._grant_next

    def grant_next(self: ClientLock, ownership: Ownership) -> None:
        if self._successors and ownership.options.recall:
            self._yield(ownership)
        else:
            original(self, ownership)

    return patch.object(ClientLock, "_grant_next", grant_next)


def _the_count_is_not_passed_on() -> Patch:
    original = LockEntry.give_up

    async def give_up(self: LockEntry, total: int, _heir: KeyValue | None, counter: bytes) -> None:
        await original(self, total, None, counter)

    return patch.object(LockEntry, "give_up", give_up)


def _callers_that_are_gone_are_counted() -> Patch:
    return patch.object(Guard, "take_back", Guard.settle)


def _a_count_without_an_answer_is_added_again() -> Patch:
    original = Session.write

    async def write(self: Session, compares: Sequence[Compare], *steps: Any) -> TxnResult:
        is_counted = any(compare.key.startswith(COUNTERS) for compare in compares)
        return await original(self, () if is_counted else compares, *steps)

    return patch.object(Session, "write", write)


def _guards_have_one_token() -> Patch:
    original = Ownership.give

    def give(self: Ownership, options: LockOptions) -> Guard:
        guard = original(self, options)
        guard.token = Token(self.revision, 1)
        return guard

    return patch.object(Ownership, "give", give)


# Trust.


def _the_signal_is_trusted_instead_of_the_clock() -> Patch:
    return patch.object(Ownership, "is_live", property(lambda self: not self.is_over))


def _no_margin() -> Patch:
    return patch.object(kept_lease, "session_margin_s", 0.0)


def _counts_on_a_clock_that_sleeps() -> Patch:
    return patch.object(HostClock, "boottime", HostClock.monotonic)


def _a_lock_has_two_states() -> Patch:
    def get(self: LockRegistry, name: bytes) -> ClientLock:
        found = self.locks.get(name) or ClientLock(
            self.context, name, self.defaults, self._forget_if_unused
        )
        self.locks[name] = found
        found.expire_by_clock()
        return found

    return patch.object(LockRegistry, "get", get)


def _a_deleted_key_is_not_noticed() -> Patch:
    original = ClientLock._changed

    def changed(self: ClientLock, event: Event) -> None:
        if self.ownership is not None and event.key != self.ownership.key:
            original(self, event)

    return patch.object(ClientLock, "_changed", changed)


def _lost_history_ends_no_guard() -> Patch:
    here = patch.object(Keeper, "_history_lost", lambda *_: None)
    return _both(here, patch.object(ClientLock, "_missed", lambda *_: None))


# What is left behind.


def _an_old_session_is_left_as_it_is() -> Patch:
    async def make(self: Sessions) -> Session:
        self._before.clear()
        return await original(self)

    original = Sessions._make
    end_later = patch.object(Keeper, "_end_later", lambda *_args, **_named: None)
    return _both(patch.object(Sessions, "_make", make), end_later)


def _who_gives_up_leaves_its_key() -> Patch:
    async def withdraw(self: LockEntry) -> QueueSnapshot | None:
        self.is_withdrawn = True
        return None

    return patch.object(LockEntry, "withdraw", withdraw)


def _a_guard_that_came_too_late_is_kept() -> Patch:
    return patch.object(Guard, "take_back", lambda _guard: None)


def _an_attempt_goes_on_after_it_was_withdrawn() -> Patch:
    never = property(lambda _self: False, lambda _self, _value: None)
    return patch.object(LockEntry, "is_withdrawn", never, create=True)


def _a_client_leaves_its_session() -> Patch:
    async def close(self: Any) -> None:
        self._manager.close()
        await asyncio.sleep(0)

    return patch.object(Keeper, "close", close)


# Names.


def _keys_of_nested_locks_count() -> Patch:
    def counts(self: LockQueue, key: bytes) -> bool:
        return key.startswith(self.prefix)

    return patch.object(LockQueue, "counts", counts)


class _both:  # noqa: N801  it is used like the functions of `contextlib`
    """Two patches, as one."""

    def __init__(self, *patches: Any) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for each in self._patches:
            each.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        for each in reversed(self._patches):
            each.__exit__(*exc_info)


_FOUND_BY: Sequence[tuple[Callable[[], Patch], Callable[[int], object]]] = (
    (_doubt_is_not_settled, scenarios.orphans),
    (_a_write_does_not_look_at_the_session_key, scenarios.orphans),
    (_what_was_put_without_an_answer_is_forgotten, scenarios.orphans),
    (_a_delete_takes_whatever_is_there, scenarios.stragglers),
    (_the_cache_does_not_look_at_the_clock, scenarios.woken),
    (_recalling_is_not_one_step, scenarios.fickle),
    (_marks_for_others_count, scenarios.late_mark),
    (_waiters_are_not_seen, scenarios.in_order),
    (_local_waiters_come_first, scenarios.in_order),
    (_clients_hand_it_round, scenarios.in_order),
    (_the_count_is_not_passed_on, scenarios.quiet),
    (_callers_that_are_gone_are_counted, scenarios.counted),
    (_a_count_without_an_answer_is_added_again, scenarios.counted),
    (_guards_have_one_token, scenarios.quiet),
    (_the_signal_is_trusted_instead_of_the_clock, scenarios.stalls),
    (_no_margin, scenarios.stalls),
    (_counts_on_a_clock_that_sleeps, scenarios.stalls),
    (_a_lock_has_two_states, scenarios.woken),
    (_a_deleted_key_is_not_noticed, scenarios.deleted_by_hand),
    (_lost_history_ends_no_guard, scenarios.replaced),
    (_an_old_session_is_left_as_it_is, scenarios.server_stall),
    (_who_gives_up_leaves_its_key, scenarios.orphans),
    (_a_guard_that_came_too_late_is_kept, scenarios.fickle),
    (_an_attempt_goes_on_after_it_was_withdrawn, scenarios.fickle),
    (_a_client_leaves_its_session, scenarios.nested_names),
    (_keys_of_nested_locks_count, scenarios.nested_names),
)

LOCK_BUGS = [SeededBug(make.__name__.strip("_"), make, scenario) for make, scenario in _FOUND_BY]
