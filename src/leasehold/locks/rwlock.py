"""`client.rwlock`: many readers at a time, or one writer; first come, first served.

Keys are `<name>/rwlock/<lease in hex>.<number>.read` and `….write`. A writer is admitted when no
key is ahead of it, a reader when no writer is: so a reader behind a waiting writer waits, too, and
a stream of readers cannot keep a writer out.
"""

from collections.abc import Sequence
from typing import Final

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.pending import Pending
from leasehold.engine.key import Octets
from leasehold.engine.time_limits import Timeout
from leasehold.engine.values import KeyValue
from leasehold.locks.lock_keys import LEASE_HEX, Claim, name_of, text_of
from leasehold.locks.lock_options import OnLoss, check_wait
from leasehold.locks.queue import QueueDefinition, QueuePosition
from leasehold.locks.queue_acquisition import QueueGuard, acquire_in_queue
from leasehold.locks.recipe_context import RecipeContext

READ: Final = b".read"
WRITE: Final = b".write"


class _ReadersAndWriters(QueueDefinition):
    def __init__(self, name: bytes, role: bytes) -> None:
        super().__init__(name, b"rwlock", LEASE_HEX + rb"\.[0-9]{1,19}\.(?:read|write)")
        self._role = role

    def tail(self, lease: bytes, number: int) -> bytes:
        return b"%b.%d%b" % (lease, number, self._role)

    def admits(self, ahead: Sequence[KeyValue]) -> bool:
        if self._role == WRITE:
            return not ahead
        return not any(pair.key.endswith(WRITE) for pair in ahead)


class RWLock:
    """A shared and exclusive lock. A handle: creating it sends nothing."""

    def __init__(self, context: RecipeContext, name: Octets) -> None:
        self._context = context
        self._name = name_of(name)
        self.name = text_of(self._name)
        """Its name."""

    def read(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[QueueGuard]:
        """Acquire it shared with other readers: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others: None for no limit, 0 to not wait. Raises
        `LockDenied` after that. `on_loss(guard, error)` is called if it is lost; with
        `cancel_on_loss` the block is cancelled then, and raises `LockLost`.
        """
        return self._acquire(READ, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def write(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[QueueGuard]:
        """Acquire it exclusively; otherwise like `read`."""
        return self._acquire(WRITE, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def _acquire(
        self, role: bytes, timeout: Timeout, on_loss: OnLoss | None, *, cancel_on_loss: bool
    ) -> Pending[QueueGuard]:
        timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        queue = _ReadersAndWriters(self._name, role)
        value = Claim(self._context.who).encode()

        def guard(position: QueuePosition) -> QueueGuard:
            return QueueGuard(position, on_loss=on_loss, cancel_on_loss=cancel_on_loss)

        return Pending(
            lambda: acquire_in_queue(self._context, queue, value, guard, timeout_s),
            f"{role[1:].decode()}() of rwlock {self.name!r}",
        )
