"""`HeldLease`: a lease that lives while its holder does.

Theory of operation. The lease is kept by the client's keeper, with all others (`keeper`). What may
be relied on is a matter of the clock: `remaining` and `check` read it, and nothing else counts. The
two signals tell of what the keeper finds:

- *jeopardy*: a renewal has had no answer for a third of a term. The lease is there, and will be
  lost unless there is an answer soon. It is taken back when there is one.
- *lost*: its end has passed, or the engine does not know it. For good.

Who leaves the block, or calls `end`, ends the lease at the engine, and its keys with it. If the
engine cannot be reached they end by themselves, when the term is over.

An engine renews for full terms only. A lease that is to be kept for a limited time is not relied on
any longer than that, and ended then; until then it is renewed like any other.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from leasehold.client.body import Body
from leasehold.client.ending import END_S
from leasehold.client.health import Check, Health
from leasehold.client.jeopardy import Suspense
from leasehold.client.patience import Timeout
from leasehold.client.signal import Signal
from leasehold.core.duration import (
    ANY,
    FOREVER,
    NEVER,
    Duration,
    DurationLike,
    Forever,
    Requested,
    check_requested,
    check_seconds,
    duration_of,
    seconds_of,
)
from leasehold.core.holding import Send, session_margin_s
from leasehold.core.renewal_times import JEOPARDY
from leasehold.errors import (
    CallFailed,
    EndReason,
    HistoryLost,
    LeaseholdError,
    LeaseLost,
    UnknownLease,
)
from leasehold.lease import Lease, Outcome
from leasehold.lease_ids import shown_lease

if TYPE_CHECKING:
    from leasehold.client.keeper import Keeper

logger = logging.getLogger(__name__)

Callback: TypeAlias = Callable[["HeldLease", BaseException | None], object]
"""Told of a lease, and of what its last renewal met with."""


class HeldLease(Lease):
    """A lease of an engine, kept alive until it is ended or lost."""

    __slots__ = (
        "_asked_at",
        "_body",
        "_bound",
        "_grantor",
        "_health",
        "_is_ended",
        "_keep_for_s",
        "_keeper",
        "_on_jeopardy",
        "_on_loss",
        "_on_renewed",
        "_trouble",
        "_why_lost",
        "id",
        "jeopardy",
        "lost",
    )

    def __init__(
        self,
        keeper: "Keeper",
        lease: int,
        granted: Duration,
        sent_at: float,
        *,
        keep_for_s: float | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
        on_renewed: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(granted, sent_at=sent_at, clock=keeper.clock, margin=session_margin_s)
        self._keeper = keeper
        self._grantor = keeper.grantor
        self._keep_for_s = seconds_of(keep_for_s)
        self._bound = self._clock.boottime() + self._keep_for_s
        self._asked_at = NEVER  # when the oldest renewal without an answer was sent
        self.id = lease
        """Its number at the engine."""
        self.lost = Signal()
        """Set once it is lost; not when it is ended."""
        self.jeopardy = Signal()
        """Set while there is no contact, and it may yet be lost."""
        self._health = None if while_healthy is None else Health(lease, while_healthy)
        self._on_jeopardy = on_jeopardy
        self._on_loss = on_loss
        self._on_renewed = on_renewed
        self._body = Body() if cancel_on_loss else None
        self._is_ended = False
        self._why_lost: BaseException | None = None
        self._trouble: BaseException | None = None

    # What a holder asks.

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now."""
        return self.remaining != 0.0

    @property
    def remaining(self) -> Duration:
        """How long it may still be relied on, unless it is renewed; 0.0 once it may not."""
        if self._is_ended or self.lost:
            return 0.0
        return duration_of(max(0.0, min(self._holding.end, self._bound) - self._clock.boottime()))

    def check(self) -> None:
        """Raise `LeaseLost` unless it can be relied on now, by the clock of this process.

        After the client was closed the cause of that error is `Closed`, in a child process
        `Forked`, and in another keyspace `HistoryLost`.
        """
        try:
            self._keeper.check()
        except LeaseholdError as error:
            raise LeaseLost(self.id, str(error)) from error
        if not self.is_held:
            raise self.as_lost()

    async def end(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """End it now, and its keys with it; nothing if it is over.

        If there is no answer within `timeout`, two seconds unless told otherwise, it is tried on in
        the background.
        """
        wait_s = END_S if timeout is None else check_seconds(timeout, "timeout")
        await self._keeper.end(self, wait_s)

    def release(self) -> None:
        """Keep it no longer, and do not end it: somebody else may go on, or its term ends it."""
        self._keeper.release(self)

    async def cancel(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """Do what `end` does."""
        await self.end(timeout=timeout)

    async def renew(
        self,
        duration: DurationLike = ANY,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Duration:
        """Renew it now, for a full term whatever is asked for; 0 ends it.

        There is no need to: it is done by itself. `TimeoutError` if there is no answer within
        `timeout`; if there is none while it can be relied on, it is lost: `LeaseLost`.
        """
        if check_requested(duration) == 0.0:
            await self.end()
            return 0.0
        if self._is_ended or self.lost:
            raise self.as_lost()
        left_s = seconds_of(self.remaining)
        if timeout is not None:
            left_s = min(left_s, check_seconds(timeout, "timeout"))
        limit = asyncio.timeout(None if left_s == NEVER else left_s)
        try:
            async with limit:
                granted = await super().renew()
        except TimeoutError as error:
            self.check()
            if limit.expired():
                raise TimeoutError(f"no answer within {left_s:g} s") from error
            raise
        self.check()
        return granted

    async def __aenter__(self) -> Self:
        self.check()
        if self._body is not None:
            self._body.enter()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        body, loss = self._body, self.as_lost()
        is_over = not self._is_ended and not self.is_held
        was_too_fast = body is not None and is_over and not body.is_cancelled
        is_cancelled = body is not None and body.leave()
        await self.end()
        if is_cancelled and exc_type is asyncio.CancelledError:
            raise loss from self._why_lost
        if was_too_fast and exc_type is None:  # to be cancelled
            raise loss from self._why_lost

    def loss(self) -> LeaseLost | None:
        """Say why it cannot be relied on; None while it can."""
        return None if self.is_held else self.as_lost()

    def as_lost(self) -> LeaseLost:
        """Make the error for whoever relies on it for too long."""
        if self._is_ended:
            return LeaseLost(self.id, "its holder ended it")
        if self._clock.boottime() >= self._bound:
            return LeaseLost(self.id, f"it was kept for {self._keep_for_s:g} s, as requested")
        match self._why_lost:
            case None:
                why = "it expired before it could be renewed"
            case HistoryLost():
                why = str(self._why_lost)
            case UnknownLease(reason=EndReason.UNKNOWN):
                why = "the server no longer has it"
            case UnknownLease(reason=reason):
                why = f"the server reports that it has ended: {reason}"
            case error:
                why = f"it expired before it could be renewed; last error: {error}"
        return LeaseLost(self.id, why)

    # What the keeper does with it.

    @property
    def grantor(self) -> Hashable:
        """The keyspace that it is in."""
        return self._grantor

    @property
    def cookie(self) -> Hashable:
        """Its number."""
        return self.id

    @property
    def batch_key(self) -> Hashable:
        """It goes with all others; with a check, which may take a while, alone."""
        return self._grantor if self._health is None else (self._grantor, self.id)

    @property
    def gate_key(self) -> Hashable:
        """With a check it waits for no other lease, and keeps none waiting."""
        return self.batch_key

    @property
    def lasts_until(self) -> float:
        """Its end as it is relied on: up to a bound, it is renewed until that lies behind it."""
        return self._holding.end

    def send(self, requested: Requested) -> Send:
        """Note that it is asked for, now: for a full term, since there is no other."""
        del requested
        send = super().send(ANY)
        self._asked_at = min(self._asked_at, send.sent_at)
        return send

    async def ask_renew(self, requested: Requested) -> Duration:
        """Ask the engine for a new full term."""
        del requested
        if self._health is not None:
            await self._health.check(self._holding.term_s)
        with Suspense(self._keeper.engine, [self]):
            return await self._keeper.engine.renew(self.id)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        """Ask for new full terms for any number of leases."""
        leases = [lease for lease, _ in wants if isinstance(lease, HeldLease)]
        assert len(leases) == len(wants), "they are of one keeper"
        with Suspense(self._keeper.engine, leases):
            renewed = await self._keeper.engine.renew_all([lease.id for lease in leases])
        outcomes: dict[int, Outcome] = {**renewed.terms, **renewed.failures}
        missing = CallFailed("the answer does not say what became of it")
        return [outcomes.get(lease.id, missing) for lease in leases]

    async def ask_cancel(self) -> None:
        """Have the engine end it."""
        await self._keeper.engine.revoke(self.id)

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Note what became of a renewal; an answer ends the jeopardy.

        One that comes after the end, as to a machine that was suspended, changes nothing: whoever
        has asked since then was told that the lease is lost, and that is for good.
        """
        if self._clock.boottime() >= self._holding.end and not isinstance(outcome, BaseException):
            outcome = TimeoutError("the answer came after its end")
        if isinstance(outcome, UnknownLease):
            self._trouble = outcome  # with which it ends now: that may be noticed before this is
        super().settle(send, outcome)
        if isinstance(outcome, BaseException):
            return
        self._asked_at = NEVER
        self._trouble = None
        if self.jeopardy and not self.lost:
            self.jeopardy.clear()
            logger.warning("lease %s is renewed again", shown_lease(self.id))
        if self._on_renewed is not None:
            self._on_renewed()

    @property
    def jeopardy_in_s(self) -> float:
        """How long until it is in jeopardy, unless there is an answer; 0 if it is."""
        due_at = self._asked_at + self._holding.term_s * JEOPARDY
        return 0.0 if self.jeopardy else max(0.0, due_at - self._clock.boottime())

    def has_trouble(self, error: BaseException) -> None:
        """Learn that a renewal has failed, or has no answer yet, and will be tried again."""
        if not isinstance(error, TimeoutError):
            self._trouble = error
        if self.jeopardy or self.jeopardy_in_s > 0.0 or self.lost or self._is_ended:
            return
        self.jeopardy.set()
        silent_s = self._clock.boottime() - self._asked_at
        logger.warning(
            "lease %s is in jeopardy: no renewal for %.1f s: %s",
            shown_lease(self.id),
            silent_s,
            error,
        )
        self._tell(self._on_jeopardy, error)

    def lose(self, error: BaseException | None) -> None:
        """Learn that it is lost."""
        if self.lost or self._is_ended:
            return
        if isinstance(error, TimeoutError | None):  # there was no time for the last attempt
            error = self._trouble or self._silence(error)
        self._why_lost = error
        self._over()
        self.lost.set()
        planned = self._clock.boottime() >= self._bound
        logger.log(logging.INFO if planned else logging.WARNING, "%s", self.as_lost())
        if self._body is not None:
            self._body.cancel()
        self._tell(self._on_loss, error)

    def _silence(self, error: TimeoutError | None) -> TimeoutError | None:
        """Say why there was no answer, if the engine knows."""
        why = self._keeper.engine.trouble
        return TimeoutError(why) if why else error

    def ended(self) -> None:
        """Learn that its holder wants it no more."""
        self._is_ended = True
        self._over()

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        return self._is_ended

    def _over(self) -> None:
        self._holding.end_at(self._clock.boottime())
        if self._health is not None:
            self._health.close()

    def _tell(self, callback: Callback | None, error: BaseException | None) -> None:
        if callback is None:
            return
        try:
            callback(self, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            logger.exception("a callback for lease %s has failed", shown_lease(self.id))
