"""`Callbacks`: events for functions of a client, which cannot be called from outside.

The client makes one mailbox when the first callback is registered, keeps its lease renewed, and
waits for its events. Each registration has its own queue here, so that a callback that takes long
delays only the events of its own registration. An event is acknowledged after its callback has
returned, and all events before it have. The mailbox ends soon after the client.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from leasehold.basics.backoff import Backoff
from leasehold.basics.durations import FOREVER
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import Closed, LeaseholdError, is_definite
from leasehold.events.client import (
    RETRIES,
    EventCallback,
    ListenerServer,
    Mailbox,
    ReceivedEvent,
)
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.renewal_manager import RenewalManager

logger = logging.getLogger(__name__)

MAILBOX_S: Final = 60.0
"""The term of the mailbox of a client, to be renewed."""

POLL_S: Final = 30.0
"""How long a call waits for events."""

MAX_OPEN: Final = 1_000
"""Events that were read and whose callbacks have not returned; no more are read then."""

END_S: Final = 2.0
"""How long `close` tries to end the mailbox."""

S = TypeVar("S")
L = TypeVar("L")


class EventRegistration(NamedTuple, Generic[S, L]):
    """The registration of a listener, which lives as long as its lease."""

    source: S
    kind: int
    lease: L
    number: int
    """The number of the last event of this kind: later events have higher ones."""


Listener: TypeAlias = EventTarget | Mailbox | ListenerServer
"""The receiver of events in any process: a mailbox, or a listener that a process serves."""


def target_of(listener: Listener) -> EventTarget:
    """Return the target of a listener that is not a function."""
    match listener:
        case EventTarget():
            return listener
        case Mailbox():
            return listener.target
        case ListenerServer():
            return listener.listener
    raise TypeError(
        f"listener must be a function, a mailbox or a served listener, not {listener!r}"
    )


def check_handback(handback: bytes) -> bytes:
    """Return the bytes that are returned with each event; TypeError if they are not."""
    if not isinstance(handback, bytes):
        raise TypeError(f"handback must be bytes, not {handback!r}")
    return handback


Key = tuple[str, str, int]
"""A registration: service, source and kind."""


def key_of(event: RemoteEvent) -> Key:
    """Return the registration of an event."""
    return event.service, event.source, event.kind


class Callbacks:
    """The callbacks of a client, by registration."""

    def __init__(
        self,
        open_mailbox: Callable[[float], Awaitable[Mailbox]],
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        """`open_mailbox(duration)` creates the mailbox."""
        self._open_mailbox = open_mailbox
        self._clock = clock
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._opening = asyncio.Lock()
        self._mailbox: Mailbox | None = None
        self._manager: RenewalManager | None = None
        self._callbacks: dict[Key, EventCallback] = {}
        self._open: set[int] = set()
        """The positions of events of the mailbox whose callbacks have not returned."""
        self._queues: dict[Key, deque[tuple[ReceivedEvent, set[int]]]] = {}
        """Events whose callbacks are to be called, with the one that is running, and the positions
        that each is one of: there may be another mailbox when it returns."""
        self._registering = 0
        self._early: list[ReceivedEvent] = []
        """Events without a callback that were received while registrations are under way."""
        self._read_up_to = 0
        self._changed = asyncio.Event()
        """Set when a callback has returned."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # Registrations.

    async def target(self) -> EventTarget:
        """Return the listener to register; make the mailbox if there is none."""
        async with self._opening:
            if self._closed:
                raise Closed("the client was closed")
            if self._mailbox is None:
                mailbox = await self._open_mailbox(MAILBOX_S)
                self._manager = RenewalManager(clock=self._clock)
                self._manager.renew_for(mailbox.lease, FOREVER, MAILBOX_S)
                self._mailbox, self._read_up_to, self._open = mailbox, 0, set()
                self._spawn(self._receive(mailbox))
                self._spawn(self._acknowledge(mailbox))
            return self._mailbox.target

    def set(self, key: Key, callback: EventCallback) -> None:
        """Set the callback of a registration; to be done before it is registered.

        Or in a block of `registering`: it is called for the events that were received there.
        """
        self._callbacks[key] = callback
        early, self._early = self._early, []
        for each in early:
            self._dispatch(each)

    @contextmanager
    def registering(self) -> Iterator[None]:
        """Keep events without a callback until the block ends.

        For a registration whose id the service chooses: its first events may be received before its
        callback is set. `set` is to be called in the block.
        """
        self._registering += 1
        try:
            yield
        finally:
            self._registering -= 1
            if not self._registering:  # the others have no callback
                self._open.difference_update(each.position for each in self._early)
                self._early.clear()
                self._changed.set()

    def clear(self, key: Key) -> None:
        """Forget the callback of a registration; one that runs continues. Idempotent."""
        self._callbacks.pop(key, None)

    async def close(self) -> None:
        """Stop calling callbacks, and end the mailbox if the server can be reached."""
        self._closed = True
        mailbox = self._mailbox
        self._stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if mailbox is not None:
            try:
                async with asyncio.timeout(END_S):
                    await mailbox.lease.cancel()
            except (LeaseholdError, OSError) as error:
                logger.info("%r was not ended, and will expire: %s", mailbox, error)

    def _stop(self) -> None:
        self._mailbox = None
        self._early.clear()
        self._changed.set()
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The mailbox.

    async def _receive(self, mailbox: Mailbox) -> None:
        backoff = Backoff(RETRIES, self._random)
        while self._mailbox is mailbox:
            if len(self._open) >= MAX_OPEN:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                room = MAX_OPEN - len(self._open)
                received = await mailbox.read(self._read_up_to, room, POLL_S)
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    self._lost(mailbox, error)
                    return
                logger.info("events of %r could not be read: %s", mailbox, error)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            for each in received:
                self._read_up_to = each.position
                self._dispatch(each)
            self._changed.set()

    def _lost(self, mailbox: Mailbox, error: BaseException) -> None:
        """Forget all registrations: their mailbox has ended."""
        if self._mailbox is not mailbox:
            return
        count = len(self._callbacks)
        logger.error(
            "%r has ended, so %d callbacks receive no more events: %s", mailbox, count, error
        )
        self._stop()
        self._callbacks.clear()

    async def _acknowledge(self, mailbox: Mailbox) -> None:
        acknowledged = 0
        backoff = Backoff(RETRIES, self._random)
        while self._mailbox is mailbox:
            up_to = min(self._open) - 1 if self._open else self._read_up_to
            if up_to <= acknowledged:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await mailbox.acknowledge(up_to)
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    self._lost(mailbox, error)
                    return
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            acknowledged = up_to

    # Callbacks.

    def _dispatch(self, received: ReceivedEvent) -> None:
        key = key_of(received.event)
        if key not in self._callbacks:
            if self._registering:
                self._open.add(received.position)
                self._early.append(received)
                return
            logger.debug("an event of %s has no callback any more", key)
            return
        self._open.add(received.position)
        queue = self._queues.get(key)
        if queue is not None:
            queue.append((received, self._open))
            return
        self._queues[key] = deque([(received, self._open)])
        self._spawn(self._call_all(key))

    async def _call_all(self, key: Key) -> None:
        queue = self._queues[key]
        try:
            while queue:
                received, is_open = queue[0]
                await self._call(key, received.event)
                queue.popleft()
                is_open.discard(received.position)
                self._changed.set()
        finally:
            del self._queues[key]

    async def _call(self, key: Key, event: RemoteEvent) -> None:
        callback = self._callbacks.get(key)
        if callback is None:  # it was cleared meanwhile
            return
        try:
            result = callback(event)
            if inspect.isawaitable(result):
                await result
        except Exception:
            logger.exception("the callback for event %d of %s failed", event.number, key)
