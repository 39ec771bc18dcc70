"""`HeldLease`: a lease that lives while its holder does.

Theory of operation. The lease is kept by the client's keeper, with all others (`keeper`). What may
be relied on is a matter of the clock: `remaining` and `check` read it, and nothing else counts. The
two signals tell of what the keeper finds:

- *jeopardy*: a renewal has had no answer for a third of a term. The lease is there, and will be
  lost unless there is an answer soon. It is taken back when there is one.
- *lost*: its end has passed, or the engine does not know it. For good.

Who leaves the block, or calls `end`, ends the lease at the engine, and its keys with it. If the
engine cannot be reached they end by themselves, when the term is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from leasehold.client.signal import Signal
from leasehold.core.duration import Duration, Requested
from leasehold.core.holding import Send, session_margin_s
from leasehold.core.renewal_times import JEOPARDY, SESSION_RENEW
from leasehold.errors import EndReason, LeaseLost, Unhealthy, UnknownLease
from leasehold.lease import Lease, Outcome

if TYPE_CHECKING:
    from leasehold.client.keeper import Keeper

logger = logging.getLogger(__name__)

Check: TypeAlias = Callable[[], bool | Awaitable[bool]]
"""Whether its holder is well: plain, or to be awaited."""

Callback: TypeAlias = Callable[["HeldLease", BaseException | None], object]
"""Told of a lease, and of what its last renewal met with."""


class HeldLease(Lease):
    """A lease of an engine, kept alive until it is ended or lost."""

    __slots__ = (
        "_body",
        "_cancels_body",
        "_is_body_cancelled",
        "_is_ended",
        "_keeper",
        "_on_jeopardy",
        "_on_loss",
        "_while_healthy",
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
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        super().__init__(granted, sent_at=sent_at, clock=keeper.clock, margin=session_margin_s)
        self._keeper = keeper
        self.id = lease
        """Its number at the engine."""
        self.lost = Signal()
        """Set once it is lost; not when it is ended."""
        self.jeopardy = Signal()
        """Set while there is no contact, and it may yet be lost."""
        self._while_healthy = while_healthy
        self._on_jeopardy = on_jeopardy
        self._on_loss = on_loss
        self._cancels_body = cancel_on_loss
        self._body: asyncio.Task[object] | None = None
        self._is_body_cancelled = False
        self._is_ended = False
        self._why_lost: BaseException | None = None

    # What a holder asks.

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now."""
        return not self._is_ended and not self.lost and self.remaining != 0.0

    def check(self) -> None:
        """Raise `LeaseLost` unless it can be relied on now: by the clock, whatever was told."""
        self._keeper.check()
        if not self.is_held:
            raise self._loss()

    async def end(self) -> None:
        """End it now, and its keys with it; nothing if it is over."""
        await self._keeper.end(self)

    def release(self) -> None:
        """Keep it no longer, and do not end it: somebody else may go on, or its term ends it."""
        self._keeper.release(self)

    async def __aenter__(self) -> Self:
        if self._cancels_body:
            self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        body, self._body = self._body, None
        try:
            await self.end()
        finally:
            if self._is_body_cancelled and body is not None:
                self._is_body_cancelled = False
                if body.uncancel() == 0 and exc_type is asyncio.CancelledError:
                    raise self._loss() from self._why_lost

    def _loss(self) -> LeaseLost:
        if self._is_ended:
            return LeaseLost(self.id, "its holder has ended it")
        match self._why_lost:
            case None:
                why = "its term is over, and there was no renewal"
            case UnknownLease(reason=EndReason.UNKNOWN):
                why = "the server does not know it any more"
            case UnknownLease(reason=reason):
                why = f"the server says that it is over: {reason}"
            case error:
                why = f"its term is over, and the last renewal failed: {error}"
        return LeaseLost(self.id, why)

    # What the keeper does with it.

    @property
    def grantor(self) -> Hashable:
        """The keyspace that it is in."""
        return self._keeper.grantor

    @property
    def cookie(self) -> Hashable:
        """Its number."""
        return self.id

    @property
    def batch_key(self) -> Hashable:
        """It goes with all others; with a check, which may take a while, alone."""
        return self._keeper.grantor if self._while_healthy is None else (self.grantor, self.id)

    async def ask_renew(self, requested: Requested) -> Duration:
        """Ask the engine for a new full term; who wants less relies on less."""
        if requested == 0.0:
            await self.ask_cancel()
            return 0.0
        await self._check_health()
        return _at_most(requested, await self._keeper.engine.renew(self.id))

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        """Ask for new terms for any number of leases."""
        ids = [lease.cookie for lease, _ in wants if isinstance(lease.cookie, int)]
        renewed = await self._keeper.engine.renew_all(ids)
        outcomes: list[Outcome] = []
        for lease, requested in wants:
            assert isinstance(lease.cookie, int)
            failure = renewed.failures.get(lease.cookie)
            term = renewed.terms.get(lease.cookie, 0.0)
            outcomes.append(_at_most(requested, term) if failure is None else failure)
        return outcomes

    async def ask_cancel(self) -> None:
        """Have the engine end it."""
        await self._keeper.engine.revoke(self.id)

    async def _check_health(self) -> None:
        if self._while_healthy is None:
            return
        try:
            said = self._while_healthy()
            is_well = await said if isinstance(said, Awaitable) else said
        except Exception as error:
            raise Unhealthy(f"the check for lease {self.id} has failed: {error!r}") from error
        if not is_well:
            raise Unhealthy(f"the check for lease {self.id} says no: it is not renewed")

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Note what became of a renewal; an answer ends the jeopardy."""
        super().settle(send, outcome)
        if self.jeopardy and not isinstance(outcome, BaseException):
            self.jeopardy.clear()
            logger.warning("lease %s is renewed again", self.id)

    def has_trouble(self, error: BaseException) -> None:
        """Learn that a renewal has failed, and will be tried again."""
        silent_s = self._clock.boottime() - self.holding.credited_at
        if self.jeopardy or silent_s < self.holding.term_s * (SESSION_RENEW + JEOPARDY):
            return
        self.jeopardy.set()
        logger.warning(
            "lease %s is in jeopardy: no renewal for %.1f s: %s", self.id, silent_s, error
        )
        self._tell(self._on_jeopardy, error)

    def lose(self, error: BaseException | None) -> None:
        """Learn that it is lost."""
        if self.lost or self._is_ended:
            return
        self._why_lost = error
        self.holding.end_at(self._clock.boottime())
        self.lost.set()
        logger.warning("%s", self._loss())
        if self._body is not None and not self._body.done():
            self._is_body_cancelled = True
            self._body.cancel()
        self._tell(self._on_loss, error)

    def ended(self) -> None:
        """Learn that its holder wants it no more."""
        self._is_ended = True

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        return self._is_ended

    def _tell(self, callback: Callback | None, error: BaseException | None) -> None:
        if callback is None:
            return
        try:
            callback(self, error)
        except Exception:
            logger.exception("a callback for lease %s has failed", self.id)


def _at_most(requested: Requested, granted_s: float) -> float:
    return min(requested, granted_s) if isinstance(requested, float) else granted_s
