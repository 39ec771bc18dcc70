"""`RenewalManager` for blocking code: the loop's thread renews the leases of this process."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Self, TypeAlias, TypeVar

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import FOREVER, DurationLike, End, Forever
from leasehold.leases import renewal_manager as on_loop
from leasehold.leases.renewal_plan import NoticeKind
from leasehold.sync.landlord import Lease
from leasehold.sync.loop_thread import SerialExecutor, loop_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RenewalNotice:
    """Why a lease is no longer managed; sent once, after it left.

    `expired`: its desired end came, and there is no error. `failed`: it could not be kept alive;
    `error` is that of the last attempt, or None if there was none since the last success.
    """

    manager: "RenewalManager"
    lease: Lease
    kind: NoticeKind
    desired_end: End
    error: BaseException | None


Listener: TypeAlias = Callable[[RenewalNotice], object]


class RenewalManager:
    """Renews a set of leases, each until its own desired end. Thread-safe.

    Listeners are called one at a time and in order, in a thread that is not the loop's: they may
    block, and call the manager.
    """

    def __init__(
        self,
        leases: Mapping[Lease, End] | None = None,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
        *,
        rtt: float | timedelta = 1.0,
        batch_window: float | timedelta = 300.0,
    ) -> None:
        """Manage `leases`, a mapping of leases to their desired ends; by default none.

        `renew_duration` and `listener` are for these leases, as in `renew_until`. `rtt` is the time
        to allow for a renewal's round trip. A lease that is due is renewed together with those of
        the same landlord that will be due within `batch_window`.
        """
        if not isinstance(leases, Mapping | None):
            raise TypeError(f"leases must be a mapping of leases to desired ends, not {leases!r}")
        self._thread = loop_thread()
        self._listeners = SerialExecutor(self._thread.callbacks)
        self._manager = self._run(
            lambda: on_loop.RenewalManager(rtt=rtt, batch_window=batch_window)
        )
        try:
            for lease, desired_end in (leases or {}).items():
                self.renew_until(lease, desired_end, renew_duration, listener)
        except BaseException:
            self.close()
            raise

    def _run(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._thread.run(run)

    def __len__(self) -> int:
        return len(self._manager)

    def __contains__(self, lease: object) -> bool:
        return isinstance(lease, Lease) and self._run(lambda: lease.on_loop in self._manager)

    def __repr__(self) -> str:
        return f"<RenewalManager of {len(self)} leases>"

    def leases(self) -> list[Lease]:
        """Return all leases that are managed now."""
        return [Lease(lease, self._thread) for lease in self._run(self._manager.leases)]

    def renew_until(
        self,
        lease: Lease,
        desired_end: End,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
    ) -> None:
        """Keep `lease` alive until `desired_end`, requesting `renew_duration` at a time.

        Adding a lease again replaces the terms. `renew_duration` may be ANY only if the desired end
        is FOREVER. `listener` is called once, after the lease has left, unless it was removed.
        """
        managed, heard = _check_lease(lease).on_loop, self._listener(lease, listener)
        self._run(lambda: self._manager.renew_until(managed, desired_end, renew_duration, heard))

    def renew_for(
        self,
        lease: Lease,
        desired_duration: float | timedelta | Forever,
        renew_duration: DurationLike = FOREVER,
        listener: Listener | None = None,
    ) -> None:
        """Like `renew_until`, for `desired_duration` from now."""
        managed, heard = _check_lease(lease).on_loop, self._listener(lease, listener)
        self._run(lambda: self._manager.renew_for(managed, desired_duration, renew_duration, heard))

    def remove(self, lease: Lease) -> None:
        """Stop managing `lease`; it is not cancelled. `UnknownLease`: not managed."""
        managed = _check_lease(lease).on_loop
        self._run(lambda: self._manager.remove(managed))

    def cancel(self, lease: Lease) -> None:
        """Remove `lease` immediately, then cancel it. `UnknownLease`: not managed, or ended."""
        managed = _check_lease(lease).on_loop
        self._thread.run(lambda: self._manager.cancel(managed))

    def clear(self) -> None:
        """Stop managing all leases."""
        self._run(self._manager.clear)

    def expiration(self, lease: Lease) -> End:
        """Return the desired end of `lease`. `UnknownLease`: not managed."""
        managed = _check_lease(lease).on_loop
        return self._run(lambda: self._manager.expiration(managed))

    def set_expiration(self, lease: Lease, desired_end: End) -> None:
        """Change the desired end of `lease`. `UnknownLease`: not managed."""
        managed = _check_lease(lease).on_loop
        self._run(lambda: self._manager.set_expiration(managed, desired_end))

    def close(self) -> None:
        """Stop managing all leases, and abort the renewals under way.

        Does nothing in a forked child.
        """
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._manager.__aexit__)

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # Notices.

    def _listener(self, lease: Lease, listener: Listener | None) -> on_loop.Listener | None:
        """Return a listener for the loop: it queues the call of the one given."""
        check_plain_callback(listener, "listener")
        if listener is None:
            return None

        def queue(notice: on_loop.RenewalNotice) -> None:
            ours = RenewalNotice(self, lease, notice.kind, notice.desired_end, notice.error)
            self._listeners.submit(partial(self._notify, listener, ours))

        return queue

    def _notify(self, listener: Listener, notice: RenewalNotice) -> None:
        try:
            listener(notice)
        except BaseException:
            if not self._thread.is_ending:  # else this thread is ending as well
                logger.exception("the listener for %r failed", notice.lease)


def _check_lease(lease: Lease) -> Lease:
    if not isinstance(lease, Lease):
        raise TypeError(f"lease must be a leasehold.sync.Lease, not {lease!r}")
    return lease
