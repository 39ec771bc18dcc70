"""The demo service on our server."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from http import HTTPStatus

import uvloop

from leasehold.basics.addresses import Address, TcpAddress
from leasehold.errors import Status
from leasehold.grpc.call_context import encode_metadata
from leasehold.grpc.coroutine_handlers import (
    Conversation,
    conversation,
    many_to_one,
    one_to_many,
    one_to_one,
)
from leasehold.grpc.http_handlers import Reply
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange, Methods
from leasehold.http2.limits import ConnectionLimits, Rate
from leasehold.serving.grpc_server import GrpcServer
from leasehold.serving.server_protocol import ServerProtocol
from tests.interop import demo
from tests.interop.demo import Failing, Kind, Notes, told
from tests.interop.loops import LoopThread


def methods(notes: Notes) -> Methods:
    """The methods of the service."""

    def echo(message: bytes) -> Answer:
        return message, 0

    async def later(message: bytes, _: Conversation) -> bytes:
        await asyncio.sleep(0)
        return message

    async def count(request: bytes, call: Conversation) -> AsyncIterator[bytes]:
        number, size = map(int, request.split())
        try:
            for index in range(number):
                if index:
                    notes.write(f"past {index}", call.context.metadata)
                yield demo.counted(index, size)
        finally:
            notes.write("closed", call.context.metadata)

    async def add(call: Conversation) -> bytes:
        return b"%d" % sum([int(message) async for message in call])

    async def chat(call: Conversation) -> None:
        with noting(call):
            async for message in call:
                await call.send(message)

    async def greet(call: Conversation) -> None:
        call.send_metadata(told(call.context.metadata))
        await chat(call)

    async def duplex(call: Conversation) -> None:
        number, size = map(int, (await call.receive() or b"").split())

        async def say() -> None:
            for index in range(number):
                await call.send(demo.counted(index, size))

        async with asyncio.TaskGroup() as group:
            group.create_task(say())
            heard = sum([len(message) async for message in call])
        await call.send(b"%d" % heard)

    async def big(request: bytes, _: Conversation) -> bytes:
        return bytes(int(request))

    async def timeout(_: bytes, call: Conversation) -> bytes:
        return b"none" if call.context.timeout_s is None else b"%f" % call.context.timeout_s

    async def metadata(request: bytes, call: Conversation) -> bytes:
        call.send_metadata(told(call.context.metadata))
        call.trailing_metadata = told(call.context.metadata)
        return request

    async def packed(_: bytes, __: Conversation) -> bytes:
        return demo.PACKED_ANSWER

    async def hold(name: bytes) -> Answer:
        notes.say("held", name.decode())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, notes.wait, "released", name.decode())
        return name, 0

    async def hold_later(name: bytes, _: Conversation) -> bytes:
        answer, _position = await hold(name)
        return answer

    async def sleep(call: Conversation) -> None:
        with noting(call):
            await call.receive()
            notes.write("heard", call.context.metadata)
            await asyncio.get_running_loop().create_future()

    async def fail(call: Conversation) -> None:
        request = await call.receive()
        assert request is not None
        failing = Failing.decoded(request)
        for index in range(failing.after):
            await call.send(demo.counted(index, 0))
        trailers = encode_metadata(told(call.context.metadata))
        raise RpcError(Status(failing.status), failing.message, metadata=trailers)

    async def leave(call: Conversation) -> None:
        message = await call.receive()
        await call.send(message or b"")

    @contextlib.contextmanager
    def noting(call: Conversation) -> Iterator[None]:
        notes.write("begun", call.context.metadata)
        try:
            yield
        except asyncio.CancelledError:
            notes.write("cancelled", call.context.metadata)
            raise

    return {
        demo.ECHO: Exchange(echo),
        demo.LATER: one_to_one(later),
        demo.COUNT: one_to_many(count),
        demo.SUM: many_to_one(add),
        demo.CHAT: conversation(chat),
        demo.GREET: conversation(greet),
        demo.DUPLEX: conversation(duplex),
        demo.BIG: one_to_one(big),
        demo.TIMEOUT: one_to_one(timeout),
        demo.METADATA: one_to_one(metadata),
        demo.PACKED: one_to_one(packed),
        demo.HOLD: Exchange(hold),
        demo.HOLD_LATER: one_to_one(hold_later),
        **{demo.path(demo.SLEEP, kind): conversation(sleep) for kind in Kind},
        **{demo.path(demo.FAIL, kind): conversation(fail) for kind in Kind},
        **{demo.path(demo.QUIT, kind): conversation(leave) for kind in Kind},
    }


def _health() -> Reply:
    return Reply(HTTPStatus.OK, "text/plain", b"healthy")


class OurServer:
    """The demo service, on a port of its own, in a thread of its own."""

    def __init__(
        self,
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.notes = Notes()
        self.thread = LoopThread(uvloop.new_event_loop)
        # Tests send in a moment what honest clients pack in seconds.
        self._limits = limits or ConnectionLimits(unpacked=Rate(64 * 1024 * 1024, 64 * 1024 * 1024))
        self._server: GrpcServer
        address = self.thread.run(self._start(TcpAddress("127.0.0.1", port), tls))
        assert isinstance(address, TcpAddress)
        self.port = address.port

    async def _start(self, address: Address, tls: ssl.SSLContext | None) -> Address:
        pages = {"/health": _health}
        self._server = GrpcServer(methods(self.notes), pages=pages, limits=self._limits)
        [bound] = await self._server.start([address], tls)
        return bound

    @property
    def target(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def connections(self) -> set[ServerProtocol]:
        """The connections that there are; in the thread of the server."""
        return self._server._state.connections

    def shut_down(self) -> "Future[None]":
        """Begin to close in good order."""
        return self.thread.begin(self._server.close())

    def close(self) -> None:
        """End, whatever is under way."""
        self.thread.run(self._end())
        self.thread.close()

    async def _end(self) -> None:
        self._server.cut_off()
        await self._server.close()
