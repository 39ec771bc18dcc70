"""`Client`: what a program uses every day, on any engine."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from leasehold.callbacks import check_callable, check_plain_callback
from leasehold.client.health import Check
from leasehold.client.held_lease import Callback, HeldLease
from leasehold.client.keeper import Keeper
from leasehold.client.kv import KV
from leasehold.client.lease_like import lease_id
from leasehold.client.patience import TIMEOUT_S, Patience, Timeout
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import FOREVER, Forever, check_seconds
from leasehold.engine.interface import Engine
from leasehold.engine.values import LeaseInfo
from leasehold.pending import Pending
from leasehold.recipes.permits import Permits


class Client:
    """Leases, keys and watches. Made by `leasehold.connect` and `leasehold.open`.

    It belongs to the event loop and the process that made it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        timeout: float | timedelta = TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make one on an engine, which it closes in the end. `timeout` is for each call."""
        self.engine = engine
        self._patience = Patience(engine, timeout)
        self._keeper = Keeper(engine, clock)
        self._closing: asyncio.Future[None] | None = None
        self.kv = KV(engine, self._patience)
        """Keys and values."""
        self.permits = Permits(engine, self._keeper, self._patience)
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
        return Pending(lambda: self._patience.wait(grant(), timeout))

    def keep(
        self,
        lease: int,
        *,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        timeout: Timeout = None,
    ) -> Pending[HeldLease]:
        """Keep a lease alive that is there already, such as one that a script has begun.

        It is renewed now, and from then on like one of `lease`, which says what else there is; it
        is ended with the block, unless `release` was called. `UnknownLease` if it is not there.
        """
        check_plain_callback(on_jeopardy, "on_jeopardy")
        check_plain_callback(on_loss, "on_loss")
        number = _number_of(lease)
        adopt = partial(self._keeper.adopt, number, on_jeopardy=on_jeopardy, on_loss=on_loss)
        return Pending(lambda: self._patience.wait(adopt(), timeout))

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

    async def close(self) -> None:
        """End all leases of this client, then let the engine go.

        It goes on if the caller gives up; whoever calls it again waits for the same end.
        """
        if self._keeper.is_forked:
            return  # all of it is the parent's
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
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


def _number_of(lease: HeldLease | int) -> int:
    """Give the number of a lease, lost or not."""
    if lease is None:
        raise TypeError("lease must be a lease, or its id; not None")
    return lease.id if isinstance(lease, HeldLease) else lease_id(lease)
