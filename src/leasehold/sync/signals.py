"""What a lease tells its holder, for threads: to be looked at, or waited for."""

import contextlib
import time
from _thread import LockType, allocate_lock
from datetime import timedelta
from typing import Final, Protocol

from leasehold.core.duration import NEVER, Duration, check_seconds

LOOK_S: Final = 1.0
"""How often who waits looks at the clock: it may have run while the machine was suspended."""


class Signalling(Protocol):
    """A lease, or what is under one."""

    def is_signalled(self, name: str) -> bool:
        """Whether a signal is set."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        ...

    @property
    def remaining(self) -> Duration:
        """How long it may still be relied on."""
        ...


class Signal:
    """Set, or not. Answered in the caller's thread, whatever the loop's thread does.

    Who waits has a lock of its own, and there is none for all: a handler of a signal may end the
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
        """Wait until it is set, and give True.

        False if that takes longer than `timeout`, or the lease was ended: then it never will be.
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
        """Wait no longer than the lease lasts, since it may be lost without a word."""
        left = self._lease.remaining
        return min(left, LOOK_S) if isinstance(left, float) and left > 0.0 else LOOK_S

    def tell(self) -> None:
        """Have all who wait look again."""
        for waiter in list(self._waiters):
            with contextlib.suppress(RuntimeError):  # it was told before, and has not looked yet
                waiter.release()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"
