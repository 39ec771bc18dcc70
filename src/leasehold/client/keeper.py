"""Keeps all leases of a client alive, and ends them: nothing is left behind that can be helped.

A lease has an id that is chosen here. So if the answer to a grant does not come, because the
caller gave up or the connection was lost, the lease that may be there can be ended all the same.
So can one that is lost because nobody answered: a server that stood still may have it yet, and
would keep others waiting for it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from random import Random, SystemRandom
from typing import Any, Final

from leasehold.client.ending import END_S, end_all, end_one
from leasehold.client.health import Check
from leasehold.client.held_lease import Callback, HeldLease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import FOREVER, Forever
from leasehold.core.renewal_times import SessionTiming
from leasehold.engine.interface import Engine
from leasehold.errors import (
    Closed,
    Forked,
    HistoryLost,
    LeaseholdError,
    LeaseLost,
    UnknownLease,
    is_definite,
)
from leasehold.lease import Lease
from leasehold.lease_ids import shown_lease
from leasehold.owner_loop import OwnerLoop
from leasehold.renewal import RenewalManager, RenewalNotice

logger = logging.getLogger(__name__)

MAX_ID: Final = (1 << 63) - 1

LOST_S: Final = 60.0
"""How long a lease that is lost, or was never answered, is tried to be ended."""

LATER_AT_ONCE: Final = 64
"""Leases that are ended in the background at the same time; the others wait."""


class Keeper:
    """Grants, keeps and ends the leases of one client."""

    def __init__(
        self, engine: Engine, clock: Clock = SYSTEM_CLOCK, random: Random | None = None
    ) -> None:
        self.engine = engine
        self.clock = clock
        self._owner = OwnerLoop("client")
        self._held: dict[HeldLease, None] = {}
        self._granting: dict[int, None] = {}
        """Leases that were asked for, and not answered yet."""
        self.random = random or SystemRandom()
        """Draws lease ids and the pauses between attempts."""
        self._ending: set[asyncio.Task[object]] = set()
        self._turns = asyncio.Semaphore(LATER_AT_ONCE)
        self._is_closed = False
        self._manager = RenewalManager(timing=SessionTiming(), on_trouble=_has_trouble, clock=clock)
        engine.on_history_lost = self._history_lost

    @property
    def grantor(self) -> Hashable:
        """The name of the keyspace."""
        return f"{self.engine.cluster_id:016x}"

    def check(self) -> None:
        """Refuse to work after the end, and in a child process."""
        self.engine.check()
        if self._is_closed:
            raise Closed("the client was closed")

    def _check_call(self) -> None:
        self.check()
        self._owner.check()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process whose leases these are."""
        try:
            self.engine.check()
        except Forked:
            return True
        except LeaseholdError:
            return False  # such as another keyspace in its place: it is let go all the same
        return False

    # Beginning.

    async def grant(
        self,
        ttl_s: float,
        *,
        renew_for_s: float | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
        on_renewed: Callable[[], object] | None = None,
    ) -> HeldLease:
        """Begin a lease, and keep it. `on_renewed` is told of each renewal that is answered."""
        self._check_call()
        lease = self.random.randint(1, MAX_ID)
        sent_at = self.clock.boottime()
        granted_s = await self._ask_for(lease, ttl_s)
        held = HeldLease(
            self,
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
        """Ask for a lease; whatever else than an answer comes, none is left behind."""
        self._granting[lease] = None
        try:
            granted = await self.engine.grant(ttl_s, lease=lease)
        except BaseException as error:
            if not is_definite(error):
                self._end_later(lease, may_come=True)
            raise
        finally:
            del self._granting[lease]
        if self._is_closed:  # which sees to its end
            raise Closed("the client was closed while a lease was granted")
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
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        on_renewed: Callable[[], object] | None = None,
    ) -> HeldLease:
        """Renew an existing lease and keep it. `on_renewed` is called after later renewals."""
        self._check_call()
        sent_at = self.clock.boottime()
        term_s = await self.engine.renew(lease)
        self.check()
        held = HeldLease(
            self,
            lease,
            term_s,
            sent_at,
            on_jeopardy=on_jeopardy,
            on_loss=on_loss,
            on_renewed=on_renewed,
        )
        return self._keep(held, FOREVER)

    def _keep(self, lease: HeldLease, renew_for_s: float | Forever) -> HeldLease:
        if not lease.is_held:
            self._end_later(lease.id)
            raise LeaseLost(lease.id, "its term was over before the answer came")
        if lease in self._held:
            shown = shown_lease(lease.id)
            raise ValueError(f"lease {shown} is kept by this client already: use that one")
        self._held[lease] = None
        self._manager.renew_for(lease, renew_for_s, listener=self._departed)
        return lease

    # Ending.

    def _departed(self, notice: RenewalNotice) -> None:
        """Hear that a lease is renewed no more: it is lost, or the time is over that was wanted."""
        lease = notice.lease
        assert isinstance(lease, HeldLease)
        self._held.pop(lease, None)
        lease.lose(notice.error)
        if not isinstance(notice.error, UnknownLease):
            self._end_later(lease.id)

    def _history_lost(self, error: HistoryLost) -> None:
        """Hear that the keyspace is gone that the leases were in, and they with it."""
        held, self._held = list(self._held), {}
        for lease in held:
            if lease in self._manager:
                self._manager.remove(lease)
            lease.lose(error)

    def give_up(self, lease: HeldLease, error: BaseException | None) -> None:
        """Learn that a lease is of no use to its holder any more: it is lost, and ended."""
        if lease.is_ended or lease.lost:
            return
        self._held.pop(lease, None)
        if lease in self._manager:
            self._manager.remove(lease)
        lease.lose(error)
        self._end_later(lease.id)

    def release(self, lease: HeldLease) -> None:
        """Keep a lease no longer, and leave it to its term."""
        if lease.is_ended or lease.lost:
            return
        if not self.is_forked:  # a child process has no running loop, and only forgets it
            self._owner.check()
        lease.ended()
        self._held.pop(lease, None)
        if lease in self._manager:
            self._manager.remove(lease)

    async def end(self, lease: HeldLease, wait_s: float = END_S) -> bool:
        """End a lease; what takes long goes on behind the caller's back, until its term is over.

        True if it is known to be over.
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
            logger.warning("lease %s is not ended yet: the server does not answer", shown)
        return task.done() and not task.cancelled() and task.result() is True

    async def close(self) -> None:
        """End all leases, and those that were asked for, as far as that is possible soon."""
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
        """End a lease that is there, or may be, whoever waits for it."""
        self._start(self._end_in_turn(lease, may_come=may_come))

    async def _end_in_turn(self, lease: int, *, may_come: bool) -> None:
        async with self._turns:
            await end_one(self.engine, lease, LOST_S, self.random, may_come=may_come)

    def see_to(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Have something ended behind the caller's back; closing waits for it, for a while."""
        return self._start(work)

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Do something that goes on even if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


def _has_trouble(lease: Lease, error: BaseException) -> None:
    assert isinstance(lease, HeldLease)
    lease.has_trouble(error)
