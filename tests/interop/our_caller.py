"""Our own client."""

import asyncio
from concurrent.futures import Future
from typing import Any

from leasehold import ConnectFailed, ConnectionLost
from leasehold.errors import Status
from leasehold.grpc.call_context import decode_metadata
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_call import StreamingCall
from leasehold.grpc.protocol import RpcError
from leasehold.http2.hpack import Field
from tests.interop.callers import Call, Caller, Outcome, Request
from tests.interop.demo import Kind, Pairs, told
from tests.interop.looped_calls import LoopedCall
from tests.interop.loops import LoopThread


class _OurCall(LoopedCall):
    _task: "asyncio.Task[Any] | None" = None

    def __init__(self, thread: LoopThread, request: Request) -> None:
        super().__init__(thread, request)
        self._begun: Future[StreamingCall] = Future()

    async def head_here(self) -> Pairs:
        return told(await (await asyncio.wrap_future(self._begun)).metadata())

    def cancel_here(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def make(self, channel: Channel) -> Outcome:
        self._task = asyncio.current_task()
        read: list[bytes] = []
        try:
            if self.request.kind == Kind.ONE_TO_ONE and not self.request.metadata:
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
        request = self.request
        [message] = request.messages
        answer = await channel.unary(
            request.path, message, timeout=request.timeout_s, wait_for_ready=request.waits
        )
        read.append(answer)
        self.came(answer)
        return Outcome(Status.OK, "", tuple(read))

    async def _stream(self, channel: Channel, read: list[bytes]) -> Outcome:
        request = self.request
        streaming = channel.stream(
            request.path,
            timeout=request.timeout_s,
            metadata=request.metadata,
            wait_for_ready=request.waits,
        )
        async with streaming as call:
            self._begun.set_result(call)
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
        if not self.request.kind.asks_many:
            await call.send(self.request.messages[0])
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
        self._packing = Channel(target, gzip=True, **conditions)

    def begin(self, request: Request) -> Call:
        call = _OurCall(self._thread, request)
        self._thread.begin(call.go(self._packing if request.is_packed else self._channel))
        return call

    def close(self) -> None:
        for channel in (self._channel, self._packing):
            self._thread.run(channel.close())
        self._thread.close()
