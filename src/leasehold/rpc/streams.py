"""A stream of HTTP/2, as far as both sides and all uses of it have it in common.

Theory of operation. Each side ends for itself. The peer's side is over with `remote_done`. Ours is
when `ending` is set, and what is `unsent` has left; then, or if the stream is reset by either side,
or if the connection is gone, it `is_over`: nothing of it leaves any more, and nobody hears of it.
"""

from abc import abstractmethod

from leasehold.rpc.rope import Rope


class Stream:
    """One stream of a connection.

    There is one for each call, so it is cheap to make: what every call needs is in slots, and set
    by the kinds of streams without detours; what few have is an attribute of the class until then.
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
    """When the peer began it; 0 if it was not the peer."""
    window: int
    """How many octets of DATA the peer takes on this stream."""
    replenish: int
    """How many octets of DATA came in that the peer was not told it may send again."""
    unsent: bytearray | Rope | None
    """Octets of DATA that have yet to be sent; a rope if there is a long message among them."""
    ending: bytes | None
    """Set when our side is to end; what it means is for each kind of stream to say."""
    has_head: bool
    """Whether the first header block of our side was put out."""
    is_queued: bool
    """Whether the stream is in one of the queues of the output."""
    is_events: bool
    """Whether we speak here without being asked each time."""
    remote_done: bool
    is_over: bool

    deferred = 0
    """The part of `replenish` that the peer is not to be told yet: nobody has taken it."""

    def start(self, stream_id: int, window: int, began: float = 0.0) -> None:
        """Set what every stream begins with."""
        self.id = stream_id
        self.began = began
        self.window = window
        self.replenish = 0
        self.unsent = self.ending = None
        self.has_head = self.is_queued = self.is_events = self.remote_done = self.is_over = False

    @abstractmethod
    def feed(self, payload: bytes) -> None:
        """Take octets of DATA."""

    @abstractmethod
    def remote_ended(self) -> None:
        """Learn that the peer has ended its side."""

    @abstractmethod
    def over(self) -> None:
        """Learn that the stream is gone: nothing of it leaves any more."""

    def sent(self) -> None:
        """Learn that some of what was `unsent` has left."""

    def relieve(self) -> None:
        """Learn that the peer takes events again."""
