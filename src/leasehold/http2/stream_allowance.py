"""How many streams a connection of a server may have: some of its own, further ones from a pool.

Each stream takes memory, even one on which nothing is ever sent. So all connections of a server
share a pool of streams (`StreamPool`). Every connection has `RESERVED_STREAMS` in addition. When
they are in use, it takes further ones from the pool, up to `ConnectionLimits.max_streams`, and
returns them when it needs less. While the pool is empty, a connection gets no further stream
(REFUSED_STREAM: the call was not executed, and may be retried), and its MAX_CONCURRENT_STREAMS is
lowered, so that its client delays further calls. Renewals and short calls need no more than the
reserved ones.

The pool is used in steps, and nothing is counted for a single call.
"""

from collections.abc import Callable
from typing import Final

from leasehold.http2 import frames
from leasehold.http2.frames import Setting
from leasehold.http2.limits import ConnectionLimits

STREAM_SHARES: Final = 128
"""The pool has the streams of this many connections (`ConnectionLimits.max_streams` each)."""

RESERVED_STREAMS: Final = 16
"""Streams that every connection may have, whatever the others have."""


class StreamPool:
    """The streams that the connections of a server share."""

    __slots__ = ("size", "taken")

    def __init__(self, limits: ConnectionLimits) -> None:
        self.size = STREAM_SHARES * limits.max_streams
        self.taken = 0

    def take(self, streams: int) -> int:
        """Take this many streams, or all that are left if these are fewer; return how many."""
        streams = min(streams, self.size - self.taken)
        self.taken += streams
        return streams


class StreamAllowance:
    """How many streams one connection may have now (`streams`)."""

    __slots__ = ("_announced", "_limit", "_pool", "_put_frame", "_report", "_taken", "streams")

    def __init__(
        self,
        limit: int,
        pool: StreamPool,
        put_frame: Callable[[bytes], None],
        report: Callable[[str], None],
    ) -> None:
        self.streams = min(RESERVED_STREAMS, limit)
        self._limit = self._announced = limit
        self._pool = pool
        self._put_frame = put_frame
        self._report = report
        self._taken = 0
        """How many of the streams are from the pool."""

    def grow(self) -> int:
        """Allow twice as many streams, as far as limit and pool allow it; return how many."""
        self._take(min(self.streams, self._limit - self.streams))
        if self.streams < self._announced and self._pool.taken >= self._pool.size:
            self._announce(self.streams)
            self._report(f"may have {self.streams} streams: {self._pool.size} shared ones are used")
        return self.streams

    def shrink(self, used: int) -> int:
        """Return streams above twice those in use to the pool; return how many are allowed."""
        needed = max(2 * used, RESERVED_STREAMS)
        spare = min(self._taken, self.streams - needed)
        if spare > 0:
            self._take(-spare)
        if self._announced < self._limit and self._pool.taken < self._pool.size:
            self._announce(self._limit)
        return self.streams

    def release(self) -> None:
        """Return all streams to the pool: the connection is gone."""
        self._take(-self._taken)

    def _take(self, streams: int) -> None:
        taken = self._pool.take(streams)
        self.streams += taken
        self._taken += taken

    def _announce(self, streams: int) -> None:
        self._announced = streams
        self._put_frame(frames.settings({Setting.MAX_CONCURRENT_STREAMS: streams}))
