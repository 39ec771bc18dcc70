"""Fair scheduling of connections, when some send much more than others.

Theory of operation. The event loop passes on the data of a socket, up to 256 KiB: that may be three
thousand calls, and there may be many such sockets. A client that sends little, such as a holder
that renews its lease, would wait until all of them are done. So a large piece is handled in slices,
in turn with those of other connections, and only for `TURN_S` at a time; then the loop handles its
other sockets and timers. A connection is not read while it has slices left, so only its own sender
waits, and nothing piles up here.

Small pieces, as from clients that have a few calls under way, never wait here.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from leasehold.basics.event_loop import EventLoop

SLICE_BYTES: Final = 8 * 1024
"""The size of a slice. About a hundred short calls, a millisecond or two."""

TURN_S: Final = 0.002
"""How long slices are handled before other sockets and timers."""


class Sender(Protocol):
    """A connection with more input than one slice."""

    def take_slice(self) -> bool:
        """Handle one slice; return whether there is another one."""
        ...


class Turns:
    """The connections that wait for their next slice. `enter` is called before each."""

    __slots__ = ("_enter", "_is_running", "_loop", "_waiting")

    def __init__(self, loop: EventLoop, enter: Callable[[], None]) -> None:
        self._loop = loop
        self._enter = enter
        self._waiting: deque[Sender] = deque()
        self._is_running = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sender: Sender) -> None:
        """Handle the slices of a connection: the first immediately, if no other waits."""
        self._waiting.append(sender)
        if not self._is_running:
            self._is_running = True
            self._run()

    def _run(self) -> None:
        now, waiting = self._loop.now, self._waiting
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
                self._loop.call_soon(self._run)
            else:
                self._is_running = False
