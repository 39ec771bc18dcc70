"""Checks one connection: whether its peer is alive, and whether it is in use.

Each has one timer, and nothing is done for it when data is received or sent. The times are
therefore accurate to a beat.
"""

from collections.abc import Callable
from typing import Final, Protocol

from leasehold.basics.event_loop import EventLoop, LoopTimer
from leasehold.http2.frames import ErrorCode
from leasehold.http2.limits import ConnectionLimits

BEATS_PER_LIMIT: Final = 4
"""How often a limit is checked before it is exceeded."""

MEMO_S: Final = 30.0
"""How long a connection without calls keeps its caches."""

MAX_BEAT_S: Final = 5.0
MIN_BEAT_S: Final = 0.01


class WatchedConnection(Protocol):
    """A connection, as its watchdog sees it."""

    is_closing: bool

    @property
    def is_pinged(self) -> bool:
        """Whether a ping is not answered yet."""
        ...

    @property
    def activity(self) -> int:
        """A number that changes whenever data is received."""
        ...

    @property
    def has_greeted(self) -> bool:
        """Whether the peer has sent its greeting."""
        ...

    @property
    def begun(self) -> int:
        """A number that changes whenever the peer begins a request."""
        ...

    @property
    def has_streams(self) -> bool:
        """Whether anything is under way."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The bytes of output that wait for the peer."""
        ...

    @property
    def taken_bytes(self) -> int:
        """The total bytes of output that the peer's windows have let through."""
        ...

    @property
    def put_bytes(self) -> int:
        """The total bytes of output that were handed on."""
        ...

    def drain(self) -> None:
        """Ask the peer to begin nothing new."""
        ...

    def drop_stalled(self) -> bool:
        """Drop streams that wait for the peer while others continue; False if there are none."""
        ...

    def drop_overdue(self, now: float) -> None:
        """End calls whose request takes too long to arrive completely."""
        ...

    def forget_memos(self) -> None:
        """Clear the caches that make the next calls cheaper."""
        ...

    def ping(self) -> None:
        """Send a ping."""
        ...


class Watchdog:
    """Calls `complain` with the error, once."""

    __slots__ = (
        "_activity",
        "_alarm",
        "_beat_s",
        "_begun",
        "_complain",
        "_greeting_since",
        "_heard_at",
        "_idle_since",
        "_is_parting",
        "_limits",
        "_loop",
        "_pinged_at",
        "_taken",
        "_taken_at",
        "_unwritten",
        "_watched",
    )

    def __init__(
        self, loop: EventLoop, limits: ConnectionLimits, complain: Callable[[ErrorCode, str], None]
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._complain = complain
        self._watched: WatchedConnection | None = None
        self._unwritten: Callable[[], int] = int
        now = loop.now()
        self._heard_at = self._taken_at = self._idle_since = now
        self._greeting_since: float | None = now
        self._pinged_at: float | None = None
        self._activity = self._taken = self._begun = 0
        self._is_parting = False
        shortest_s = min(
            limits.first_bytes_s,
            limits.idle_s,
            limits.uncalled_s,
            limits.stall_s,
            limits.ping_timeout_s,
        )
        self._beat_s = max(MIN_BEAT_S, min(MAX_BEAT_S, shortest_s / BEATS_PER_LIMIT))
        self._alarm: LoopTimer = loop.call_later(self._beat_s, self._beat)

    def watch(self, connection: WatchedConnection, unwritten: Callable[[], int]) -> None:
        """Set the connection, once its protocol is known, and the size of its unwritten output."""
        self._watched = connection
        self._unwritten = unwritten

    @property
    def idle_since(self) -> float:
        """When the last call began or ended, to within a beat; else when the connection began."""
        watched = self._watched
        is_behind = watched is not None and (watched.has_streams or watched.begun != self._begun)
        return self._loop.now() if is_behind else self._idle_since

    def stop(self) -> None:
        """Stop checking: the connection is gone."""
        self._alarm.cancel()

    def _beat(self) -> None:
        now = self._loop.now()
        trouble = self._trouble(now)
        if trouble is None:
            self._alarm = self._loop.call_later(self._beat_s, self._beat)
        else:
            self._complain(*trouble)

    def _trouble(self, now: float) -> tuple[ErrorCode, str] | None:
        limits, watched = self._limits, self._watched
        if watched is None or not watched.has_greeted:
            begun = 0 if watched is None else watched.begun
            if self._greeting_since is None or begun != self._begun:
                self._begun, self._greeting_since = begun, now
            if now - self._greeting_since < limits.first_bytes_s:
                return None
            return ErrorCode.ENHANCE_YOUR_CALM, f"no greeting within {limits.first_bytes_s:g} s"
        self._greeting_since = None
        if watched.activity != self._activity:
            self._activity, self._heard_at = watched.activity, now
        watched.drop_overdue(now)
        unwritten_bytes = self._unwritten()
        taken = watched.taken_bytes + watched.put_bytes - unwritten_bytes
        if taken >= self._taken + limits.min_taken_bytes or not (
            watched.unsent_bytes or unwritten_bytes
        ):
            self._taken, self._taken_at = taken, now
        if watched.has_streams or watched.begun != self._begun:
            self._begun, self._idle_since = watched.begun, now
        if now - self._taken_at >= limits.stall_s:
            if not unwritten_bytes and watched.drop_stalled():
                self._taken_at = now
                return None
            why = f"the peer has read almost nothing of its responses for {limits.stall_s:g} s"
            return ErrorCode.ENHANCE_YOUR_CALM, why
        if now - self._idle_since >= MEMO_S:
            watched.forget_memos()
        idle_s = limits.idle_s if watched.begun else min(limits.idle_s, limits.uncalled_s)
        if now - self._idle_since >= idle_s:
            if self._is_parting:
                return ErrorCode.NO_ERROR, f"nothing to do for {idle_s:g} s"
            self._is_parting = True  # at the next beat, so that a call already sent is not lost
            watched.drain()
        return self._presence(watched, now)

    def _presence(self, watched: WatchedConnection, now: float) -> tuple[ErrorCode, str] | None:
        """Ping a peer that has calls, and has long been silent."""
        limits = self._limits
        if not watched.is_pinged:
            self._pinged_at = None
            if watched.has_streams and now - self._heard_at >= limits.ping_after_s:
                self._pinged_at = now
                watched.ping()
            return None
        if self._pinged_at is None:  # the ping was sent by other code
            self._pinged_at = now
        if now - max(self._pinged_at, self._heard_at) < limits.ping_timeout_s:
            return None
        return ErrorCode.NO_ERROR, f"no answer to a ping for {limits.ping_timeout_s:g} s"
