"""`Semaphore` for blocking code."""

from threading import get_ident
from types import TracebackType

from leasehold.client.patience import Timeout
from leasehold.recipes import semaphore as on_loop
from leasehold.recipes.blocks import Blocks
from leasehold.sync.guard import Guard, OnLoss, obtain
from leasehold.sync.loop_thread import LoopThread


class Semaphore:
    """Lets in so many at a time. A handle: it costs nothing until it is acquired."""

    __slots__ = ("_blocks", "_cancel_on_loss", "_on_loss", "_semaphore", "_thread")

    def __init__(
        self,
        thread: LoopThread,
        semaphore: on_loop.Semaphore,
        on_loss: OnLoss | None,
        *,
        cancel_on_loss: bool,
    ) -> None:
        self._thread = thread
        self._semaphore = semaphore
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss
        self._blocks: Blocks[Guard] = Blocks()

    @property
    def name(self) -> str:
        """What it is called."""
        return self._semaphore.name

    @property
    def limit(self) -> int:
        """How many are let in at a time."""
        return self._semaphore.limit

    def acquire(self, timeout: Timeout = None) -> Guard:
        """Be one of those that are let in: to be released, or entered with `with`.

        Waits for `timeout` seconds, or as the semaphore was made to; 0 only asks. `LockDenied`
        names a holder.
        """
        return obtain(
            self._thread,
            self._semaphore.acquire(timeout),
            self._on_loss,
            cancel_on_loss=self._cancel_on_loss,
            kind=Guard,
        )

    def __enter__(self) -> Guard:
        guard = None
        try:
            guard = self.acquire()
            guard.enter()
            self._blocks.enter(get_ident(), guard)
            return guard
        except BaseException:  # such as Ctrl-C: nobody is there to release it
            if guard is not None:
                guard.abandon()
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard = None
        try:
            guard = self._blocks.leave(get_ident())
            guard.leave(exc_type)
        except BaseException:  # such as Ctrl-C: else it is released by now
            if guard is not None:
                guard.abandon()
            raise
