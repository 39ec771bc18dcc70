"""The parts of the registry's classes for blocking code that are not generated.

Callbacks for events run in separate threads, and may block.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Self, TypeVar, overload

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import ANY, DurationLike, check_seconds
from leasehold.engine.time_limits import Timeout
from leasehold.errors import Closed
from leasehold.events.callback_dispatch import EventRegistration, Listener
from leasehold.registry import client as on_loop
from leasehold.registry.client import LookupResult, ServiceEvent
from leasehold.registry.item_watch import ObservedChange
from leasehold.registry.registered_service import RegisteredService as AsyncRegisteredService
from leasehold.registry.state import Item, Template, Transition
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import BlockingCall
from leasehold.sync.generated.lease import Lease
from leasehold.sync.iterators import LoopIterator
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.renewal_set import MailboxBase

T = TypeVar("T")


class Changes(LoopIterator[T]):
    """Changes of services or items: an iterator, which another thread may cancel."""

    __slots__ = ("_reading", "_source")

    def __init__(self, thread: LoopThread, source: AsyncGenerator[T, None]) -> None:
        super().__init__(thread)
        self._source = source
        self._reading: asyncio.Future[T] | None = None

    def next(self, *, timeout: float | timedelta | None = None) -> T:
        """Wait for the next change; raise `TimeoutError` if that takes longer than `timeout`.

        Nothing is lost then: the next call returns it. Raises `Closed` once it is cancelled.
        """
        limit_s = None if timeout is None else check_seconds(timeout, "timeout")
        return self._thread.run(lambda: self._next(limit_s))

    async def _next(self, limit_s: float | None) -> T:
        if self._is_cancelled:
            raise Closed("this iterator was cancelled")
        if self._reading is None:
            self._reading = asyncio.ensure_future(anext(self._source))
        reading = self._reading
        await asyncio.wait([reading], timeout=limit_s)
        if not reading.done():
            raise TimeoutError(f"no change within {limit_s:g} s")
        self._reading = None
        if reading.cancelled():
            raise Closed("this iterator was cancelled")
        return reading.result()

    def cancel(self) -> None:
        """End all iterations. Does nothing in a forked child."""
        self._is_cancelled = True
        self._thread.post(BlockingCall(self._cancel).start)

    close = cancel

    async def _cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._source.aclose()


class RegistryBase:
    """The registry of a client on the loop."""

    __slots__ = ("_on_loop", "_thread")

    def __init__(self, thread: LoopThread, twin: on_loop.Registry) -> None:
        self._thread = thread
        self._on_loop = twin

    @overload
    def lookup(
        self, template: Template, *, stale: bool = False, timeout: Timeout = None
    ) -> Item | None: ...
    @overload
    def lookup(
        self, template: Template, max: int, *, stale: bool = False, timeout: Timeout = None
    ) -> LookupResult: ...

    def lookup(
        self,
        template: Template,
        max: int | None = None,  # noqa: A002
        *,
        stale: bool = False,
        timeout: Timeout = None,
    ) -> Item | LookupResult | None:
        """Return one matching item at random, or None; with `max`, at most so many, and the total.

        Every registration that was answered before this call counts, at any server; with `stale`
        only those that the server has received, which costs less. A `max` of 0 returns the total
        only. `timeout` is for each page of an answer.
        """
        look: Any = self._on_loop.lookup
        found: Item | LookupResult | None = self._thread.run(
            lambda: look(template, max, stale=stale, timeout=timeout)
        )
        return found

    def watch(self, template: Template) -> Changes[ObservedChange]:
        """Iterate over the matching items, and then over their changes.

        It continues after a lost connection: changes in between are found by comparing. Several
        changes of one item may be one then.
        """
        self._thread.check()
        return Changes(self._thread, self._on_loop.watch(template))

    def notify(
        self,
        template: Template,
        transitions: Transition | Iterable[Transition],
        listener: "Callable[[ServiceEvent], object] | MailboxBase | Listener",
        handback: bytes = b"",
        duration: DurationLike = ANY,
        *,
        timeout: Timeout = None,
    ) -> EventRegistration[str, Lease]:
        """Send an event to `listener` for each transition of an item, as long as the lease lasts.

        `listener` is a function of this process, called in a separate thread with a `ServiceEvent`
        while this client is open; or a mailbox, or a listener that any process serves. `handback`
        is returned with each event. The lease is renewed by its owner, such as a renewal manager.
        """
        ours: Any = listener
        if isinstance(listener, MailboxBase):
            ours = listener.target
        elif callable(listener):
            ours = _in_thread(listener)
        made = self._thread.run(
            lambda: self._on_loop.notify(
                template, transitions, ours, handback, duration, timeout=timeout
            )
        )
        lease = Lease(made.lease, self._thread)
        return EventRegistration(made.source, made.kind, lease, made.number)


def _in_thread(listener: Callable[[ServiceEvent], object]) -> on_loop.EventListener:
    check_plain_callback(listener, "listener")

    async def call(event: ServiceEvent) -> None:
        await asyncio.get_running_loop().run_in_executor(None, listener, event)

    return call


class RegistrationBase:
    """A registration on the loop."""

    __slots__ = ("_on_loop", "_thread", "lease")

    def __init__(self, thread: LoopThread, twin: on_loop.Registration) -> None:
        self._thread = thread
        self._on_loop = twin
        self.lease = None if twin.lease is None else Lease(twin.lease, thread)
        """The lease that the item ends with. None if that was given by its number."""

    def __repr__(self) -> str:
        return repr(self._on_loop)


class RegisteredServiceBase:
    """A service on the loop, which is kept registered."""

    def __init__(self, thread: LoopThread, twin: AsyncRegisteredService) -> None:
        self._thread = thread
        self._on_loop = twin

    def maintain(self, *, is_on: bool = True) -> None:
        """Begin or end maintenance, in which it is not found for use."""
        self._thread.run(lambda: _called(lambda: self._on_loop.maintain(is_on=is_on)))

    def update(
        self, *, tags: Iterable[str] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Replace its tags or its metadata. It is written soon after this returns."""
        self._thread.run(
            lambda: _called(lambda: self._on_loop.update(tags=tags, metadata=metadata))
        )

    def close(self) -> None:
        """End the registration; if no server answers within two seconds it expires."""
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._on_loop.close)

    def __enter__(self) -> Self:
        self._thread.check_process()
        begin(self, self)
        return self

    def abandon(self) -> None:
        """Have the loop close it, unless it was closed: its block was interrupted."""
        self._thread.post(BlockingCall(self._on_loop.close).start)

    @block_exit
    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._on_loop)


async def _called(work: Callable[[], T]) -> T:
    return work()
