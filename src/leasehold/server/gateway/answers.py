"""Answers as JSON: one document, or a line for each message.

What is long is written by a task, in pieces: `put` and `end` give a coroutine if there is need of
one, and there is never more than one at a time.
"""

from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.pages import Reply
from leasehold.rpc.raised import as_rpc_error
from leasehold.rpc.rope import Rope
from leasehold.rpc.web import Visit
from leasehold.server.gateway import refusals
from leasehold.server.gateway.long_answers import LONG_BYTES, SHORT_BYTES, Writer
from leasehold.server.gateway.replies import JSON
from leasehold.server.gateway.routes import Route
from leasehold.server.gateway.writing import written

MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Messages that wait to be written as lines; with more there is no room for others."""

MAX_LINE_BYTES: Final = 2 * 1024 * 1024
"""A message that is a line in one chunk: some clients (etcd3gw) take a chunk for a line."""

_FROM_GRPC: Final = ((b"Grpc-Metadata-Content-Type", b"application/grpc"),)
_JSON_FIELD: Final = (b"Content-Type", JSON.encode())

Writing = Coroutine[Any, Any, None]


def whole(message: bytes | Rope) -> bytes:
    """Give a message in one piece; a short one."""
    return message.take(len(message)) if isinstance(message, Rope) else message


def as_rope(message: bytes | Rope) -> Rope:
    """Give a message to be taken in pieces."""
    return message if isinstance(message, Rope) else Rope([message])


class _Answer:
    """What both kinds have in common."""

    def __init__(self, route: Route, visit: Visit) -> None:
        self._route = route
        self._visit = visit
        self._writer = Writer(visit)
        self._fields: Fields = _FROM_GRPC
        self.relieved = self._writer.relieved
        """Tells that there is room again."""

    def add_fields(self, metadata: Fields) -> None:
        """Say something before the first message, as fields of HTTP."""
        named = [(b"Grpc-Metadata-" + name, value) for name, value in metadata]
        self._fields = (*self._fields, *named)

    def _begin(self, fields: Fields) -> None:
        self._visit.begin(HTTPStatus.OK, (_JSON_FIELD, *fields))


def refused(error: RpcError) -> Reply:
    """Answer with an error."""
    fields: Fields = ()
    if error.status == Status.UNAUTHENTICATED:
        shown = "".join(filter(str.isprintable, error.message)).encode("ascii", "replace")
        fields = ((b"Www-Authenticate", shown),)
    return Reply(refusals.HTTP_STATUS[error.status], JSON, refusals.document(error), fields)


class Document(_Answer):
    """An answer of one message, which is sent when the call has gone well."""

    def __init__(self, route: Route, visit: Visit) -> None:
        super().__init__(route, visit)
        self._message: bytes | Rope | None = None

    @property
    def has_room(self) -> bool:
        """Whether what was put is written soon: there is but one."""
        return True

    def put(self, message: bytes | Rope) -> None:
        """Keep the message."""
        self._message = message

    def end(self, error: RpcError | None) -> Writing | None:
        """Answer; if that takes a while, give what does it."""
        message = self._message
        if error is None and message is None:
            error = RpcError(Status.INTERNAL, "a unary call without an answer")
        if error is not None or message is None:
            assert error is not None
            self._visit.reply(refused(error))
            return None
        if len(message) > LONG_BYTES:
            return self._write(message)
        if len(message) > SHORT_BYTES:
            return self._write_whole(message)
        self._reply(written(self._route.answer.FromString(whole(message))).encode())
        return None

    def _reply(self, body: bytes) -> None:
        self._visit.reply(Reply(HTTPStatus.OK, JSON, body, self._fields))

    async def _write_whole(self, message: bytes | Rope) -> None:
        try:
            self._reply(await self._writer.whole(self._route.answer, as_rope(message)))
        except Exception as error:  # noqa: BLE001  what a handler said is no message
            self._visit.reply(refused(as_rpc_error(error, self._route.path)))
        self._visit.flush_soon()

    async def _write(self, message: bytes | Rope) -> None:
        self._message = None
        self._begin(self._fields)
        await self._writer.write(self._route.answer, as_rope(message))
        self._visit.finish()
        self._visit.flush_soon()


class Lines(_Answer):
    """An answer of any number of messages, each in a line when it is there."""

    def __init__(self, route: Route, visit: Visit) -> None:
        super().__init__(route, visit)
        self._has_begun = False
        self._queue: deque[bytes | Rope] = deque()
        """Messages that wait for a long one before them, and that one."""
        self._queued_bytes = 0
        self._is_writing = self._is_ended = False
        self._error: RpcError | None = None

    def put(self, message: bytes | Rope) -> Writing | None:
        """Send a line."""
        if not self._has_begun:
            self._has_begun = True
            self._begin(self._fields)
        if self._is_writing or len(message) > SHORT_BYTES:
            self._queued_bytes += len(message)
            self._queue.append(message)
            return None if self._is_writing else self._write_queue()
        text = written(self._route.answer.FromString(whole(message)))
        self._visit.write(f'{{"result":{text}}}\n'.encode())
        return None

    @property
    def has_room(self) -> bool:
        """Whether what was put is written soon."""
        return self._queued_bytes < MAX_QUEUED_BYTES

    def _write_queue(self) -> Writing:
        self._is_writing = True
        return self._write_all()

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write_line(as_rope(self._queue.popleft()))
        except Exception as error:  # noqa: BLE001  what a handler said is no message
            self._queue.clear()
            self._is_ended, self._error = True, as_rpc_error(error, self._route.path)
            self._visit.write(b"\n")
        self._is_writing = False
        if self._is_ended:
            self._finish()
            self._visit.flush_soon()

    async def _write_line(self, message: Rope) -> None:
        queued_bytes = len(message)
        if queued_bytes <= MAX_LINE_BYTES:
            text = await self._writer.whole(self._route.answer, message)
            self._visit.write(b'{"result":%b}\n' % text)
        else:
            self._visit.write(b'{"result":')
            await self._writer.write(self._route.answer, message)
            self._visit.write(b"}\n")
        self._queued_bytes -= queued_bytes
        self._visit.flush()

    def end(self, error: RpcError | None) -> None:
        """End the answer; with a last line if something went wrong."""
        self._is_ended, self._error = True, error
        if not self._is_writing:
            self._finish()

    def _finish(self) -> None:
        if not self._has_begun:
            if self._error is not None:
                self._visit.reply(refused(self._error))
                return
            self._begin(())
        if self._error is not None:
            self._visit.write(refusals.last_line(self._error))
        self._visit.finish()
