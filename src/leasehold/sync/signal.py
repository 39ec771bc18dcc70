"""Signals of a lease for threads: to be read, or waited for."""

import contextlib
import time
from _thread import LockType, allocate_lock
from datetime import timedelta
from typing import Final, Protocol

from leasehold.basics.durations import NEVER, Duration, check_seconds

LOOK_S: Final = 1.0
"""How often a waiter reads the clock: it may have run while the machine was suspended."""


class Signalling(Protocol):
    """A lease, or a guard under one."""

    def is_signalled(self, name: str) -> bool:
        """Whether a signal is set."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        ...

    @property
    def remaining(self) -> Duration:
        """How long it is still held."""
        ...


class Signal:
    """Set or not. Read in the caller's thread, whatever the loop's thread does.

    Each waiter has a lock of its own, and there is no common one: a signal handler may end the
    lease in the very thread that waits.
    """

    __slots__ = ("_lease", "_name", "_waiters")

    def __init__(self, lease: Signalling, name: str) -> None:
        self._lease = lease
        self._name = name
        self._waiters: dict[LockType, None] = {}

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._lease.is_signalled(self._name)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until it is set, and return True.

        Returns False if that takes longer than `timeout`, or the lease was ended: then it never
        will be.
        """
        limit_s = NEVER if timeout is None else check_seconds(timeout, "timeout")
        give_up_at = time.monotonic() + limit_s
        waiter = allocate_lock()
        waiter.acquire()
        self._waiters[waiter] = None
        try:
            while not self.is_set():
                left_s = give_up_at - time.monotonic()
                if left_s <= 0.0 or self._lease.is_ended:
                    return False
                waiter.acquire(timeout=min(self._look_s(), left_s))
            return True
        finally:
            del self._waiters[waiter]

    def _look_s(self) -> float:
        """Wait no longer than the lease lasts, since it may be lost without a notification."""
        left = self._lease.remaining
        return min(left, LOOK_S) if isinstance(left, float) and left > 0.0 else LOOK_S

    def wake_waiters(self) -> None:
        """Wake all waiters, which check again."""
        for waiter in list(self._waiters):
            with contextlib.suppress(RuntimeError):  # it was woken before, and has not checked yet
                waiter.release()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"
