"""One side of a connection: what its kernel keeps (`End`), and what its code holds (`Connection`).

Whatever one side tells the other goes through its stream, data and endings alike, and is then
handed to the process of the other side, if that is still the same. So each side finds out in its
own time, and after all that was sent before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from leasehold.testing.host import Host
from leasehold.testing.packets import Packets
from leasehold.testing.snapshot import Snapshot
from leasehold.testing.streams import Stream

MAX_UNREAD = 1_000  # messages one side has sent and the other has not received


class End:
    """What the kernel of one side knows about a connection."""

    def __init__(self, packets: Packets, outgoing: Stream, name: str) -> None:
        self.packets = packets
        self.host: Host = outgoing.src
        self.name = name
        self.outgoing = outgoing
        self.other: End  # set once, when both are made
        self.unread = 0  # sent by the other side and not taken by this one, wherever it is
        self.received: deque[Any] = deque()
        self.news = asyncio.Event()
        self.ending: tuple[type[Exception], str] | None = None
        self.belong_to_process()

    def belong_to_process(self) -> None:
        """Tie this end to the process that runs on its host now."""
        self._incarnation = self.host.incarnation

    @property
    def alive(self) -> bool:
        """Whether the process that this end belongs to still runs."""
        return not self.host.down and self.host.incarnation == self._incarnation

    @property
    def ended(self) -> bool:
        """Whether nothing more can come of this end."""
        return self.ending is not None or not self.alive

    def tell(self, what: Callable[["End"], None]) -> None:
        """Let the process on this side tell the other."""
        self.packets.when_sent(self.host, lambda: self.push(what))

    def push(self, what: Callable[["End"], None]) -> None:
        """Let the kernel on this side tell the other, whether its process lives or not."""
        self.outgoing.push(lambda: self.other.arrives(what))

    def arrives(self, what: Callable[["End"], None]) -> None:
        """Hand what came over the wire to the process."""
        if self.alive and not self.host.deliver(lambda: what(self)):
            self.reset("too many messages wait for this host")

    def take(self, message: Any) -> None:
        """Queue a message for `receive`."""
        if self.ending is None:
            self.received.append(message)
            self.news.set()

    def finish(self, kind: type[Exception], why: str) -> None:
        """End this side; only after a polite end is there still something to read."""
        if self.ending is None:
            self.ending = (kind, why)
            if kind is not EOFError:
                self.received.clear()
            self.news.set()

    def reset(self, why: str) -> None:
        """Break the connection: this side now, the other when it hears of it."""
        if not self.ended:
            self.packets.world.record(f"connection {self.name} is reset: {why}", self.host.name)
            if not self.host.deliver(lambda: self.finish(ConnectionResetError, why)):
                self.finish(ConnectionResetError, why)
            self.outgoing.drop()
        self.push_reset(why)

    def push_reset(self, why: str) -> None:
        """Tell the other side that this one is gone."""
        self.push(lambda other: other.finish(ConnectionResetError, why))


class Connection:
    """An open connection, for use by code that runs on its host."""

    def __init__(self, end: End) -> None:
        self._end = end

    @property
    def name(self) -> str:
        """What was connected to."""
        return self._end.name

    @property
    def host(self) -> Host:
        """The host on this side."""
        return self._end.host

    @property
    def peer(self) -> Host:
        """The host on the other side."""
        return self._end.outgoing.dst

    def send(self, message: Any) -> None:
        """Send a copy of `message`; it arrives after all that were sent before, or never.

        Raises ConnectionResetError or BrokenPipeError if this side knows that the connection has
        ended, BufferError if the other side has not received the last MAX_UNREAD messages.
        """
        self._check_caller()
        if self._end.ending is not None:
            raise self._why_ended(BrokenPipeError)
        other = self._end.other
        if other.unread >= MAX_UNREAD:
            raise BufferError(f"{self.peer.name} has not received the last {MAX_UNREAD} messages")
        other.unread += 1
        sent = Snapshot(message)
        self._end.tell(lambda other: other.take(sent.copy()))

    async def receive(self) -> Any:
        """Wait for the next message.

        Raises EOFError after the last message of a side that closed, ConnectionResetError as soon
        as this side knows that the connection is broken: what it has not read is lost, as in TCP.
        """
        self._check_caller()
        end = self._end
        while not end.received and end.ending is None:
            end.news.clear()
            await end.news.wait()
        if not end.received:
            raise self._why_ended(EOFError)
        end.unread -= 1
        return end.received.popleft()

    def close(self) -> None:
        """End the connection; what was sent still arrives. Closing again does nothing."""
        if not self._end.ended:
            self._end.finish(ConnectionAbortedError, "closed by this side")
            self._end.tell(lambda other: other.finish(EOFError, "closed by the other side"))

    def _why_ended(self, after_close: type[Exception]) -> Exception:
        assert self._end.ending is not None
        kind, why = self._end.ending
        return (after_close if kind is EOFError else kind)(f"{self.name}: {why}")

    def _check_caller(self) -> None:
        # After a restart the host's loop is another one, so this also stops the dead.
        if asyncio.get_running_loop() is not self.host.loop or not self._end.alive:
            raise RuntimeError(f"this side of {self.name} belongs to code on {self.host.name}")
