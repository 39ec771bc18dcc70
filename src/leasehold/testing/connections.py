"""Connections like TCP's: in order and complete while they last, broken as a whole.

Theory of operation. A connection is two ends and two streams, one in each direction. Opening and
refusing are done by the kernels: they work while a process is stopped, and when it is gone. A
connection breaks

- when a process crashes: the other side gets a reset;
- when its link is cut, in either direction, for `BROKEN_AFTER_S`: each side gives up separately, a
  little later, and sends a reset, which arrives if the link heals before the other gives up too.

All messages from one side to the other go through its stream, data and endings alike, and are then
delivered to the process of the other side, if that is still the same. So each side notices an
ending at its own time, and after all data that was sent before.

In a stream everything arrives, once, in order, or waits. Pushed items are in one queue. Each item
also has an *arrival*, an event with a separate delay, prolonged by a retransmission for every loss
that it draws. An arrival delivers the head of the queue, whichever item it was made for: that keeps
the order. An arrival while the link is cut has no effect; when the link is healed, items without an
arrival get new ones.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leasehold.testing.host import Host
from leasehold.testing.packets import Packets, Snapshot

CONNECT_WITHIN_S = 10.0  # then `connect` raises TimeoutError
BROKEN_AFTER_S = 15.0  # of a cut link
NOTICE_SPREAD = 1.5  # a side may take up to this many times as long to notice
MAX_UNREAD = 1_000  # messages one side has sent and the other has not received
RETRANSMIT_S = 0.2  # additional delay of a packet for each loss
MAX_RETRANSMITS = 10  # for one packet; use a cut for a link that loses all packets


class OrderedStream:
    """Transmits callbacks from `src` to `dst`; each runs when its message arrives."""

    def __init__(self, packets: Packets, src: Host, dst: Host) -> None:
        self.src = src
        self.dst = dst
        self._packets = packets
        self._queue: deque[Callable[[], None]] = deque()
        self._arrivals = 0
        self._last_arrival = 0.0

    def push(self, arrive: Callable[[], None]) -> None:
        """Send one item after all that were sent before."""
        self._queue.append(arrive)
        self._packets.counters.sent += 1
        self.route_changed()

    def drop(self) -> None:
        """Drop the items that have not arrived."""
        self._packets.counters.lost += len(self._queue)
        self._queue.clear()

    def route_changed(self) -> None:
        """Schedule arrivals for all items without one, if the link is not cut."""
        if not self._packets.blocked(self.src, self.dst):
            while self._arrivals < len(self._queue):
                self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        world = self._packets.world
        soonest = world.now + self._packets.delay(self.src, self.dst) + self._retransmissions_s()
        # Never before an earlier item: the head of the queue would arrive too soon for it.
        self._last_arrival = max(self._last_arrival, soonest)
        self._arrivals += 1
        world.carry(self._last_arrival - world.now, self._arrive)

    def _retransmissions_s(self) -> float:
        loss, counters = self._packets.faults(self.src, self.dst).loss, self._packets.counters
        losses = 0
        while losses < MAX_RETRANSMITS and loss and self._packets.world.random.random() < loss:
            losses += 1
        counters.sent += losses
        counters.lost += losses
        return losses * RETRANSMIT_S

    def _arrive(self) -> None:
        self._arrivals -= 1
        if self._queue and not self._packets.blocked(self.src, self.dst):
            self._packets.counters.delivered += 1
            self._queue.popleft()()


class ConnectionEnd:
    """The state of a connection in the kernel of one side."""

    def __init__(self, packets: Packets, outgoing: OrderedStream, name: str) -> None:
        self.packets = packets
        self.host: Host = outgoing.src
        self.name = name
        self.outgoing = outgoing
        self.other: ConnectionEnd  # set once, when both are created
        self.unread = 0  # sent by the other side and not received by this one, wherever it is
        self.received: deque[Any] = deque()
        self.news = asyncio.Event()
        self.ending: tuple[type[Exception], str] | None = None
        self.bind_to_process()

    def bind_to_process(self) -> None:
        """Bind this end to the process that runs on its host now."""
        self._incarnation = self.host.incarnation

    @property
    def alive(self) -> bool:
        """Whether the process of this end still runs."""
        return not self.host.down and self.host.incarnation == self._incarnation

    @property
    def ended(self) -> bool:
        """Whether this end can send or receive nothing more."""
        return self.ending is not None or not self.alive

    def tell(self, what: Callable[["ConnectionEnd"], None]) -> None:
        """Send to the other side from the process on this side."""
        self.packets.when_sent(self.host, lambda: self.push(what))

    def push(self, what: Callable[["ConnectionEnd"], None]) -> None:
        """Send to the other side from the kernel on this side, whether its process lives or not."""
        self.outgoing.push(lambda: self.other.arrives(what))

    def arrives(self, what: Callable[["ConnectionEnd"], None]) -> None:
        """Deliver an arrival to the process."""
        if self.alive and not self.host.deliver(lambda: what(self)):
            self.reset("too many messages wait for this host")

    def take(self, message: Any) -> None:
        """Queue a message for `receive`."""
        if self.ending is None:
            self.received.append(message)
            self.news.set()

    def finish(self, kind: type[Exception], why: str) -> None:
        """End this side. Unread messages are kept only after an orderly end."""
        if self.ending is None:
            self.ending = (kind, why)
            if kind is not EOFError:
                self.received.clear()
            self.news.set()

    def reset(self, why: str) -> None:
        """Break the connection: this side now, the other when the reset arrives."""
        if not self.ended:
            self.packets.world.record(f"connection {self.name} is reset: {why}", self.host.name)
            if not self.host.deliver(lambda: self.finish(ConnectionResetError, why)):
                self.finish(ConnectionResetError, why)
            self.outgoing.drop()
        self.push_reset(why)

    def push_reset(self, why: str) -> None:
        """Send a reset to the other side."""
        self.push(lambda other: other.finish(ConnectionResetError, why))


class Connection:
    """An open connection, for use by code that runs on its host."""

    def __init__(self, end: ConnectionEnd) -> None:
        self._end = end

    @property
    def name(self) -> str:
        """The name that was connected to."""
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

        Raises ConnectionResetError or BrokenPipeError if the connection has ended on this side,
        BufferError if the other side has not received the last MAX_UNREAD messages.
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

        Raises EOFError after the last message if the other side closed, ConnectionResetError as
        soon as the connection is broken on this side: unread messages are lost, as in TCP.
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
        """Close the connection; messages already sent still arrive. Closing again does nothing."""
        if not self._end.ended:
            self._end.finish(ConnectionAbortedError, "closed by this side")
            self._end.tell(lambda other: other.finish(EOFError, "closed by the other side"))

    def _why_ended(self, after_close: type[Exception]) -> Exception:
        assert self._end.ending is not None
        kind, why = self._end.ending
        return (after_close if kind is EOFError else kind)(f"{self.name}: {why}")

    def _check_caller(self) -> None:
        # After a restart the host has another loop, so this also refuses code of a crashed process.
        if asyncio.get_running_loop() is not self.host.loop or not self._end.alive:
            raise RuntimeError(f"this side of {self.name} belongs to code on {self.host.name}")


OnConnect = Callable[[Connection], Any]  # sync, or async: then it runs as a task


class _ConnectionPair:
    """Two ends and two streams, from the attempt to connect on."""

    def __init__(self, packets: Packets, src: Host, dst: Host, name: str) -> None:
        self._packets = packets
        self.client = ConnectionEnd(packets, OrderedStream(packets, src, dst), name)
        self.server = ConnectionEnd(packets, OrderedStream(packets, dst, src), name)
        self.client.other, self.server.other = self.server, self.client
        self._ends = (self.client, self.server)
        self._cut = False
        self._cuts = 0  # numbers the cuts, so that a timer for one cut does not act on a later one

    @property
    def over(self) -> bool:
        return all(end.ended for end in self._ends)

    def route_changed(self) -> None:
        was_cut, streams = self._cut, [end.outgoing for end in self._ends]
        self._cut = any(self._packets.blocked(stream.src, stream.dst) for stream in streams)
        if self._cut and not was_cut:
            self._cuts += 1
            for end in self._ends:
                patience = BROKEN_AFTER_S * self._packets.world.random.uniform(1.0, NOTICE_SPREAD)
                self._packets.world.carry(patience, self._giving_up(end))
        for stream in streams:
            stream.route_changed()

    def host_crashed(self, host: Host) -> None:
        for end in self._ends:
            if end.host is host:
                end.push_reset(f"{host.name} crashed")

    def _giving_up(self, end: ConnectionEnd) -> Callable[[], None]:
        cut = self._cuts

        def give_up() -> None:
            if self._cut and self._cuts == cut and not end.ended:
                end.reset(f"no way to {end.outgoing.dst.name} for too long")

        return give_up


@dataclass(frozen=True, slots=True)
class _Listener:
    on_connect: OnConnect
    incarnation: int


class Connections:
    """All listeners and connections of a network."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._listeners: dict[tuple[str, str], _Listener] = {}
        self._pairs: list[_ConnectionPair] = []

    def listen(self, host: Host, name: str, on_connect: OnConnect) -> None:
        """Accept connections to `name` on `host`: `on_connect(connection)`, sync or async.

        Its exceptions do not reach the caller: they fail the simulation. Ends with the process.
        """
        self._listeners[host.name, name] = _Listener(on_connect, host.incarnation)

    async def connect(self, src: Host, dst: Host, name: str) -> Connection:
        """Connect from code that runs on `src`.

        Raises ConnectionRefusedError without a listener, TimeoutError without a timely answer.
        """
        if asyncio.get_running_loop() is not src.loop:
            raise RuntimeError(f"a connection from {src.name} must be made by code that runs on it")
        pair = _ConnectionPair(self._packets, src, dst, name)
        self._pairs = [other for other in self._pairs if not other.over]
        self._pairs.append(pair)
        opened: asyncio.Future[None] = src.loop.create_future()
        request = pair.client.outgoing.push
        self._packets.when_sent(src, lambda: request(lambda: self._request_arrives(pair, opened)))
        pair.route_changed()  # the link may be cut already
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                await opened
        except BaseException:
            pair.client.reset("connecting was given up")
            raise
        return Connection(pair.client)

    def _route_changed(self) -> None:
        """Called after a partition or its end."""
        for pair in self._pairs:
            pair.route_changed()

    def host_crashed(self, host: Host) -> None:
        """Break the connections of a process that is gone; called by the simulation."""
        for pair in self._pairs:
            pair.host_crashed(host)

    def _request_arrives(self, pair: _ConnectionPair, opened: "asyncio.Future[None]") -> None:
        """Handle a request to connect in the kernel of the server."""
        host, name = pair.server.host, pair.server.name
        listener = self._listeners.get((host.name, name))
        error: ConnectionRefusedError | None = None
        if host.down or listener is None or listener.incarnation != host.incarnation:
            error = ConnectionRefusedError(f"no listener for {name} on {host.name}")
        else:
            pair.server.bind_to_process()  # it may be another one than when the request was sent
            pair.server.arrives(_Accept(listener.on_connect))
        pair.server.push(lambda _client: _settle(opened, error))


@dataclass(frozen=True, slots=True)
class _Accept:
    """Run `on_connect` inside the server's process."""

    on_connect: OnConnect

    def __call__(self, end: ConnectionEnd) -> None:
        result = self.on_connect(Connection(end))
        if inspect.iscoroutine(result):
            asyncio.get_running_loop().create_task(result)


def _settle(opened: "asyncio.Future[None]", error: ConnectionRefusedError | None) -> None:
    if opened.done():
        return
    if error is not None:
        opened.set_exception(error)
    else:
        opened.set_result(None)
