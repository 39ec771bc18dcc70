"""The network between hosts: settings for its links, partitions, and two kinds of talk.

*Calls* are single requests that may be lost, doubled, late or out of order. *Connections* are
like TCP: in order and complete while they stand, and broken as a whole.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from leasehold.testing.calls import Calls, Handler
from leasehold.testing.connection import Connection
from leasehold.testing.connections import Connections, OnConnect
from leasehold.testing.faults import Faults
from leasehold.testing.host import Host
from leasehold.testing.packets import Counters, Packets
from leasehold.testing.world import World


class Network:
    """Made by `Simulation.network`."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._packets = Packets(world, faults)
        self._calls = Calls(self._packets)
        self._connections = Connections(self._packets)

    @property
    def counters(self) -> Counters:
        """How many packets were sent, delivered, lost and duplicated."""
        return self._packets.counters

    @property
    def default(self) -> Faults:
        """Faults of all links that have none of their own; may be set at any time."""
        return self._packets.default

    @default.setter
    def default(self, faults: Faults) -> None:
        self._packets.default = faults

    def link(self, a: Host, b: Host, faults: Faults | None, *, one_way: bool = False) -> None:
        """Give a link faults of its own, in both directions or from `a` to `b` only.

        None goes back to the default.
        """
        self._packets.set_link(a, b, faults)
        if not one_way:
            self._packets.set_link(b, a, faults)

    def faults(self, src: Host, dst: Host) -> Faults:
        """What holds for messages from `src` to `dst` now."""
        return self._packets.faults(src, dst)

    def partition(self, *groups: Iterable[Host], one_way: bool = False) -> None:
        """Cut hosts of different groups from each other until `heal`.

        One group alone is cut from all other hosts. `one_way`: what the first of two groups says
        does not reach the second. Partitions add up.
        """
        if not groups or (one_way and len(groups) != 2):
            raise ValueError(f"expected groups of hosts (two if one-way), got {len(groups)}")
        self._packets.cut(groups, one_way=one_way)
        self._connections.route_changed()

    def heal(self) -> None:
        """End all partitions."""
        self._packets.heal()
        self._connections.route_changed()

    def serve(self, host: Host, name: str, handler: Handler) -> None:
        """Answer calls to `name` on `host` by `handler(payload)`, sync or async.

        What it raises travels to the caller. The service ends with the process.
        """
        self._calls.serve(host, name, handler)

    async def call(
        self,
        src: Host,
        dst: Host,
        name: str,
        payload: Any,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        """Call `name` on `dst` from code that runs on `src`.

        Raises TimeoutError after `timeout` seconds (None: waits for ever if a message is lost),
        ConnectionRefusedError if `dst` is down or does not serve `name`, or what the handler
        raised.
        """
        async with asyncio.timeout(timeout):
            return await self._calls.call(src, dst, name, payload)

    def listen(self, host: Host, name: str, on_connect: OnConnect) -> None:
        """Accept connections to `name` on `host`: `on_connect(connection)`, sync or async.

        Its errors are not the caller's: they fail the simulation. Ends with the process.
        """
        self._connections.listen(host, name, on_connect)

    async def connect(self, src: Host, dst: Host, name: str) -> Connection:
        """Connect from code that runs on `src`.

        Raises ConnectionRefusedError if nobody listens, TimeoutError if nobody answers in time.
        """
        return await self._connections.connect(src, dst, name)

    def host_crashed(self, host: Host) -> None:
        """Break the connections of a process that is gone; called by the simulation."""
        self._connections.host_crashed(host)
