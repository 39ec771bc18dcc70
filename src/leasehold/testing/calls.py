"""Calls: a request, a handler on another host, a reply; each may be lost, doubled or late."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from leasehold.stored_errors import fresh
from leasehold.testing.host import Host
from leasehold.testing.packets import Packets
from leasehold.testing.snapshot import Snapshot

Handler = Callable[[Any], Any]  # (payload) -> reply, or an awaitable of it


@dataclass(frozen=True, slots=True)
class _Service:
    handler: Handler
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Reply:
    """What a handler returned or raised."""

    value: Any = None
    error: Exception | None = None


_Answer = asyncio.Future[_Reply]
_Respond = Callable[[_Reply], None]


class Calls:
    """The services of all hosts, and the calls to them."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._services: dict[tuple[str, str], _Service] = {}

    def serve(self, host: Host, name: str, handler: Handler) -> None:
        """Answer calls to `name` on `host` until its process ends."""
        self._services[host.name, name] = _Service(handler, host.incarnation)

    async def call(self, src: Host, dst: Host, name: str, payload: Any) -> Any:
        """Ask `dst`, and wait for a reply."""
        if asyncio.get_running_loop() is not src.loop:
            raise RuntimeError(f"a call from {src.name} must be made by code that runs on it")
        answer: _Answer = src.loop.create_future()
        sent = Snapshot(payload)

        def arrive() -> bool:
            return self._request_arrives(src, dst, name, sent, answer)

        self._packets.send(src, dst, f"call {name} from {src.name}", arrive)
        reply = await answer
        if reply.error is not None:
            raise fresh(reply.error)
        return reply.value

    def _request_arrives(
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
    if answer.get_loop() is not src.loop:  # the process that asked is gone
        return False

    def settle() -> None:
        if not answer.done():  # else it is a duplicate, or too late
            answer.set_result(reply.copy())

    return src.deliver(settle)
