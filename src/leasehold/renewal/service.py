"""The renewal service on an engine: sets of leases that it renews for clients that are absent.

A set is a leased record (`services.leased_records`): it has an id, an end of its own, and keys that
one server at a time reads and writes. This module keeps the live sets of that server:

- `member_renewals` renews the leases of all sets.
- Each call on a set holds the lock of its record. It writes its keys first and changes memory
  after that, so a call that fails has changed nothing. (A write of unknown outcome makes
  `LeasedRecords` read the set again.)
- Members that leave without a call, because of a failure or their desired end, are written in the
  background, up to `FAILURES_PER_TRANSACTION` in a transaction, together with their events.
- The ends of members are kept in memory. `end_recorder` writes them when the stored one has passed:
  after a restart a stored end is a lower bound.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random, SystemRandom
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.durations import NEVER, Duration, Requested, seconds_of
from leasehold.basics.histogram import Histogram
from leasehold.basics.timers import ResettableTimer
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.errors import EndReason, LeaseholdError, NoSuchObject, TooBusy
from leasehold.events.delivery import EventSender, EventTransport
from leasehold.events.state import EventQueue, EventTarget
from leasehold.keyspace.operations import Step
from leasehold.leases.policies import DurationPolicy
from leasehold.leases.renewal_manager import LATENESS_S
from leasehold.renewal import stored
from leasehold.renewal.end_recorder import EndRecorder
from leasehold.renewal.grantors import Grantors
from leasehold.renewal.live_set import LiveSet
from leasehold.renewal.member_renewals import MemberRenewals
from leasehold.renewal.references import MAX_REFERENCE_BYTES, LeaseReference
from leasehold.renewal.state import (
    UNKNOWN_TERM_S,
    Leaving,
    Member,
    MemberChange,
    MemberTerms,
    SetEvent,
    WarningState,
    end_after,
    terms_of,
)
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.shards import Shards

logger = logging.getLogger(__name__)

NAME: Final = "renewal"
"""The service in keys, and in the name of its grantor."""

MAX_WARNINGS: Final = 100
"""Warnings of a set that were not delivered."""

RETRIES: Final = exponential(0.1, 10.0)
"""The waits between attempts to write the removal of members."""

_DONE: Final = object()


@dataclass(frozen=True, slots=True)
class RenewalLimits:
    """The limits of the service."""

    sets: int = 10_000
    members: int = 100_000
    """Members of one set; its queue of failures has room for as many events."""
    handback_bytes: int = 64 * 1024
    reference_bytes: int = MAX_REFERENCE_BYTES
    max_term: Duration = 7200.0
    """The longest term of a set's lease."""
    default_term: Duration = 3600.0
    """The term if the client leaves the choice to the service."""


class RenewalService:
    """The sets that this server serves, and the calls on them."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        grantors: Grantors,
        transport: EventTransport,
        limits: RenewalLimits = RenewalLimits(),
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._random = random or SystemRandom()
        self._grantors = grantors
        self.policy = DurationPolicy(limits.max_term, limits.default_term)
        """Bounds the terms of sets."""
        self.records: LeasedRecords[LiveSet] = LeasedRecords(
            engine,
            shards,
            NAME,
            self,
            self.policy,
            max_records=limits.sets,
            clock=clock,
            random=random,
        )
        self.sender = EventSender(self, transport, random=random)
        self.renewals = MemberRenewals(grantors, clock, self._write_soon)
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures = 0
        """Members that could not be kept alive."""
        self.warnings = 0
        self.warning_lateness_s = Histogram(LATENESS_S)

    async def start(self) -> None:
        """Start the background work."""
        recorder = EndRecorder(self.records, self._locked, self._write, self._clock)
        self._spawn(recorder.run())

    async def close(self) -> None:
        """Stop renewing and sending; the sets stay, for this server or another one."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.sender.close()
        self.renewals.close()

    # Calls on sets.

    async def create_set(self, requested: Requested) -> tuple[str, Duration]:
        """Create a set; return its id and the term of its lease."""
        record, granted = await self.records.create(requested)
        return record.id, granted

    def find(self, set_id: str) -> LiveSet:
        """Return a live set of this server; raise `NoSuchObject` if it has ended."""
        return self.records.find(set_id).state

    @asynccontextmanager
    async def _call_on(self, set_id: str) -> AsyncIterator[LiveSet]:
        """Hold the lock of a set for a call; everything that has left is written first."""
        record = self.records.find(set_id)
        async with record.lock:
            if record.recovery is not None:  # of a write whose caller is gone
                await asyncio.shield(record.recovery)
            self.records.find(set_id)  # it may have ended meanwhile
            while record.state.state.leaving:
                await self._write_leaving(record.state)
            yield record.state

    async def renew_for(
        self,
        set_id: str,
        encoded: bytes,
        remaining: Duration | None,
        term: Duration | None,
        desired: Requested,
        renew: Requested,
    ) -> None:
        """Keep a lease alive, or change how long; None for times that are not known."""
        arrived_at, wall = self._clock.boottime(), self._clock.wall()
        terms = terms_of(desired, renew, wall)
        if len(encoded) > self.limits.reference_bytes:
            raise ValueError(
                f"lease reference must have at most {self.limits.reference_bytes:,} bytes, "
                f"got {len(encoded):,}"
            )
        reference = LeaseReference.decode(encoded)
        if terms is not None:
            self._check(reference, is_over=remaining == 0.0)
        async with self._call_on(set_id) as live:
            admission = live.state.admission(reference.digest, terms, is_over=remaining == 0.0)
            match admission:
                case MemberChange.IGNORED:
                    return
                case MemberChange.REMOVED:
                    await self._remove(live, live.state.members[reference.digest])
                    return
            assert terms is not None
            if admission is MemberChange.REPLACED:
                await self._replace_terms(live, live.state.members[reference.digest], terms)
                return
            if len(live.state.members) >= self.limits.members:
                raise TooBusy(
                    f"renewal set {set_id} has {self.limits.members:,} leases already, the maximum"
                )
            term_s = UNKNOWN_TERM_S if term is None else seconds_of(term)
            left_s = UNKNOWN_TERM_S if remaining is None else seconds_of(remaining)
            member = live.state.new_member(
                reference.digest, encoded, terms, end_after(left_s, wall), max(term_s, left_s)
            )
            if admission is MemberChange.EXPIRED:
                await self._write_departures(live, [Leaving(member, is_failure=True)])
                return
            await self._write(live, [live.put_member(member)])
            if live.is_stopped:  # another server serves the set now
                return
            live.state.restore(member)
            now = self._clock.boottime()
            left_s = max(0.0, left_s - (now - arrived_at))
            self.renewals.begin(live, member, left_s, now if remaining is None else NEVER)

    def _check(self, reference: LeaseReference, *, is_over: bool) -> None:
        """Refuse a lease that must not be renewed here."""
        if reference.grantor == self.records.grantor and not is_over:
            raise ValueError(
                "lease of a renewal set must be renewed by a client or by another renewal "
                "service, not by the service that granted it"
            )
        self._grantors.check(reference)

    async def remove(self, set_id: str, encoded: bytes) -> Member | None:
        """Remove a lease from a set; return it with its latest end, or None."""
        reference = LeaseReference.decode(encoded)
        async with self._call_on(set_id) as live:
            member = live.state.members.get(reference.digest)
            if member is not None:
                await self._remove(live, member)
            return member

    def members_after(self, set_id: str, order: int, count: int) -> list[Member]:
        """Return members with higher numbers than `order`, with their last recorded ends."""
        live = self.find(set_id)
        return [live.current(member, self._clock) for member in live.state.after(order, count)]

    async def set_listener(
        self,
        set_id: str,
        kind: SetEvent,
        target: EventTarget,
        handback: bytes,
        min_warning_s: float,
    ) -> int:
        """Set the listener for a kind of event; return the number of the last event."""
        if len(handback) > self.limits.handback_bytes:
            raise ValueError(
                f"handback must have at most {self.limits.handback_bytes:,} bytes, "
                f"got {len(handback):,}"
            )
        if not min_warning_s >= 0.0:
            raise ValueError(f"min_warning must be at least 0, got {min_warning_s:g} s")
        is_warning = kind is SetEvent.EXPIRATION_WARNING
        async with self._call_on(set_id) as live:
            queue = live.queues[kind]
            warning = WarningState(min_warning_s) if is_warning else None
            await self._write(live, [live.put_registration(queue, target, handback, warning)])
            if is_warning:
                live.state.warning = warning
                self._plan_warning(live)
            queue.replace(target, handback)
            number = queue.number
        await self.sender.settled(queue)
        return number

    async def clear_listener(self, set_id: str, kind: SetEvent) -> None:
        """Remove the listener for a kind of event; nothing is sent to it after this returns."""
        async with self._call_on(set_id) as live:
            queue = live.queues[kind]
            await self._clear(live, queue)  # also if it has none: that may not be stored yet
        await self.sender.settled(queue)

    async def _clear(self, live: LiveSet, queue: EventQueue) -> None:
        put = live.put_registration(queue, None, b"", None, dropped=queue.number)
        await self._write(live, [put, live.delete_events(queue, queue.number)])
        if queue.kind == SetEvent.EXPIRATION_WARNING:
            live.state.warning = None
            self._plan_warning(live)
        queue.clear()

    # Writing.

    async def _write(self, live: LiveSet, steps: Sequence[Step]) -> None:
        """Write keys of a set; raises `NoSuchObject` if it has ended, also while it waited."""
        await self.records.write(live.record, steps)
        if live.record.is_ended:
            raise NoSuchObject(NAME, live.record.id)

    @asynccontextmanager
    async def _locked(self, live: LiveSet) -> AsyncIterator[None]:
        """Hold the lock of a set, for background work. Raises `NoSuchObject` if it is over."""
        async with live.record.lock:
            if live.is_stopped:
                raise NoSuchObject(NAME, live.record.id)
            yield

    async def _remove(self, live: LiveSet, member: Member) -> None:
        """Delete a member, by a call."""
        await self._write(live, [live.delete_member(member)])
        if live.state.members.get(member.digest) is member:
            del live.state.members[member.digest]
            live.record_end(member, self._clock)
            self.renewals.stop(live, member)
        live.state.removed(member)

    async def _replace_terms(self, live: LiveSet, member: Member, terms: MemberTerms) -> None:
        changed = replace(live.current(member, self._clock), terms=terms)
        await self._write(live, [live.put_member(changed)])
        if live.state.members.get(member.digest) is member and not live.is_stopped:
            member.terms = terms
            self.renewals.replaced(live, member)

    async def _write_leaving(self, live: LiveSet) -> None:
        """Write the first members that have left."""
        batch = live.state.leaving_now()
        await self._write_departures(live, batch)
        live.state.written(len(batch))

    async def _write_departures(self, live: LiveSet, batch: Sequence[Leaving]) -> None:
        """Write members that have left, with their numbers and events."""
        steps, payloads = live.departures(batch)
        await self._write(live, steps)
        for payload in payloads:
            live.queues[SetEvent.RENEWAL_FAILURE].append(payload)
        self.failures += len(payloads)

    def _write_soon(self, live: LiveSet) -> None:
        if live.writer is None:
            live.writer = self._spawn(self._keep_writing(live))

    async def _keep_writing(self, live: LiveSet) -> None:
        """Write members that have left until there are none; retry while the engine fails."""
        backoff = Backoff(RETRIES, self._random)
        try:
            while live.state.leaving and not live.record.is_over:
                try:
                    async with self._locked(live):
                        if live.state.leaving:
                            await self._write_leaving(live)
                    backoff.reset()
                except NoSuchObject:
                    return
                except Exception as error:  # noqa: BLE001  it must continue
                    logger.warning(
                        "renewal set %s: the removal of leases is not stored yet: %r",
                        live.record.id,
                        error,
                    )
                    await asyncio.sleep(backoff.next_s())
        finally:
            live.writer = None

    # Warnings.

    def _plan_warning(self, live: LiveSet) -> None:
        """Set the timer of the warning, for the present end of the set."""
        if live.warning_timer is not None:
            live.warning_timer.cancel()
        warning = live.state.warning
        if warning is None or live.is_stopped:
            return
        wait_s = warning.wait_s(live.record.term_number, live.record.remaining_s)
        if wait_s != NEVER:
            if live.warning_timer is None:
                live.warning_timer = ResettableTimer(partial(self._warn_soon, live))
            live.warning_timer.set(asyncio.get_running_loop(), wait_s)

    def _warn_soon(self, live: LiveSet) -> None:
        if live.state.warning is not None and not live.record.is_over:
            self._spawn(self._warn(live))

    async def _warn(self, live: LiveSet) -> None:
        """Send the warning of a set, once for its present end."""
        backoff = Backoff(RETRIES, self._random)
        while not live.record.is_over:
            try:
                async with self._locked(live):
                    await self._write_warning(live)
            except NoSuchObject:
                return
            except Exception as error:  # noqa: BLE001  it must continue
                logger.warning("set %s: its warning is delayed: %r", live.record.id, error)
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _write_warning(self, live: LiveSet) -> None:
        warning, record = live.state.warning, live.record
        if record.is_over or warning is None:
            return
        term, remaining_s = record.term_number, record.remaining_s
        if warning.wait_s(term, remaining_s) > 0.0:
            self._plan_warning(live)  # it was renewed, or lease time has stood still
            return
        queue = live.queues[SetEvent.EXPIRATION_WARNING]
        payload = stored.warning_payload(remaining_s, self._clock.wall() + remaining_s)
        warned = WarningState(warning.min_warning_s, term)
        steps = live.append_event(queue, [payload], warned)
        await self._write(live, steps)
        warning.told_term = term
        queue.append(payload)
        self.warnings += 1
        self.warning_lateness_s.observe(max(0.0, warning.min_warning_s - remaining_s))

    # Called by the sender of events.

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        """Delete events that were delivered, or could not be delivered for too long."""
        live = self._live_of(queue)
        if live is not None:
            with suppress(NoSuchObject):
                async with self._locked(live):
                    await self._write(live, [live.delete_events(queue, up_to)])

    expired = delivered

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        """Store that a listener has refused its events: its registration is cleared."""
        live = self._live_of(queue)
        if live is None:
            return
        logger.warning("set %s: listener is removed: %s", live.record.id, error)
        with suppress(NoSuchObject):
            async with self._locked(live):
                if queue.target is None:  # else another one was set in the meantime
                    await self._clear(live, queue)

    def _live_of(self, queue: EventQueue) -> LiveSet | None:
        try:
            live = self.find(queue.source)
        except LeaseholdError:
            return None
        return live if live.queues.get(SetEvent(queue.kind)) is queue else None

    # Called by the records.

    def load(self, record: "LeasedRecord[LiveSet]", rows: Mapping[bytes, bytes]) -> LiveSet:
        """Make a set from its keys."""
        max_events = {
            SetEvent.RENEWAL_FAILURE: self.limits.members,
            SetEvent.EXPIRATION_WARNING: MAX_WARNINGS,
        }
        return LiveSet.load(record, rows, self.records.grantor, max_events)

    def started(self, record: "LeasedRecord[LiveSet]") -> None:
        """Begin to renew the members of a set, and to send its events."""
        live = record.state
        steps = self.renewals.resume(live)
        if next(steps, _DONE) is not _DONE:
            self._spawn(_take_all(steps))
        for queue in live.queues.values():
            queue.may_send = lambda: not record.is_over
            self.sender.offer(queue)
        self._plan_warning(live)

    def renewed(self, record: "LeasedRecord[LiveSet]") -> None:
        """Move the warning: the set has another end."""
        self._plan_warning(record.state)
        if record.state.state.leaving:
            self._write_soon(record.state)

    def stopped(self, record: "LeasedRecord[LiveSet]", reason: EndReason | None) -> None:
        """Stop everything of a set: it has ended, or another server serves it."""
        del reason
        live = record.state
        live.is_stopped = True
        for member in live.state.members.values():
            self.renewals.stop(live, member)
        for queue in live.queues.values():
            self.sender.withdraw(queue)
        if live.warning_timer is not None:
            live.warning_timer.cancel()
        if live.writer is not None:
            live.writer.cancel()

    # Background work.

    def _spawn(self, work: "Coroutine[object, object, None]") -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _take_all(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
