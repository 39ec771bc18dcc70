"""The gate: answers that may leave only when something else has happened.

A handler returns its answer together with a *position*: how far the journal must be on disk before
anybody may see the answer. What is at or before `released` leaves at once; the rest waits here,
without a task or a future for each call, and leaves commit by commit, in one write for each
connection: first what waits for less, then what waits for more, each in the order in which it came.

What waits is limited, in number and in bytes. A call that changes something asks for room first
(`check_room`), because afterwards it is too late to refuse it. Events only count their bytes: one
change may concern ten thousand watchers, and none of them has asked for too much.
"""

from collections.abc import Callable, Sized
from typing import Any, Final, Protocol, TypeVar

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError

MAX_WAITING: Final = 10_000
"""Answers that may wait; a call beyond it is refused."""

MAX_WAITING_STREAMED: Final = 100_000
"""Answers on streams of exchanges that may wait, beside the others: to refuse one ends its stream.

Such as renewals: few ever have to wait, and they must go on when writes are refused."""

MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
"""Answers and events together that may wait; a call beyond it is refused."""


_ANSWER: Final = 1
_STREAMED: Final = 2
"""What waits, if it is no event."""


class Flushable(Protocol):
    """A connection with output."""

    def flush(self) -> None:
        """Hand the output to the transport."""
        ...


P = TypeVar("P", bound=Sized)
"""An answer, in one piece or in several."""

Deliver = Callable[[P], Flushable]
"""Writes an answer into its connection's output, and returns the connection."""


class Gate:
    """Holds answers back until their position is released. `refusal` is what a full one says."""

    __slots__ = ("_refusal", "_streamed", "_waiting", "_waiting_bytes", "answers", "released")

    def __init__(self, refusal: str = "too many requests") -> None:
        self.released = 0
        self.answers = 0
        """How many answers to calls wait; not those on streams of exchanges, and no events."""
        self._streamed = 0
        self._refusal = RpcError(Status.RESOURCE_EXHAUSTED, refusal)
        self._waiting: dict[int, list[tuple[Deliver[Any], Sized, int]]] = {}
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def check_room(self) -> None:
        """Refuse a call if its answer could not wait here."""
        if self.answers >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            raise self.refusal()

    def refusal(self) -> RpcError:
        """What a full gate says: the same again and again, for it is said very often then."""
        return self._refusal.with_traceback(None)

    def hold_answer(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver an answer when `position` is released, or refuse if too much waits already."""
        if self.answers >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self.check_room()
        self.answers += 1
        self._waiting_bytes += len(payload)
        waiting = self._waiting.get(position)
        if waiting is None:
            assert position > self.released, "this may leave at once"
            self._waiting[position] = [(deliver, payload, _ANSWER)]
        else:
            waiting.append((deliver, payload, _ANSWER))

    def hold_streamed(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """The same for an answer on a stream of exchanges, which goes on after it."""
        if self._streamed >= MAX_WAITING_STREAMED or self._waiting_bytes >= MAX_WAITING_BYTES:
            raise self.refusal()
        self._streamed += 1
        self.hold_event(position, deliver, payload, _STREAMED)

    def hold_accepted(self, position: int, deliver: Deliver[P], payload: P) -> None:
        """Deliver an answer when `position` is released, of a call that cannot be refused."""
        self.answers += 1
        self.hold_event(position, deliver, payload, _ANSWER)

    def hold_event(self, position: int, deliver: Deliver[P], payload: P, kind: int = 0) -> None:
        """Deliver when `position` is released what nobody has asked for right now."""
        self._waiting_bytes += len(payload)
        try:
            self._waiting[position].append((deliver, payload, kind))
        except KeyError:
            assert position > self.released, "this may leave at once"
            self._waiting[position] = [(deliver, payload, kind)]

    def release(self, position: int) -> None:
        """Let everything leave up to this position."""
        assert position >= self.released, f"released {self.released}, now {position}"
        self.released = position
        touched = set()
        for each in sorted(held for held in self._waiting if held <= position):
            for deliver, payload, kind in self._waiting.pop(each):
                if kind == _ANSWER:
                    self.answers -= 1
                elif kind == _STREAMED:
                    self._streamed -= 1
                self._waiting_bytes -= len(payload)
                touched.add(deliver(payload))
        for connection in touched:
            connection.flush()
