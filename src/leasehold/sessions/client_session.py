"""The session of a client: created when it is needed, ended when it is not.

One session, so one lease and one renewal, covers all that a client holds by recipes, whatever the
number. It is renewed while anything of it is in use, and for a term after that, or as long as
something is cached under it; then it is ended.

A lost session is over for its client, but perhaps not for the server, which may have stalled. Its
locks would block all clients, its owner included. So it is revoked, and the answer received, before
another session is created.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from leasehold.basics.backoff import Backoff
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.errors import LeaseholdError, UnknownLease, is_definite
from leasehold.sessions.kept_lease import KeptLease
from leasehold.sessions.lease_keeper import Keeper
from leasehold.sessions.session import CALL, CALL_MAX_S, RETRIES, Session

SESSION_TTL_S: Final = 10.0
"""The default TTL of a session."""

BEGIN: Final = 0.5
"""The part of a term within which the session's key must be put; otherwise the session is ended."""

SESSION_TTL_MIN_S: Final = 0.1
"""The shortest TTL: the session is renewed three times in that time, over a network."""

LOOKS: Final = 10
"""The maximum number of checks for idle entries during a term."""

LOOK_MIN_S: Final = 0.01


class CachedEntry(Protocol):
    """An entry that is cached under the session, in use or idle.

    A lock is one (`leasehold.locks.client_lock`): sessions do not depend on locks.
    """

    def idle_at(self) -> float:
        """Return the earliest time at which it may have been idle for long enough."""
        ...

    def seize(self) -> bool:
        """Stop serving from the cache; return False if it is in use."""
        ...

    @property
    def must_be_deleted(self) -> bool:
        """Whether the entry has to be given up before the session ends, not dropped with it."""
        ...

    def drop(self) -> None:
        """Drop the seized entry: its key is deleted with the session."""
        ...

    def give_up(self) -> None:
        """Delete the key of the seized entry."""
        ...


class Sessions:
    """Manages the session of a client: there is one live session at a time."""

    def __init__(self, engine: Engine, keeper: Keeper, ttl_s: float, who: str) -> None:
        self.engine = engine
        self.keeper = keeper
        self.ttl_s = ttl_s
        self.who = who
        self.cached: dict[CachedEntry, None] = {}
        """The cached entries, in use or idle."""
        self.on_renewed: Callable[[], object] | None = None
        self.on_jeopardy: Callable[[BaseException | None], object] | None = None
        self.on_lost: Callable[[BaseException | None], object] | None = None
        """Called with events of the session, for the log."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._current: Session | None = None
        self._making: asyncio.Task[Session] | None = None
        self._before: dict[int, None] = {}
        """Leases of sessions that are lost, or were ended, and may not be over."""
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def now(self) -> float:
        """Return the time of the clock used by holders."""
        return self.keeper.clock.boottime()

    def owns(self, lease: int) -> bool:
        """Return whether a lease is that of the current session."""
        return self._current is not None and self._current.lease.id == lease

    async def live(self) -> Session:
        """Return the live session; create one if there is none."""
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
            task.exception()  # the waiting callers get it; there may be none

    async def _make(self) -> Session:
        if self._current is not None:  # its end has passed, and may not have been handled yet
            self.give_up(self._current, None)
        limit_s = min(CALL_MAX_S, self.ttl_s * CALL)
        for former in list(self._before):
            async with time_limit(limit_s, self.engine):
                await self._end_former(former)
        self._loop = asyncio.get_running_loop()
        session = Session(
            self.engine,
            self.keeper.clock,
            self.keeper.random,
            self.who.encode(),
            give_up=self.give_up,
            found_over=self.found_over,
            on_unused=self.may_be_idle,
        )
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

    async def _begin(self, session: Session, lease: KeptLease) -> None:
        """Put the session's key, with retries, for a limited time."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.ttl_s * BEGIN
        backoff = Backoff(RETRIES, self.keeper.random)
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

    # Ending.

    def give_up(self, session: Session, error: BaseException | None) -> None:
        """Give up a session that is not usable any more, though its lease may exist."""
        self._before[session.lease.id] = None
        if session is self._current:
            self._current = None
        self.keeper.give_up(session.lease, error)

    def found_over(self, session: Session) -> None:
        """Mark a session as over. Thread-safe."""
        if self._loop is not None and not session.lease.lost:
            with suppress(RuntimeError):  # the loop is closed, so nothing is left to do
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

    def _in_jeopardy(self, _lease: KeptLease, error: BaseException | None) -> None:
        if self.on_jeopardy is not None:
            self.on_jeopardy(error)

    def _renewed(self) -> None:
        if self.on_renewed is not None:
            self.on_renewed()

    # Idleness.

    def may_be_idle(self) -> None:
        """Schedule a check for idle entries."""
        if self._timer is None and self._current is not None:
            self._look_in(self.ttl_s)

    def check_idle_within(self, seconds: float) -> None:
        """Schedule a check for idle entries within this time."""
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
        """Give up entries that were idle for long enough; if there are no others, the session."""
        self._timer = None
        session, now = self._current, self.now
        if session is None or not session.is_live:
            return
        idle_at = {entry: entry.idle_at() for entry in self.cached}
        over = [entry for entry, at in idle_at.items() if at <= now]
        next_s = [at - now for at in idle_at.values() if at > now]
        if not session.users:
            left_s = session.used_at + self.ttl_s - now
            if left_s <= 0.0 and not next_s and self._end(session):
                return
            if left_s > 0.0:
                next_s.append(left_s)
        for entry in over:
            if entry.seize():
                entry.give_up()
        # Without users, entries are being given up before the session can end.
        self._look_in(min(next_s, default=self.ttl_s if session.users else 0.0))

    def _end(self, session: Session) -> bool:
        """End an unused session, with its cached entries; return False if that is too early."""
        seized = [entry for entry in self.cached if entry.seize()]
        is_any_in_use = len(seized) != len(self.cached)  # another thread has taken one
        if is_any_in_use or any(entry.must_be_deleted for entry in seized):
            for entry in seized:
                entry.give_up()
            return False
        self._current = None
        for entry in seized:
            entry.drop()
        self._before[session.lease.id] = None
        task = asyncio.get_running_loop().create_task(self._end_idle(session.lease))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return True

    async def _end_idle(self, lease: KeptLease) -> None:
        if await self.keeper.end(lease):
            self._before.pop(lease.id, None)

    def close(self) -> None:
        """Stop the checks; the keeper ends the lease."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._making is not None:
            self._making.cancel()
