"""The parts of `RenewalSet` and `Mailbox` that are not generated: leases, listeners and iterators.

Callbacks for events run in separate threads, and may block. Their events have the objects of
blocking code.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Self, TypeVar

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.pending import Pending
from leasehold.engine.time_limits import Timeout
from leasehold.errors import LeaseUnmarshalError
from leasehold.events import client as mailboxes
from leasehold.events.callback_dispatch import EventRegistration, Listener
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.lease import Lease as AsyncLease
from leasehold.renewal import client as on_loop
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure
from leasehold.sync.generated.lease import Lease
from leasehold.sync.lease_base import LeaseBase
from leasehold.sync.loop_thread import LoopThread

S = TypeVar("S", bound="RenewalSetBase")

Warned = ExpirationWarning["RenewalSetBase", Lease]
Failed = RenewalFailure["RenewalSetBase", Lease]


class LoopTwin:
    """An object on the loop. Two are equal if these are."""

    __slots__ = ("_on_loop", "_thread")
    _on_loop: Any

    def __eq__(self, other: object) -> bool:
        return self._on_loop == other._on_loop if isinstance(other, LoopTwin) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._on_loop)

    def __repr__(self) -> str:
        return repr(self._on_loop)


class RenewalSetBase(LoopTwin):
    """A renewal set on the loop."""

    __slots__ = ("lease",)
    _on_loop: on_loop.RenewalSet

    def __init__(self, thread: LoopThread, twin: on_loop.RenewalSet) -> None:
        self._thread = thread
        self._on_loop = twin
        self.lease = Lease(twin.lease, thread)
        """Its lease: the set ends with it. It is renewed by its owner, not automatically."""

    def remove(
        self, lease: LeaseBase | Lease | LeaseReference, *, timeout: Timeout = None
    ) -> Lease | None:
        """Remove a lease, which is not cancelled; return it with its latest end.

        None if it is not in the set.
        """
        ours = referred(lease)
        found = self._thread.run(lambda: self._on_loop.remove(ours, timeout=timeout))
        return None if found is None else Lease(found, self._thread)

    def leases(self, *, timeout: Timeout = None) -> list[Lease]:
        """Return all leases of the set, with their ends as last recorded.

        Raises `LeaseUnmarshalError`, which has the others, if some cannot be decoded here.
        """
        try:
            found = self._thread.run(lambda: self._on_loop.leases(timeout=timeout))
        except LeaseUnmarshalError as error:
            wrapped = [Lease(each, self._thread) for each in error.leases]
            raise LeaseUnmarshalError(wrapped, error.marshalled, error.exceptions) from None
        return [Lease(each, self._thread) for each in found]

    def set_warning_listener(
        self,
        listener: "Callable[[Warned], object] | MailboxBase | Listener",
        min_warning: float | timedelta,
        handback: bytes = b"",
        *,
        timeout: Timeout = None,
    ) -> EventRegistration[Self, Lease]:
        """Send a warning to `listener`, `min_warning` seconds before the lease of the set ends.

        `listener` is a function of this process, called in a separate thread with an
        `ExpirationWarning` while this client is open; or a mailbox, or a listener that any process
        serves. It replaces the listener for warnings that there was. `handback` is returned with
        each event.
        """
        ours = self._listener(listener)
        made = self._thread.run(
            lambda: self._on_loop.set_warning_listener(ours, min_warning, handback, timeout=timeout)
        )
        lease = Lease(made.lease, self._thread)
        return EventRegistration(self, made.kind, lease, made.number)

    def set_failure_listener(
        self,
        listener: "Callable[[Failed], object] | MailboxBase | Listener",
        handback: bytes = b"",
        *,
        timeout: Timeout = None,
    ) -> EventRegistration[Self, Lease]:
        """Send an event to `listener` when a lease could not be kept alive, and has left the set.

        `listener` is as for warnings; a function is called with a `RenewalFailure`. It replaces the
        listener for failures that there was. `handback` is returned with each event.
        """
        ours = self._listener(listener)
        made = self._thread.run(
            lambda: self._on_loop.set_failure_listener(ours, handback, timeout=timeout)
        )
        lease = Lease(made.lease, self._thread)
        return EventRegistration(self, made.kind, lease, made.number)

    def _listener(self, listener: Any) -> Any:
        if isinstance(listener, MailboxBase):
            return listener.target
        if not callable(listener):
            return listener
        check_plain_callback(listener, "listener")

        async def call_in_thread(event: on_loop.RenewalSetEvent) -> None:
            ours = blocking_event(type(self), self._thread, event)
            await asyncio.get_running_loop().run_in_executor(None, listener, ours)

        return call_in_thread

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Do nothing: the set lives until its lease ends."""


class MailboxBase(LoopTwin):
    """A mailbox on the loop."""

    __slots__ = ("lease",)
    _on_loop: mailboxes.Mailbox

    def __init__(self, thread: LoopThread, twin: mailboxes.Mailbox) -> None:
        self._thread = thread
        self._on_loop = twin
        self.lease = Lease(twin.lease, thread)
        """Its lease: the mailbox ends with it. A renewal set can keep it alive."""

    @property
    def target(self) -> EventTarget:
        """The listener to register with services of the same cluster."""
        return self._on_loop.target

    def events(self) -> Iterator[RemoteEvent]:
        """Iterate over the events, now and later. An event is processed when the next is requested.

        Processed events are acknowledged in groups, and when the iterator is closed. Calls that
        fail are retried; `NoSuchObject` is raised when the mailbox has ended.
        """
        iterator = self._on_loop.events()

        async def get_next() -> RemoteEvent:
            return await anext(iterator)

        try:
            while True:
                yield self._thread.run(get_next)
        finally:
            self._thread.run(iterator.aclose)


def blocking_event(
    kind: type[S], thread: LoopThread, event: on_loop.RenewalSetEvent
) -> ExpirationWarning[S, Lease] | RenewalFailure[S, Lease]:
    """Return an event with the objects of blocking code."""
    source = kind(thread, event.source)
    if isinstance(event, RenewalFailure):
        return RenewalFailure(
            source, event, lambda: Lease(event.lease, thread), lambda: event.error
        )
    return ExpirationWarning(source, event, lambda: Lease(event.lease, thread))


def obtain_set(thread: LoopThread, pending: Pending[on_loop.RenewalSet]) -> on_loop.RenewalSet:
    """Wait for a set; one whose caller was interrupted ends with its lease."""

    async def make() -> on_loop.RenewalSet:
        return await pending

    return thread.run(make)


def referred(lease: LeaseBase | Lease | LeaseReference) -> AsyncLease | LeaseReference:
    """Return the lease on the loop for one of ours; a reference is returned unchanged."""
    match lease:
        case LeaseBase():
            return lease.held
        case Lease():
            return lease.on_loop
        case LeaseReference():
            return lease
    raise TypeError(f"lease must be a lease or a LeaseReference, not {lease!r}")
