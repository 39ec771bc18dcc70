"""grpcio's two clients: `grpc`, which blocks, and `grpc.aio`."""

import asyncio
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from leasehold.errors import Status
from tests.interop.callers import Call, Caller, Outcome, Request
from tests.interop.demo import DEADLINE_S, Kind, Pairs, told
from tests.interop.looped_calls import LoopedCall
from tests.interop.loops import LoopThread

UNKNOWABLE: Final = "Internal error from Core"
"""What grpc.aio says if it cannot send because the server has ended the call, and is quick."""

OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)


def _status(code: grpc.StatusCode) -> Status:
    return Status(code.value[0])


def _told(metadata: Any) -> Pairs:
    return told(tuple((key, value) for key, value in metadata or ()))


class _GrpcioCall(Call):
    """Futures and iterators, as grpcio has them."""

    def __init__(self, channel: Any, request: Request) -> None:
        self._kind = request.kind
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: list[bytes] = []
        self._is_read = False
        asked: Any = iter(self._said.get, None)
        if not request.kind.asks_many:
            [asked] = request.messages
        for message in request.messages:
            self._said.put(message)
        multi: dict[Kind, Callable[[str], Any]] = {
            Kind.ONE_TO_ONE: lambda path: channel.unary_unary(path).future,
            Kind.ONE_TO_MANY: channel.unary_stream,
            Kind.MANY_TO_ONE: lambda path: channel.stream_unary(path).future,
            Kind.MANY_TO_MANY: channel.stream_stream,
        }
        self._call = multi[request.kind](request.path)(
            asked,
            timeout=request.timeout_s,
            metadata=request.metadata,
            wait_for_ready=request.waits,
            compression=grpc.Compression.Gzip if request.is_packed else None,
        )

    def send(self, message: bytes) -> None:
        self._said.put(message)

    def end(self) -> None:
        self._said.put(None)

    def head(self) -> Pairs:
        return _told(self._call.initial_metadata())

    def receive(self) -> bytes | None:
        with suppress(grpc.RpcError, grpc.FutureCancelledError, StopIteration):
            if self._kind.answers_many:
                self._answers.append(next(self._call))
                return self._answers[-1]
            if not self._is_read:
                self._is_read = True
                self._answers.append(self._call.result(DEADLINE_S))
                return self._answers[-1]
        return None

    def cancel(self) -> None:
        self._call.cancel()

    def outcome(self) -> Outcome:
        while self.receive() is not None:
            pass
        self._said.put(None)  # or grpcio's thread that reads what is said never ends
        call = self._call
        return Outcome(
            _status(call.code()),
            call.details() or "",
            tuple(self._answers),
            _told(call.initial_metadata()),
            _told(call.trailing_metadata()),
        )


class GrpcioCaller(Caller):
    """`grpcio`, as most programs use it."""

    def __init__(
        self,
        target: str,
        options: tuple[tuple[str, Any], ...] = (),
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        if tls is None:
            self._channel = grpc.insecure_channel(target, [*OPTIONS, *options])
        else:
            self._channel = grpc.secure_channel(target, tls, [*OPTIONS, *options])

    def begin(self, request: Request) -> Call:
        return _GrpcioCall(self._channel, request)

    def close(self) -> None:
        self._channel.close()


class _AioCall(LoopedCall):
    _call: Any = None

    def cancel_here(self) -> None:
        self._call.cancel()

    async def head_here(self) -> Pairs:
        return _told(await self._call.initial_metadata())

    def outcome(self) -> Outcome:
        outcome = super().outcome()
        if outcome.message == UNKNOWABLE:
            pytest.skip("grpc.aio has put an error of its own in the place of what the server said")
        return outcome

    async def make(self, channel: Any) -> Outcome:
        request = self.request
        asked = self.asked() if request.kind.asks_many else request.messages[0]
        methods = {
            Kind.ONE_TO_ONE: channel.unary_unary,
            Kind.ONE_TO_MANY: channel.unary_stream,
            Kind.MANY_TO_ONE: channel.stream_unary,
            Kind.MANY_TO_MANY: channel.stream_stream,
        }
        call = self._call = methods[request.kind](request.path)(
            asked,
            timeout=request.timeout_s,
            metadata=request.metadata,
            wait_for_ready=request.waits,
            compression=grpc.Compression.Gzip if request.is_packed else None,
        )
        read: list[bytes] = []
        with suppress(grpc.RpcError, asyncio.CancelledError):
            if request.kind.answers_many:
                await self.wanted()
                while (message := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                    read.append(message)
                    self.came(message)
                    await self.wanted()
            else:
                read.append(await call)
                self.came(read[-1])
        return Outcome(
            _status(await call.code()),
            await call.details() or "",
            tuple(read),
            _told(await call.initial_metadata()),
            _told(await call.trailing_metadata()),
        )


class AioCaller(Caller):
    """`grpc.aio`."""

    def __init__(self, target: str, options: tuple[tuple[str, Any], ...] = ()) -> None:
        self._thread = LoopThread()
        self._channel = self._thread.run(self._open(target, options))

    async def _open(self, target: str, options: tuple[tuple[str, Any], ...]) -> Any:
        return grpc.aio.insecure_channel(target, [*OPTIONS, *options])

    def begin(self, request: Request) -> Call:
        call = _AioCall(self._thread, request)
        self._thread.begin(call.go(self._channel))
        return call

    def close(self) -> None:
        self._thread.run(self._channel.close())
        self._thread.close()
