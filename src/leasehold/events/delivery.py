"""Delivery of events: from the queues of registrations to callback endpoints and mailboxes.

Theory of operation. A source gives each `EventQueue` to an `EventSender` once. From then on the
queue reports its changes, and the sender makes calls: one for each registration at a time, each
with the first events of its queue. A call is a task with two parts. It sends the events, and can be
cancelled until that is over: `replace` and `clear` of the queue cancel it. Then it reports the
outcome to the source, which stores it; this part is never cancelled.

A slow or failing listener holds back only its own registration. Calls under way are limited by
`MAX_CALLS`, but one that takes longer than `SLOW_S` no longer counts. So hanging listeners delay
the others only if there are more than `MAX_OPEN_CALLS` of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from leasehold.basics.callbacks import ignore
from leasehold.errors import (
    INDEFINITE_EXCEPTIONS,
    STATUS_IS_DEFINITE,
    LeaseholdError,
    Status,
    is_definite,
)
from leasehold.events.state import Attempt, EventQueue, EventTarget, QueueState, RemoteEvent
from leasehold.grpc.protocol import RpcError

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 256
"""Calls under way; further registrations wait until one of them ends, or is slow."""

SLOW_S: Final = 0.25
"""After this time a call without an answer no longer counts for `MAX_CALLS`."""

MAX_OPEN_CALLS: Final = 4096
"""Calls under way, including slow ones: each is a task."""

MAX_ERROR_TEXT: Final = 1_000
"""Characters of the last error of a listener that are kept."""

MAX_SHORTENED: Final = 0.1
"""The largest part of a wait that is cut at random: listeners of one process are not called
together."""


class EventTransport(Protocol):
    """Sends events to a target. `ListenerCalls` implements it, and tests have their own."""

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        """Return when the target has received all events; raise if it has not.

        `check` is to be called right before they are sent, after each wait; it raises if they must
        not be sent any more.
        """
        ...


class EventSource(Protocol):
    """A service whose events are sent: it stores which of them were delivered or dropped.

    The methods are called while other calls for the same queue wait. An exception is logged.
    """

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        """Called when the listener has received the events up to this number."""
        ...

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        """Called when the listener is unknown or has refused: the queue was cleared."""
        ...

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        """Called when the events up to this number were dropped: they have failed for too long."""
        ...


@dataclass(slots=True, eq=False)
class _Delivery:
    """The work for one queue."""

    queue: EventQueue
    call: "_Call | None" = None
    timer: asyncio.TimerHandle | None = None
    ending: "set[_Call]" = field(default_factory=set)
    """Calls that were cancelled, and have not ended yet."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call under way, or the report of its outcome."""

    delivery: _Delivery
    attempt: Attempt | None
    """None if there is nothing to send, only dropped events to report."""
    dropped: int = 0
    counts: bool = True
    """Whether it counts for `MAX_CALLS`."""
    is_reporting: bool = False
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more is sent."""
    task: "asyncio.Task[None] | None" = None


class EventSender:
    """Delivers the events of queues, each in order, for one source."""

    def __init__(
        self,
        source: EventSource,
        transport: EventTransport,
        *,
        max_calls: int = MAX_CALLS,
        max_open_calls: int = MAX_OPEN_CALLS,
        slow_s: float = SLOW_S,
        random: Random | None = None,
    ) -> None:
        self._source = source
        self._transport = transport
        self._max_calls = max_calls
        self._max_open_calls = max_open_calls
        self._slow_s = slow_s
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._deliveries: dict[EventQueue, _Delivery] = {}
        self._ready: dict[_Delivery, None] = {}
        """Those that wait for their turn, in order."""
        self._calls: set[_Call] = set()
        self._counted = 0
        self._closed = False
        self.events_delivered = 0
        self.failed_calls = 0
        self.events_expired = 0
        self.listeners_rejected = 0

    @property
    def open_calls(self) -> int:
        """Calls under way."""
        return len(self._calls)

    @property
    def undelivered(self) -> int:
        """Events in all queues."""
        return sum(map(len, self._deliveries))

    def offer(self, queue: EventQueue) -> None:
        """Deliver the events of a queue, those that it has and those that follow."""
        if self._closed or queue in self._deliveries:
            return
        delivery = self._deliveries[queue] = _Delivery(queue)
        queue.changed = lambda: self._changed(delivery)
        self._schedule(delivery)

    def withdraw(self, queue: EventQueue) -> None:
        """Send nothing more of a queue; a call under way is cancelled. Idempotent."""
        delivery = self._deliveries.pop(queue, None)
        if delivery is not None:
            queue.changed = ignore
            attempt = None if delivery.call is None else delivery.call.attempt
            self._stop(delivery)
            if attempt is not None:
                queue.interrupted(attempt)

    async def settled(self, queue: EventQueue) -> None:
        """Wait until cancelled calls of a queue have ended; after `clear` or `replace`.

        Until then the former listener may still receive events.
        """
        delivery = self._deliveries.get(queue)
        for call in () if delivery is None else tuple(delivery.ending):
            await call.sent.wait()

    async def close(self) -> None:
        """Cancel all calls, and wait for reports that are under way."""
        self._closed = True
        for queue in list(self._deliveries):
            self.withdraw(queue)
        tasks = [call.task for call in self._calls if call.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    # Changes of queues.

    def _changed(self, delivery: _Delivery) -> None:
        call = delivery.call
        if call is not None and call.attempt is not None and not call.is_reporting:
            if delivery.queue.is_current(call.attempt):
                return
            self._stop(delivery)
        self._schedule(delivery)

    def _stop(self, delivery: _Delivery) -> None:
        """Cancel the call under way; one that reports its outcome continues."""
        self._ready.pop(delivery, None)
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None
        call = delivery.call
        if call is not None and not call.is_reporting:
            assert call.task is not None
            delivery.call = None
            delivery.ending.add(call)
            call.task.cancel()

    def _schedule(self, delivery: _Delivery) -> None:
        """Send now, or set the timer; nothing while a call is under way."""
        queue = delivery.queue
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None
        if delivery.call is not None or self._deliveries.get(queue) is not delivery:
            return
        if queue.state is QueueState.READY:
            self._ready[delivery] = None
            self._begin_calls()
            return
        self._ready.pop(delivery, None)
        due_at = queue.due_at
        if due_at is not None:
            loop = asyncio.get_running_loop()
            delivery.timer = loop.call_at(due_at, self._due, delivery)

    def _due(self, delivery: _Delivery) -> None:
        delivery.timer = None
        queue = delivery.queue
        now = asyncio.get_running_loop().time()
        # The timer may ring a little early, by the rounding of its loop.
        due_at = queue.due_at
        before = len(queue)
        dropped = queue.retry(now if due_at is None else max(now, due_at))
        if dropped:
            self.events_expired += before - len(queue)
            logger.warning(
                "events up to number %d are given up: no call for them was answered in time: %r",
                dropped,
                queue,
            )
            self._start(_Call(delivery, None, dropped, is_reporting=True))
        else:
            self._schedule(delivery)

    # Calls.

    def _begin_calls(self) -> None:
        while self._ready:
            if self._counted >= self._max_calls or len(self._calls) >= self._max_open_calls:
                return
            delivery = next(iter(self._ready))
            del self._ready[delivery]
            self._start(_Call(delivery, delivery.queue.begin()))

    def _start(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        call.delivery.call = call
        self._calls.add(call)
        self._counted += 1
        timer = loop.call_later(self._slow_s, self._uncount, call)
        call.task = loop.create_task(self._run(call))
        call.task.add_done_callback(partial(self._ended, call, timer))

    def _uncount(self, call: _Call) -> None:
        """Let another call begin: this one is slow, or over."""
        if call.counts:
            call.counts = False
            self._counted -= 1
            self._begin_calls()

    async def _run(self, call: _Call) -> None:
        queue, attempt = call.delivery.queue, call.attempt
        if attempt is None:
            await _reported(self._source.expired(queue, call.dropped))
            return
        failure: Exception | None = None
        try:
            _check_source(queue)
            check = partial(_check_source, queue)
            await self._transport.send(attempt.target, attempt.events, check)
        except Exception as error:  # noqa: BLE001  the outcome of the call
            failure = error
        finally:
            call.sent.set()
        if not queue.is_current(attempt):
            return
        call.is_reporting = True
        if failure is None:
            queue.succeeded(attempt)
            self.events_delivered += len(attempt.events)
            await _reported(self._source.delivered(queue, attempt.up_to))
        elif _is_final(failure):
            queue.rejected(attempt)
            self.listeners_rejected += 1
            logger.warning("%s is removed: it refused events: %s", attempt.target, failure)
            await _reported(self._source.rejected(queue, failure))
        else:
            self._failed(queue, attempt, failure)

    def _failed(self, queue: EventQueue, attempt: Attempt, failure: BaseException) -> None:
        self.failed_calls += 1
        now = asyncio.get_running_loop().time()
        shortened = MAX_SHORTENED * self._random.random()
        error = f"{type(failure).__name__}: {failure}"[:MAX_ERROR_TEXT]
        queue.failed(attempt, now, error, shortened)
        logger.info("events for %s will be sent again: %s", attempt.target, failure)

    def _ended(self, call: _Call, timer: asyncio.TimerHandle, task: "asyncio.Task[None]") -> None:
        timer.cancel()
        call.sent.set()  # if it was cancelled before it began
        delivery = call.delivery
        self._calls.discard(call)
        delivery.ending.discard(call)
        if delivery.call is call:
            delivery.call = None
            attempt = call.attempt
            if task.cancelled() and attempt is not None and delivery.queue.is_current(attempt):
                self._failed(delivery.queue, attempt, asyncio.CancelledError("cancelled"))
            self._schedule(delivery)
        self._uncount(call)
        self._begin_calls()


class NotServed(LeaseholdError):
    """The source of events must not send them now."""

    status = Status.UNAVAILABLE
    not_executed = True


def _check_source(queue: EventQueue) -> None:
    """Raise if another server may serve the source by now: this one may have been stopped."""
    if not queue.may_send():
        raise NotServed(f"{queue.source} has ended, or is now served by another server")


async def _reported(report: Awaitable[None]) -> None:
    try:
        await report
    except Exception:
        logger.exception(
            "the outcome of a delivery could not be stored; its events may be sent again"
        )


def _is_final(error: Exception) -> bool:
    """Return whether a listener is to be removed: it is unknown there, or has refused."""
    if isinstance(error, RpcError):
        return STATUS_IS_DEFINITE.get(error.status, False)
    if isinstance(error, LeaseholdError):
        return is_definite(error)
    if not isinstance(error, INDEFINITE_EXCEPTIONS):
        logger.error("events could not be sent", exc_info=error)
    return False
