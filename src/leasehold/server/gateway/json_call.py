"""A call that was sent as JSON: for its handler it is a stream like one of gRPC.

Theory of operation. Messages are passed on a few at a time (`MESSAGES_PER_TURN`), as a body may
have very many. Responses wait for the durability gate as they do in gRPC; then they are written as
JSON: a line for each message if there may be several, else one document at the end of the call,
after it has succeeded. A long answer is written in a task, piece by piece.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from leasehold.basics.event_loop import LoopTimer
from leasehold.basics.rope import Rope
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, DoneCallback
from leasehold.grpc.error_details import as_rpc_error
from leasehold.grpc.http_handlers import ResponseWriter
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import Slot
from leasehold.grpc.routes import (
    DeferredAnswer,
    Exchange,
    LongRead,
    Pieces,
    StreamHandler,
    Subscription,
)
from leasehold.http2.header_encoder import Fields
from leasehold.server.gateway.gateway_routes import Route
from leasehold.server.gateway.http_answers import DocumentAnswer, LineAnswer

MESSAGES_PER_TURN: Final = 50
"""Messages of one body that are handled before other work runs."""

logger = logging.getLogger(__name__)

_NO_MORE: Final = b"no more"
_LATE: Final = "context deadline exceeded"


class JsonCall:
    """A call, for its handler (`ServerStream`) and for the connection (`PendingResponse`)."""

    def __init__(
        self,
        route: Route,
        response: ResponseWriter,
        context: CallContext,
        done_callback: DoneCallback | None = None,
    ) -> None:
        self._route = route
        self._response = response
        self._gate = response.gate
        self.context = context
        self._done_callback = done_callback
        """Set until the call is over."""
        self._answer = (LineAnswer if route.gives_many else DocumentAnswer)(route, response)
        self._handler: StreamHandler | None = None
        self._messages: Iterator[bytes | None] = iter(())
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots: list[Slot] = []
        """The slots of long reads, until their answers are written."""
        self._writer: asyncio.Task[None] | None = None
        """Writes a long answer."""
        self._alarm: LoopTimer | None = None
        self._held_until = 0
        """The position that must be released before all responses so far are sent."""
        self._error: RpcError | None = None
        """The error that the call has ended with."""
        self._is_all_heard = False
        self._is_ending = False
        self._is_over = False

    def begin(self, messages: Iterator[bytes | None]) -> None:
        """Pass messages to the handler, in order, and send its answers.

        None is not a message: parsing the next one takes long, and other work should run.
        """
        self._messages = messages
        method = self._route.method
        try:
            if method is None:
                service, _, name = self._route.path[1:].partition("/")
                raise RpcError(Status.UNIMPLEMENTED, f"unknown method {name} for service {service}")
            timeout_s = self.context.timeout_s
            if timeout_s is not None:
                self._alarm = self._response.loop.call_later(timeout_s, self._too_late)
            if isinstance(method, Subscription):
                self._handler = method.open(self)
        except Exception as error:  # noqa: BLE001  every failure is sent to the client
            self.fail(error)
            return
        self._hear_some()

    # Requests.

    def _hear_some(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            if self._is_ending or self._is_over:
                return
            try:
                message = next(self._messages, _NO_MORE)
                if message is None:
                    break
                if message is _NO_MORE:
                    self._heard_all()
                    return
                self._hear(message)
            except Exception as error:  # noqa: BLE001  every failure is sent to the client
                self.fail(error)
        self._response.loop.call_soon(self._hear_more)

    def _hear_more(self) -> None:
        self._hear_some()
        self._response.flush()

    def _hear(self, message: bytes) -> None:
        method = self._route.method
        if isinstance(method, Exchange):
            arguments = (message, self.context) if method.reads_context else (message,)
            result = method.call(*arguments)
            if isinstance(result, Pieces):
                self.send_message(Rope(result.pieces), result.position)
            elif isinstance(result, tuple):
                self.send_message(*result)
            else:
                self._spawn(self._say_later(result))
        else:
            assert self._handler is not None
            self._handler.message_received(message)

    def _heard_all(self) -> None:
        self._is_all_heard = True
        self._messages = iter(())
        if not self._tasks:  # which may keep the message
            self._response.body_taken()
        if self._handler is not None:
            self._handler.ended()
        elif not self._tasks:
            self.end()

    # Answers that take long.

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._response.loop.spawn(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _say_later(self, later: DeferredAnswer) -> None:
        try:
            result = later if isinstance(later, LongRead) else await later
            if isinstance(result, LongRead):
                result = await self._read(result)
            if isinstance(result, Pieces):
                self._say_accepted(Rope(result.pieces), result.position)
            else:
                self._say_accepted(*result)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            if not isinstance(later, LongRead):
                later.close()  # if it never began

    async def _read(self, read: LongRead) -> Pieces:
        """Wait for a slot, and read; the slot is kept until the answer is written."""
        slot = await read.slots.acquire(self._response.connection)
        if self._is_over:
            slot.release()
            raise asyncio.CancelledError
        self._slots.append(slot)
        pieces = await read.begin()
        size = sum(map(len, pieces.pieces))
        slot.holds(size, self._response.loop, lambda: self._answer.left_bytes, self._reset)
        return pieces

    def _reset(self) -> None:
        """Abort an answer that is written too slowly because the client does not read."""
        if self._writer is not None:
            self._writer.cancel()

    def _finished(self, *, is_cancelled: bool = False) -> None:
        """Release everything: the answer is written, or nothing more can be written."""
        for slot in self._slots:
            slot.release()
        self._slots.clear()
        callback, self._done_callback = self._done_callback, None
        if callback is not None:
            error = self._answer.error
            status = Status.OK if error is None else error.status
            callback(Status.CANCELLED if is_cancelled else status)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.end(RpcError(Status.CANCELLED, "the handler was cancelled"))
        if self._is_all_heard and not self._tasks:  # then the method is an `Exchange`
            self._response.body_taken()
            self.end()
        self._response.flush_soon()

    def _say_accepted(self, message: bytes | Rope, position: int) -> None:
        """Send the answer to a call that was executed once `position` is released."""
        if position <= self._gate.released:
            self._put(message)
        else:
            self._gate.hold_answer(position, self._put, message)
            self._held_until = max(self._held_until, position)

    # Interface for handlers.

    def answer_and_end(self, message: bytes, position: int) -> None:
        """Send the only answer of a call that was executed once `position` is released; end it."""
        self._say_accepted(message, position)
        self.end()

    def send_message(self, message: bytes | Rope, position: int) -> None:
        """Send a message once `position` is released."""
        if position <= self._gate.released:
            self._put(message)
            return
        method = self._route.method
        if isinstance(method, Exchange):
            method.hold(self._gate, position, self._put, message)
        else:
            self._response.held(len(message))
            self._gate.hold_event(position, self._put_event, message)
        self._held_until = max(self._held_until, position)

    def end(self, error: RpcError | None = None, metadata: Fields = ()) -> None:
        """End the call, after all messages sent before; only the first end counts."""
        if self._is_ending:
            return
        self._is_ending = True
        method = self._route.method
        if isinstance(method, Subscription) and method.waits_for_room:
            self._dismiss_handler()  # nothing more can be sent
        position = self._held_until if error is None else max(self._held_until, error.position)
        self._error = error
        if position <= self._gate.released:
            self._put_end(b"")
        else:
            self._gate.hold_event(position, self._put_end, b"")

    def fail(self, error: BaseException) -> None:
        """End the call with an exception of the handler."""
        self.end(as_rpc_error(error, self._route.path))

    def send_head(self, metadata: Fields) -> None:
        """Send metadata before the first message."""
        self._answer.add_fields(metadata)

    def defer(self, size_bytes: int) -> None:
        """Do nothing: the whole body has been received."""

    def taken(self, size_bytes: int) -> None:
        """Do nothing: the whole body has been received."""

    @property
    def has_room(self) -> bool:
        """Whether the client reads the responses."""
        return self._response.has_room and self._answer.has_room and self._gate.has_event_room(self)

    has_own_room = has_room

    @property
    def connection(self) -> object:
        """The connection that the request came on."""
        return self._response.connection

    def flush(self) -> None:
        """Send buffered responses."""
        self._response.flush()

    def flush_soon(self) -> None:
        """Send buffered responses, together with others of this iteration of the loop."""
        self._response.flush_soon()

    # Done immediately, or by the gate when the position is released.

    def _put(self, message: bytes | Rope) -> ResponseWriter:
        if not self._is_over:
            try:
                self._write(self._answer.put(message))
            except Exception as error:  # noqa: BLE001  a handler's result may be invalid
                self._error = as_rpc_error(error, self._route.path)
                self._put_end(b"")
        return self._response

    def _write(self, writing: Coroutine[Any, Any, None] | None) -> None:
        if writing is not None:
            self._writer = self._response.loop.spawn(writing)
            self._writer.add_done_callback(self._written)

    def _written(self, task: "asyncio.Task[None]") -> None:
        if self._is_over:
            self._finished(is_cancelled=task.cancelled())
        self.relieved()

    def _put_event(self, message: bytes | Rope) -> ResponseWriter:
        self._response.held(-len(message))
        return self._put(message)

    def _put_end(self, _: bytes) -> ResponseWriter:
        if not self._is_over:
            self._is_over = True
            self._tidy()
            try:
                self._write(self._answer.end(self._error))
            except Exception as error:  # noqa: BLE001  a handler's result may be invalid
                self._answer.end(as_rpc_error(error, self._route.path))
            if self._writer is None or self._writer.done():
                self._finished()
        return self._response

    def _tidy(self) -> None:
        self._messages = iter(())  # which refers to the body
        self._response.body_taken()
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        self._dismiss_handler()

    def _dismiss_handler(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            self._gate.forget(self)
            try:
                handler.gone()
            except Exception:
                logger.exception("the handler of %s failed at its end", self._route.path)

    def _too_late(self) -> None:
        """Report that the deadline has passed; executed changes stay, and are not waited for."""
        self._held_until = 0
        error = RpcError(Status.DEADLINE_EXCEEDED, _LATE)
        if self._is_ending:
            self._error = error
            self._put_end(b"")
        else:
            self.end(error)
        self._response.flush()

    # Events.

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is worth waiting for the end."""
        method = self._route.method
        return not isinstance(method, Subscription) or method.ends_by_itself

    def relieve(self) -> None:
        """The gate has room for events again."""
        self.relieved()

    def relieved(self) -> None:
        """There is room again after there was none."""
        self._answer.relieved()
        if self._handler is not None and not self._is_ending:
            try:
                self._handler.relieved()
            except Exception as error:  # noqa: BLE001  every failure is sent to the client
                self.fail(error)

    def dismissed(self, error: RpcError) -> None:
        """The server is closed."""
        self.end(error)

    def gone(self) -> None:
        """The client is gone."""
        self._is_over = self._is_ending = True
        self._tidy()
        self._finished(is_cancelled=True)
        if self._writer is not None:
            self._writer.cancel()
