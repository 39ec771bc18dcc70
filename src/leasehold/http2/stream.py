"""The streams of an HTTP/2 connection, open and closed (RFC 9113, section 5.1).

Each side of an open stream ends separately. The peer's side has ended with `remote_done`. Ours has
when `ending` is set, and `unsent` was sent. Then, or if the stream is reset by either side, or if
the connection is gone, it `is_over`: nothing more of it is sent or received.

A stream id that is not open, and not above the last one that was used, is one of three kinds:

- *ended here*: we ended or reset the stream while the peer's side was open. Frames of the peer may
  have been sent earlier, and are ignored. Their number is limited; the oldest are forgotten first,
  and then count as ended there.
- *ended there*: the peer ended or reset it, and must not send anything more.
- *skipped*: an id was left out, and must never be used. Only gaps are recorded, because there are
  none as long as a peer numbers its streams in the usual way.

How many streams a connection of a server may have: some of its own, further ones from a pool.

Each stream takes memory, even one on which nothing is ever sent. So all connections of a server
share a pool of streams (`StreamPool`). Every connection has `RESERVED_STREAMS` in addition. When
they are in use, it takes further ones from the pool, up to `ConnectionLimits.max_streams`, and
returns them when it needs less. While the pool is empty, a connection gets no further stream
(REFUSED_STREAM: the call was not executed, and may be retried), and its MAX_CONCURRENT_STREAMS is
lowered, so that its client delays further calls. Renewals and short calls need no more than the
reserved ones.

The pool is used in steps, and nothing is counted for a single call.
"""

from abc import abstractmethod
from array import array
from collections.abc import Callable
from typing import Final

from leasehold.basics.rope import Rope
from leasehold.http2 import frames
from leasehold.http2.frames import Setting
from leasehold.http2.limits import ConnectionLimits

MAX_ENDED_HERE: Final = 1024
MAX_GAPS: Final = 64


class Http2Stream:
    """An open stream: the common part of both sides and all uses.

    There is one for each call, so it is cheap to make: attributes that every call needs are in
    slots, and set directly by the subclasses; rare ones are attributes of the class until they are
    set.
    """

    __slots__ = (
        "__dict__",
        "began",
        "ending",
        "has_head",
        "id",
        "is_events",
        "is_over",
        "is_queued",
        "remote_done",
        "replenish",
        "unsent",
        "window",
    )

    id: int
    began: float
    """When the peer began it; 0 if we did."""
    window: int
    """How many bytes of DATA the peer accepts on this stream."""
    replenish: int
    """How many received bytes of DATA were not credited to the peer."""
    unsent: bytearray | Rope | None
    """Bytes of DATA that are to be sent; a rope if there is a long message among them."""
    ending: bytes | None
    """Set when our side is to end; the meaning depends on the kind of stream."""
    has_head: bool
    """Whether the first header block of our side was sent."""
    is_queued: bool
    """Whether the stream is in one of the queues of the output."""
    is_events: bool
    """Whether we send here without a request for each message."""
    remote_done: bool
    is_over: bool

    deferred = 0
    """The part of `replenish` that is not to be credited yet: no handler has taken it."""

    def start(self, stream_id: int, window: int, began: float = 0.0) -> None:
        """Set the initial state of a stream."""
        self.id = stream_id
        self.began = began
        self.window = window
        self.replenish = 0
        self.unsent = self.ending = None
        self.has_head = self.is_queued = self.is_events = self.remote_done = self.is_over = False

    @abstractmethod
    def feed(self, payload: bytes) -> None:
        """Called with bytes of DATA."""

    @abstractmethod
    def remote_ended(self) -> None:
        """Called when the peer has ended its side."""

    @abstractmethod
    def over(self) -> None:
        """Called when the stream is over: nothing more of it is sent."""

    def sent(self) -> None:
        """Called when some of `unsent` was sent."""

    def relieve(self) -> None:
        """Called when the peer has room for events again."""


class ClosedStreams:
    """Records closed streams, as far as it matters."""

    __slots__ = ("_ended_here", "_gaps", "skipped")

    def __init__(self) -> None:
        self._ended_here = array("I")  # four bytes each: there may be many connections
        self._gaps: list[range] = []
        self.skipped = 0
        """By how much the highest id is higher than if none had been skipped."""

    def end_here(self, stream_id: int) -> None:
        """Note a stream that ended while its peer's side was open."""
        self._ended_here.append(stream_id)
        if len(self._ended_here) > MAX_ENDED_HERE:
            del self._ended_here[0]

    def end_there(self, stream_id: int) -> None:
        """Note that the peer has ended its side of a stream."""
        if stream_id in self._ended_here:
            self._ended_here.remove(stream_id)

    def skip(self, numbers: range) -> None:
        """Note that these ids were skipped."""
        self._gaps.append(numbers)
        self.skipped += 2 * len(numbers)
        if len(self._gaps) > MAX_GAPS:
            del self._gaps[0]

    def ended_here(self, stream_id: int) -> bool:
        """Whether frames for this stream are to be ignored."""
        return stream_id in self._ended_here

    def was_skipped(self, stream_id: int) -> bool:
        """Whether the id was skipped."""
        return any(stream_id in gap for gap in self._gaps)


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
