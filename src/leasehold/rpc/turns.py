"""Who has the next turn, when some connections send much more than others.

Theory of operation. The event loop hands over what a socket has, up to 256 KiB: that may be three
thousand calls, and there may be many such sockets. Whoever sends little, such as the holder of a
lease who renews it, would wait until all of them are done. So a large piece is done in slices, in
turn with those of other connections, and only for `TURN_S` at a time; then the loop gets to look
at its other sockets and timers. A connection is not read while it has slices left, so it is its
own sender who waits, and nothing piles up here.

What comes in small pieces, as from everybody who has a few calls under way, never waits here.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from leasehold.rpc.host import Host

SLICE_BYTES: Final = 8 * 1024
"""What is done at once. About a hundred short calls, a millisecond or two."""

TURN_S: Final = 0.002
"""How long slices are done before others get a chance."""


class Sender(Protocol):
    """A connection with more to do than one slice."""

    def take_slice(self) -> bool:
        """Do one slice; whether another one can be done."""
        ...


class Turns:
    """The connections that wait for their next slice. `enter` is called before each."""

    __slots__ = ("_enter", "_host", "_is_running", "_waiting")

    def __init__(self, host: Host, enter: Callable[[], None]) -> None:
        self._host = host
        self._enter = enter
        self._waiting: deque[Sender] = deque()
        self._is_running = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sender: Sender) -> None:
        """Have the slices of a connection done: the first at once, if nobody else waits."""
        self._waiting.append(sender)
        if not self._is_running:
            self._is_running = True
            self._run()

    def _run(self) -> None:
        now, waiting = self._host.now, self._waiting
        end = now() + TURN_S
        try:
            while waiting:
                self._enter()
                sender = waiting.popleft()
                if sender.take_slice():
                    waiting.append(sender)
                if now() >= end:
                    break
        finally:
            if waiting:
                self._host.call_soon(self._run)
            else:
                self._is_running = False
