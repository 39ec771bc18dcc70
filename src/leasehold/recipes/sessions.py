"""The session of a client: made when it is needed, let go when it is not.

One session, so one lease and one renewal, covers all that a client holds by recipes, whatever its
number. It is renewed while anything of it is in use, and for a term after that, or as long as
something is cached under it; then it is ended.

A session that is lost is over for its client, but perhaps not for the server, which may have stood
still. It would keep everybody waiting for its locks, its owner included: so it is ended, with an
answer, before there is another.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from leasehold.client.held_lease import HeldLease
from leasehold.client.keeper import Keeper
from leasehold.client.patience import time_limit
from leasehold.engine.interface import Engine
from leasehold.errors import LeaseholdError, UnknownLease, is_definite
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, CALL, CALL_MAX_S, Session
from leasehold.rpc.backoff import Backoff

SESSION_TTL_S: Final = 10.0
"""The term of a session, unless told otherwise."""

BEGIN: Final = 0.5
"""How much of a term may pass until the session's key is there; then it is ended again."""

SESSION_TTL_MIN_S: Final = 0.1
"""The shortest: it is renewed three times in that time, over a network."""

LOOKS: Final = 10
"""How often, during a term, is looked for what is idle at most."""

LOOK_MIN_S: Final = 0.01


class Tenant(Protocol):
    """Something that is cached under the session, in use or idle."""

    def idle_at(self) -> float:
        """When it may have been idle for long enough, at the earliest."""
        ...

    def seize(self) -> bool:
        """Answer nobody from now on; False if it is in use, after all."""
        ...

    def drop(self) -> None:
        """Be forgotten, seized: its key goes with the session."""
        ...

    def give_up(self) -> None:
        """Delete its key, seized."""
        ...


class Sessions:
    """Has one live session at a time."""

    def __init__(self, engine: Engine, keeper: Keeper, ttl_s: float, who: str) -> None:
        self.engine = engine
        self.keeper = keeper
        self.ttl_s = ttl_s
        self.who = who
        self.tenants: dict[Tenant, None] = {}
        """What is cached, in use or idle."""
        self.on_renewed: Callable[[], object] | None = None
        self.on_jeopardy: Callable[[BaseException | None], object] | None = None
        self.on_lost: Callable[[BaseException | None], object] | None = None
        """Told of the session, for those who keep a log."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._current: Session | None = None
        self._making: asyncio.Task[Session] | None = None
        self._before: dict[int, None] = {}
        """Leases of sessions that are lost, or were ended, and may not be over."""
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def now(self) -> float:
        """What the clock of holders says."""
        return self.keeper.clock.boottime()

    def owns(self, lease: int) -> bool:
        """Return whether a lease is that of the current session."""
        return self._current is not None and self._current.lease.id == lease

    async def live(self) -> Session:
        """Give the live session; make one if there is none."""
        while True:
            self.keeper.check()
            if self._current is not None and self._current.is_live:
                return self._current
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make())
                self._making.add_done_callback(self._made)
            await asyncio.shield(self._making)

    def _made(self, task: "asyncio.Task[Session]") -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # whoever waits is told; there may be nobody

    async def _make(self) -> Session:
        if self._current is not None:  # its end has come, and may not have been noticed yet
            self.give_up(self._current, None)
        limit_s = min(CALL_MAX_S, self.ttl_s * CALL)
        for former in list(self._before):
            async with time_limit(limit_s, self.engine):
                await self._end_former(former)
        self._loop = asyncio.get_running_loop()
        session = Session(self, self.engine, self.who.encode())
        async with time_limit(limit_s, self.engine):
            lease = await self.keeper.grant(
                self.ttl_s,
                on_jeopardy=self._in_jeopardy,
                on_loss=lambda _lease, error: self._lost(session, error),
                on_renewed=self._renewed,
            )
        try:
            await self._begin(session, lease)
        except BaseException:
            await asyncio.shield(self.keeper.end(lease))
            raise
        session.used_at = self.now
        self._current = session
        self.may_be_idle()
        return session

    async def _begin(self, session: Session, lease: HeldLease) -> None:
        """Put the session's key there, as often as it takes, but not for longer than a while."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.ttl_s * BEGIN
        backoff = Backoff(self.keeper.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while True:
            try:
                await session.begin(lease)
            except (LeaseholdError, OSError) as error:
                pause_s = backoff.next_s()
                is_late = loop.time() + pause_s >= give_up_at
                if is_definite(error) or is_late or not lease.is_held:
                    raise
            else:
                return
            await asyncio.sleep(pause_s)

    async def _end_former(self, lease: int) -> None:
        with suppress(UnknownLease):
            await self.engine.revoke(lease)
        self._before.pop(lease, None)

    # How it ends.

    def give_up(self, session: Session, error: BaseException | None) -> None:
        """Learn that a session is of no use any more, though its lease may be there."""
        self._before[session.lease.id] = None
        if session is self._current:
            self._current = None
        self.keeper.give_up(session.lease, error)

    def found_over(self, session: Session) -> None:
        """Learn, in any thread, that a session was found to be over."""
        if self._loop is not None and not session.lease.lost:
            with suppress(RuntimeError):  # the loop is over, and so is everything
                self._loop.call_soon_threadsafe(self._give_up_if_not_lost, session)

    def _give_up_if_not_lost(self, session: Session) -> None:
        if not session.lease.lost and not session.lease.is_ended:
            self.give_up(session, None)

    def _lost(self, session: Session, error: BaseException | None) -> None:
        if session is self._current:
            self._current = None
        if not isinstance(error, UnknownLease):
            self._before[session.lease.id] = None
        if self.on_lost is not None:
            self.on_lost(error)
        session.lost(error)

    def _in_jeopardy(self, _lease: HeldLease, error: BaseException | None) -> None:
        if self.on_jeopardy is not None:
            self.on_jeopardy(error)

    def _renewed(self) -> None:
        if self.on_renewed is not None:
            self.on_renewed()

    # Idleness.

    def may_be_idle(self) -> None:
        """See that somebody looks for what is idle."""
        if self._timer is None and self._current is not None:
            self._look_in(self.ttl_s)

    def look_by(self, seconds: float) -> None:
        """See that somebody looks for what is idle within this time."""
        if self._current is None:
            return
        if self._timer is not None:
            if self._timer.when() <= asyncio.get_running_loop().time() + seconds:
                return
            self._timer.cancel()
        self._look_in(seconds)

    def _look_in(self, seconds: float) -> None:
        wait_s = max(min(seconds, self.ttl_s), self.ttl_s / LOOKS, LOOK_MIN_S)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Let go what was idle for long enough; the session itself if that is all there is."""
        self._timer = None
        session, now = self._current, self.now
        if session is None or not session.is_live:
            return
        idle_at = {tenant: tenant.idle_at() for tenant in self.tenants}
        over = [tenant for tenant, at in idle_at.items() if at <= now]
        next_s = [at - now for at in idle_at.values() if at > now]
        if not session.users:
            left_s = session.used_at + self.ttl_s - now
            if left_s <= 0.0 and not next_s and self._end(session):
                return
            if left_s > 0.0:
                next_s.append(left_s)
        for tenant in over:
            if tenant.seize():
                tenant.give_up()
        self._look_in(min(next_s, default=self.ttl_s))

    def _end(self, session: Session) -> bool:
        """End a session that nobody needs, and what is cached under it; False if it is needed."""
        seized = [tenant for tenant in self.tenants if tenant.seize()]
        if len(seized) != len(self.tenants):  # a thread was faster
            for tenant in seized:
                tenant.give_up()
            return False
        self._current = None
        for tenant in seized:
            tenant.drop()
        self._before[session.lease.id] = None
        task = asyncio.get_running_loop().create_task(self._end_idle(session.lease))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return True

    async def _end_idle(self, lease: HeldLease) -> None:
        if await self.keeper.end(lease):
            self._before.pop(lease.id, None)

    def close(self) -> None:
        """Look no more; the keeper ends the lease."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._making is not None:
            self._making.cancel()
