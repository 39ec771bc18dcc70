"""Handlers that run in a task: coroutines, and answers that take a while.

A coroutine may wait, in any of gRPC's four kinds. `one_to_one`, `one_to_many`, `many_to_one` and
`conversation` make a method of a coroutine function:

    async def hello(request: bytes, call: Conversation) -> bytes: ...
    methods = {"/demo.Greeter/Hello": one_to_one(hello)}

An exception of the coroutine ends the call: `RpcError` and Leasehold's own errors with their
status, anything else as INTERNAL. When the client goes away, or the deadline passes, the task is
cancelled.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from leasehold.basics.event_loop import ChangeWaiter
from leasehold.basics.rope import Rope
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, MetadataLike, encode_metadata
from leasehold.grpc.protocol import QUEUED_BYTES, RpcError
from leasehold.grpc.read_slots import Slot
from leasehold.grpc.routes import DeferredAnswer, LongRead, Pieces, ServerStream, Subscription
from leasehold.http2.inbound import BufferFull

Run = Callable[["Conversation"], Coroutine[Any, Any, None]]


class Conversation:
    """A call, as its coroutine sees it; `async for` iterates over the client's messages."""

    def __init__(self, run: Run, stream: ServerStream) -> None:
        self.trailing_metadata: MetadataLike = ()
        """Sent with the end of a call that succeeds."""
        self._stream = stream
        self._messages: deque[bytes] = deque()
        self._is_ended = False
        self._is_gone = False
        """Whether the call is over."""
        self._hearing = ChangeWaiter("receiving")
        self._saying = ChangeWaiter("sending")
        self._task = asyncio.get_running_loop().create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        stream = self._stream
        try:
            await run(self)
            self._is_gone = True
            stream.end(metadata=encode_metadata(self.trailing_metadata))
        except asyncio.CancelledError:  # the call is over, or the coroutine has cancelled itself
            self._is_gone = True
            stream.end(RpcError(Status.CANCELLED, "the handler was cancelled"))
            raise
        except BaseException as error:
            self._is_gone = True
            stream.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            stream.flush_soon()

    # Called by the coroutine.

    @property
    def context(self) -> CallContext:
        """The context of the call: metadata, peer, deadline."""
        return self._stream.context

    async def receive(self) -> bytes | None:
        """Return the next message; None if the client has no more."""
        while not self._messages:
            if self._is_ended:
                return None
            await self._hearing.wait()
        message = self._messages.popleft()
        self._stream.taken(len(message) + QUEUED_BYTES)
        self._stream.flush_soon()
        return message

    def __aiter__(self) -> Self:
        """Iterate over the client's messages."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next message."""
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def send(self, message: bytes) -> None:
        """Send a message; wait while the client does not read earlier ones."""
        if not isinstance(message, bytes):
            raise TypeError(f"a message must be bytes, not {message!r}")
        if self._is_gone:
            await asyncio.sleep(0)  # raises CancelledError if the task is cancelled
        while not self._stream.has_own_room:
            await self._saying.wait()
        self._stream.send_message(message, 0)
        self._stream.flush_soon()

    def send_metadata(self, metadata: MetadataLike) -> None:
        """Send metadata before the first message."""
        self._stream.send_head(encode_metadata(metadata))
        self._stream.flush_soon()

    # Called by the transport.

    def message_received(self, message: bytes) -> None:
        """Called with a message of the client."""
        self._stream.defer(len(message) + QUEUED_BYTES)
        self._messages.append(message)
        self._hearing.wake()

    def ended(self) -> None:
        """Called when the client has ended its side."""
        self._is_ended = True
        self._hearing.wake()

    def relieved(self) -> None:
        """Called when there is room again."""
        self._saying.wake()

    def gone(self) -> None:
        """Called when the call is over."""
        if not self._is_gone:
            self._is_gone = True
            self._task.cancel()


def conversation(run: Run, *, ends_by_itself: bool = False) -> Subscription:
    """Make a method of a coroutine that receives and sends any number of messages.

    `Server.close` waits a while for methods with `ends_by_itself`, and for no others.
    """
    return Subscription(
        lambda stream: Conversation(run, stream), ends_by_itself, waits_for_room=True
    )


def one_to_one(answer: Callable[[bytes, Conversation], Awaitable[bytes]]) -> Subscription:
    """Make a method of a coroutine that answers one message with one message."""

    async def run(call: Conversation) -> None:
        await call.send(await answer(await only_message(call), call))

    return conversation(run, ends_by_itself=True)


def one_to_many(answer: Callable[[bytes, Conversation], AsyncIterable[bytes]]) -> Subscription:
    """Make a method of an async generator that answers one message with any number of them."""

    async def run(call: Conversation) -> None:
        async for message in answer(await only_message(call), call):
            await call.send(message)

    return conversation(run, ends_by_itself=True)


def many_to_one(answer: Callable[[Conversation], Awaitable[bytes]]) -> Subscription:
    """Make a method of a coroutine that answers any number of messages with one message."""

    async def run(call: Conversation) -> None:
        await call.send(await answer(call))

    return conversation(run, ends_by_itself=True)


async def only_message(call: Conversation) -> bytes:
    """Return the message of a call that has one; raise if there is none, or a second one."""
    message = await call.receive()
    if message is None:
        raise RpcError(Status.INTERNAL, "unary calls have one request, got none")
    if await call.receive() is not None:
        raise RpcError(Status.INTERNAL, "unary calls have one request, got two")
    return message


if TYPE_CHECKING:
    from leasehold.grpc.server_call import ServerCall

DEFERRED_BYTES: Final = 4096
"""The cost of a pending answer on a stream: a task, for example."""


class DeferredAnswers:
    """The pending answers of a call, each with a task."""

    __slots__ = ("_call", "_slots", "_tasks")

    def __init__(self, call: "ServerCall") -> None:
        self._call = call
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots: list[Slot] = []
        """The slots of long reads, until the call is over."""

    def __bool__(self) -> bool:
        """Whether any answer is pending."""
        return bool(self._tasks)

    def begin(self, answer: DeferredAnswer, message_bytes: int) -> None:
        """Compute an answer in a task, and send it; its cost is held of the window until then.

        A unary call may be executed already, and then it must not be refused.
        """
        call, is_unary = self._call, self._call.head.is_unary
        cost_bytes = message_bytes if is_unary else max(message_bytes, DEFERRED_BYTES)
        try:
            call.set_alarm()
            call.defer(cost_bytes, may_refuse=not is_unary)
        except (RpcError, BufferFull):
            if not isinstance(answer, LongRead):
                answer.close()
            raise
        task = call.carrier.loop.spawn(self._answer(answer))
        self._tasks.add(task)
        task.add_done_callback(partial(self._answered, answer, cost_bytes))

    def cancel(self) -> None:
        """Cancel all pending answers: the call is over."""
        for task in self._tasks:
            task.cancel()
        for slot in self._slots:
            slot.release()
        self._slots.clear()

    async def _answer(self, answer: DeferredAnswer) -> None:
        call = self._call
        try:
            result = answer if isinstance(answer, LongRead) else await answer
            if isinstance(result, LongRead):
                result = await self._read(result)
            if call.is_ending:
                return
            if isinstance(result, Pieces):
                call.say_accepted(Rope(result.pieces), result.position)
            else:
                call.say_accepted(*result)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            call.fail(error)
            if not isinstance(error, Exception):
                raise

    async def _read(self, read: LongRead) -> Pieces:
        """Wait for a slot, and read; the slot is kept until the answer was sent."""
        call = self._call
        slot = await read.slots.acquire(call.carrier)
        if call.is_over:
            slot.release()
            raise asyncio.CancelledError
        self._slots.append(slot)
        if read.slots.is_slow(call.carrier):
            call.carrier.check_room()
        pieces = await read.begin()
        slot.holds(
            sum(map(len, pieces.pieces)), call.carrier.loop, lambda: call.unsent_bytes, call.reset
        )
        return pieces

    def _answered(
        self, answer: DeferredAnswer, cost_bytes: int, task: "asyncio.Task[None]"
    ) -> None:
        if not isinstance(answer, LongRead):
            answer.close()  # if the task was cancelled before it began
        self._tasks.discard(task)
        call = self._call
        call.taken(cost_bytes)
        if task.cancelled():  # and not by `cancel`, or the call is over already
            call.fail(RpcError(Status.CANCELLED, "the handler was cancelled"))
        if call.remote_done and not self._tasks and not call.is_over:
            call.end()
        call.carrier.flush_soon()
