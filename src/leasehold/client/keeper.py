"""Keeps all leases of a client alive, and ends them: nothing is left behind that can be helped.

A lease has an id that is chosen here. So if the answer to a grant does not come, because the
caller gave up or the connection was lost, the lease that may be there can be ended all the same.
"""

import asyncio
import logging
from collections.abc import Coroutine, Hashable
from random import SystemRandom
from typing import Any, Final

from leasehold.client.held_lease import Callback, Check, HeldLease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import FOREVER, Forever
from leasehold.core.renewal_plan import NoticeKind
from leasehold.core.renewal_times import SessionTiming
from leasehold.engine.interface import Engine
from leasehold.errors import Closed, LeaseExists, LeaseholdError, UnknownLease, is_definite
from leasehold.lease import Lease
from leasehold.renewal import RenewalManager, RenewalNotice

logger = logging.getLogger(__name__)

MAX_ID: Final = (1 << 63) - 1
END_S: Final = 2.0
"""How long ending a lease may take; after that it is left to its term."""

ENDS_AT_ONCE: Final = 64
"""Leases that are ended at the same time, when the client is closed."""


class Keeper:
    """Grants, keeps and ends the leases of one client."""

    def __init__(self, engine: Engine, clock: Clock = SYSTEM_CLOCK) -> None:
        self.engine = engine
        self.clock = clock
        self._held: set[HeldLease] = set()
        self._random = SystemRandom()
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._manager = RenewalManager(timing=SessionTiming(), on_trouble=_has_trouble, clock=clock)

    @property
    def grantor(self) -> Hashable:
        """The name of the keyspace."""
        return f"{self.engine.cluster_id:016x}"

    def check(self) -> None:
        """Refuse to work after the end, and in a child process."""
        self.engine.check()
        if self._is_closed:
            raise Closed("the client was closed")

    async def grant(
        self,
        ttl_s: float,
        *,
        renew_for_s: float | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
    ) -> HeldLease:
        """Begin a lease, and keep it."""
        self.check()
        lease = self._random.randint(1, MAX_ID)
        sent_at = self.clock.boottime()
        try:
            granted = await self.engine.grant(ttl_s, lease=lease)
        except BaseException as error:
            if not isinstance(error, LeaseExists) and not is_definite(error):
                self._end_later(lease, ttl_s)
            raise
        held = HeldLease(
            self,
            lease,
            granted.ttl,
            sent_at,
            while_healthy=while_healthy,
            on_jeopardy=on_jeopardy,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
        )
        self._keep(held, renew_for_s)
        return held

    async def adopt(
        self, lease: int, *, on_jeopardy: Callback | None = None, on_loss: Callback | None = None
    ) -> HeldLease:
        """Keep a lease that is there already, whoever began it."""
        self.check()
        sent_at = self.clock.boottime()
        term_s = await self.engine.renew(lease)
        held = HeldLease(self, lease, term_s, sent_at, on_jeopardy=on_jeopardy, on_loss=on_loss)
        self._keep(held, FOREVER)
        return held

    def _keep(self, lease: HeldLease, renew_for_s: float | Forever) -> None:
        self._held.add(lease)
        self._manager.renew_for(lease, renew_for_s, listener=self._departed)

    def _departed(self, notice: RenewalNotice) -> None:
        """Hear that a lease is renewed no more: it is lost, or was wanted no longer."""
        lease = notice.lease
        assert isinstance(lease, HeldLease)
        if notice.kind is NoticeKind.FAILED:
            self._held.discard(lease)
            lease.lose(notice.error)
        elif not lease.is_ended:
            self._forget(lease)
            self._end_later(lease.id, END_S)

    def _forget(self, lease: HeldLease) -> None:
        lease.ended()
        self._held.discard(lease)

    def release(self, lease: HeldLease) -> None:
        """Keep a lease no longer, and leave it to its term."""
        if lease.is_ended or lease.lost:
            return
        self._forget(lease)
        if lease in self._manager:
            self._manager.remove(lease)

    async def end(self, lease: HeldLease) -> None:
        """End a lease; what does not work is left to its term."""
        if lease.is_ended or lease.lost:
            return
        self.release(lease)
        await asyncio.shield(self._start(self._revoke(lease.id)))

    async def close(self) -> None:
        """End all leases."""
        if self._is_closed:
            return
        turns = asyncio.Semaphore(ENDS_AT_ONCE)

        async def end(lease: HeldLease) -> None:
            async with turns:
                await self.end(lease)

        await asyncio.gather(*map(end, list(self._held)))
        self._is_closed = True
        self._manager.close()
        for task in list(self._ending):
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending)

    # Ending.

    def _end_later(self, lease: int, ttl_s: float) -> None:
        """End a lease that may be there, whoever waits for it."""
        if not self._is_closed:
            self._start(self._revoke(lease, min(ttl_s, 10 * END_S)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that goes on even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _revoke(self, lease: int, within_s: float = END_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self.engine.revoke(lease)
        except UnknownLease:
            pass  # it is over already
        except (LeaseholdError, OSError, TimeoutError) as error:
            logger.warning("lease %s was not ended, and will end by itself: %s", lease, error)


def _has_trouble(lease: Lease, error: BaseException) -> None:
    assert isinstance(lease, HeldLease)
    lease.has_trouble(error)
