"""`Lock` for blocking code: a cached lock is answered in the caller's own thread."""

from threading import get_ident
from types import TracebackType

from leasehold.client.patience import Timeout
from leasehold.recipes import guard as guard_on_loop
from leasehold.recipes import lock as on_loop
from leasehold.recipes.lock import Holder
from leasehold.recipes.options import check_wait
from leasehold.sync.bodies import bodies
from leasehold.sync.guard import Guard, OnLoss, abandon, release_if_held, twin_of
from leasehold.sync.loop_thread import LoopThread


class Lock:
    """A lock of a client. It may be acquired any number of times, one after the other."""

    __slots__ = ("_cancel_on_loss", "_lock", "_on_loss", "_thread")

    def __init__(
        self,
        thread: LoopThread,
        lock: on_loop.Lock,
        on_loss: OnLoss | None,
        *,
        cancel_on_loss: bool,
    ) -> None:
        self._thread = thread
        self._lock = lock
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss

    @property
    def name(self) -> str:
        """Its name."""
        return self._lock.name

    def acquire(self, *, timeout: Timeout = None, ask_again: bool = False) -> Guard:
        """Acquire it: from the cache if it is there, else in line with all others.

        Waits for `timeout` seconds, or as the lock was made to; 0 only asks. `LockDenied` names the
        holder. `SessionExpired` if its place in line was lost. With `ask_again` the client goes on
        by itself after either, until it has the lock or the time is over; then 0 is no time limit.
        """
        guard = None
        try:
            guard = self._acquire(timeout, ask_again=ask_again)
            twin = self._twin_of(guard)
            self._lock.note(get_ident(), guard)
            return twin
        except BaseException:  # such as Ctrl-C: nobody is there to release it
            if guard is not None:
                abandon(self._thread, guard)
            raise

    def _acquire(self, timeout: Timeout, *, ask_again: bool = False) -> guard_on_loop.Guard:
        if timeout is not None:
            check_wait(timeout)  # whether it is needed or not
        for body in bodies():
            body.tell()
        guard = self._lock.acquire_cached(get_ident())
        if guard is not None:
            return guard

        async def obtain() -> guard_on_loop.Guard:
            obtained = await self._lock.obtain(timeout=timeout, ask_again=ask_again)
            self._twin_of(obtained)  # before it can be lost
            return obtained

        return self._thread.run(obtain, undo=_release)

    def _twin_of(self, guard: guard_on_loop.Guard) -> Guard:
        return twin_of(self._thread, guard, self._on_loss, cancel_on_loss=self._cancel_on_loss)

    def __enter__(self) -> Guard:
        guard = twin = None
        try:
            while True:
                guard = self._acquire(None)
                twin = self._twin_of(guard)
                twin.enter()
                if guard.is_held:
                    break
                twin.abandon()  # it was lost before its block could begin
            self._lock.entered(get_ident(), guard)
            return twin
        except BaseException:  # such as Ctrl-C: nobody is there to release it
            if twin is not None:
                twin.abandon()
            elif guard is not None:
                abandon(self._thread, guard)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        twin: Guard | None = None
        try:
            twin = self._lock.left(get_ident()).twin
            assert twin is not None, "it was made when the block was entered"
            twin.leave(exc_type)
        except BaseException:  # such as Ctrl-C: else it is released by now
            if twin is not None:
                twin.abandon()
            raise

    def __repr__(self) -> str:
        return repr(self._lock)

    def release(self) -> None:
        """Release the latest guard that `acquire` has given; `NotHeld` if there is none."""
        twin: Guard = self._lock.latest().twin
        twin.release()

    def holder(self, *, timeout: Timeout = None) -> Holder | None:
        """Ask who has it; None if nobody has."""
        return self._thread.run(lambda: self._lock.holder(timeout=timeout))


async def _release(guard: guard_on_loop.Guard) -> None:
    release_if_held(guard)
