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
"""

from abc import abstractmethod
from array import array
from typing import Final

from leasehold.basics.rope import Rope

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
