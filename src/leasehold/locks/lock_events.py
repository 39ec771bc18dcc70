"""Events of locks, of the application and of its client: for listeners and for `logging`."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from leasehold.clock import Clock
from leasehold.fencing.token import Token

logger = logging.getLogger(__name__)

event_logger: Final = logging.getLogger("leasehold.locks.events")
"""Receives each event."""

Side: TypeAlias = Literal["application", "client"]


class LockEventKind(StrEnum):
    """The kind of an event."""

    ASKED = "asked"
    """A lock was requested: by the application, or by the client at the server; `holder` is its
    holder, if any."""
    FROM_CACHE = "from cache"
    """The application got it without a request to the server."""
    GRANTED = "granted"
    DENIED = "denied"
    RECALL_ACCEPTED = "recall accepted"
    """Its holder has given it up for us."""
    RECALL_REFUSED = "recall refused"
    """Its holder has it in use."""
    RECALL_UNANSWERED = "recall unanswered"
    """Its holder has not answered."""
    GAVE_UP = "gave up"
    """We have given it up, for `holder` if there is a waiter."""
    REFUSED = "refused"
    """We have refused `holder`: the lock is in use."""
    AUTO_RENEWED = "auto-renewed"
    """The session was renewed, and so all its locks."""
    RENEWAL_TIMED_OUT = "renewal timed out"
    """The session is over, because it could not be renewed in time."""
    DISCONNECTED = "disconnected"
    """A renewal has had no answer for a third of a term."""
    LOST = "lost"
    RELEASED = "released"
    RELEASE_NOT_HELD = "release of a lock not held"


class LockEvent(NamedTuple):
    """An event of a lock."""

    side: Side
    """Whether it is an event of the application, or of the client on its behalf."""
    kind: LockEventKind
    lock: str
    """The lock's name. An event of the session is reported for each lock that it holds."""
    holder: str
    """The other client involved, if any."""
    token: Token | None
    """The token of the guard involved."""
    at: datetime
    """When it happened, by the wall clock of the client."""

    def __str__(self) -> str:
        words = [self.side, self.kind, repr(self.lock)]
        if self.holder:
            words.append(f"({self.holder})")
        if self.token is not None:
            words.append(f"token {self.token}")
        return " ".join(words)


Listener: TypeAlias = Callable[[LockEvent], object]


class LockLog:
    """Calls listeners, and writes to the logger `leasehold.locks.events` at level DEBUG.

    Cached locks are acquired and released in a few microseconds, so there `is_on` is read and
    nothing else. It is updated by each event of another kind, such as a renewal: a logger that is
    turned on later is noticed then.
    """

    __slots__ = ("_clock", "_listeners", "is_on")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: tuple[Listener, ...] = ()
        self.is_on = False
        """Whether events are wanted, as far as known."""
        self.update()

    def update(self) -> bool:
        """Find out whether events are wanted."""
        self.is_on = bool(self._listeners) or event_logger.isEnabledFor(logging.DEBUG)
        return self.is_on

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns a function that removes it."""
        self._listeners = (*self._listeners, listener)
        self.update()

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            self.update()

        return stop

    def record(
        self,
        side: Side,
        kind: LockEventKind,
        lock: str,
        holder: str = "",
        token: Token | None = None,
    ) -> None:
        """Report an event, if that is wanted."""
        if not self.update():
            return
        at = datetime.fromtimestamp(self._clock.wall(), UTC)
        event = LockEvent(side, kind, lock, holder, token, at)
        event_logger.debug("%s", event)
        for listener in self._listeners:
            try:
                listener(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                logger.exception("a lock event listener has failed")
