"""Answers that take a while: a task for each, which says what a handler has found out."""

import asyncio
from functools import partial
from typing import Final, Protocol

from leasehold.errors import Status
from leasehold.rpc.gate import Flushable
from leasehold.rpc.grpc import PREFIX, RpcError
from leasehold.rpc.host import Host
from leasehold.rpc.routes import Later, Pieces

PUT_AT_ONCE_BYTES: Final = 1024 * 1024
"""How much of a long message is put out before it is another's turn."""


class Hosted(Flushable, Protocol):
    """The connection of a call, as this module sees it."""

    def flush_soon(self) -> None:
        """Send what was put out, together with what else is in this turn of the loop."""
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
    ending: bytes | None

    @property
    def carrier(self) -> Hosted:
        """The connection."""
        ...

    def say_accepted(self, message: bytes, position: int) -> None:
        """Say what a call has come to that was let in."""
        ...

    def append(self, octets: bytes) -> None:
        """Put octets of messages into the output."""
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

    __slots__ = ("_call", "_tasks")

    def __init__(self, call: Answered) -> None:
        self._call = call
        self._tasks: set[asyncio.Task[None]] = set()

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
        """Find out nothing more."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, answer: Later) -> None:
        call = self._call
        try:
            result = await answer
            if isinstance(result, Pieces):
                await self._put_pieces(result.pieces)
            elif not call.is_ending:
                call.say_accepted(*result)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            call.fail(error)
            if not isinstance(error, Exception):
                raise

    async def _put_pieces(self, pieces: list[bytes]) -> None:
        """Put a long message into the output, and let others have their turn in between."""
        call, put_bytes = self._call, 0
        for piece in (PREFIX.pack(0, sum(map(len, pieces))), *pieces):
            if call.is_over or call.ending is not None:
                return
            call.append(piece)
            put_bytes += len(piece)
            if put_bytes >= PUT_AT_ONCE_BYTES:
                put_bytes = 0
                call.carrier.flush()
                await asyncio.sleep(0)

    def _answered(self, answer: Later, cost_bytes: int, task: "asyncio.Task[None]") -> None:
        answer.close()  # if the task was cancelled before it began
        self._tasks.discard(task)
        call = self._call
        call.taken(cost_bytes)
        if task.cancelled():  # and not by `cancel`, or the call is over already
            call.fail(RpcError(Status.CANCELLED, "the handler was cancelled"))
        if call.remote_done and not self._tasks and not call.is_over:
            call.end()
        call.carrier.flush_soon()
