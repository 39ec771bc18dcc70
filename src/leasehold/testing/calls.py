"""Calls: a request, a handler on another host, a reply; each may be lost, doubled or late.

Payloads, replies and exceptions are copied when they leave and again when they arrive, so that
hosts share no objects and a sender may change what it has sent.
"""

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from leasehold.testing.host import Host
from leasehold.testing.wire import Wire

Handler = Callable[[Any], Any]  # (payload) -> reply, or an awaitable of it


@dataclass(frozen=True, slots=True)
class _Service:
    handler: Handler
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Reply:
    """What a handler returned or raised."""

    value: Any = None
    error: BaseException | None = None

    def copied(self) -> "_Reply":
        if self.error is not None:
            return _Reply(error=copy_error(self.error))
        return _Reply(copy.deepcopy(self.value))


def copy_error(error: BaseException) -> BaseException:
    """Copy an exception with its attributes, even if its class cannot be called with its args."""
    try:
        return copy.deepcopy(error)
    except TypeError:
        kind = type(error)
        twin = kind.__new__(kind, *error.args)
        twin.__dict__.update(copy.deepcopy(error.__dict__))
        return twin


class Calls:
    """The services of all hosts, and the calls to them."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._services: dict[tuple[str, str], _Service] = {}

    def serve(self, host: Host, name: str, handler: Handler) -> None:
        """Answer calls to `name` on `host` until its process ends."""
        self._services[host.name, name] = _Service(handler, host.incarnation)

    async def call(
        self,
        src: Host,
        dst: Host,
        name: str,
        payload: Any,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Any:
        """Ask `dst`, and wait for a reply."""
        if asyncio.get_running_loop() is not src.loop:
            raise RuntimeError(f"a call from host {src.name} must be made by code that runs in it")
        answer: asyncio.Future[_Reply] = src.loop.create_future()
        sent = copy.deepcopy(payload)

        def arrive() -> bool:
            return self._request_arrives(src, dst, name, sent, answer)

        self._wire.send(src, dst, f"call {name} from {src.name}", arrive)
        async with asyncio.timeout(timeout):
            reply = await answer
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _request_arrives(
        self, src: Host, dst: Host, name: str, payload: Any, answer: "asyncio.Future[_Reply]"
    ) -> bool:
        service = self._services.get((dst.name, name))
        if dst.down or service is None or service.incarnation != dst.incarnation:
            error = ConnectionRefusedError(f"{name} is not served on {dst.name}")
            what = f"refusal of {name} by {dst.name}"
            reply = _Reply(error=error)
            self._wire.transmit(dst, src, what, lambda: _reply_arrives(src, reply, answer))
            return True
        handler = service.handler

        def respond(reply: _Reply) -> None:
            sent = reply.copied()
            what = f"reply {name} from {dst.name}"
            self._wire.send(dst, src, what, lambda: _reply_arrives(src, sent, answer))

        return dst.deliver(lambda: _handle(handler, copy.deepcopy(payload), respond))


def _handle(handler: Handler, payload: Any, respond: Callable[[_Reply], None]) -> None:
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


async def _finish(result: Awaitable[Any], respond: Callable[[_Reply], None]) -> None:
    try:
        value = await result
    except Exception as error:  # noqa: BLE001 - it belongs to the caller
        respond(_Reply(error=error))
    else:
        respond(_Reply(value))


def _reply_arrives(src: Host, reply: _Reply, answer: "asyncio.Future[_Reply]") -> bool:
    if answer.get_loop() is not src.loop:  # the caller's process is gone
        return False

    def settle() -> None:
        if not answer.done():  # else it is a duplicate, or too late
            answer.set_result(reply.copied())

    return src.deliver(settle)
