"""The parts of `HeldLease` and `Lease` that are not generated.

The state of a held lease is read from the clock in the caller's own thread: so it is correct also
while the loop's thread is busy or stuck. Its signals can be read or waited for in any thread. Its
callbacks and its health check run in other threads.
"""

import asyncio
import contextlib
import logging
import time
from _thread import LockType, allocate_lock
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias
from weakref import ref

from leasehold.basics.durations import NEVER, Duration, check_seconds
from leasehold.basics.lease_ids import shown_lease
from leasehold.basics.pending import Pending
from leasehold.basics.workers import SerialExecutor
from leasehold.engine.time_limits import Timeout
from leasehold.errors import Forked, LeaseLost
from leasehold.leases import lease as landlord_lease
from leasehold.sessions import held_lease as on_loop
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import BlockingCall, LossScope
from leasehold.sync.loop_thread import LoopThread, loop_thread

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


logger = logging.getLogger(__name__)

AnyCallback: TypeAlias = Callable[[Any, BaseException | None], object]
"""Called with a lease, and with the error of its last renewal."""

Check: TypeAlias = Callable[[], bool]
"""Returns whether the holder is healthy."""


class LeaseBase:
    """A lease on the loop: made before it is granted, so that its callbacks exist by then."""

    __slots__ = (
        "__weakref__",
        "_executor",
        "_held",
        "_on_jeopardy",
        "_on_loss",
        "_scope",
        "_thread",
        "jeopardy",
        "lost",
    )

    def __init__(
        self,
        thread: LoopThread,
        on_jeopardy: AnyCallback | None,
        on_loss: AnyCallback | None,
        *,
        cancel_on_loss: bool,
        executor: SerialExecutor | None = None,
    ) -> None:
        self._thread = thread
        self._held: on_loop.HeldLease
        self._on_jeopardy = on_jeopardy
        self._on_loss = on_loss
        self._executor = executor or SerialExecutor(thread.callbacks)
        self._scope = LossScope(self._as_lost) if cancel_on_loss else None
        self.lost = Signal(self, "lost")
        """Set once it is lost; not when it is ended."""
        self.jeopardy = Signal(self, "jeopardy")
        """Set while there is no contact to the server, and it may yet be lost; and once it is."""

    # How it begins.

    def callbacks(self) -> tuple[on_loop.Callback, on_loop.Callback]:
        """Return the callbacks for jeopardy and loss of the lease on the loop.

        They refer to this object weakly: one that its program drops must be found by the garbage
        collector. A callback of the program then gets another object for the same lease.
        """
        reference = ref(self)
        another = partial(
            type(self),
            self._thread,
            self._on_jeopardy,
            self._on_loss,
            cancel_on_loss=False,
            executor=self._executor,
        )

        def on_jeopardy(held: on_loop.HeldLease, error: BaseException | None) -> None:
            (reference() or another()).in_jeopardy(held, error)

        def on_loss(held: on_loop.HeldLease, error: BaseException | None) -> None:
            (reference() or another()).was_lost(held, error)

        return on_jeopardy, on_loss

    def granted(self, pending: Pending[on_loop.HeldLease]) -> Self:
        """Wait until it is granted. If the caller is interrupted, it is ended."""

        async def end(_lease: object) -> None:
            await self.held.end()

        return self._thread.run(lambda: self._begin(pending), undo=end)

    def adopted(self, pending: Pending[on_loop.HeldLease]) -> Self:
        """Wait until an existing lease is kept. If the caller is interrupted, it is released."""

        async def release(_lease: object) -> None:
            self.held.release()

        return self._thread.run(lambda: self._begin(pending), undo=release)

    async def _begin(self, pending: Pending[on_loop.HeldLease]) -> Self:
        self._held = await pending
        return self

    # Its state, read in the caller's thread.

    @property
    def held(self) -> on_loop.HeldLease:
        """The lease on the loop. Raises `Forked` in a child process."""
        self._thread.check_process()
        return self._held

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        return self.held.is_ended

    @property
    def remaining(self) -> Duration:
        """How long it is still held unless it is renewed; 0.0 once it is not held."""
        return self.held.remaining

    def check(self) -> None:
        """Raise `LeaseLost` unless it is held now, by the clock of this process.

        After the client was closed the cause of that error is `Closed`, in a child process
        `Forked`, and in another keyspace `HistoryLost`.
        """
        try:
            self._thread.check_process()
        except Forked as error:
            raise LeaseLost(self._held.id, str(error)) from error
        self._held.check()

    def is_signalled(self, name: str) -> bool:
        """Return whether a signal is set. "lost" also counts as set once the end has passed."""
        held = self.held
        if name == "jeopardy":
            return held.jeopardy.is_set()
        return held.lost.is_set() or (held.remaining == 0.0 and not held.is_ended)

    def _as_lost(self) -> LeaseLost:
        return self.held.as_lost()

    # How it ends.

    def end(self, *, timeout: Timeout = None) -> None:
        """Revoke it now, and its keys with it; does nothing if it is over.

        If there is no answer within `timeout`, by default two seconds, retries continue in the
        background.
        """
        self._thread.run_to_end(lambda: self._end(self.held, timeout))

    async def _end(self, held: on_loop.HeldLease, timeout: Timeout) -> None:  # noqa: ASYNC109
        try:
            await held.end(timeout=timeout)
        finally:
            self._wake_waiters()

    def release(self) -> None:
        """Stop keeping it without revoking it: another holder may continue, or it expires."""
        self._thread.run_to_end(lambda: self._release(self.held))

    async def _release(self, held: on_loop.HeldLease) -> None:
        held.release()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self.lost.wake_waiters()
        self.jeopardy.wake_waiters()

    # Its block.

    def __enter__(self) -> Self:
        try:
            self.check()
            if self._scope is not None:
                self._scope.enter()
            begin(self, self)
        except BaseException:  # of a signal handler, for instance: no block will end it
            self.abandon()
            raise
        return self

    def abandon(self) -> None:
        """Have the loop end it, unless it is over: its block was interrupted."""
        if self._scope is not None:
            self._scope.leave()
        self._thread.post(BlockingCall(lambda: self._end(self._held, None)).start)

    @block_exit
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread.is_forked:
            return  # the parent process still holds it
        is_lost = self.lost.is_set()
        if self._scope is not None:
            self._scope.leave()
        self.end()
        if self._scope is not None and exc_type is None:
            self._scope.raise_loss(is_lost=is_lost)

    # Called by the loop.

    def in_jeopardy(self, held: on_loop.HeldLease, error: BaseException | None) -> None:
        """Report that there is no contact to the server."""
        self._held = held
        self.jeopardy.wake_waiters()
        self._submit(self._on_jeopardy, error)

    def was_lost(self, held: on_loop.HeldLease, error: BaseException | None) -> None:
        """Mark it as lost."""
        self._held = held
        if self._scope is not None:
            self._scope.lose()
        self._wake_waiters()
        self._submit(self._on_loss, error)

    def _submit(self, callback: AnyCallback | None, error: BaseException | None) -> None:
        if callback is not None:
            self._executor.submit(partial(self._call, callback, error))

    def _call(self, callback: AnyCallback, error: BaseException | None) -> None:
        try:
            callback(self, error)
        except BaseException:
            if self._thread.is_ending:
                return  # and so is this thread
            logger.exception("a callback for lease %s has failed", shown_lease(self._held.id))

    def __eq__(self, other: object) -> bool:
        return self._held == other._held if isinstance(other, LeaseBase) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._held)

    def __repr__(self) -> str:
        return repr(self._held)


def lease_on_loop(lease: LeaseBase | int) -> on_loop.HeldLease | int:
    """Return the lease on the loop for one of ours; return anything else unchanged."""
    return lease.held if isinstance(lease, LeaseBase) else lease


def check_in_thread(check: Check | None) -> Callable[[], Awaitable[bool]] | None:
    """Return a health check for the loop that runs a blocking one in a separate thread."""
    if check is None:
        return None
    blocking_check = check

    def run() -> bool:
        try:
            return blocking_check()
        except Exception:
            raise
        except BaseException as error:  # sys.exit would end the loop
            raise RuntimeError(
                f"a health check must return a bool, but it raised {error!r}"
            ) from error

    async def run_in_thread() -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, run)

    return run_in_thread


class LeaseHandle:
    """A lease of a landlord; the loop's thread is started only for calls that need it."""

    __slots__ = ("__weakref__", "_lease", "_loop_thread")

    def __init__(self, lease: landlord_lease.Lease, thread: LoopThread | None = None) -> None:
        """Wrap a lease; `thread` is the loop that it belongs to, if it belongs to one already."""
        self._lease = lease
        self._loop_thread = thread

    @property
    def _thread(self) -> LoopThread:
        return self._loop_thread or loop_thread()

    @property
    def on_loop(self) -> landlord_lease.Lease:
        """The lease on the loop. Raises `Forked` in a child process, if it belongs to a loop."""
        if self._loop_thread is not None:
            self._loop_thread.check_process()
        return self._lease

    @property
    def grantor(self) -> Hashable:
        """The name of the grantor."""
        return self._lease.grantor

    @property
    def cookie(self) -> Hashable:
        """The name of this lease at its grantor."""
        return self._lease.cookie

    def can_batch(self, other: object) -> bool:
        """Return whether one call can renew both: an equivalence relation."""
        return isinstance(other, LeaseHandle) and self._lease.can_batch(other.on_loop)

    def __eq__(self, other: object) -> bool:
        return self._lease == other._lease if isinstance(other, LeaseHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._lease)

    def __repr__(self) -> str:
        return repr(self._lease)
