"""`Client`: what a program uses every day, on any engine."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from leasehold.callbacks import check_callable, check_plain_callback
from leasehold.client.health import Check
from leasehold.client.held_lease import Callback, HeldLease
from leasehold.client.keeper import Keeper
from leasehold.client.kv import KV
from leasehold.client.lease_like import lease_id
from leasehold.client.patience import TIMEOUT_S, Patience, Timeout
from leasehold.client.texts import Octets
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import FOREVER, Forever, check_seconds
from leasehold.engine.interface import Engine
from leasehold.engine.values import LeaseInfo
from leasehold.pending import Pending
from leasehold.recipes.barrier import Barrier
from leasehold.recipes.election import Election
from leasehold.recipes.events import Listener
from leasehold.recipes.line_guard import OnLoss as OnLineLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.lock import Lock, options_of
from leasehold.recipes.locks import Locks, check_who, this_process
from leasehold.recipes.naming import name_of
from leasehold.recipes.options import RECALL_S, OnLoss, check_wait
from leasehold.recipes.permits import Permits
from leasehold.recipes.permits.extending import extension_of
from leasehold.recipes.rwlock import RWLock
from leasehold.recipes.semaphore import Semaphore
from leasehold.recipes.sessions import SESSION_TTL_MIN_S, SESSION_TTL_S, Sessions


class Client:
    """Leases, keys and watches. Made by `leasehold.connect` and `leasehold.open`.

    It belongs to the event loop and the process that made it. Calls from another event loop raise
    `RuntimeError`, calls in a child process raise `Forked`; neither has any other effect.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        timeout: float | timedelta = TIMEOUT_S,
        session_ttl: float | timedelta = SESSION_TTL_S,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        """Make one on an engine, which it closes in the end.

        `timeout` is for each call; `session_ttl` is the term of the one lease that all its locks
        are under, and `name` what it is called as their holder. `random` draws lease ids and the
        pauses between attempts; a simulation passes one with a seed.
        """
        self.engine = engine
        self._patience = Patience(engine, timeout)
        self._keeper = Keeper(engine, clock, random)
        session_ttl_s, who = check_client(session_ttl, name)
        self._sessions = Sessions(engine, self._keeper, session_ttl_s, who)
        self._locks = Locks(engine, self._sessions, self._patience)
        self._lines = Lines(self._locks)
        self._closing: asyncio.Future[None] | None = None
        self.kv = KV(engine, self._patience)
        """Keys and values."""
        self.permits = Permits(engine, self._keeper, self._patience, who)
        """Who may do what, for as long as a lease lasts."""

    def lease(
        self,
        ttl: float | timedelta,
        *,
        renew_for: float | timedelta | Forever = FOREVER,
        while_healthy: Check | None = None,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        cancel_on_loss: bool = False,
        timeout: Timeout = None,
    ) -> Pending[HeldLease]:
        """Get a lease that lives while you do: to be awaited, or entered with `async with`.

            async with client.lease(10) as lease:
                await client.kv.put("workers/7", "here", lease=lease)
                ...

        It is renewed by itself, and ended with the block, its keys with it. `renew_for` bounds how
        long; `while_healthy` is a check, plain or to be awaited, that must give True for each
        renewal. `on_jeopardy(lease, error)` and `on_loss(lease, error)` are told; with
        `cancel_on_loss` the block is cancelled if the lease is lost, and raises `LeaseLost`.
        """
        ttl_s = check_seconds(ttl, "ttl")
        bound = (
            renew_for if isinstance(renew_for, Forever) else check_seconds(renew_for, "renew_for")
        )
        check_callable(while_healthy, "while_healthy")
        check_plain_callback(on_jeopardy, "on_jeopardy")
        check_plain_callback(on_loss, "on_loss")
        grant = partial(
            self._keeper.grant,
            ttl_s,
            renew_for_s=bound,
            while_healthy=while_healthy,
            on_jeopardy=on_jeopardy,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
        )
        return Pending(lambda: self._patience.wait(grant(), timeout), "client.lease()")

    def keep(
        self,
        lease: int,
        *,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        timeout: Timeout = None,
    ) -> Pending[HeldLease]:
        """Keep an existing lease alive, such as one that a script or a permit's grant has begun.

        It is renewed now, and from then on like one of `lease`, and revoked at the end of the block
        unless `release` was called. Permits that were granted with a TTL are extended with their
        lease. `UnknownLease` if the lease does not exist, or is that of a permit which has ended.
        """
        check_plain_callback(on_jeopardy, "on_jeopardy")
        check_plain_callback(on_loss, "on_loss")
        number = _number_of(lease)
        keep = partial(self._keep, number, on_jeopardy, on_loss)
        return Pending(lambda: self._patience.wait(keep(), timeout), "client.keep()")

    async def _keep(
        self, lease: int, on_jeopardy: Callback | None, on_loss: Callback | None
    ) -> HeldLease:
        self._keeper.check()
        extension = await extension_of(self.engine, self._keeper, lease)
        on_renewed = None if extension is None else extension.renewed
        held = await self._keeper.adopt(
            lease, on_jeopardy=on_jeopardy, on_loss=on_loss, on_renewed=on_renewed
        )
        if extension is not None:
            try:
                await extension.begin(held)
            except BaseException:
                held.release()
                raise
        return held

    async def revoke(self, lease: HeldLease | int, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """End any lease, and its keys with it. `UnknownLease` if it is not there."""
        if isinstance(lease, HeldLease):
            await self._patience.wait(lease.end(), timeout)
        else:
            await self._patience.wait(self.engine.revoke(_number_of(lease)), timeout)

    async def lease_info(
        self,
        lease: HeldLease | int,
        *,
        keys: bool = False,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> LeaseInfo:
        """Ask how long a lease has to run, and which keys it has. `UnknownLease` if it is over."""
        call = self.engine.time_to_live(_number_of(lease), keys=keys)
        return await self._patience.wait(call, timeout)

    async def leases(self, *, timeout: Timeout = None) -> Sequence[LeaseInfo]:  # noqa: ASYNC109
        """List all leases, those first that end first."""
        return await self._patience.wait(self.engine.leases(), timeout)

    def lock(
        self,
        name: Octets,
        *,
        timeout: Timeout = None,
        cache: bool = True,
        recall: bool = True,
        idle_timeout: float | timedelta | None = None,
        recall_timeout: float | timedelta = RECALL_S,
        reentrant: bool = False,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Lock:
        """Give a handle of a lock: to be entered with `async with`, or acquired.

            async with client.lock("cron/backup") as guard:
                ...
                guard.check()

        It waits for as long as it takes, or for `timeout` seconds; 0 only asks. `LockDenied` names
        the holder. A lock that is released is kept in the cache for `idle_timeout` (a session's
        term) and given up when somebody else wants it, unless `cache` or `recall` say otherwise.
        `recall_timeout` is how long who only asks waits for a holder that says nothing.

        `on_loss(guard, error)` is told if it is lost; with `cancel_on_loss` the block is cancelled,
        and raises `LockLost`. With `reentrant` this handle may be acquired again while it is held.
        """
        octets = name_of(name)
        options = options_of(
            self._locks,
            cache=cache,
            recall=recall,
            idle_timeout=idle_timeout,
            recall_timeout=recall_timeout,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
        )
        timeout_s = check_wait(timeout)
        return Lock(self._locks, octets, options, timeout_s=timeout_s, is_reentrant=reentrant)

    def rwlock(self, name: Octets) -> RWLock:
        """Give a handle of a lock that many may have to read, or one to write.

            async with client.rwlock("config").read() as guard:
                ...

        First come, first served: a reader behind a writer that waits, waits too.
        """
        return RWLock(self._lines, name)

    def semaphore(
        self,
        name: Octets,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLineLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Semaphore:
        """Give a handle of something that `limit` may have at a time, first come, first served.

            async with client.semaphore("downloads", limit=3) as guard:
                ...

        All must agree on the limit: `ValueError` names another one that is in use. It waits for as
        long as it takes, or for `timeout` seconds; 0 only asks; `LockDenied` then.
        `on_loss(guard, error)` is told if it is lost; with `cancel_on_loss` the block is cancelled,
        and raises `LockLost`.
        """
        return Semaphore(
            self._lines,
            name,
            limit,
            timeout=timeout,
            on_loss=on_loss,
            cancel_on_loss=cancel_on_loss,
        )

    def barrier(self, name: Octets, parties: int) -> Barrier:
        """Give a handle of a barrier, at which all wait until there are so many.

        await client.barrier("start", parties=3).wait()
        """
        return Barrier(self._lines, name, parties)

    def election(self, name: Octets) -> Election:
        """Give a handle of an election of one leader; etcd's, so others may take part.

        async with client.election("scheduler").campaign("host-1") as leadership:
            ...
        """
        return Election(self._lines, name)

    async def count_acquisitions(self, *names: Octets) -> dict[str, int]:
        """Collect from all holders how often locks were acquired, since somebody has had them.

        The count goes along when a lock is handed over, and ends when nobody has it any more.
        """
        return await self._locks.count_all([name_of(name) for name in names])

    def on_lock_event(self, listener: Listener) -> Callable[[], None]:
        """Have `listener(event)` told what happens to locks; what is returned ends that."""
        check_plain_callback(listener, "listener")
        return self._locks.log.listen(listener)

    async def close(self) -> None:
        """End all leases of this client, then let the engine go.

        It goes on if the caller gives up; whoever calls it again waits for the same end.
        """
        if self._keeper.is_forked:
            return  # all of it is the parent's
        self._patience.owner.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._lines.close()
            await self._locks.close()
            await self.permits.cache.close()
            await self._keeper.close()
        finally:
            await self.engine.close()
            self._patience.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def check_client(session_ttl: float | timedelta, name: str | None) -> tuple[float, str]:
    """Check a session's term, and what a client is to be called."""
    who = this_process() if name is None else check_who(name)
    ttl_s = check_seconds(session_ttl, "session_ttl")
    if ttl_s < SESSION_TTL_MIN_S:
        raise ValueError(
            f"session_ttl must be at least {SESSION_TTL_MIN_S:g} s, not {ttl_s:g}: it has to be "
            "renewed three times in that time"
        )
    return ttl_s, who


def _number_of(lease: HeldLease | int) -> int:
    """Give the number of a lease, lost or not."""
    if lease is None:
        raise TypeError("lease must be a lease, or its id; not None")
    return lease.id if isinstance(lease, HeldLease) else lease_id(lease)
