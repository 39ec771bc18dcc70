"""Keeps all leases of a client alive, and revokes them, as far as possible, when they are over.

The id of a lease is chosen here. So if a grant has no answer, because the caller gave up or the
connection was lost, the lease can be revoked nevertheless. So can a lease that is lost because
there was no answer: a server that stalled may still have it, and would make others wait for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random, SystemRandom
from typing import Any, Final, TypeVar

from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.durations import FOREVER, Forever
from leasehold.basics.event_loop import OwnerLoop
from leasehold.basics.lease_ids import shown_lease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.errors import (
    Closed,
    Forked,
    HistoryLost,
    LeaseholdError,
    LeaseLost,
    UnknownLease,
    is_definite,
)
from leasehold.leases.lease import Lease
from leasehold.leases.renewal_manager import RenewalManager, RenewalNotice
from leasehold.leases.renewal_times import SessionTiming
from leasehold.sessions.kept_lease import Check, KeptCallback, KeptLease

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ID: Final = (1 << 63) - 1

LOST_S: Final = 60.0
"""How long to keep trying to revoke a lease that is lost, or whose grant had no answer."""

END_S: Final = 2.0
"""How long a caller waits for a revocation."""

REVOKE_RETRIES: Final = exponential(0.1, 5.0)
"""The waits between attempts to revoke a lease while calls fail."""

LOOK_PAUSES_S: Final = (0.0, 0.1, 0.4, 1.0)
"""Pauses before each look for a lease or key whose request had no answer and may still arrive on a
connection that is lost. They have no jitter: full jitter could shorten the 1.5 s in total to
nothing, and an attempt that failed before has already spread the clients."""

CONCURRENT_REVOKES: Final = 64
"""Leases that are revoked at the same time, where all are."""

CONCURRENT_BACKGROUND_REVOKES: Final = 64
"""Leases that are revoked in the background at the same time; the others wait."""


class Keeper:
    """Grants, keeps and revokes the leases of one client."""

    def __init__(
        self, engine: Engine, clock: Clock = SYSTEM_CLOCK, random: Random | None = None
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.owner = OwnerLoop("client")
        self._held: dict[KeptLease, None] = {}
        self._granting: dict[int, None] = {}
        """Leases whose grants have no answer yet."""
        self.random = random or SystemRandom()
        """Draws lease ids and the pauses between attempts."""
        self._ending: set[asyncio.Task[object]] = set()
        self._turns = asyncio.Semaphore(CONCURRENT_BACKGROUND_REVOKES)
        self._is_closed = False
        self._manager = RenewalManager(timing=SessionTiming(), on_trouble=_has_trouble, clock=clock)
        self._on_history_lost = engine.on_history_lost
        """Of another user of the engine, such as the server that this keeper is a part of."""
        engine.on_history_lost = self._history_lost

    def check(self) -> None:
        """Raise if the client is closed, or in a child process."""
        self.engine.check()
        if self._is_closed:
            raise Closed("the client was closed")

    def _check_call(self) -> None:
        self.check()
        self.owner.check()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that owns these leases."""
        try:
            self.engine.check()
        except Forked:
            return True
        except LeaseholdError:
            return False  # such as another keyspace in its place: it is released nevertheless
        return False

    # Granting.

    async def grant(
        self,
        ttl_s: float,
        *,
        renew_for_s: float | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: KeptCallback | None = None,
        on_loss: KeptCallback | None = None,
        cancel_on_loss: bool = False,
        on_renewed: Callable[[], object] | None = None,
    ) -> KeptLease:
        """Grant a lease, and keep it. `on_renewed` is called after each answered renewal."""
        self._check_call()
        lease = self.random.randint(1, MAX_ID)
        sent_at = self.clock.boottime()
        granted_s = await self._ask_for(lease, ttl_s)
        held = KeptLease(
            self.engine,
            self.clock,
            lease,
            granted_s,
            sent_at,
            keep_for_s=renew_for_s,
            while_healthy=while_healthy,
            on_jeopardy=on_jeopardy,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
            on_renewed=on_renewed,
        )
        return self._keep(held, renew_for_s)

    async def _ask_for(self, lease: int, ttl_s: float) -> float:
        """Request a lease; it is revoked if it may have been granted without an answer."""
        self._granting[lease] = None
        try:
            granted = await self.engine.grant(ttl_s, lease=lease)
        except BaseException as error:
            if not is_definite(error) and not getattr(error, "not_executed", False):
                self._end_later(lease, may_come=True)
            raise
        finally:
            del self._granting[lease]
        if self._is_closed:  # `close` revokes it
            raise Closed("the client was closed during the grant of a lease")
        return granted.ttl

    async def begin(self, ttl_s: float) -> tuple[int, float]:
        """Grant a lease that is not kept here; return its id and its TTL."""
        self._check_call()
        lease = self.random.randint(1, MAX_ID)
        return lease, await self._ask_for(lease, ttl_s)

    async def adopt(
        self,
        lease: int,
        *,
        on_jeopardy: KeptCallback | None = None,
        on_loss: KeptCallback | None = None,
        on_renewed: Callable[[], object] | None = None,
    ) -> KeptLease:
        """Renew an existing lease and keep it. `on_renewed` is called after later renewals."""
        self._check_call()
        sent_at = self.clock.boottime()
        term_s = await self.engine.renew(lease)
        self.check()
        held = KeptLease(
            self.engine,
            self.clock,
            lease,
            term_s,
            sent_at,
            on_jeopardy=on_jeopardy,
            on_loss=on_loss,
            on_renewed=on_renewed,
        )
        return self._keep(held, FOREVER)

    def _keep(self, lease: KeptLease, renew_for_s: float | Forever) -> KeptLease:
        if not lease.is_held:
            self._end_later(lease.id)
            raise LeaseLost(lease.id, "it expired before the answer arrived")
        if lease in self._held:
            shown = shown_lease(lease.id)
            raise ValueError(
                f"lease {shown} is already kept alive by this client: use the existing lease object"
            )
        self._held[lease] = None
        self._manager.renew_for(lease, renew_for_s, listener=self._departed)
        return lease

    # Ending.

    def _departed(self, notice: RenewalNotice) -> None:
        """Handle the end of renewals: a lease is lost, or its requested time is over."""
        lease = notice.lease
        assert isinstance(lease, KeptLease)
        self._held.pop(lease, None)
        lease.lose(notice.error)
        if not isinstance(notice.error, UnknownLease):
            self._end_later(lease.id)

    def _history_lost(self, error: HistoryLost) -> None:
        """Called when the keyspace of the leases is gone, and they with it."""
        held, self._held = list(self._held), {}
        for lease in held:
            if lease in self._manager:
                self._manager.remove(lease)
            lease.lose(error)
        self._on_history_lost(error)

    def give_up(self, lease: KeptLease, error: BaseException | None) -> None:
        """Mark a lease as lost because its holder cannot use it any more, and revoke it."""
        if lease.is_ended or lease.lost:
            return
        self._held.pop(lease, None)
        if lease in self._manager:
            self._manager.remove(lease)
        lease.lose(error)
        self._end_later(lease.id)

    def release(self, lease: KeptLease) -> None:
        """Stop keeping a lease, without revoking it."""
        if lease.is_ended or lease.lost:
            return
        if not self.is_forked:  # a child process has no running loop, and only forgets it
            self.owner.check()
        lease.ended()
        self._held.pop(lease, None)
        if lease in self._manager:
            self._manager.remove(lease)

    async def end(self, lease: KeptLease, wait_s: float = END_S) -> bool:
        """Revoke a lease; retries continue in the background, until its term is over.

        Returns True if it is known to be over.
        """
        if lease.is_ended or lease.lost:
            return False
        left_s = lease.holding.promised_end - self.clock.boottime()
        if self.is_forked:
            self.release(lease)
            return False  # it is the parent's
        self.release(lease)
        task = self._start(end_one(self.engine, lease.id, max(END_S, left_s), self.random))
        await asyncio.wait([task], timeout=wait_s)
        if not task.done():
            shown = shown_lease(lease.id)
            logger.warning("lease %s is not revoked yet: the server does not answer", shown)
        return task.done() and not task.cancelled() and task.result() is True

    async def close(self) -> None:
        """Revoke all leases, and those requested, as far as possible in a short time."""
        if self._is_closed:
            return
        self._is_closed = True
        self._manager.close()
        for asked_for in self._granting:
            self._end_later(asked_for, may_come=True)
        held, self._held = list(self._held), {}
        for lease in held:
            lease.ended()
        await end_all(self.engine, [lease.id for lease in held], self.random)
        if self._ending:
            await asyncio.wait(self._ending, timeout=END_S)
        for task in list(self._ending):
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending)

    def _end_later(self, lease: int, *, may_come: bool = False) -> None:
        """Revoke a lease that exists, or may exist, in the background."""
        self._start(self._end_in_turn(lease, may_come=may_come))

    async def _end_in_turn(self, lease: int, *, may_come: bool) -> None:
        async with self._turns:
            await end_one(self.engine, lease, LOST_S, self.random, may_come=may_come)

    def run_cleanup(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run a cleanup in the background; closing waits for it, for a while."""
        return self._start(work)

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Start a task that continues even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


def _has_trouble(lease: Lease, error: BaseException) -> None:
    assert isinstance(lease, KeptLease)
    lease.has_trouble(error)


# Revoking: a lease that cannot be revoked expires after its term.


async def end_one(
    engine: Engine, lease: int, within_s: float, random: Random, *, may_come: bool = False
) -> bool:
    """Revoke a lease, with retries; True if it has ended. With `may_come` it may yet appear."""
    try:
        async with time_limit(within_s, engine):
            await _end(engine, lease, LOOK_PAUSES_S if may_come else (0.0,), random)
    except (LeaseholdError, OSError) as error:
        why = str(error) or engine.trouble
        logger.warning("lease %s was not revoked and will expire: %s", shown_lease(lease), why)
        return False
    return True


async def _end(engine: Engine, lease: int, looks_s: Iterable[float], random: Random) -> None:
    backoff = Backoff(REVOKE_RETRIES, random)

    async def revoke() -> bool:
        try:
            await engine.revoke(lease)
        except UnknownLease:
            return False  # it has ended already, or has not been granted yet
        return True

    for look_s in looks_s:
        await asyncio.sleep(look_s)
        if await retry_until_answered(revoke, backoff):
            return


async def retry_until_answered(call: Callable[[], Awaitable[T]], backoff: Backoff) -> T:
    """Repeat a call after each indefinite error, with pauses; raise a definite one.

    The caller sets the time limit.
    """
    while True:
        try:
            return await call()
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
        await asyncio.sleep(backoff.next_s())


async def end_all(engine: Engine, leases: Iterable[int], random: Random) -> None:
    """Revoke leases, many at a time, until the engine does not answer within `END_S`."""
    left = list(leases)

    async def end_some() -> None:
        while left:
            if not await end_one(engine, left.pop(), END_S, random):
                return

    await asyncio.gather(*(end_some() for _ in range(min(CONCURRENT_REVOKES, len(left)))))
    if left:
        logger.warning("%d more leases were not revoked and will expire", len(left))
