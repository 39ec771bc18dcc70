"""`RWLock` for blocking code."""

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.pending import Pending
from leasehold.recipes import rwlock as on_loop
from leasehold.recipes.line_guard import LineGuard
from leasehold.sync.guard import Guard, OnLoss, obtain, tell_twin
from leasehold.sync.loop_thread import LoopThread


class RWLock:
    """A shared and exclusive lock. A handle: it costs nothing until it is acquired."""

    __slots__ = ("_rwlock", "_thread")

    def __init__(self, thread: LoopThread, rwlock: on_loop.RWLock) -> None:
        self._thread = thread
        self._rwlock = rwlock

    @property
    def name(self) -> str:
        """What it is called."""
        return self._rwlock.name

    def read(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Guard:
        """Share it with other readers: to be released, or entered with `with`.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only asks;
        `LockDenied` then. `on_loss(guard, error)` is told if it is lost, in a thread of its own;
        with `cancel_on_loss` the call of this package that the block waits for raises `LockLost`
        then, or else its next one, or its end.
        """
        check_plain_callback(on_loss, "on_loss")
        pending = self._rwlock.read(timeout, on_loss=tell_twin)
        return self._obtain(pending, on_loss, cancel_on_loss=cancel_on_loss)

    def write(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Guard:
        """Have it alone; else as `read`."""
        check_plain_callback(on_loss, "on_loss")
        pending = self._rwlock.write(timeout, on_loss=tell_twin)
        return self._obtain(pending, on_loss, cancel_on_loss=cancel_on_loss)

    def _obtain(
        self, pending: Pending[LineGuard], on_loss: OnLoss | None, *, cancel_on_loss: bool
    ) -> Guard:
        return obtain(self._thread, pending, on_loss, cancel_on_loss=cancel_on_loss, kind=Guard)
