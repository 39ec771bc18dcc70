"""`HeldLease`: the object that the holder of a lease has.

The client's keeper renews the lease, for as long as that is wanted, and refers to a `KeptLease`
only. The holder's object can be garbage-collected: `leasehold.basics.forgotten` describes what
happens then. It has no state of its own: all of it is in the `KeptLease`.

At the end of the block, or by `end`, the lease is revoked at the engine, and its keys are deleted
with it. If the engine cannot be reached they expire when the term is over.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import Self, TypeAlias
from weakref import ref

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import (
    ANY,
    NEVER,
    Duration,
    DurationLike,
    Requested,
    check_requested,
    check_seconds,
    seconds_of,
)
from leasehold.basics.event_loop import post
from leasehold.basics.forgotten import warn_forgotten
from leasehold.basics.lease_ids import shown_lease
from leasehold.engine.arguments import lease_id
from leasehold.engine.time_limits import Timeout
from leasehold.errors import LeaseholdError, LeaseLost
from leasehold.leases.holder_view import Send
from leasehold.leases.lease import Lease, Outcome
from leasehold.sessions.kept_lease import KeptCallback, KeptLease, Signal
from leasehold.sessions.lease_keeper import END_S, Keeper

Callback: TypeAlias = Callable[["HeldLease", BaseException | None], object]
"""Called with a lease, and with the error of its last renewal."""


class HeldLease(Lease):
    """A lease of an engine, kept alive until it is ended or lost."""

    __slots__ = ("_is_reported", "_keeper", "id", "jeopardy", "kept", "lost")

    def __init__(self, keeper: Keeper, kept: KeptLease, *, is_reported: bool = True) -> None:
        """Make the object for a holder; it is reported if it is forgotten."""
        # Not by `super`: the term and the requests for it are those of the kept lease.
        self._is_reported = is_reported
        self._keeper = keeper
        self._clock = keeper.clock
        self._holding = kept.holding
        self.kept = kept
        self.id = kept.id
        """Its id at the engine."""
        self.lost: Signal = kept.lost
        """Set once it is lost; not when it is ended."""
        self.jeopardy: Signal = kept.jeopardy
        """Set while there is no contact to the server, and it may yet be lost; and once it is."""
        kept.handle = ref(self)

    @property
    def is_held(self) -> bool:
        """Whether it is held now."""
        return self.kept.is_held

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        return self.kept.is_ended

    @property
    def remaining(self) -> Duration:
        """How long it is still held unless it is renewed; 0.0 once it is not held."""
        return self.kept.remaining

    def check(self) -> None:
        """Raise `LeaseLost` unless it is held now, by the clock of this process.

        After the client was closed the cause of that error is `Closed`, in a child process
        `Forked`, and in another keyspace `HistoryLost`.
        """
        try:
            self._keeper.check()
        except LeaseholdError as error:
            raise LeaseLost(self.id, str(error)) from error
        if not self.is_held:
            raise self.as_lost()

    def loss(self) -> LeaseLost | None:
        """Return why it is not held; None while it is."""
        return None if self.is_held else self.as_lost()

    def as_lost(self) -> LeaseLost:
        """Return the error for a caller that relies on it after its end."""
        return self.kept.as_lost()

    async def renew(
        self,
        duration: DurationLike = ANY,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Duration:
        """Renew it now, for a full term whatever is requested; 0 revokes it.

        Calling this is optional: leases are renewed automatically. Raises `TimeoutError` if there
        is no answer within `timeout`, and `LeaseLost` if there is none while it is held: it is lost
        then.
        """
        if check_requested(duration) == 0.0:
            await self.end()
            return 0.0
        if self.is_ended or self.lost:
            raise self.as_lost()
        left_s = seconds_of(self.remaining)
        if timeout is not None:
            left_s = min(left_s, check_seconds(timeout, "timeout"))
        limit = asyncio.timeout(None if left_s == NEVER else left_s)
        try:
            async with limit:
                granted = await self.kept.renew()
        except TimeoutError as error:
            self.check()
            if limit.expired():
                raise TimeoutError(f"no answer within {left_s:g} s") from error
            raise
        self.check()
        return granted

    async def end(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """Revoke it now, and its keys with it; does nothing if it is over.

        If there is no answer within `timeout`, by default two seconds, retries continue in the
        background.
        """
        wait_s = END_S if timeout is None else check_seconds(timeout, "timeout")
        await self._keeper.end(self.kept, wait_s)

    async def cancel(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """The same as `end`."""
        await self.end(timeout=timeout)

    def release(self) -> None:
        """Stop keeping it without revoking it: another holder may continue, or it expires."""
        self._keeper.release(self.kept)

    def detach(self) -> int:
        """Leave it to the client, which renews it until it is closed; return the lease id.

        This object may be dropped without a warning then. It works as before: `end`, `release` and
        the end of a block have the same effect.
        """
        self._is_reported = False
        return self.id

    async def __aenter__(self) -> Self:
        self.check()
        if self.kept.cancel_scope is not None:
            self.kept.cancel_scope.enter()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope, loss = self.kept.cancel_scope, self.as_lost()
        is_over = not self.is_ended and not self.is_held
        was_too_fast = scope is not None and is_over and not scope.is_cancelled
        is_cancelled = scope is not None and scope.leave()
        await self.end()
        if is_cancelled and exc_type is asyncio.CancelledError:
            raise loss from self.kept.why_lost
        if was_too_fast and exc_type is None:  # to be cancelled
            raise loss from self.kept.why_lost

    def __del__(self) -> None:
        kept = self.kept
        if self._is_reported and not kept.is_ended and not kept.lost:
            keeper = self._keeper
            if keeper.engine.is_open:
                post(keeper.owner.loop, _report, kept)

    # As a lease: batches and renewal managers accept it, too.

    @property
    def grantor(self) -> Hashable:
        """Its keyspace."""
        return self.kept.grantor

    @property
    def cookie(self) -> Hashable:
        """Its id."""
        return self.kept.cookie

    @property
    def batch_key(self) -> Hashable:
        """Equal for leases that one call can renew together."""
        return self.kept.batch_key

    @property
    def call_limit_key(self) -> Hashable:
        """Equal for leases that share a limit of concurrent calls."""
        return self.kept.call_limit_key

    @property
    def lasts_until(self) -> float:
        """Its end as relied on."""
        return self.kept.lasts_until

    async def ask_renew(self, requested: Requested) -> Duration:
        """Request a new full term from the engine."""
        return await self.kept.ask_renew(requested)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        """Request new full terms for any number of leases."""
        kept = [
            (lease.kept if isinstance(lease, HeldLease) else lease, requested)
            for lease, requested in wants
        ]
        return await self.kept.ask_renew_all(kept)

    async def ask_cancel(self) -> None:
        """Revoke it at the engine."""
        await self.kept.ask_cancel()

    def send(self, requested: Requested) -> Send:
        """Record that a term is being requested now."""
        return self.kept.send(requested)

    def settle(self, send: Send, outcome: Outcome) -> None:
        """Record the outcome of a `send`."""
        self.kept.settle(send, outcome)

    def watch(self, watcher: Callable[[Lease], object]) -> None:
        """Call `watcher(lease)` whenever the end has moved to an earlier time."""
        self.kept.watch(watcher)

    def unwatch(self, watcher: Callable[[Lease], object]) -> None:
        """Undo one `watch`."""
        self.kept.unwatch(watcher)


def _report(lease: KeptLease) -> None:
    """Report a lease whose handle was garbage-collected; it is renewed as before."""
    if not lease.is_ended and not lease.lost:
        text = f"lease {shown_lease(lease.id)} was garbage-collected without being ended"
        warn_forgotten(f"{text} or released", "it is renewed until its client is closed")


def callback_of(keeper: Keeper, callback: Callback | None, name: str) -> KeptCallback | None:
    """Return a holder's callback for the keeper; it gets the object that the holder has.

    If the holder has forgotten that, the callback gets another one for the same lease. `name` is
    that of the parameter. Raises `TypeError` if it cannot be called, or is a coroutine function.
    """
    check_plain_callback(callback, name)
    if callback is None:
        return None

    def call(kept: KeptLease, error: BaseException | None) -> None:
        callback(kept.handle() or HeldLease(keeper, kept, is_reported=False), error)

    return call


def number_of(lease: HeldLease | int) -> int:
    """Return the id of a lease, lost or not."""
    if lease is None:
        raise TypeError("lease must be a lease or a lease id, not None")
    return lease.id if isinstance(lease, HeldLease) else lease_id(lease)
