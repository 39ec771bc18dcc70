"""`Lease`: what a holder has in its hands.

The base class keeps the end, equality and the bookkeeping of requests; a subclass says how to ask
the grantor. Renewal managers and batches accept any of them.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeAlias

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core import codec
from leasehold.core.duration import (
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
from leasehold.core.holding import Holding, Margin, Send
from leasehold.errors import LeaseholdError, UnknownLease, is_definite
from leasehold.lease_ids import shown_lease

Form: TypeAlias = Literal["duration", "absolute"]
Outcome: TypeAlias = Duration | BaseException
"""What became of a request for a term: its length, or the error."""


class Lease(ABC):
    """A promise with an end, as its holder sees it.

    Two leases are equal if they are the same lease of the same grantor, whatever their ends say.
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
        """Begin with a term of `granted`, asked for when `clock.boottime()` said `sent_at`.

        Without `sent_at` the term counts from now. `margin` is the fraction of each term that is
        not relied on, because the clocks of holder and grantor may run at different speeds; or a
        function that gives the seconds for a term.
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
        """The name of who granted this lease."""

    @property
    @abstractmethod
    def cookie(self) -> Hashable:
        """The name of this lease at its grantor."""

    @property
    def batch_key(self) -> Hashable:
        """Equal for leases that one call can renew together: same landlord, same credential.

        By default a lease goes alone: who overrides this should override `ask_renew_all`, too.
        """
        return (self.grantor, self.cookie)

    @property
    def gate_key(self) -> Hashable:
        """Equal for leases of which only so many are asked for at once: those of one grantor."""
        return self.grantor

    @abstractmethod
    async def ask_renew(self, requested: Requested) -> Duration:
        """Ask the grantor for a new term; return what it granted."""

    @abstractmethod
    async def ask_cancel(self) -> None:
        """Ask the grantor to end this lease."""

    async def ask_renew_all(self, wants: Sequence[tuple["Lease", Requested]]) -> Sequence[Outcome]:
        """Ask for new terms for leases that `can_batch` with this one, each with its own outcome.

        An exception raised here is a failure of the whole call. This default asks for each by
        itself, all at once; a grantor that takes batches has a better way.
        """
        asked = (lease.ask_renew(requested) for lease, requested in wants)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def ask_cancel_all(self, leases: Sequence["Lease"]) -> Sequence[Outcome]:
        """Ask to end leases that `can_batch` with this one; a success has the outcome 0.0."""
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
        """The end that is enough for whoever wants the lease no longer than that.

        With the margin: what has been promised need not be asked for again.
        """
        return self._holding.promised_end

    @property
    def term(self) -> Duration:
        """The length of the current term, as it was granted."""
        return duration_of(self._holding.term_s)

    async def renew(self, duration: DurationLike = ANY) -> Duration:
        """Ask for a new term of `duration` from now; return what was granted.

        If it fails the lease keeps the end it had. `LeaseDenied`: the grantor says no.
        `UnknownLease`: it is over. A connection error: what happened is unknown, and if a shorter
        term was asked for, the holder had better count on that one, and does.
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
        """Whether one call can renew both: an equivalence relation."""
        return isinstance(other, Lease) and self.batch_key == other.batch_key

    def send(self, requested: Requested) -> Send:
        """Note that a term is being asked for, now. For who renews several leases in one call."""
        end = self._holding.end
        send = self._holding.send(requested, self._clock.boottime())
        self._tell_if_earlier_than(end)
        return send

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Note what became of a `send`."""
        end = self._holding.end
        self._credit(send, outcome)
        self._tell_if_earlier_than(end)

    def watch(self, watcher: "Callable[[Lease], object]") -> None:
        """Have `watcher(lease)` called whenever the end has come to lie earlier than it did."""
        self._watchers = (*self._watchers, watcher)

    def unwatch(self, watcher: "Callable[[Lease], object]") -> None:
        """Undo one `watch`."""
        watchers = list(self._watchers)
        watchers.remove(watcher)
        self._watchers = tuple(watchers)

    def _tell_if_earlier_than(self, end: float) -> None:
        if self._watchers and self._holding.end < end:
            for watcher in self._watchers:
                watcher(self)

    def _credit(self, send: Send, outcome: Outcome) -> None:
        if not isinstance(outcome, BaseException):
            self._holding.answered(send, outcome)
            return
        # Only the grantor's own word says that nothing was done; an error in reading its answer,
        # however definite, does not.
        refused = isinstance(outcome, LeaseholdError) and is_definite(outcome)
        self._holding.failed(send, definite=refused)
        if isinstance(outcome, UnknownLease):
            self._holding.end_at(self._clock.boottime())

    def to_bytes(self, form: Form) -> bytes:
        """Turn the lease into bytes.

        "duration" carries the time that remains, counted again on arrival: for transport.
        "absolute" carries the wall-clock end: for storage.
        """
        remaining_s = seconds_of(self.remaining)
        match form:
            case "duration":
                record = codec.LeaseRecord(
                    codec.Form.DURATION, remaining_s, self.grantor, self.cookie
                )
            case "absolute":
                end_s = self._clock.wall() + remaining_s
                record = codec.LeaseRecord(codec.Form.ABSOLUTE, end_s, self.grantor, self.cookie)
            case _:
                raise ValueError(f'form must be "duration" or "absolute", not {form!r}')
        return codec.encode(record)

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


def remaining_s_of(record: codec.LeaseRecord, wall: float) -> float:
    """How much is left of a lease that came as bytes, never less than zero."""
    match record.form:
        case codec.Form.DURATION:
            return record.end_s
        case codec.Form.ABSOLUTE:
            return max(0.0, record.end_s - wall)


def check_answer(granted: DurationLike) -> Duration:
    """Return what a grantor answered, or refuse what is no length of time."""
    answer = check_requested(granted, "the granted duration")
    if answer is ANY:
        raise ValueError(
            "the granted duration must be a length of time; a grantor cannot grant ANY"
        )
    return answer
