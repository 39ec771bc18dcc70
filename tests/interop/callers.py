"""Three clients behind one face, so that the same tests can be made with each of them.

`grpcio` blocks, `grpc.aio` and our own channel have event loops, in threads of their own. What a
call has come to is an `Outcome`, which is the same whoever has made the call.
"""

import asyncio
import queue
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

from leasehold import ConnectFailed, ConnectionLost
from leasehold.errors import Status
from leasehold.rpc.channel import Channel
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.hpack import Field
from leasehold.rpc.metadata import decode_metadata
from leasehold.rpc.streaming_call import StreamingCall
from tests.interop.demo import DEADLINE_S, Kind, Pairs, told
from tests.interop.loops import LoopThread

OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)


@dataclass(frozen=True)
class Outcome:
    """What has come of a call."""

    status: Status
    message: str = ""
    answers: tuple[bytes, ...] = ()
    head: Pairs = ()
    trailers: Pairs = ()

    @property
    def answer(self) -> bytes:
        """The only answer of a call that went well."""
        assert self.status == Status.OK, self
        [message] = self.answers
        return message


@dataclass(frozen=True)
class Request:
    """A call to be made. If it asks many, more can be said later."""

    kind: Kind
    path: str
    messages: tuple[bytes, ...]
    timeout_s: float | None = DEADLINE_S
    metadata: Pairs = ()
    waits: bool = False
    is_packed: bool = False


class Call(ABC):
    """A call under way."""

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Say something."""

    @abstractmethod
    def end(self) -> None:
        """Say that nothing more will be said."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """Give the next answer; None if there is no other, for whatever reason."""

    @abstractmethod
    def cancel(self) -> None:
        """Take the call back."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """Read what is left, and tell what has come of it."""


class Caller(ABC):
    """A client of one server, with one connection."""

    @abstractmethod
    def begin(self, request: Request) -> Call:
        """Begin a call."""

    @abstractmethod
    def close(self) -> None:
        """End."""

    def open(self, kind: Kind, path: str, *messages: bytes, **conditions: Any) -> Call:
        """Begin a call, and say this much already."""
        return self.begin(Request(kind, path, messages, **conditions))

    def call(self, kind: Kind, path: str, *messages: bytes, **conditions: Any) -> Outcome:
        """Make a call in which no more than this is said."""
        call = self.open(kind, path, *messages, **conditions)
        call.end()
        return call.outcome()

    def ask(self, path: str, message: bytes, **conditions: Any) -> Outcome:
        """Make a unary call."""
        return self.call(Kind.ONE_TO_ONE, path, message, **conditions)


def _status(code: grpc.StatusCode) -> Status:
    return Status(code.value[0])


def _told(metadata: Any) -> Pairs:
    return told(tuple((key, value) for key, value in metadata or ()))


# grpcio.


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

    def __init__(self, target: str, options: tuple[tuple[str, Any], ...] = ()) -> None:
        self._channel = grpc.insecure_channel(target, [*OPTIONS, *options])

    def begin(self, request: Request) -> Call:
        return _GrpcioCall(self._channel, request)

    def close(self) -> None:
        self._channel.close()


# Those with an event loop.


class _LoopedCall(Call):
    """A call that lives in an event loop: a task makes it, and tells what has come of it."""

    def __init__(self, thread: LoopThread, request: Request) -> None:
        self._thread = thread
        self._request = request
        self._came: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        for message in request.messages:
            self._said.put_nowait(message)
        self._wanted = asyncio.Semaphore(0)
        self._done: Future[Outcome] = Future()

    async def go(self, channel: Any) -> None:
        """Make the call, whatever comes of it."""
        try:
            self._done.set_result(await self.make(channel))
        except BaseException as error:  # noqa: BLE001  it is for the thread that waits
            self._done.set_exception(error)
        self._came.put(None)

    async def make(self, channel: Any) -> Outcome:
        """Make the call."""
        raise NotImplementedError

    # What a test does.

    def send(self, message: bytes) -> None:
        self._thread.call_soon(self._said.put_nowait, message)

    def end(self) -> None:
        self._thread.call_soon(self._said.put_nowait, None)

    def receive(self) -> bytes | None:
        self._thread.call_soon(self._wanted.release)
        message = self._came.get(timeout=DEADLINE_S)
        if message is None:
            self._came.put(None)
        return message

    def cancel(self) -> None:
        self._thread.call_soon(self.cancel_here)

    def cancel_here(self) -> None:
        """Take the call back, in its loop."""
        raise NotImplementedError

    def outcome(self) -> Outcome:
        while self.receive() is not None:
            pass
        return self._done.result(DEADLINE_S)

    # What the task does.

    async def asked(self) -> AsyncIterator[bytes]:
        """Go through what is to be said."""
        while (message := await self._said.get()) is not None:
            yield message

    async def wanted(self) -> None:
        """Wait until the test reads; no answer is read before."""
        await self._wanted.acquire()

    def came(self, message: bytes) -> None:
        """Hand on an answer."""
        self._came.put(message)


class _AioCall(_LoopedCall):
    _call: Any = None

    def cancel_here(self) -> None:
        self._call.cancel()

    async def make(self, channel: Any) -> Outcome:
        request = self._request
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


class _OurCall(_LoopedCall):
    _task: "asyncio.Task[Any] | None" = None

    def cancel_here(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def make(self, channel: Channel) -> Outcome:
        self._task = asyncio.current_task()
        read: list[bytes] = []
        try:
            if self._request.kind == Kind.ONE_TO_ONE and not self._request.metadata:
                return await self._unary(channel, read)
            return await self._stream(channel, read)
        except RpcError as error:
            fields = [Field(name, value) for name, value in error.metadata]
            trailers = told(decode_metadata(fields))
            return Outcome(error.status, error.message, tuple(read), (), trailers)
        except (ConnectFailed, ConnectionLost) as error:
            return Outcome(error.status, str(error), tuple(read))
        except asyncio.CancelledError:
            return Outcome(Status.CANCELLED, "", tuple(read))

    async def _unary(self, channel: Channel, read: list[bytes]) -> Outcome:
        """The short way, on which a caller does not learn of metadata."""
        request = self._request
        [message] = request.messages
        answer = await channel.unary(
            request.path, message, timeout=request.timeout_s, wait_for_ready=request.waits
        )
        read.append(answer)
        self.came(answer)
        return Outcome(Status.OK, "", tuple(read))

    async def _stream(self, channel: Channel, read: list[bytes]) -> Outcome:
        request = self._request
        streaming = channel.stream(
            request.path,
            timeout=request.timeout_s,
            metadata=request.metadata,
            wait_for_ready=request.waits,
        )
        async with streaming as call:
            writer = asyncio.create_task(self._write(call))
            try:
                await self.wanted()
                async for message in call:
                    read.append(message)
                    self.came(message)
                    if request.kind.answers_many:
                        await self.wanted()
                head = told(await call.metadata())
                return Outcome(Status.OK, "", tuple(read), head, told(call.trailing_metadata))
            finally:
                writer.cancel()
                await asyncio.wait([writer])

    async def _write(self, call: StreamingCall) -> None:
        if not self._request.kind.asks_many:
            await call.send(self._request.messages[0])
        else:
            async for message in self.asked():
                try:
                    await call.send(message)
                except (RpcError, ConnectionLost):  # whoever reads is told the same
                    return
        call.end()


class OurCaller(Caller):
    """Our own channel."""

    def __init__(self, target: str, **conditions: Any) -> None:
        self._thread = LoopThread()
        self._channel = Channel(target, **conditions)

    def begin(self, request: Request) -> Call:
        call = _OurCall(self._thread, request)
        self._thread.begin(call.go(self._channel))
        return call

    def close(self) -> None:
        self._thread.run(self._channel.close())
        self._thread.close()
