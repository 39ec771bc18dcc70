"""What happens to locks, for whoever wants to know: the application's side and the client's."""

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from leasehold.recipes.token import Token

logger = logging.getLogger(__name__)

Side: TypeAlias = Literal["application", "client"]


class LockEventKind(StrEnum):
    """What has happened."""

    ASKED = "asked"
    """A lock was asked for: by the application, or by the client at the server, whom `holder` names
    if somebody has it."""
    FROM_CACHE = "from cache"
    """The application was answered without a message."""
    GRANTED = "granted"
    DENIED = "denied"
    RECALL_ACCEPTED = "recall accepted"
    """Its holder has given it up for us."""
    RECALL_REFUSED = "recall refused"
    """Its holder has it in use."""
    RECALL_UNANSWERED = "recall unanswered"
    """Its holder has not said anything."""
    GAVE_UP = "gave up"
    """We have given it up, for `holder` if somebody waits for it."""
    REFUSED = "refused"
    """We have told `holder` that it is in use."""
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
    """Something that has happened to a lock, or to the session of all of them."""

    side: Side
    """Whether the application has done or seen it, or the client on its behalf."""
    kind: LockEventKind
    lock: str
    """The lock's name; empty for what happens to the session."""
    holder: str = ""
    """Who else is concerned, if anybody is."""
    token: Token | None = None
    """Of the guard that it is about."""


Listener: TypeAlias = Callable[[LockEvent], object]


class LockLog:
    """Tells listeners. While there are none it costs nothing."""

    __slots__ = ("_listeners", "is_on")

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self.is_on = False
        """Whether anybody listens."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a listener told; what is returned ends that."""
        self._listeners = (*self._listeners, listener)
        self.is_on = True

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)
            self.is_on = bool(self._listeners)

        return stop

    def say(
        self,
        side: Side,
        kind: LockEventKind,
        lock: str = "",
        holder: str = "",
        token: Token | None = None,
    ) -> None:
        """Tell all listeners."""
        if not self.is_on:
            return
        event = LockEvent(side, kind, lock, holder, token)
        for listener in self._listeners:
            try:
                listener(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                logger.exception("a listener to events of locks has failed")
