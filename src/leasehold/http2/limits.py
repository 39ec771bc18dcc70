"""Every limit of a connection, in one place: its name, its default, and why.

A peer that exceeds a limit for one call loses the call; one that exceeds a limit for the connection
loses the connection, with `ENHANCE_YOUR_CALM` and one line in the log. Other connections are not
affected.

Frames that cost something and carry nothing (pings, settings, resets, empty frames) are charged to
a token bucket for each kind: a burst is free, and so is a low rate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from leasehold.http2.frames import ConnectionFailed, ErrorCode
from leasehold.http2.hpack import MAX_HEADER_LIST_BYTES

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Rate(NamedTuple):
    """The size of a burst, and the rate per second after it."""

    burst: int
    per_s: float


_TAKEN_BACK: Final = Rate(2048, 100.0)
_RARE: Final = Rate(100, 10.0)
_CHEAP: Final = Rate(10_000, 1000.0)
_UNPACKED: Final = Rate(4 * MIB, 4.0 * MIB)


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits of one connection."""

    max_streams: int = 1024
    """Calls under way; more are refused, and may be retried."""
    max_header_list_bytes: int = MAX_HEADER_LIST_BYTES
    """The fields of a request, decoded; a longer list ends the call."""
    max_block_bytes: int = 64 * KIB
    """The fields of a request, encoded, over all CONTINUATION frames."""
    max_continuations: int = 256
    """CONTINUATION frames for one block: at 16 KiB each four would do, but frames may be
    smaller."""
    max_message_bytes: int = 2 * MIB
    """A received message, decompressed; etcd has the same limit."""
    max_buffered_bytes: int = 32 * MIB
    """Messages that are incomplete or that no handler has taken, and large headers that are kept,
    on all streams. All connections of a server together may have `http2.inbound.SHARES`
    times as much."""
    message_s: float = 30.0
    """How long a message may take to arrive completely, plus the time that it needs at
    `min_bytes_per_s`; then its call is ended. The first byte of a unary call's message, or of the
    body of a web request, must arrive within this time after the headers. A header block must be
    complete within this time, or the connection is closed."""
    min_bytes_per_s: int = 16 * KIB
    resets: Rate = _TAKEN_BACK
    """Calls that the peer cancels before there is an answer, or makes us reset: twice all that it
    may have."""
    refusals: Rate = _CHEAP
    """Calls beyond `max_streams`: a client may not have received that limit yet."""
    settings: Rate = _RARE
    pings: Rate = _RARE
    """Pings while nothing is sent to the peer: gRPC's clients answer each piece of data with one,
    to measure the round-trip time."""
    empty_data: Rate = _RARE
    """DATA frames that are empty and do not end a stream."""
    idle_frames: Rate = _CHEAP
    """All other frames that begin no call and carry no message, unless there is a reason for
    them."""
    unpacked: Rate = _UNPACKED
    """Bytes beyond a fair ratio that compressed messages are decompressed to."""
    max_unsent_bytes: int = 16 * MIB
    """Output that waits for the peer; above it calls are refused, and so is a peer that keeps
    requesting events. A single answer may be larger."""
    max_event_bytes: int = 4 * MIB
    """Events that wait for the peer or for the disk; above it there is no room for more until half
    of them are sent. A single one may be larger."""
    first_bytes_s: float = 10.0
    """From the connection to the end of its greeting; and for a request of HTTP/1.1 to be
    complete."""
    idle_s: float = 3600.0
    """How long a connection without any call is kept."""
    uncalled_s: float = 60.0
    """The same for a connection on which no call was ever made."""
    stall_s: float = 60.0
    """How long a peer may leave requested output unread."""
    min_taken_bytes: int = 64 * KIB
    """How much of it the peer must read in that time."""
    ping_after_s: float = 60.0
    """A peer that has calls is pinged after this time of silence."""
    ping_timeout_s: float = 20.0
    """How long the peer may take to answer a ping."""


class TokenBucket:
    """The tokens that are left of a rate."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at = 0.0

    def spend(self, now: float, earned: int = 0, amount: int = 1) -> bool:
        """Add `earned` tokens, then take `amount`; return False if there are fewer."""
        burst, per_s = self._rate
        self._left = min(burst, self._left + (now - self._at) * per_s + earned)
        self._at = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class TokenBuckets:
    """The token buckets of a connection, each made when it is first used."""

    __slots__ = ("_buckets", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: dict[str, TokenBucket] = {}

    def spend(self, rate: Rate, what: str, earned: int = 0, amount: int = 1) -> None:
        """Charge for `amount` of `what`; raise `ConnectionFailed` if the bucket is empty."""
        bucket = self._buckets.get(what)
        if bucket is None:
            bucket = self._buckets[what] = TokenBucket(rate)
        if not bucket.spend(self._now(), earned, amount):
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"too many {what}: the limit is {rate.burst}, then {rate.per_s:g} per second",
            )
