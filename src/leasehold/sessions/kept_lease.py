"""`KeptLease`: a lease that the keeper of a client renews until it is ended or lost.

Whether it is held is decided by the clock only. Two signals report what the keeper has found:

- *jeopardy*: a renewal has had no answer for a third of a term. The lease exists, and will be lost
  unless there is an answer soon. The signal is cleared when there is one.
- *lost*: its end has passed, or the engine does not have it. Permanent. A lease may be lost without
  having been in jeopardy, such as one that was revoked: then both signals are set together, so that
  a task that waits for jeopardy only is woken as well.

An engine renews for full terms only. A lease that is kept for a limited time is not relied on any
longer than that, and revoked then; until then it is renewed like any other.

A lease with a *health check* is renewed only while the check returns True. A check that takes long
continues in a separate task, while the renewal fails and is retried: so it delays no other lease,
and may take as long as the term allows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, TypeAlias

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    Duration,
    Forever,
    Requested,
    duration_of,
    seconds_of,
)
from leasehold.basics.lease_ids import shown_lease
from leasehold.clock import Clock
from leasehold.engine.interface import Engine
from leasehold.errors import CallFailed, EndReason, HistoryLost, LeaseLost, Unhealthy, UnknownLease
from leasehold.leases.holder_view import Send, session_margin_s
from leasehold.leases.lease import Lease, Outcome
from leasehold.leases.renewal_times import JEOPARDY, SESSION_RETRY, SESSION_RETRY_MIN_S

logger = logging.getLogger(__name__)


class Signal:
    """Set or not. It only notifies: whether a lease is held is decided by the clock."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._event.wait()

    def set(self) -> None:
        """Set it."""
        self._event.set()

    def clear(self) -> None:
        """Clear it."""
        self._event.clear()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"


class CancelScope:
    """A block, and the task in it, which a loss cancels; as `asyncio.timeout` does.

    A cancellation from elsewhere is not taken for the loss.
    """

    __slots__ = ("_cancels_before", "_task", "is_cancelled")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self.is_cancelled = False
        """Whether the loss has cancelled it."""

    def enter(self) -> None:
        """Enter the block, in the running task."""
        self._task = asyncio.current_task()
        assert self._task is not None, "a block is entered by a task"
        self._cancels_before = self._task.cancelling()

    def cancel(self) -> None:
        """Cancel the task, if it is in the block."""
        if self._task is not None and not self._task.done():
            self.is_cancelled = True
            self._task.cancel()

    def leave(self) -> bool:
        """Exit, and undo the cancellation; return True if there was one, and no other."""
        task, self._task = self._task, None
        was_cancelled, self.is_cancelled = self.is_cancelled, False
        return task is not None and was_cancelled and task.uncancel() <= self._cancels_before


Check: TypeAlias = Callable[[], bool | Awaitable[bool]]
"""Returns whether the holder is healthy: a plain or an async function."""

KeptCallback: TypeAlias = Callable[["KeptLease", BaseException | None], object]
"""Called with a lease, and with the error of its last renewal."""


class KeptLease(Lease):
    """A lease of an engine, kept alive until it is ended or lost. Its holder has a `HeldLease`."""

    __slots__ = (
        "_asked_at",
        "_bound",
        "_grantor",
        "_health",
        "_keep_for_s",
        "_on_jeopardy",
        "_on_loss",
        "_on_renewed",
        "_trouble",
        "cancel_scope",
        "engine",
        "handle",
        "id",
        "is_ended",
        "jeopardy",
        "lost",
        "why_lost",
    )

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        lease: int,
        granted: Duration,
        sent_at: float,
        *,
        keep_for_s: float | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: KeptCallback | None = None,
        on_loss: KeptCallback | None = None,
        cancel_on_loss: bool = False,
        on_renewed: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(granted, sent_at=sent_at, clock=clock, margin=session_margin_s)
        self.engine = engine
        """Its grantor."""
        self._grantor = f"{engine.cluster_id:016x}"
        self._keep_for_s = seconds_of(keep_for_s)
        self._bound = clock.boottime() + self._keep_for_s
        self._asked_at = NEVER  # when the oldest renewal without an answer was sent
        self.id = lease
        """Its id at the engine."""
        self.lost = Signal()
        """Set once it is lost; not when it is ended."""
        self.jeopardy = Signal()
        """Set while there is no contact to the server, and once it is lost."""
        self._health = None if while_healthy is None else _HealthCheck(lease, while_healthy)
        self._on_jeopardy = on_jeopardy
        self._on_loss = on_loss
        self._on_renewed = on_renewed
        self.cancel_scope = CancelScope() if cancel_on_loss else None
        """The block of its holder, if a loss cancels that."""
        self.is_ended = False
        """Whether its holder has ended it."""
        self.why_lost: BaseException | None = None
        self._trouble: BaseException | None = None
        self.handle: Callable[[], Any] = _no_handle
        """A weak reference to the `HeldLease` that its holder has."""

    @property
    def is_held(self) -> bool:
        """Whether it is held now."""
        return self.remaining != 0.0

    @property
    def remaining(self) -> Duration:
        """How long it is still held unless it is renewed; 0.0 once it is not held."""
        if self.is_ended or self.lost:
            return 0.0
        return duration_of(max(0.0, min(self._holding.end, self._bound) - self._clock.boottime()))

    def as_lost(self) -> LeaseLost:
        """Return the error for a caller that relies on it after its end."""
        if self.is_ended:
            return LeaseLost(self.id, "its holder ended it")
        if self._clock.boottime() >= self._bound:
            return LeaseLost(self.id, f"it was kept for {self._keep_for_s:g} s, as requested")
        match self.why_lost:
            case None:
                why = "it expired before it could be renewed"
            case HistoryLost():
                why = str(self.why_lost)
            case UnknownLease(reason=EndReason.UNKNOWN):
                why = "the server no longer has it"
            case UnknownLease(reason=reason):
                why = f"the server reports that it has ended: {reason}"
            case error:
                why = f"it expired before it could be renewed; last error: {error}"
        return LeaseLost(self.id, why)

    # Renewing, for the renewal manager.

    @property
    def grantor(self) -> Hashable:
        """Its keyspace."""
        return self._grantor

    @property
    def cookie(self) -> Hashable:
        """Its id."""
        return self.id

    @property
    def batch_key(self) -> Hashable:
        """One batch for all leases; with a check, which may take a while, a separate one."""
        return self._grantor if self._health is None else (self._grantor, self.id)

    @property
    def call_limit_key(self) -> Hashable:
        """With a check it waits for no other lease, and delays none."""
        return self.batch_key

    @property
    def lasts_until(self) -> float:
        """Its end as relied on: with a limit, it is renewed until its end is beyond the limit."""
        return self._holding.end

    def send(self, requested: Requested) -> Send:
        """Record a request for a full term, sent now: there are no others."""
        del requested
        send = super().send(ANY)
        self._asked_at = min(self._asked_at, send.sent_at)
        return send

    async def ask_renew(self, requested: Requested) -> Duration:
        """Request a new full term from the engine."""
        del requested
        if self._health is not None:
            await self._health.check(self._holding.term_s)
        with _JeopardyTimer(self.engine, [self]):
            return await self.engine.renew(self.id)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        """Request new full terms for any number of leases."""
        leases = [lease for lease, _ in wants if isinstance(lease, KeptLease)]
        assert len(leases) == len(wants), "they are of one keeper"
        with _JeopardyTimer(self.engine, leases):
            renewed = await self.engine.renew_all([lease.id for lease in leases])
        outcomes: dict[int, Outcome] = {**renewed.terms, **renewed.failures}
        missing = CallFailed("the answer of the server has no outcome for this lease")
        return [outcomes.get(lease.id, missing) for lease in leases]

    async def ask_cancel(self) -> None:
        """Revoke it at the engine."""
        await self.engine.revoke(self.id)

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Record the outcome of a renewal; an answer ends the jeopardy.

        An answer after the end, as on a machine that was suspended, changes nothing: checks since
        then have reported the lease as lost, and that is permanent.
        """
        if self._clock.boottime() >= self._holding.end and not isinstance(outcome, BaseException):
            outcome = TimeoutError("the answer arrived after the lease had expired")
        if isinstance(outcome, UnknownLease):
            self._trouble = outcome  # it ends now: that may be noticed before this returns
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

    # Jeopardy, loss and end.

    @property
    def jeopardy_in_s(self) -> float:
        """How long until it is in jeopardy without an answer; 0 if it is."""
        due_at = self._asked_at + self._holding.term_s * JEOPARDY
        return 0.0 if self.jeopardy else max(0.0, due_at - self._clock.boottime())

    def has_trouble(self, error: BaseException) -> None:
        """Record that a renewal has failed, or has no answer yet, and will be retried."""
        if not isinstance(error, TimeoutError):
            self._trouble = error
        if self.jeopardy or self.jeopardy_in_s > 0.0 or self.lost or self.is_ended:
            return
        self.jeopardy.set()
        silent_s = self._clock.boottime() - self._asked_at
        logger.warning(
            "lease %s is in jeopardy: no renewal for %.1f s: %s",
            shown_lease(self.id),
            silent_s,
            error,
        )
        self._call(self._on_jeopardy, error)

    def lose(self, error: BaseException | None) -> None:
        """Mark it as lost."""
        if self.lost or self.is_ended:
            return
        if isinstance(error, TimeoutError | None):  # there was no time for the last attempt
            error = self._trouble or self._silence(error)
        self.why_lost = error
        self._over()
        self.lost.set()
        self.jeopardy.set()
        planned = self._clock.boottime() >= self._bound
        logger.log(logging.INFO if planned else logging.WARNING, "%s", self.as_lost())
        if self.cancel_scope is not None:
            self.cancel_scope.cancel()
        self._call(self._on_loss, error)

    def _silence(self, error: TimeoutError | None) -> TimeoutError | None:
        """Return why there was no answer, if the engine has a reason."""
        why = self.engine.trouble
        return TimeoutError(why) if why else error

    def ended(self) -> None:
        """Mark it as ended by its holder."""
        self.is_ended = True
        self._over()

    def _over(self) -> None:
        self._holding.end_at(self._clock.boottime())
        if self._health is not None:
            self._health.close()

    def _call(self, callback: KeptCallback | None, error: BaseException | None) -> None:
        if callback is None:
            return
        try:
            callback(self, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # also a CancelledError: it is not this task that was cancelled
            logger.exception("a callback for lease %s has failed", shown_lease(self.id))


def _no_handle() -> None:
    return None


class _HealthCheck:
    """Calls the check of a holder before each renewal of its lease."""

    __slots__ = ("_check", "_shown", "_task")

    def __init__(self, lease: int, check: Check) -> None:
        self._shown = shown_lease(lease)
        self._check = check
        self._task: asyncio.Future[bool] | None = None

    async def check(self, term_s: float) -> None:
        """Raise `Unhealthy` unless the check returns True soon."""
        try:
            is_well = await self._ask(max(SESSION_RETRY_MIN_S, term_s * SESSION_RETRY))
        except Exception as error:
            raise Unhealthy(f"health check of lease {self._shown} has failed: {error!r}") from error
        if is_well is None:
            raise Unhealthy(f"health check of lease {self._shown} has not returned yet")
        if not is_well:
            raise Unhealthy(
                f"health check of lease {self._shown} returned False: the lease is not renewed"
            )

    async def _ask(self, patience_s: float) -> bool | None:
        """Return the result of the check; None if there is none yet."""
        if self._task is None:
            result = self._check()
            if not isinstance(result, Awaitable):
                return result
            self._task = asyncio.ensure_future(result)
        task = self._task
        done, _ = await asyncio.wait([task], timeout=patience_s)
        if not done:
            return None
        self._task = None
        if task.cancelled():
            raise RuntimeError("the health check was cancelled")
        return bool(task.result())

    def close(self) -> None:
        """Stop the check: the lease is over."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


class _JeopardyTimer:
    """For the duration of a renewal call: marks leases as in jeopardy as soon as they are.

    There is one timer for a call, whatever the number of its leases. A renewal that fails is
    handled when it does (`has_trouble`); this is for those that hang. A server that is silent for
    so long may be gone without closing. So the connection is abandoned: another one, or another
    server, has enough time to renew.
    """

    __slots__ = ("_engine", "_leases", "_timer")

    def __init__(self, engine: Engine, leases: Sequence[KeptLease]) -> None:
        self._engine = engine
        self._leases = leases
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._set_timer()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        waits = [lease.jeopardy_in_s for lease in self._leases]
        waits = [wait_s for wait_s in waits if 0.0 < wait_s < NEVER]
        self._timer = None
        if waits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(waits), self._look)

    def _look(self) -> None:
        silence = TimeoutError("the server does not answer")
        for lease in self._leases:
            if lease.jeopardy_in_s <= 0.0:
                lease.has_trouble(silence)
        self._engine.give_up_connection("a renewal has had no answer for a third of its term")
        self._set_timer()
