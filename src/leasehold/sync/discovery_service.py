"""The parts of the discovery service's classes for blocking code that are not generated.

Callbacks for events run in separate threads, and may block. Their events have the objects of
blocking code.
"""

import asyncio
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import ANY, DurationLike
from leasehold.discovery import client as on_loop
from leasehold.discovery.locators import LocatorLike
from leasehold.discovery.registrar_events import RegistrarEvent
from leasehold.discovery.state import NO_GROUPS
from leasehold.engine.time_limits import Timeout
from leasehold.events.callback_dispatch import EventRegistration, Listener
from leasehold.events.state import RemoteEvent
from leasehold.sync.generated.lease import Lease
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.renewal_set import LoopTwin, MailboxBase

if TYPE_CHECKING:
    from leasehold.sync.generated.discovery_client import DiscoveryRegistration

OnLoopEvent = RegistrarEvent[on_loop.DiscoveryRegistration]


class RemoteDiscoveryBase(LoopTwin):
    """A discovery service on the loop."""

    _on_loop: on_loop.RemoteDiscovery

    def __init__(self, thread: LoopThread, twin: on_loop.RemoteDiscovery) -> None:
        self._thread = thread
        self._on_loop = twin

    def register(
        self,
        groups: Iterable[str] | None = NO_GROUPS,
        locators: Iterable[LocatorLike] | None = None,
        *,
        listener: "Callable[[RegistrarEvent[DiscoveryRegistration]], object] | MailboxBase | Listener",  # noqa: E501
        handback: bytes = b"",
        duration: DurationLike = ANY,
        timeout: Timeout = None,
    ) -> "DiscoveryRegistration":
        """Have registrars of groups and at locators found, and reported to `listener`.

        `groups` of None stands for all groups, an empty list for none. `listener` is a function of
        this process, called in a separate thread with a `RegistrarEvent` while this client is open;
        or a mailbox, or a listener that any process serves. `handback` is returned with each event.
        The registration is leased for `duration`, or less if the server has a lower limit; the
        lease is renewed by its owner, such as a renewal manager or a renewal set. A mailbox has to
        be one of the cluster of this service; raises ValueError if it is not.

        Every call makes another registration. After a connection error there may be one that ends
        with its lease.
        """
        ours = self._listener(listener)
        made = self._thread.run(
            lambda: self._on_loop.register(
                groups,
                locators,
                listener=ours,
                handback=handback,
                duration=duration,
                timeout=timeout,
            )
        )
        return self._registration(made)

    def event(self, event: RemoteEvent) -> "RegistrarEvent[DiscoveryRegistration]":
        """Return an event of the service out of one from a mailbox or a served listener.

        Raises ValueError if it is an event of another service.
        """

        async def decode() -> OnLoopEvent:
            return self._on_loop.event(event)

        return self._event(self._thread.run(decode))

    def close(self) -> None:
        """Close the connection, if it is for this service only. Registrations stay.

        Does nothing in a forked child.
        """
        if not self._thread.is_forked and not self._thread.is_ending:
            self._thread.run_to_end(self._on_loop.close)

    def _listener(self, listener: Any) -> Any:
        if isinstance(listener, MailboxBase):
            return listener._on_loop  # noqa: SLF001  its cluster is compared
        if not callable(listener):
            return listener
        check_plain_callback(listener, "listener")

        async def call_in_thread(event: OnLoopEvent) -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, listener, self._event(event))

        return call_in_thread

    def _event(self, event: OnLoopEvent) -> "RegistrarEvent[DiscoveryRegistration]":
        """Return an event with the objects of blocking code."""
        ours: RegistrarEvent[Any] = copy(event)
        ours.source = self._registration(event.source)
        return ours

    def _registration(self, twin: on_loop.DiscoveryRegistration) -> "DiscoveryRegistration":
        from leasehold.sync.generated.discovery_client import (  # noqa: PLC0415  it imports this
            DiscoveryRegistration,
        )

        return DiscoveryRegistration(self._thread, twin)

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class DiscoveryRegistrationBase(LoopTwin):
    """A registration of the discovery service on the loop."""

    __slots__ = ("lease",)
    _on_loop: on_loop.DiscoveryRegistration

    def __init__(self, thread: LoopThread, twin: on_loop.DiscoveryRegistration) -> None:
        self._thread = thread
        self._on_loop = twin
        self.lease = Lease(twin.lease, thread)
        """Its lease, for discovery and events. It is renewed by its owner, not automatically."""

    @property
    def event_registration(self) -> EventRegistration[Self, Lease]:
        """The source of the events, their kind, the lease, and the number of the last event.

        The number is that of the time at which this handle was made.
        """
        made = self._on_loop.event_registration
        return EventRegistration(self, made.kind, self.lease, made.number)
