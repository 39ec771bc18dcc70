"""What a lease tells its holder, for threads: to be looked at, or waited for."""

import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from leasehold.core.duration import FOREVER, check_seconds

if TYPE_CHECKING:
    from leasehold.sync.held_lease import HeldLease

LOOK_S: Final = 1.0
"""How often who waits looks at the clock: it may have run while the machine was suspended."""


class Signal:
    """Set, or not. Answered in the caller's thread, whatever the loop's thread does."""

    __slots__ = ("_changed", "_lease", "_name")

    def __init__(self, lease: "HeldLease", name: str) -> None:
        self._lease = lease
        self._name = name
        self._changed = threading.Condition()

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._lease.is_signalled(self._name)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until it is set, and give True.

        False if that takes longer than `timeout`, or the lease was ended: then it never will be.
        """
        limit_s = None if timeout is None else check_seconds(timeout, "timeout")
        give_up_at = None if limit_s is None else time.monotonic() + limit_s
        with self._changed:
            while not self.is_set():
                if self._lease.is_ended:
                    return False
                look_s = self._look_s()
                if give_up_at is not None:
                    left_s = give_up_at - time.monotonic()
                    if left_s <= 0.0:
                        return False
                    look_s = min(look_s, left_s)
                self._changed.wait(look_s)
        return True

    def _look_s(self) -> float:
        """Wait no longer than the lease lasts, since it may be lost without a word."""
        left = self._lease.remaining
        return LOOK_S if left is FOREVER or left <= 0.0 else min(left, LOOK_S)

    def tell(self) -> None:
        """Have all who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"
