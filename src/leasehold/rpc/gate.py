"""The gate: answers that may leave only when something else has happened, in order.

A handler returns its answer together with a *position*: how far the journal must be on disk before
anybody may see the answer. Positions only grow. What is at or before `released` leaves at once; the
rest waits here, without a task or a future for each call, and leaves commit by commit, in one write
for each connection.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

MAX_WAITING: Final = 10_000
"""Answers that may wait; services refuse calls that would have to wait beyond it."""


class Flushable(Protocol):
    """A connection with output."""

    def flush(self) -> None:
        """Hand the output to the transport."""
        ...


Deliver = Callable[[bytes], Flushable]
"""Writes an answer into its connection's output, and returns the connection."""


class Gate:
    """Holds answers back until their position is released."""

    __slots__ = ("_waiting", "released")

    def __init__(self, released: int = 0) -> None:
        self.released = released
        self._waiting: deque[tuple[int, Deliver, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, position: int, deliver: Deliver, payload: bytes) -> None:
        """Deliver `payload` when `position` is released: after all that was held before it."""
        self._waiting.append((position, deliver, payload))

    def release(self, position: int) -> None:
        """Let everything leave up to this position."""
        assert position >= self.released, f"released {self.released}, now {position}"
        self.released = position
        waiting = self._waiting
        touched = set()
        while waiting and waiting[0][0] <= position:
            _, deliver, payload = waiting.popleft()
            touched.add(deliver(payload))
        for connection in touched:
            connection.flush()
