"""`Lock` and checks of permits for blocking code: the cache is used in the caller's own thread."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from leasehold.engine.time_limits import Timeout
from leasehold.errors import LeaseholdError
from leasehold.locks import lock as on_loop
from leasehold.locks import ownership as guard_on_loop
from leasehold.locks import permits as permits_on_loop
from leasehold.locks.guards import check_wait
from leasehold.locks.lock import Holder
from leasehold.locks.permit import check_name, names_of
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import open_scopes
from leasehold.sync.guard import Guard, OnLoss, leave_block, this_thread, twin_of
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
        """Acquire the lock: from the cache if possible, else in the queue with all other clients.

        Waits for `timeout` seconds, by default the lock's own timeout; 0 does not wait for a
        release. Raises `LockDenied`, which names the holder, or `SessionExpired` if the place in
        the queue was lost. With `ask_again` the client retries after either, until it has the lock
        or the timeout has passed; 0 means no timeout then.
        """
        guard = None
        try:
            guard = self._acquire(timeout, ask_again=ask_again)
            twin = self._twin_of(guard)
            self._lock.note(this_thread.identity, guard)
            guard.hand_over()
            return twin
        except BaseException:  # of a signal handler, for instance: no caller will release it
            if guard is not None:
                self._thread.post(guard.settle)
            raise

    def _acquire(self, timeout: Timeout, *, ask_again: bool = False) -> guard_on_loop.Guard:
        if timeout is not None:
            check_wait(timeout)  # even if it is not used
        for scope in open_scopes():
            scope.raise_loss()
        guard = self._lock.acquire_cached(this_thread.identity)
        if guard is not None:
            return guard

        def obtain() -> Coroutine[Any, Any, guard_on_loop.Guard]:
            return self._lock.obtain(timeout=timeout, ask_again=ask_again)

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
            guard.hand_over()
            self._lock.entered(this_thread.identity, guard, is_left=begin(self, twin, leave_block))
            return twin
        except BaseException:  # of a signal handler, for instance: no block will release it
            if twin is not None:
                twin.abandon()
            elif guard is not None:
                self._thread.post(guard.settle)
            raise

    @block_exit
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        twin: Guard | None = None
        try:
            twin = self._lock.left(this_thread.identity).twin
            assert twin is not None, "it was made when the block was entered"
            twin.leave(exc_type)
        except BaseException:  # of a signal handler; after any other it is released already
            if twin is not None:
                twin.abandon()
            raise

    def __repr__(self) -> str:
        return repr(self._lock)

    def release(self) -> None:
        """Release the latest guard that `acquire` has returned; `NotHeld` if there is none."""
        _release_twin(self._lock.latest())

    def release_all(self) -> int:
        """Release every guard that `acquire` has returned and that is not released; count them.

        Returns 0 if there is none. If the lock was lost in the meantime, raises `LockLost` when all
        are released: work under it since then was not protected.
        """
        return self._lock.release_each(_release_twin)

    def holder(self, *, timeout: Timeout = None) -> Holder | None:
        """Return the holder of the lock; None if it is free."""
        return self._thread.run(lambda: self._lock.holder(timeout=timeout))


def _release_twin(guard: guard_on_loop.Guard) -> None:
    """Release a guard by its counterpart in blocking code, which was made with it."""
    twin: Guard = guard.twin
    try:
        twin.release()
    except LeaseholdError:
        raise
    except BaseException:  # of a signal handler: the loop completes the release
        twin.abandon()
        raise


async def _release(guard: guard_on_loop.Guard) -> None:
    guard.take_back()


class PermitChecks:
    """The part of `Permits` that is not generated."""

    def __init__(self, thread: LoopThread, permits: permits_on_loop.Permits) -> None:
        self._thread = thread
        self._permits = permits

    def check(
        self,
        subject: str,
        resource: str,
        right: str,
        *,
        cache: bool = True,
        timeout: Timeout = None,
    ) -> bool:
        """Return whether a subject has a right on a resource now.

        The answer may come from the cache of this client: for no longer than the lease is sure to
        last, and only until a change is received. With `cache` False the server is asked. If the
        server must be asked and does not answer, an error is raised; the result is never True then.
        """
        if cache:
            self._thread.check_process()
            names = names_of(subject, resource)
            check_name(right, "right")
            permit = self._permits.cache.get(names)
            if permit is not None:
                return permit.allows(right)
        return self._thread.run(
            lambda: self._permits.check(subject, resource, right, cache=cache, timeout=timeout)
        )
