"""The network between hosts: settings of its links, partitions, calls and connections.

*Calls* are a request, a handler on another host, and a reply; each may be lost, duplicated, late or
out of order. *Connections* are like TCP: in order and complete while they last, and broken as a
whole.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from leasehold.errors import fresh
from leasehold.testing.connections import Connections
from leasehold.testing.host import Host, World
from leasehold.testing.packets import Counters, Faults, Packets, Snapshot

Handler = Callable[[Any], Any]  # (payload) -> reply, or an awaitable of it


@dataclass(frozen=True, slots=True)
class _Service:
    handler: Handler
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Reply:
    """The result or exception of a handler."""

    value: Any = None
    error: Exception | None = None


_Answer = asyncio.Future[_Reply]
_Respond = Callable[[_Reply], None]


class Network(Connections):
    """Made by `Simulation.network`."""

    def __init__(self, world: World, faults: Faults) -> None:
        super().__init__(Packets(world, faults))
        self._services: dict[tuple[str, str], _Service] = {}

    @property
    def counters(self) -> Counters:
        """The numbers of packets sent, delivered, lost and duplicated."""
        return self._packets.counters

    @property
    def default(self) -> Faults:
        """Faults of all links without their own; may be set at any time."""
        return self._packets.default

    @default.setter
    def default(self, faults: Faults) -> None:
        self._packets.default = faults

    def link(self, a: Host, b: Host, faults: Faults | None, *, one_way: bool = False) -> None:
        """Set the faults of a link, in both directions or from `a` to `b` only.

        None restores the default.
        """
        self._packets.set_link(a, b, faults)
        if not one_way:
            self._packets.set_link(b, a, faults)

    def faults(self, src: Host, dst: Host) -> Faults:
        """Return the current faults for messages from `src` to `dst`."""
        return self._packets.faults(src, dst)

    def partition(self, *groups: Iterable[Host], one_way: bool = False) -> None:
        """Cut hosts of different groups from each other until `heal`.

        A single group is cut from all other hosts. `one_way`: only messages from the first of two
        groups to the second are lost. Partitions add up.
        """
        if not groups or (one_way and len(groups) != 2):
            raise ValueError(f"expected groups of hosts (two if one-way), got {len(groups)}")
        self._packets.cut(groups, one_way=one_way)
        self._route_changed()

    def heal(self) -> None:
        """End all partitions."""
        self._packets.heal()
        self._route_changed()

    def serve(self, host: Host, name: str, handler: Handler) -> None:
        """Answer calls to `name` on `host` by `handler(payload)`, sync or async.

        Its exceptions are raised in the caller. The service ends with the process.
        """
        self._services[host.name, name] = _Service(handler, host.incarnation)

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
        ConnectionRefusedError if `dst` is down or does not serve `name`, or the handler's
        exception.
        """
        if asyncio.get_running_loop() is not src.loop:
            raise RuntimeError(f"a call from {src.name} must be made by code that runs on it")
        answer: _Answer = src.loop.create_future()
        sent = Snapshot(payload)

        def arrive() -> bool:
            return self._call_arrives(src, dst, name, sent, answer)

        # The timer is made first: it draws from the seed, as the packet does.
        async with asyncio.timeout(timeout):
            self._packets.send(src, dst, f"call {name} from {src.name}", arrive)
            reply = await answer
        if reply.error is not None:
            raise fresh(reply.error)
        return reply.value

    def _call_arrives(
        self, src: Host, dst: Host, name: str, payload: Snapshot, answer: _Answer
    ) -> bool:
        service = self._services.get((dst.name, name))
        if dst.down or service is None or service.incarnation != dst.incarnation:
            refusal = _Reply(error=ConnectionRefusedError(f"{name} is not served on {dst.name}"))
            sent = Snapshot(refusal)
            what = f"refusal of {name} by {dst.name}"
            self._packets.transmit(dst, src, what, lambda: _reply_arrives(src, sent, answer))
            return True
        handler = service.handler

        def respond(reply: _Reply) -> None:
            sent = Snapshot(reply)
            what = f"reply {name} from {dst.name}"
            self._packets.send(dst, src, what, lambda: _reply_arrives(src, sent, answer))

        return dst.deliver(lambda: _handle(handler, payload.copy(), respond))


def _handle(handler: Handler, payload: Any, respond: _Respond) -> None:
    """Run a handler inside its host."""
    try:
        result = handler(payload)
    except Exception as error:  # noqa: BLE001 - it belongs to the caller
        respond(_Reply(error=error))
        return
    if inspect.isawaitable(result):
        asyncio.get_running_loop().create_task(_finish(result, respond))
    else:
        respond(_Reply(result))


async def _finish(result: Awaitable[Any], respond: _Respond) -> None:
    try:
        value = await result
    except Exception as error:  # noqa: BLE001 - it belongs to the caller
        respond(_Reply(error=error))
    else:
        respond(_Reply(value))


def _reply_arrives(src: Host, reply: Snapshot, answer: _Answer) -> bool:
    if answer.get_loop() is not src.loop:  # the calling process is gone
        return False

    def settle() -> None:
        if not answer.done():  # otherwise it is a duplicate, or too late
            answer.set_result(reply.copy())

    return src.deliver(settle)
