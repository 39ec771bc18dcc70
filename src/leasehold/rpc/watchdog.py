"""Looks after one connection: whether its peer is there, and has something to do here.

One alarm each, whatever happens on the connection: nothing is done for it when bytes come or go.
The times are therefore kept to within a beat.
"""

from collections.abc import Callable
from typing import Final, Protocol

from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.host import Alarm, Host
from leasehold.rpc.limits import Limits

BEATS_PER_LIMIT: Final = 4
"""How often a limit is looked at before it is over."""

MEMO_S: Final = 30.0
"""How long a connection without calls keeps what it has remembered of those before."""

MAX_BEAT_S: Final = 5.0
MIN_BEAT_S: Final = 0.01


class Watched(Protocol):
    """A connection, as its watchdog sees it."""

    is_closing: bool

    @property
    def is_pinged(self) -> bool:
        """Whether the peer has yet to answer a ping."""
        ...

    @property
    def activity(self) -> int:
        """A number that changes whenever the peer says something."""
        ...

    @property
    def has_greeted(self) -> bool:
        """Whether the peer has said what it must say before anything can be done."""
        ...

    @property
    def begun(self) -> int:
        """A number that changes whenever the peer asks for something."""
        ...

    @property
    def has_streams(self) -> bool:
        """Whether anything is under way."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Output that waits for the peer."""
        ...

    @property
    def taken_bytes(self) -> int:
        """Output that the peer's windows have ever let through."""
        ...

    @property
    def put_bytes(self) -> int:
        """Output that was ever handed on."""
        ...

    def drain(self) -> None:
        """Ask the peer to begin nothing new."""
        ...

    def drop_stalled(self) -> bool:
        """Drop what waits for the peer while other things could go on; False if there is none."""
        ...

    def drop_overdue(self, now: float) -> None:
        """End calls whose request takes too long to arrive completely."""
        ...

    def forget_memos(self) -> None:
        """Forget what was remembered to make the next calls cheaper."""
        ...

    def ping(self) -> None:
        """Ask the peer whether it is there."""
        ...


class Watchdog:
    """Calls `complain` with what is wrong, once."""

    __slots__ = (
        "_activity",
        "_alarm",
        "_beat_s",
        "_begun",
        "_complain",
        "_greeting_since",
        "_heard_at",
        "_host",
        "_idle_since",
        "_is_parting",
        "_limits",
        "_pinged_at",
        "_taken",
        "_taken_at",
        "_unwritten",
        "_watched",
    )

    def __init__(
        self, host: Host, limits: Limits, complain: Callable[[ErrorCode, str], None]
    ) -> None:
        self._host = host
        self._limits = limits
        self._complain = complain
        self._watched: Watched | None = None
        self._unwritten: Callable[[], int] = int
        now = host.now()
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
        self._alarm: Alarm = host.call_later(self._beat_s, self._beat)

    def watch(self, connection: Watched, unwritten: Callable[[], int]) -> None:
        """Learn what the connection speaks, and who knows what could not be written yet."""
        self._watched = connection
        self._unwritten = unwritten

    @property
    def idle_since(self) -> float:
        """When the last call began or ended, to within a beat; else when the connection began."""
        watched = self._watched
        is_behind = watched is not None and (watched.has_streams or watched.begun != self._begun)
        return self._host.now() if is_behind else self._idle_since

    def stop(self) -> None:
        """Look no more: the connection is gone."""
        self._alarm.cancel()

    def _beat(self) -> None:
        now = self._host.now()
        trouble = self._trouble(now)
        if trouble is None:
            self._alarm = self._host.call_later(self._beat_s, self._beat)
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
            why = f"the peer has taken next to nothing of what it asked for in {limits.stall_s:g} s"
            return ErrorCode.ENHANCE_YOUR_CALM, why
        if now - self._idle_since >= MEMO_S:
            watched.forget_memos()
        idle_s = limits.idle_s if watched.begun else min(limits.idle_s, limits.uncalled_s)
        if now - self._idle_since >= idle_s:
            if self._is_parting:
                return ErrorCode.NO_ERROR, f"nothing to do for {idle_s:g} s"
            self._is_parting = True  # at the next beat, so that no call is lost on its way
            watched.drain()
        return self._presence(watched, now)

    def _presence(self, watched: Watched, now: float) -> tuple[ErrorCode, str] | None:
        """Ask a peer that has calls, and has long been silent, whether it is there."""
        limits = self._limits
        if not watched.is_pinged:
            self._pinged_at = None
            if watched.has_streams and now - self._heard_at >= limits.ping_after_s:
                self._pinged_at = now
                watched.ping()
            return None
        if self._pinged_at is None:  # somebody else has asked
            self._pinged_at = now
        if now - max(self._pinged_at, self._heard_at) < limits.ping_timeout_s:
            return None
        return ErrorCode.NO_ERROR, f"no answer to a ping for {limits.ping_timeout_s:g} s"
