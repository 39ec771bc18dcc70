"""`Lease`: a lease on the side of its holder; `LeaseBatch`: many of them in one call.

The base class keeps the end, equality and the bookkeeping of requests; a subclass implements the
requests to the grantor. Renewal managers and batches accept any of them.

A request is recorded before it is sent (`send`), and its outcome once it is answered (`settle`),
whether it is for one lease or for a batch. An error that concerns one lease of a batch is that
lease's outcome; an error of the whole call is the outcome of all of them.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from leasehold.basics.durations import (
    ANY,
    Duration,
    DurationLike,
    End,
    Requested,
    check_requested,
    datetime_of,
    duration_of,
    seconds_of,
)
from leasehold.basics.lease_ids import shown_lease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import LeaseBatchError, LeaseholdError, UnknownLease, is_definite
from leasehold.leases import lease_codec
from leasehold.leases.holder_view import Holding, Margin, Send

Form: TypeAlias = Literal["duration", "absolute"]
Outcome: TypeAlias = Duration | BaseException
"""The outcome of a request for a term: its length, or the error."""


class Lease(ABC):
    """A promise with an end, as its holder sees it.

    Two leases are equal if they are the same lease of the same grantor, whatever their ends are.
    """

    __slots__ = ("__weakref__", "_clock", "_holding", "_watchers")

    def __init__(
        self,
        granted: DurationLike,
        *,
        sent_at: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        margin: Margin = 0.0,
    ) -> None:
        """Begin with a term of `granted`, requested when `clock.boottime()` was `sent_at`.

        Without `sent_at` the term counts from now. `margin` is the fraction of each term that is
        not relied on, because the clocks of holder and grantor may run at different speeds; or a
        function that returns the seconds for a term.
        """
        self._clock = clock
        self._watchers: tuple[Callable[[Lease], object], ...] = ()
        sent_at = clock.boottime() if sent_at is None else sent_at
        if not math.isfinite(sent_at):
            raise ValueError(f"sent_at must be a reading of the clock, not {sent_at!r}")
        self._holding = Holding(sent_at, check_answer(granted), margin)

    @property
    @abstractmethod
    def grantor(self) -> Hashable:
        """The name of the grantor."""

    @property
    @abstractmethod
    def cookie(self) -> Hashable:
        """The name of this lease at its grantor."""

    @property
    def batch_key(self) -> Hashable:
        """Equal for leases that one call can renew together: same landlord, same credential.

        By default a lease goes alone; a class that overrides this should override `ask_renew_all`,
        too.
        """
        return (self.grantor, self.cookie)

    @property
    def call_limit_key(self) -> Hashable:
        """Equal for leases that share a limit of concurrent calls: those of one grantor."""
        return self.grantor

    @abstractmethod
    async def ask_renew(self, requested: Requested) -> Duration:
        """Request a new term from the grantor; return the granted one."""

    @abstractmethod
    async def ask_cancel(self) -> None:
        """Request the end of this lease from the grantor."""

    async def ask_renew_all(self, wants: Sequence[tuple["Lease", Requested]]) -> Sequence[Outcome]:
        """Request new terms for leases that `can_batch` with this one, each with its own outcome.

        An exception raised here is a failure of the whole call. This default makes a call for each
        lease, all concurrently; a grantor that takes batches has a better way.
        """
        asked = (lease.ask_renew(requested) for lease, requested in wants)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def ask_cancel_all(self, leases: Sequence["Lease"]) -> Sequence[Outcome]:
        """Request the end of leases that `can_batch` with this one; success is the outcome 0.0."""
        asked = (lease.ask_cancel() for lease in leases)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        return [0.0 if outcome is None else outcome for outcome in outcomes]

    @property
    def remaining(self) -> Duration:
        """How long the holder may still rely on the lease; 0.0 once it may not."""
        return duration_of(self._holding.remaining_s(self._clock.boottime()))

    @property
    def expires_at(self) -> End:
        """The end as the holder sees it, as an aware datetime, or FOREVER."""
        return datetime_of(self._clock.wall() + seconds_of(self.remaining))

    @property
    def holding(self) -> Holding:
        """The bookkeeping behind `remaining`, in readings of `Clock.boottime`."""
        return self._holding

    @property
    def lasts_until(self) -> float:
        """The end that suffices if the lease is not wanted beyond it.

        With the margin: promised time need not be requested again.
        """
        return self._holding.promised_end

    @property
    def term(self) -> Duration:
        """The length of the current term, as it was granted."""
        return duration_of(self._holding.term_s)

    async def renew(self, duration: DurationLike = ANY) -> Duration:
        """Request a new term of `duration` from now; return the granted one.

        If it fails the lease keeps the end it had. Raise `LeaseDenied` if the grantor refuses, and
        `UnknownLease` if the lease has ended. After a connection error the outcome is unknown; if a
        shorter term was requested, the lease assumes that it was granted.
        """
        requested = check_requested(duration)
        send = self.send(requested)
        try:
            granted = check_answer(await self.ask_renew(requested))
        except BaseException as error:
            self.settle(send, error)
            raise
        self.settle(send, granted)
        return granted

    async def cancel(self) -> None:
        """End the lease now, as if it had expired."""
        send = self.send(0.0)
        try:
            await self.ask_cancel()
        except BaseException as error:
            self.settle(send, error)
            raise
        self.settle(send, 0.0)

    def can_batch(self, other: object) -> bool:
        """Return whether one call can renew both leases (an equivalence relation)."""
        return isinstance(other, Lease) and self.batch_key == other.batch_key

    def send(self, requested: Requested) -> Send:
        """Record that a term is being requested now.

        For callers that renew several leases in one call.
        """
        end = self._holding.end
        send = self._holding.send(requested, self._clock.boottime())
        self._notify_if_earlier_than(end)
        return send

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Record the outcome of a `send`."""
        end = self._holding.end
        self._credit(send, outcome)
        self._notify_if_earlier_than(end)

    def watch(self, watcher: "Callable[[Lease], object]") -> None:
        """Call `watcher(lease)` whenever the end has moved to an earlier time."""
        self._watchers = (*self._watchers, watcher)

    def unwatch(self, watcher: "Callable[[Lease], object]") -> None:
        """Undo one `watch`."""
        watchers = list(self._watchers)
        watchers.remove(watcher)
        self._watchers = tuple(watchers)

    def _notify_if_earlier_than(self, end: float) -> None:
        if self._watchers and self._holding.end < end:
            for watcher in self._watchers:
                watcher(self)

    def _credit(self, send: Send, outcome: Outcome) -> None:
        if not isinstance(outcome, BaseException):
            self._holding.answered(send, outcome)
            return
        # Only an answer of the grantor proves that nothing was done; an error in reading its
        # answer, however definite, does not.
        refused = isinstance(outcome, LeaseholdError) and is_definite(outcome)
        self._holding.failed(send, definite=refused)
        if isinstance(outcome, UnknownLease):
            self._holding.end_at(self._clock.boottime())

    def to_bytes(self, form: Form) -> bytes:
        """Encode the lease as bytes.

        "duration" carries the time that remains, counted again on arrival: for transport.
        "absolute" carries the wall-clock end: for storage.
        """
        remaining_s = seconds_of(self.remaining)
        match form:
            case "duration":
                record = lease_codec.EncodedLease(
                    lease_codec.EncodedEnd.DURATION, remaining_s, self.grantor, self.cookie
                )
            case "absolute":
                end_s = self._clock.wall() + remaining_s
                record = lease_codec.EncodedLease(
                    lease_codec.EncodedEnd.ABSOLUTE, end_s, self.grantor, self.cookie
                )
            case _:
                raise ValueError(f'form must be "duration" or "absolute", not {form!r}')
        return lease_codec.encode(record)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lease):
            return NotImplemented
        return self.cookie == other.cookie and self.grantor == other.grantor

    def __hash__(self) -> int:
        return hash((self.grantor, self.cookie))

    def __repr__(self) -> str:
        left = self.remaining
        left_text = f"{left:.3f} s left" if isinstance(left, float) else "no end"
        return (
            f"<{type(self).__name__} {shown_lease(self.cookie)} of {self.grantor!r}, {left_text}>"
        )


class BatchedLease(Lease):
    """A lease that its grantor finds by a cookie. A request for one lease is a batch of one."""

    __slots__ = ("_cookie", "_grantor")

    def __init__(
        self,
        grantor: str,
        cookie: Hashable,
        granted: Duration,
        *,
        sent_at: float,
        clock: Clock,
        margin: Margin = 0.0,
    ) -> None:
        super().__init__(granted, sent_at=sent_at, clock=clock, margin=margin)
        self._grantor = grantor
        self._cookie = cookie

    @property
    def grantor(self) -> str:
        return self._grantor

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @abstractmethod
    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        """Request new terms for leases of this grantor, each with its own outcome."""

    @abstractmethod
    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        """Request the end of leases of this grantor; success is the outcome 0.0."""

    async def ask_renew(self, requested: Requested) -> Duration:
        (outcome,) = await self.ask_renew_all([(self, requested)])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def ask_cancel(self) -> None:
        (outcome,) = await self.ask_cancel_all([self])
        if isinstance(outcome, BaseException):
            raise outcome


def remaining_s_of(record: lease_codec.EncodedLease, wall: float) -> float:
    """Return the remaining time of a decoded lease, never less than zero."""
    match record.form:
        case lease_codec.EncodedEnd.DURATION:
            return record.end_s
        case lease_codec.EncodedEnd.ABSOLUTE:
            return max(0.0, record.end_s - wall)


def check_answer(granted: DurationLike) -> Duration:
    """Return a grantor's answer; raise if it is not a length of time."""
    answer = check_requested(granted, "the granted duration")
    if answer is ANY:
        raise ValueError(
            "the granted duration must be a length of time; a grantor cannot grant ANY"
        )
    return answer


L = TypeVar("L", bound=Lease)


class LeaseBatch:
    """Leases of one landlord, with the requested duration for each."""

    def __init__(self, leases: Mapping[L, DurationLike] | None = None) -> None:
        if not isinstance(leases, Mapping | None):
            raise TypeError(f"leases must be a mapping of leases to durations, not {leases!r}")
        self._wanted: dict[Lease, Requested] = {}
        for lease, duration in (leases or {}).items():
            self.add(lease, duration)

    def add(self, lease: Lease, duration: DurationLike = ANY) -> None:
        """Add a lease, or change its requested duration. ValueError: of another landlord."""
        if not isinstance(lease, Lease):
            raise TypeError(f"a batch holds leases, not {lease!r}")
        requested = check_requested(duration)
        if not self.can_hold(lease):
            other = next(iter(self._wanted))
            raise ValueError(f"{lease!r} and {other!r} cannot be renewed in one call")
        self._wanted.pop(lease, None)  # of two equal leases the one added last is kept
        self._wanted[lease] = requested

    def can_hold(self, lease: Lease) -> bool:
        """Return whether the lease may be added: it is of the same landlord as the others."""
        return not self._wanted or next(iter(self._wanted)).can_batch(lease)

    def remove(self, lease: Lease) -> None:
        """Remove a lease; it is not cancelled. KeyError: it is not in the batch."""
        del self._wanted[lease]

    async def renew_all(self) -> None:
        """Renew all in one call.

        Those that fail leave the batch and are raised in one `LeaseBatchError`. If the whole call
        fails its error is raised, and the batch is unchanged.
        """
        if self._wanted:
            wants = list(self._wanted.items())
            failures = await renew_together(wants)
            for lease, requested in wants:
                if requested == 0.0:  # it has ended, as requested
                    self._wanted.pop(lease, None)
            self._expel(failures)

    async def cancel_all(self) -> None:
        """End all in one call; failures as in `renew_all`. Leases that ended leave the batch."""
        if self._wanted:
            leases = list(self._wanted)
            failures = await cancel_together(leases)
            for lease in leases:
                self._wanted.pop(lease, None)
            self._expel(failures)

    def _expel(self, failures: Mapping[Lease, BaseException]) -> None:
        for lease in failures:
            self._wanted.pop(lease, None)
        if failures:
            raise LeaseBatchError(failures)

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._wanted)

    def __contains__(self, lease: object) -> bool:
        return lease in self._wanted

    def __getitem__(self, lease: Lease) -> Requested:
        """The requested duration of a lease."""
        return self._wanted[lease]

    def __repr__(self) -> str:
        return f"<LeaseBatch of {len(self)}>"


async def renew_together(wants: Sequence[tuple[Lease, Requested]]) -> dict[Lease, BaseException]:
    """Renew leases of one landlord in one call; return those that failed, with their errors.

    A failure of the whole call is raised. Every lease's end is brought up to date either way.
    """
    return await _settle_all(wants, partial(wants[0][0].ask_renew_all, wants))


async def cancel_together(leases: Sequence[Lease]) -> dict[Lease, BaseException]:
    """Cancel leases of one landlord in one call; return those that failed, with their errors."""
    wants = [(lease, 0.0) for lease in leases]
    return await _settle_all(wants, partial(leases[0].ask_cancel_all, leases))


async def _settle_all(
    wants: Sequence[tuple[Lease, Requested]], ask: Callable[[], Awaitable[Sequence[Outcome]]]
) -> dict[Lease, BaseException]:
    sends = [(lease, lease.send(requested)) for lease, requested in wants]
    try:
        outcomes = await ask()
        if len(outcomes) != len(sends):
            raise ValueError(f"got {len(outcomes)} outcomes for {len(sends)} leases")
    except BaseException as error:
        for lease, send in sends:
            lease.settle(send, error)
        raise
    failures: dict[Lease, BaseException] = {}
    for (lease, send), answer in zip(sends, outcomes, strict=True):
        outcome = _checked(answer)
        lease.settle(send, outcome)
        if isinstance(outcome, BaseException):
            failures[lease] = outcome
    return failures


def _checked(outcome: Outcome) -> Outcome:
    """Turn an answer that is not a length of time into a failure of its lease alone."""
    if isinstance(outcome, BaseException):
        return outcome
    try:
        return check_answer(outcome)
    except (TypeError, ValueError) as error:
        return error
