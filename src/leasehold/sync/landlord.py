"""`Landlord` for blocking code, which may be called in any thread.

It is not async, so it does not run on the loop's thread. A lock protects a `leasehold.Landlord`,
and a call costs little more than it does there. States and threads:

- *Expiry*. A thread ends the leases that are due. It runs while a lease can end, and keeps lease
  time: every `IDLE_TICK_S` it advances the clock, so a longer gap means that the process did not
  run. Then nothing ends until the other threads had one more tick to renew (`LeaseClock`).
- *Hooks*. They are queued while the lock is held, and called without it, one at a time and in
  order, in another thread. So a hook may block, take locks, and call the landlord.
- *Policy, cookies*. They are called with the lock held, because they are part of a grant. They may
  call the landlord in their own thread, but not `Lease.renew`, which would wait for the lock on the
  loop. Nor may a signal handler or a finalizer call the landlord: it may interrupt a change.

A forked child is refused: it has the table, but the leases are those of its parent.
"""

import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, cast

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import NEVER, Duration, DurationLike
from leasehold.basics.fork_hooks import call_in_child
from leasehold.basics.workers import SerialExecutor, WorkerPool
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import EndReason, Forked
from leasehold.landlord import landlord as one_thread
from leasehold.landlord.landlord import LeaseView, R, unguessable_cookie
from leasehold.landlord.landlord_lease import BatchResult, LandlordLease
from leasehold.leases.expiry_strategies import SLICE, ExpiryStrategy, Reapable, Reaper, exact, lazy
from leasehold.leases.lease_clock import IDLE_TICK_S
from leasehold.leases.lease_table import LeasedResource
from leasehold.leases.policies import LeasePolicy

logger = logging.getLogger(__name__)

HOOKS_S: Final = 5.0
"""How long leaving a `with` block waits for hooks."""

MIN_WAIT_S: Final = 0.0005
"""How long the expiry thread leaves the lock to other threads between two slices of work."""

T = TypeVar("T")


class LandlordBase(Generic[R]):
    """The part of `Landlord` that is not generated: its threads, lock and hooks."""

    def __init__(
        self,
        policy: LeasePolicy,
        *,
        on_granted: Callable[[R, LeaseView[R]], object] | None = None,
        on_renewed: Callable[[R, LeaseView[R]], object] | None = None,
        on_ended: Callable[[R, EndReason], object] | None = None,
        expiry: ExpiryStrategy | None = None,
        cookies: Callable[[], Hashable] = unguessable_cookie,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a landlord; it has no thread until it grants its first lease.

        The hooks are those of `leasehold.Landlord`. They are called in a thread of their own, one
        at a time and in order, so they may come after the call that caused them has returned.
        `expiry` is `exact()`, the default, for a thread that ends leases, or `lazy()` for none.
        """
        if not isinstance(expiry, exact | lazy | None):
            raise ValueError(f"expiry of a sync landlord must be exact() or lazy(), not {expiry!r}")
        self._lock = threading.RLock()  # a policy may call back
        self._hook_threads = WorkerPool("leasehold landlord hooks", 1)
        self._hooks = SerialExecutor(self._hook_threads)
        self._hook_thread: int | None = None
        self._opened_by = os.getpid()
        self._is_forked = False
        self._landlord: one_thread.Landlord[R] = one_thread.Landlord(
            policy,
            on_granted=self._queued("on_granted", on_granted),
            on_renewed=self._queued("on_renewed", on_renewed),
            on_ended=self._queued("on_ended", on_ended),
            expiry=expiry if isinstance(expiry, lazy) else _InThread(self._lock),
            lease_factory=self._make_lease,
            cookies=cookies,
            name=name,
            clock=clock,
        )
        self.name = self._landlord.name
        self.clock = clock
        call_in_child(self, LandlordBase._forked)

    def _make_lease(
        self, _: one_thread.Landlord[R], cookie: Hashable, granted: Duration, sent_at: float
    ) -> LandlordLease:
        # `Landlord` has all that a lease calls; only `grant` returns something else.
        return LandlordLease(cast(Any, self), cookie, granted, sent_at)

    def __repr__(self) -> str:
        return repr(self._landlord)

    def __len__(self) -> int:
        """The number of leases in the table; some may be due to leave it."""
        return len(self._landlord)

    @property
    def policy(self) -> LeasePolicy:
        """The policy that decides the length of terms; a new one applies to later calls."""
        return self._landlord.policy

    @policy.setter
    def policy(self, policy: LeasePolicy) -> None:
        self._check_process()
        with self._lock:
            self._landlord.policy = policy

    @property
    def lag_s(self) -> float:
        """How far lease time is behind, from all stalls together."""
        return self._landlord.lag_s

    def renew_all(self, wants: Iterable[tuple[Hashable, DurationLike]]) -> BatchResult:
        """Renew many leases; each succeeds or fails independently.

        A bad duration is refused before any lease is renewed.
        """
        self._check_process()
        listed = list(wants)  # without the lock: it may be a generator that takes long
        with self._lock:
            return self._landlord.renew_all(listed)

    def cancel_all(self, cookies: Iterable[Hashable]) -> BatchResult:
        """End many leases; each succeeds, with the outcome 0.0, or fails independently."""
        return self.renew_all([(cookie, 0.0) for cookie in cookies])

    def close(self) -> None:
        """Stop: no lease is ended any more, and every further call is refused.

        Hooks are still called for what has happened already. Does nothing in a forked child.
        """
        if not self._is_forked:
            with self._lock:
                self._landlord.close()
            self._hook_threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close it, and wait for its hooks, for at most `HOOKS_S`."""
        self.close()
        if not self._is_forked and threading.get_ident() != self._hook_thread:
            done = threading.Event()
            self._hooks.submit(done.set)
            done.wait(HOOKS_S)

    # Hooks.

    def _queued(
        self, name: str, hook: Callable[[R, T], object] | None
    ) -> Callable[[R, T], object] | None:
        """Return a hook for use with the lock held: it queues the call of the one given."""
        check_plain_callback(hook, name)
        if hook is None:
            return None
        return lambda resource, detail: self._hooks.submit(
            partial(self._call, name, hook, resource, detail)
        )

    def _call(self, name: str, hook: Callable[[R, T], object], resource: R, detail: T) -> None:
        self._hook_thread = threading.get_ident()
        try:
            hook(resource, detail)
        except BaseException:  # sys.exit as well: there are further hooks to call
            logger.exception("%s of landlord %r failed", name, self.name)

    # Forks.

    def _check_process(self) -> None:
        if self._is_forked:
            raise Forked(self._opened_by)

    def _forked(self) -> None:
        self._is_forked = True


@dataclass(frozen=True, slots=True)
class _InThread(ExpiryStrategy):
    """Ends leases at their deadlines, in a thread; `lock` protects the landlord."""

    lock: Any

    def reaper_for(self, grantor: Reapable) -> Reaper:
        return _ThreadReaper(grantor, self.lock)


class _ThreadReaper(Reaper):
    """Keeps lease time and ends leases in a thread, which runs while a lease can end.

    All methods are called with the lock held.
    """

    def __init__(self, grantor: Reapable, lock: Any) -> None:
        super().__init__(grantor)
        self._changed = threading.Condition(lock)
        self._cuts_seen = 0
        self._is_urgent = False
        self._is_closed = False

    def enter(self) -> None:
        clock, monotonic = self.grantor.table.clock, self.grantor.monotonic()
        if self.keeps_time:
            clock.advance(monotonic)
        else:
            clock.elapse(monotonic)

    def prepare(self) -> None:
        if not self.keeps_time and not self._is_closed:
            threading.Thread(target=self._run, name="leasehold expiry", daemon=True).start()
            self.keeps_time = True

    def placed(self, leased: LeasedResource[Any]) -> None:
        self.prepare()
        if self.needs_earlier_timer(leased):
            self._changed.notify()

    def reap_soon(self) -> None:
        self._is_urgent = True
        self.prepare()
        self._changed.notify()

    def close(self) -> None:
        self._is_closed = True
        self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            try:
                while not self._is_closed and self._can_end():
                    self._changed.wait(self._wait_s())
                    if not self._is_closed:
                        self._tick()
            finally:
                self.keeps_time = False

    def _can_end(self) -> bool:
        return self._is_urgent or self.grantor.table.next_at() != NEVER

    def _wait_s(self) -> float:
        table = self.grantor.table
        if self._is_urgent:
            return MIN_WAIT_S
        if not table.clock.may_end:
            return IDLE_TICK_S
        return min(max(table.next_at() - table.clock.now, MIN_WAIT_S), IDLE_TICK_S)

    def _tick(self) -> None:
        self.enter()
        clock = self.grantor.table.clock
        if not clock.may_end:
            if clock.cuts == self._cuts_seen:  # a whole tick ago: all threads had time to renew
                clock.polled(clock.cuts)
            self._cuts_seen = clock.cuts
        self._is_urgent = False
        self.grantor.reap(SLICE)
