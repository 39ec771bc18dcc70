"""`Client` for blocking code."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from leasehold.callbacks import check_plain_callback
from leasehold.client import client as on_loop
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.core.duration import FOREVER, Forever
from leasehold.engine.values import LeaseInfo
from leasehold.recipes.events import Listener
from leasehold.recipes.options import RECALL_S
from leasehold.sync.barrier import Barrier
from leasehold.sync.election import Election
from leasehold.sync.guard import OnLoss, tell_twin
from leasehold.sync.health import Check, run_aside
from leasehold.sync.held_lease import Callback, HeldLease, on_loop_of
from leasehold.sync.kv import KV
from leasehold.sync.lock import Lock
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.permits import Permits
from leasehold.sync.rwlock import RWLock
from leasehold.sync.semaphore import Semaphore


class Client:
    """Leases, keys and watches. Made by `leasehold.sync.connect` and `leasehold.sync.open`.

    Any number of threads may use it at the same time. It belongs to the process that made it.
    """

    def __init__(self, thread: LoopThread, client: on_loop.Client) -> None:
        self._thread = thread
        self._client = client
        self.kv = KV(thread, client.kv)
        """Keys and values."""
        self.permits = Permits(thread, client.permits)
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
    ) -> HeldLease:
        """Get a lease that lives while you do: to be ended, or entered with `with`.

            with client.lease(10) as lease:
                client.kv.put("workers/7", "here", lease=lease)
                ...

        It is renewed by itself, and ended with the block, its keys with it. `renew_for` bounds how
        long; `while_healthy` is a check that must give True for each renewal. `on_jeopardy(lease,
        error)` and `on_loss(lease, error)` are told. All three run in threads of their own, and
        may block: renewals of other leases do not wait for them.

        With `cancel_on_loss` the call of this package that the block waits for raises `LeaseLost`
        if the lease is lost, or else its next one, or its end.
        """
        check_plain_callback(while_healthy, "while_healthy")
        check_plain_callback(on_jeopardy, "on_jeopardy")
        check_plain_callback(on_loss, "on_loss")
        self._thread.check()
        lease = HeldLease(self._thread, on_jeopardy, on_loss, cancel_on_loss=cancel_on_loss)
        pending = self._client.lease(
            ttl,
            renew_for=renew_for,
            while_healthy=run_aside(while_healthy),
            on_jeopardy=lease.in_jeopardy,
            on_loss=lease.was_lost,
            timeout=timeout,
        )
        return self._thread.run(lambda: lease.begin(pending), undo=_end)

    def keep(
        self,
        lease: int,
        *,
        on_jeopardy: Callback | None = None,
        on_loss: Callback | None = None,
        timeout: Timeout = None,
    ) -> HeldLease:
        """Keep an existing lease alive, such as one that a script or a permit's grant has begun.

        It is renewed now, and from then on like one of `lease`, and revoked at the end of the block
        unless `release` was called. Permits that were granted with a TTL are extended with their
        lease. `UnknownLease` if the lease does not exist, or is that of a permit which has ended.
        """
        check_plain_callback(on_jeopardy, "on_jeopardy")
        check_plain_callback(on_loss, "on_loss")
        self._thread.check()
        kept = HeldLease(self._thread, on_jeopardy, on_loss, cancel_on_loss=False)
        pending = self._client.keep(
            lease, on_jeopardy=kept.in_jeopardy, on_loss=kept.was_lost, timeout=timeout
        )
        return self._thread.run(lambda: kept.begin(pending), undo=_release)

    def revoke(self, lease: HeldLease | int, *, timeout: Timeout = None) -> None:
        """End any lease, and its keys with it. `UnknownLease` if it is not there."""
        self._thread.run(lambda: self._client.revoke(on_loop_of(lease), timeout=timeout))

    def lease_info(
        self, lease: HeldLease | int, *, keys: bool = False, timeout: Timeout = None
    ) -> LeaseInfo:
        """Ask how long a lease has to run, and which keys it has. `UnknownLease` if it is over."""
        return self._thread.run(
            lambda: self._client.lease_info(on_loop_of(lease), keys=keys, timeout=timeout)
        )

    def leases(self, *, timeout: Timeout = None) -> Sequence[LeaseInfo]:
        """List all leases, those first that end first."""
        return self._thread.run(lambda: self._client.leases(timeout=timeout))

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
        """Give a handle of a lock: to be entered with `with`, or acquired.

            with client.lock("cron/backup") as guard:
                ...
                guard.check()

        It waits for as long as it takes, or for `timeout` seconds; 0 only asks. `LockDenied` names
        the holder. A lock that is released is kept in the cache for `idle_timeout` (a session's
        term) and given up when somebody else wants it, unless `cache` or `recall` say otherwise.
        `recall_timeout` is how long who only asks waits for a holder that says nothing.

        `on_loss(guard, error)` is told if it is lost, in a thread of its own. With `cancel_on_loss`
        the call of this package that the block waits for raises `LockLost` then, or else its next
        one, or its end. With `reentrant` this handle may be acquired again while it is held.
        """
        check_plain_callback(on_loss, "on_loss")
        self._thread.check_process()
        lock = self._client.lock(
            name,
            timeout=timeout,
            cache=cache,
            recall=recall,
            idle_timeout=idle_timeout,
            recall_timeout=recall_timeout,
            reentrant=reentrant,
            on_loss=tell_twin,
        )
        return Lock(self._thread, lock, on_loss, cancel_on_loss=cancel_on_loss)

    def rwlock(self, name: Octets) -> RWLock:
        """Give a handle of a lock that many may have to read, or one to write.

            with client.rwlock("config").read() as guard:
                ...

        First come, first served: a reader behind a writer that waits, waits too.
        """
        self._thread.check_process()
        return RWLock(self._thread, self._client.rwlock(name))

    def semaphore(
        self,
        name: Octets,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Semaphore:
        """Give a handle of something that `limit` may have at a time, first come, first served.

            with client.semaphore("downloads", limit=3) as guard:
                ...

        All must agree on the limit: `ValueError` names another one that is in use. It waits for as
        long as it takes, or for `timeout` seconds; 0 only asks; `LockDenied` then.
        `on_loss(guard, error)` is told if it is lost, in a thread of its own; with `cancel_on_loss`
        the call of this package that the block waits for raises `LockLost` then, or else its next
        one, or its end.
        """
        check_plain_callback(on_loss, "on_loss")
        self._thread.check_process()
        semaphore = self._client.semaphore(name, limit, timeout=timeout, on_loss=tell_twin)
        return Semaphore(self._thread, semaphore, on_loss, cancel_on_loss=cancel_on_loss)

    def barrier(self, name: Octets, parties: int) -> Barrier:
        """Give a handle of a barrier, at which all wait until there are so many.

        client.barrier("start", parties=3).wait()
        """
        self._thread.check_process()
        return Barrier(self._thread, self._client.barrier(name, parties))

    def election(self, name: Octets) -> Election:
        """Give a handle of an election of one leader; etcd's, so others may take part.

        with client.election("scheduler").campaign("host-1") as leadership:
            ...
        """
        self._thread.check_process()
        return Election(self._thread, self._client.election(name))

    def count_acquisitions(self, *names: Octets) -> dict[str, int]:
        """Collect from all holders how often locks were acquired, since somebody has had them.

        The count goes along when a lock is handed over, and ends when nobody has it any more.
        """
        return self._thread.run(lambda: self._client.count_acquisitions(*names))

    def on_lock_event(self, listener: Listener) -> Callable[[], None]:
        """Have `listener(event)` told what happens to locks; what is returned ends that."""
        return self._client.on_lock_event(listener)

    def close(self) -> None:
        """End all leases of this client, then let the engine go. Nothing in a forked child."""
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._close)

    async def _close(self) -> None:
        try:
            await self._client.close()
        finally:
            self._thread.clients.discard(self._client)

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _end(lease: HeldLease) -> None:
    await lease.held.end()


async def _release(lease: HeldLease) -> None:
    lease.held.release()  # it was there before
