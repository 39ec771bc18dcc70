"""The durability gate: holds answers and events back until what they report is on disk.

A handler returns its answer together with a *position*: how far the journal must be on disk before
the answer may be sent. Up to `released` it is sent directly. The rest waits here, without a task or
a future for each call, and is sent commit by commit, in one write for each connection: lower
positions first, equal positions in the order in which they came.

All queues are bounded, and a call that was executed is always answered:

- A call that changes something asks for room before it is executed (`check_room`). Its answer is
  then held by `hold_answer`, which cannot refuse.
- A renewal calls `check_renewal_room`, and only if it would have to wait. Renewals have a limit of
  their own, so they continue while changes are refused. `hold_renewal` cannot refuse either.
- A call that only reads is held by `hold_read`, which refuses it if the gate is full.
- Events are never refused, and never the reason for a refusal. A stream calls `has_event_room`
  before it takes one; if there is none its watch falls behind, and reads the history later.
"""

from collections.abc import Callable, Sized
from typing import Any, Final, Protocol, TypeVar

from leasehold.errors import Status
from leasehold.grpc.error_details import BUSY
from leasehold.grpc.protocol import RpcError

MAX_WAITING: Final = 10_000
"""Answers that may wait; further calls are refused before they are executed."""

MAX_WAITING_RENEWALS: Final = 100_000
"""Answers to renewals that may wait, in addition to the others. Few renewals ever have to wait, and
they must continue while changes are refused; a refusal ends the stream with all its renewals."""

MAX_WAITING_BYTES: Final = 128 * 1024 * 1024
"""Bytes of answers that may wait; further calls are refused before they are executed."""

MAX_EVENT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of events that may wait; above it watches fall behind until half of it was sent."""

HELD_BYTES: Final = 256
"""The approximate memory that an answer or event takes here besides its own bytes."""


_ANSWER: Final = 0
_RENEWAL: Final = 1
_EVENT: Final = 2


class Flushable(Protocol):
    """A connection with output."""

    def flush(self) -> None:
        """Hand the output to the transport."""
        ...


class EventStream(Protocol):
    """A stream that asks for room for its events."""

    def relieve(self) -> None:
        """Called when there is room again."""
        ...


P = TypeVar("P", bound=Sized)
"""An answer, in one piece or in several."""

Deliver = Callable[[P], Flushable]
"""Writes an answer into its connection's output, and returns the connection."""

Hold = Callable[["DurabilityGate", int, Deliver[Any], Any], None]
"""One of the methods with which the gate takes an answer."""


class DurabilityGate:
    """Holds answers back until their position is released. `refusal` is the text of a refusal."""

    __slots__ = (
        "_answer_bytes",
        "_cramped",
        "_event_bytes",
        "_refusal",
        "_waiting",
        "answers",
        "released",
        "renewals",
    )

    def __init__(self, refusal: str = "too many requests") -> None:
        self.released = 0
        self.answers = 0
        """How many answers to calls wait; renewals and events are not counted."""
        self.renewals = 0
        """How many answers to renewals wait."""
        self._refusal = refusal
        self._waiting: dict[int, list[tuple[Deliver[Any], Sized, int]]] = {}
        self._answer_bytes = 0
        self._event_bytes = 0
        self._cramped: dict[EventStream, None] = {}
        """Streams that found no room for their events."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    # Before a call is executed.

    def check_room(self) -> None:
        """Refuse a call that was not executed yet, if too much is waiting."""
        if self.answers >= MAX_WAITING or self._answer_bytes >= MAX_WAITING_BYTES:
            raise self.refusal()

    def check_renewal_room(self) -> None:
        """Refuse renewals that were not executed yet, if too many are waiting."""
        if self.renewals >= MAX_WAITING_RENEWALS:
            raise self.refusal()

    def refusal(self) -> RpcError:
        """Return the error for a call that is refused, and was not executed."""
        return RpcError(Status.RESOURCE_EXHAUSTED, self._refusal, detail=BUSY)

    # After a call was executed.

    def hold_answer(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver the answer to a call that was executed once `position` is released."""
        self.answers += 1
        self._answer_bytes += len(payload) + HELD_BYTES
        waiting = self._waiting.get(position)
        if waiting is None:
            assert position > self.released, "the position is released already"
            self._waiting[position] = [(deliver, payload, _ANSWER)]
        else:
            waiting.append((deliver, payload, _ANSWER))

    def hold_read(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver the answer to a call that changed nothing, or refuse it if the gate is full."""
        self.check_room()
        self.hold_answer(position, deliver, payload)

    def hold_renewal(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver the answer to renewals that were executed once `position` is released."""
        self.renewals += 1
        self._hold(position, deliver, payload, _RENEWAL)

    def hold_event(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver an event once `position` is released."""
        self._event_bytes += len(payload) + HELD_BYTES
        self._hold(position, deliver, payload, _EVENT)

    def _hold(self, position: int, deliver: Deliver[P], payload: P, kind: int) -> None:
        try:
            self._waiting[position].append((deliver, payload, kind))
        except KeyError:
            assert position > self.released, "the position is released already"
            self._waiting[position] = [(deliver, payload, kind)]

    def release(self, position: int) -> None:
        """Deliver everything up to this position."""
        assert position >= self.released, f"released {self.released}, now {position}"
        self.released = position
        touched = set()
        for each in sorted(held for held in self._waiting if held <= position):
            for deliver, payload, kind in self._waiting.pop(each):
                if kind == _ANSWER:
                    self.answers -= 1
                    self._answer_bytes -= len(payload) + HELD_BYTES
                elif kind == _EVENT:
                    self._event_bytes -= len(payload) + HELD_BYTES
                else:
                    self.renewals -= 1
                touched.add(deliver(payload))
        for connection in touched:
            connection.flush()
        if self._cramped and self._event_bytes <= MAX_EVENT_BYTES // 2:
            cramped, self._cramped = self._cramped, {}
            for stream in cramped:
                stream.relieve()

    # Room for events.

    def has_event_room(self, stream: EventStream) -> bool:
        """Return whether events may wait here; if not, `relieve` is called once they may."""
        if self._event_bytes < MAX_EVENT_BYTES:
            return True
        self._cramped[stream] = None
        return False

    def forget(self, stream: EventStream) -> None:
        """Remove a stream that is over."""
        self._cramped.pop(stream, None)
