"""`HeldLease` for blocking code.

What may be relied on is read from the clock in the caller's own thread: also while the loop's
thread is busy, or stuck, a lease that is over says so. Its callbacks run in other threads.
"""

import logging
from collections.abc import Callable, Hashable
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from leasehold.client import held_lease as on_loop
from leasehold.client.patience import Timeout
from leasehold.core.duration import ANY, Duration, DurationLike, End
from leasehold.errors import Forked, LeaseLost
from leasehold.lease import Form
from leasehold.lease_ids import shown_lease
from leasehold.pending import Pending
from leasehold.sync import bodies
from leasehold.sync.call import Call
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.signals import Signal
from leasehold.sync.workers import Lane

logger = logging.getLogger(__name__)

Callback: TypeAlias = Callable[["HeldLease", BaseException | None], object]
"""Told of a lease, and of what its last renewal met with."""


class HeldLease:
    """A lease of an engine, kept alive until it is ended or lost. `Client.lease` gives one."""

    __slots__ = (
        "__weakref__",
        "_body",
        "_held",
        "_lane",
        "_on_jeopardy",
        "_on_loss",
        "_thread",
        "jeopardy",
        "lost",
    )

    def __init__(
        self,
        thread: LoopThread,
        on_jeopardy: Callback | None,
        on_loss: Callback | None,
        *,
        cancel_on_loss: bool,
    ) -> None:
        self._thread = thread
        self._held: on_loop.HeldLease
        self._on_jeopardy = on_jeopardy
        self._on_loss = on_loss
        self._lane = Lane(thread.notices)
        self._body = bodies.Body(self._as_lost) if cancel_on_loss else None
        self.lost = Signal(self, "lost")
        """Set once it is lost; not when it is ended."""
        self.jeopardy = Signal(self, "jeopardy")
        """Set while there is no contact, and it may yet be lost."""

    # What a holder asks: in its own thread.

    @property
    def id(self) -> int:
        """Its number at the engine."""
        return self.held.id

    @property
    def held(self) -> on_loop.HeldLease:
        """The lease on the loop. Raises `Forked` in a child process."""
        self._thread.check_process()
        return self._held

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now."""
        return self.held.is_held

    @property
    def is_ended(self) -> bool:
        """Whether its holder has ended it."""
        return self.held.is_ended

    def check(self) -> None:
        """Raise `LeaseLost` unless it can be relied on now, by the clock of this process.

        After the client was closed the cause of that error is `Closed`, in a child process
        `Forked`, and in another keyspace `HistoryLost`.
        """
        try:
            self._thread.check_process()
        except Forked as error:
            raise LeaseLost(self._held.id, str(error)) from error
        self._held.check()

    def loss(self) -> LeaseLost | None:
        """Say why it cannot be relied on; None while it can."""
        return self.held.loss()

    @property
    def remaining(self) -> Duration:
        """How long the holder may still rely on the lease; 0.0 once it may not."""
        return self.held.remaining

    @property
    def expires_at(self) -> End:
        """The end as the holder sees it, as an aware datetime, or FOREVER."""
        return self.held.expires_at

    @property
    def term(self) -> Duration:
        """The length of the current term, as it was granted."""
        return self.held.term

    @property
    def grantor(self) -> Hashable:
        """The keyspace that it is in."""
        return self.held.grantor

    @property
    def cookie(self) -> Hashable:
        """Its number."""
        return self.held.cookie

    def to_bytes(self, form: Form) -> bytes:
        """Turn the lease into bytes.

        "duration" carries the time that remains, counted again on arrival: for transport.
        "absolute" carries the wall-clock end: for storage.
        """
        return self.held.to_bytes(form)

    def is_signalled(self, name: str) -> bool:
        """Whether a signal is set. It is lost, too, once its end has passed unnoticed."""
        held = self.held
        if name == "jeopardy":
            return held.jeopardy.is_set()
        return held.lost.is_set() or (held.remaining == 0.0 and not held.is_ended)

    # What a holder does: on the loop.

    def renew(self, duration: DurationLike = ANY, *, timeout: Timeout = None) -> Duration:
        """Renew it now, for a full term whatever is asked for; 0 ends it.

        There is no need to: it is done by itself. `TimeoutError` if there is no answer within
        `timeout`; if there is none while it can be relied on, it is lost: `LeaseLost`.
        """
        return self._thread.run(lambda: self.held.renew(duration, timeout=timeout))

    def cancel(self, *, timeout: Timeout = None) -> None:
        """Do what `end` does."""
        self.end(timeout=timeout)

    def release(self) -> None:
        """Keep it no longer, and do not end it: somebody else may go on, or its term ends it."""
        self._thread.run_to_end(lambda: self._release(self.held))

    async def _release(self, held: on_loop.HeldLease) -> None:
        held.release()
        self._tell_all()

    def end(self, *, timeout: Timeout = None) -> None:
        """End it now, and its keys with it; nothing if it is over.

        If there is no answer within `timeout`, two seconds unless told otherwise, it is tried on in
        the background.
        """
        self._thread.run_to_end(lambda: self._end(self.held, timeout))

    async def _end(self, held: on_loop.HeldLease, timeout: Timeout) -> None:  # noqa: ASYNC109
        try:
            await held.end(timeout=timeout)
        finally:
            self._tell_all()

    def _tell_all(self) -> None:
        self.lost.tell()
        self.jeopardy.tell()

    def __enter__(self) -> Self:
        try:
            self.check()
            if self._body is not None:
                bodies.enter(self._body)
        except BaseException:  # such as Ctrl-C: nobody is there to end it
            self._thread.post(Call(lambda: self._end(self._held, None)).start)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread.is_forked:
            return  # the parent has it still
        is_lost = self.lost.is_set()
        if self._body is not None:
            bodies.leave(self._body)
        self.end()
        if self._body is not None and exc_type is None:
            self._body.tell(is_lost=is_lost)

    def _as_lost(self) -> LeaseLost:
        return self.held.as_lost()

    def __eq__(self, other: object) -> bool:
        return self._held == other._held if isinstance(other, HeldLease) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._held)

    def __repr__(self) -> str:
        return repr(self._held)

    # What the loop tells.

    async def begin(self, pending: Pending[on_loop.HeldLease]) -> Self:
        """Have it granted."""
        self._held = await pending
        return self

    def in_jeopardy(self, held: on_loop.HeldLease, error: BaseException | None) -> None:
        """Hear that there is no contact."""
        self._held = held
        self.jeopardy.tell()
        self._tell(self._on_jeopardy, error)

    def was_lost(self, held: on_loop.HeldLease, error: BaseException | None) -> None:
        """Hear that it is lost."""
        self._held = held
        if self._body is not None:
            self._body.lose()
        self.lost.tell()
        self._tell(self._on_loss, error)

    def _tell(self, callback: Callback | None, error: BaseException | None) -> None:
        if callback is not None:
            self._lane.submit(partial(self._call, callback, error))

    def _call(self, callback: Callback, error: BaseException | None) -> None:
        try:
            callback(self, error)
        except BaseException:
            if self._thread.is_ending:
                return  # and so is this thread
            logger.exception("a callback for lease %s has failed", shown_lease(self._held.id))


def on_loop_of(lease: HeldLease | int) -> on_loop.HeldLease | int:
    """Give the lease on the loop, of one of ours; leave anything else as it is."""
    return lease.held if isinstance(lease, HeldLease) else lease
