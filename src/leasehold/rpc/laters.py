"""Answers that take a while: a task for each, which says what a handler has found out."""

import asyncio
from functools import partial
from typing import Protocol

from leasehold.errors import Status
from leasehold.rpc.gate import Flushable
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.host import Host
from leasehold.rpc.read_slots import Slot
from leasehold.rpc.rope import Rope
from leasehold.rpc.routes import Later, LongRead, Pieces


class Hosted(Flushable, Protocol):
    """The connection of a call, as this module sees it."""

    def flush_soon(self) -> None:
        """Send what was put out, together with what else is in this turn of the loop."""
        ...

    def check_room(self) -> None:
        """Refuse a call while the peer does not take the answers to those before."""
        ...

    @property
    def host(self) -> Host:
        """The event loop."""
        ...


class Answered(Protocol):
    """A call, as this module sees it."""

    is_ending: bool
    is_over: bool
    remote_done: bool

    @property
    def unsent_bytes(self) -> int:
        """How much of what was said has not left."""
        ...

    def reset(self) -> None:
        """Give the call up, with all that was not sent."""
        ...

    @property
    def carrier(self) -> Hosted:
        """The connection."""
        ...

    def say_accepted(self, message: bytes | Rope, position: int) -> None:
        """Say what a call has come to that was let in."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the call with what a handler raised."""
        ...

    def end(self) -> None:
        """End the call."""
        ...

    def defer(self, octets: int) -> None:
        """Have the client send no more than its window, until this much is taken."""
        ...

    def taken(self, octets: int) -> None:
        """Let the client send again what was deferred."""
        ...


class Laters:
    """The answers of a call that take a while, each with a task."""

    __slots__ = ("_call", "_slots", "_tasks")

    def __init__(self, call: Answered) -> None:
        self._call = call
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots: list[Slot] = []
        """Those of long reads, until the call is over."""

    def __bool__(self) -> bool:
        """Whether any is under way."""
        return bool(self._tasks)

    def begin(self, answer: Later, cost_bytes: int) -> None:
        """Find out an answer, and say it; until then it keeps the client from sending more."""
        self._call.defer(cost_bytes)
        task = self._call.carrier.host.spawn(self._answer(answer))
        self._tasks.add(task)
        task.add_done_callback(partial(self._answered, answer, cost_bytes))

    def cancel(self) -> None:
        """Find out nothing more: the call is over."""
        for task in self._tasks:
            task.cancel()
        for slot in self._slots:
            slot.release()
        self._slots.clear()

    async def _answer(self, answer: Later) -> None:
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

    def _answered(self, answer: Later, cost_bytes: int, task: "asyncio.Task[None]") -> None:
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
