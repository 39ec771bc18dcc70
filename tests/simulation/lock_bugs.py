"""Bugs of locks to switch on, to see that the simulation finds them; as in `seeded_bugs`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from leasehold.client import held_lease
from leasehold.client.keeper import Keeper
from leasehold.core.ops import Compare, Relation, Step, Target
from leasehold.engine.values import Event, KeyValue, TxnResult
from leasehold.errors import LeaseholdError, is_definite
from leasehold.recipes import behind, contending, lock, yielding
from leasehold.recipes.behind import Behind
from leasehold.recipes.cell import Cell
from leasehold.recipes.contending import Contention, Look
from leasehold.recipes.guard import Guard
from leasehold.recipes.locks import Locks
from leasehold.recipes.naming import Claim
from leasehold.recipes.options import LockOptions
from leasehold.recipes.session import OutcomeUnknown, Session
from leasehold.recipes.sessions import Sessions
from leasehold.recipes.tenure import Tenure
from leasehold.recipes.token import Token
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
    def anything(key: bytes, revision: int) -> Compare:
        return Compare(key, Target.VERSION, Relation.GREATER, -1 if revision else 10**9)

    here = patch.object(yielding, "created_at", anything)
    return _both(here, _a_write_does_not_look_at_the_session_key())


def _what_was_put_without_an_answer_is_forgotten() -> Patch:
    original = Contention.withdraw

    async def withdraw(self: Contention) -> Look | None:
        return await original(self) if self._revision else None

    async def enter(self: Contention, claim: Any) -> Look:
        write = self.session.write

        async def once(*args: Any) -> TxnResult:
            try:
                return await write(*args)
            except OutcomeUnknown:
                raise TimeoutError("no answer") from None

        with patch.object(self.session, "write", once):
            return await entering(self, claim)

    entering = Contention.enter
    return patch.multiple(Contention, withdraw=withdraw, enter=enter)


# The cache, and recall.


def _the_cache_does_not_look_at_the_clock() -> Patch:
    def take(self: Tenure, options: LockOptions) -> Guard | None:
        if self.wanted or not self._slot:
            return None
        self._slot.pop()
        return self.give(options)

    return patch.object(Tenure, "take", take)


def _recalling_is_not_one_step() -> Patch:
    def look_at_claim(self: Cell, tenure: Tenure) -> None:
        if tenure._slot:
            self._is_yielding = True
            self._kick()

    def note_wanted(self: Cell) -> None:
        if self.tenure is not None:
            self.tenure.wanted = False

    return patch.multiple(Cell, _look_at_claim=look_at_claim, _note_wanted=note_wanted)


def _marks_for_others_count() -> Patch:
    def hear(self: Contention, ahead: KeyValue) -> None:
        claim = Claim.decode(ahead.value)
        if claim is not None and claim.denies:
            self.answer = claim

    return patch.object(Contention, "_hear", hear)


def _waiters_are_not_seen() -> Patch:
    return patch.object(Behind, "_note_waiter", lambda *_: None)


def _local_waiters_come_first() -> Patch:
    def returned(self: Cell, tenure: Tenure) -> None:
        if tenure is self.tenure and tenure.is_live:
            self._hand_out(tenure)

    return patch.object(Cell, "returned", returned)


def _clients_hand_it_round() -> Patch:
    original = Cell._hand_out

    def hand_out(self: Cell, tenure: Tenure) -> None:
        if self._behind and tenure.options.recall:
            self._yield(tenure)
        else:
            original(self, tenure)

    return patch.object(Cell, "_hand_out", hand_out)


def _the_count_is_not_passed_on() -> Patch:
    original = yielding.give_up

    async def give_up(tenure: Tenure, _heir: KeyValue | None) -> None:
        await original(tenure, None)

    return patch.object(yielding, "give_up", give_up)


def _guards_have_one_token() -> Patch:
    original = Tenure.give

    def give(self: Tenure, options: LockOptions) -> Guard:
        guard = original(self, options)
        guard.token = Token(self.revision, 1)
        return guard

    return patch.object(Tenure, "give", give)


# Trust.


def _the_signal_is_trusted_instead_of_the_clock() -> Patch:
    return patch.object(Tenure, "is_live", property(lambda self: not self.is_over))


def _no_margin() -> Patch:
    return patch.object(held_lease, "session_margin_s", 0.0)


def _counts_on_a_clock_that_sleeps() -> Patch:
    return patch.object(HostClock, "boottime", HostClock.monotonic)


def _a_lock_has_two_cells() -> Patch:
    def of(self: Locks, name: bytes) -> Cell:
        found = self.cells.get(name) or Cell(self, name)
        self.cells[name] = found
        found.look_at_clock()
        return found

    return patch.object(Locks, "of", of)


def _a_deleted_key_is_not_noticed() -> Patch:
    original = Cell._changed

    def changed(self: Cell, event: Event) -> None:
        if self.tenure is not None and event.key != self.tenure.key:
            original(self, event)

    return patch.object(Cell, "_changed", changed)


def _lost_history_ends_no_guard() -> Patch:
    here = patch.object(Keeper, "_history_lost", lambda *_: None)
    return _both(here, patch.object(Cell, "_missed", lambda *_: None))


# What is left behind.


def _an_old_session_is_left_as_it_is() -> Patch:
    async def make(self: Sessions) -> Session:
        self._before.clear()
        with patch.object(Keeper, "_end_later", lambda *_args, **_named: None):
            return await original(self)

    original = Sessions._make
    end_later = patch.object(Keeper, "_end_later", lambda *_args, **_named: None)
    return _both(patch.object(Sessions, "_make", make), end_later)


def _who_gives_up_leaves_its_key() -> Patch:
    async def withdraw(self: Contention) -> Look | None:
        self.is_withdrawn = True
        return None

    return patch.object(Contention, "withdraw", withdraw)


def _a_guard_that_came_too_late_is_kept() -> Patch:
    return patch.object(lock, "_take_back", lambda _asker: None)


def _an_attempt_goes_on_after_it_was_withdrawn() -> Patch:
    never = property(lambda _self: False, lambda _self, _value: None)
    return patch.object(Contention, "is_withdrawn", never, create=True)


def _a_client_leaves_its_session() -> Patch:
    async def close(self: Any) -> None:
        self._manager.close()
        await asyncio.sleep(0)

    return patch.object(Keeper, "close", close)


# Names.


def _keys_of_nested_locks_count() -> Patch:
    def is_contender(prefix: bytes, key: bytes) -> bool:
        return key.startswith(prefix)

    here = patch.object(behind, "is_contender", is_contender)
    return _both(here, patch.object(contending, "is_contender", is_contender))


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
    (_guards_have_one_token, scenarios.quiet),
    (_the_signal_is_trusted_instead_of_the_clock, scenarios.stalls),
    (_no_margin, scenarios.stalls),
    (_counts_on_a_clock_that_sleeps, scenarios.stalls),
    (_a_lock_has_two_cells, scenarios.woken),
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
