"""Answers that take a while: each has a task, which sends the result of a handler."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.basics.rope import Rope
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import Slot
from leasehold.grpc.routes import DeferredAnswer, LongRead, Pieces
from leasehold.http2.inbound import BufferFull

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
        task = call.carrier.host.spawn(self._answer(answer))
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
            sum(map(len, pieces.pieces)), call.carrier.host, lambda: call.unsent_bytes, call.reset
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
