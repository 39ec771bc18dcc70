"""Connections like TCP's: in order and complete while they stand, broken as a whole.

Theory of operation. A connection is two ends and two streams, one in each direction. Opening and
refusing are done by the kernels: they work while a process is stopped, and when it is gone. A
connection breaks

- when a process crashes: the other side is told by a reset;
- when its link is cut, in either direction, for `BROKEN_AFTER_S`: each side gives up by itself, a
  little later, and tells the other, which hears it if the link heals before it gives up too.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leasehold.testing.connection import Connection, End
from leasehold.testing.host import Host
from leasehold.testing.packets import Packets
from leasehold.testing.streams import Stream

CONNECT_WITHIN_S = 10.0  # then `connect` raises TimeoutError
BROKEN_AFTER_S = 15.0  # of a cut link
NOTICE_SPREAD = 1.5  # a side may take so many times as long to notice

OnConnect = Callable[[Connection], Any]  # sync, or async: then it runs as a task


class _Link:
    """Two ends and two streams, from the attempt to connect on."""

    def __init__(self, packets: Packets, src: Host, dst: Host, name: str) -> None:
        self._packets = packets
        self.client = End(packets, Stream(packets, src, dst), name)
        self.server = End(packets, Stream(packets, dst, src), name)
        self.client.other, self.server.other = self.server, self.client
        self._ends = (self.client, self.server)
        self._cut = False
        self._cuts = 0  # numbers the cuts, so that giving up over one ends with it

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

    def _giving_up(self, end: End) -> Callable[[], None]:
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
        self._links: list[_Link] = []

    def listen(self, host: Host, name: str, on_connect: OnConnect) -> None:
        """Accept connections to `name` on `host` until its process ends."""
        self._listeners[host.name, name] = _Listener(on_connect, host.incarnation)

    async def connect(self, src: Host, dst: Host, name: str) -> Connection:
        """Open a connection."""
        if asyncio.get_running_loop() is not src.loop:
            raise RuntimeError(f"a connection from {src.name} must be made by code that runs on it")
        link = _Link(self._packets, src, dst, name)
        self._links = [other for other in self._links if not other.over]
        self._links.append(link)
        opened: asyncio.Future[None] = src.loop.create_future()
        knock = link.client.outgoing.push
        self._packets.when_sent(src, lambda: knock(lambda: self._knocked(link, opened)))
        link.route_changed()  # it may be cut already
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                await opened
        except BaseException:
            link.client.reset("connecting was given up")
            raise
        return Connection(link.client)

    def route_changed(self) -> None:
        """Called after a partition or its end."""
        for link in self._links:
            link.route_changed()

    def host_crashed(self, host: Host) -> None:
        """Called when a process is gone."""
        for link in self._links:
            link.host_crashed(host)

    def _knocked(self, link: _Link, opened: "asyncio.Future[None]") -> None:
        """What the kernel of the server does when asked to open."""
        host, name = link.server.host, link.server.name
        listener = self._listeners.get((host.name, name))
        error: ConnectionRefusedError | None = None
        if host.down or listener is None or listener.incarnation != host.incarnation:
            error = ConnectionRefusedError(f"nobody listens to {name} on {host.name}")
        else:
            link.server.belong_to_process()  # it may be another one than when we set out
            link.server.arrives(_Welcome(listener.on_connect))
        link.server.push(lambda _client: _settle(opened, error))


@dataclass(frozen=True, slots=True)
class _Welcome:
    """Run `on_connect` inside the server's process."""

    on_connect: OnConnect

    def __call__(self, end: End) -> None:
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
