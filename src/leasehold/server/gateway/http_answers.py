"""Answers over HTTP, as etcd's gateway gives them: JSON documents and lines, errors, plain text.

An answer of one message is a document; an answer of several is a line for each. A long answer is
written by a task, in pieces: `put` and `end` then return a coroutine; there is never more than one
at a time. An error instead of an answer is a document with the HTTP status for its code. An error
that ends a stream is its last line, because the HTTP status has been sent already.
"""

from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final

from leasehold.basics.rope import Rope
from leasehold.errors import Status
from leasehold.grpc.error_details import DOMAIN, TYPE_URL, as_rpc_error
from leasehold.grpc.http_handlers import Reply, ResponseWriter
from leasehold.grpc.protocol import RpcError
from leasehold.http2.header_encoder import Fields
from leasehold.server.gateway.gateway_routes import Route
from leasehold.server.gateway.json_writer import (
    LONG_BYTES,
    SHORT_BYTES,
    LongJsonWriter,
    quoted,
    written,
)

HTTP_STATUS: Final = {
    Status.OK: HTTPStatus.OK,
    Status.CANCELLED: HTTPStatus.REQUEST_TIMEOUT,
    Status.UNKNOWN: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Status.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    Status.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Status.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Status.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Status.ABORTED: HTTPStatus.CONFLICT,
    Status.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Status.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    Status.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.DATA_LOSS: HTTPStatus.INTERNAL_SERVER_ERROR,
    Status.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}


MAX_TEXT: Final = 2048
"""Characters of an error text that are sent: some texts repeat parts of the request."""

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

_NO_SNIFFING: Final = ((b"X-Content-Type-Options", b"nosniff"),)

MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Messages that wait to be written as lines; above this there is no room for others."""

MAX_LINE_BYTES: Final = 2 * 1024 * 1024
"""A line up to this size is sent in one chunk: some clients (etcd3gw) take a chunk for a line."""

_FROM_GRPC: Final = ((b"Grpc-Metadata-Content-Type", b"application/grpc"),)
_JSON_FIELD: Final = (b"Content-Type", JSON.encode())

Writing = Coroutine[Any, Any, None]


def error_document(error: RpcError) -> bytes:
    """Return the document that is sent instead of an answer."""
    text = quoted(error.message[:MAX_TEXT])
    fields = f'"error":{text},"code":{error.status.value},"message":{text}'
    return f"{{{fields}{_details(error)}}}".encode()


def error_line(error: RpcError) -> bytes:
    """Return the line that ends a stream."""
    http = HTTP_STATUS[error.status]
    return (
        f'{{"error":{{"grpc_code":{error.status.value},"http_code":{http.value},'
        f'"message":{quoted(error.message[:MAX_TEXT])},"http_status":{quoted(http.phrase)}'
        f"{_details(error)}}}}}"
    ).encode()


def _details(error: RpcError) -> str:
    """Return the field for structured details, as gRPC's gateway writes it; often there is none."""
    if error.detail is None:
        return ""
    pairs = error.detail.fields.items()
    fields = ",".join([f"{quoted(name)}:{quoted(text)}" for name, text in pairs])
    return (
        f',"details":[{{"@type":"{TYPE_URL}","reason":"{error.detail.reason}",'
        f'"domain":"{DOMAIN}","metadata":{{{fields}}}}}]'
    )


def plain(status: HTTPStatus, text: str, fields: Fields = ()) -> Reply:
    """Answer with a line of text."""
    return Reply(status, TEXT, f"{text}\n".encode(), (*fields, *_NO_SNIFFING))


def empty(status: HTTPStatus, fields: Fields = ()) -> Reply:
    """Answer with an empty body."""
    return Reply(status, "", b"", fields)


def whole(message: bytes | Rope) -> bytes:
    """Return a short message in one piece."""
    return message.take(len(message)) if isinstance(message, Rope) else message


def as_rope(message: bytes | Rope) -> Rope:
    """Return a message as a rope, to be read in pieces."""
    return message if isinstance(message, Rope) else Rope([message])


class _Answer:
    """The common part of both kinds of answers."""

    def __init__(self, route: Route, response: ResponseWriter) -> None:
        self._route = route
        self._response = response
        self._writer = LongJsonWriter(response)
        self._fields: Fields = _FROM_GRPC
        self.error: RpcError | None = None
        """The error that is sent, once the answer has ended."""
        self.relieved = self._writer.relieved
        """Called when there is room again."""

    @property
    def left_bytes(self) -> int:
        """How much of a long message is still to be written."""
        return self._writer.left_bytes

    def add_fields(self, metadata: Fields) -> None:
        """Add metadata as HTTP header fields, before the first message."""
        named = [(b"Grpc-Metadata-" + name, value) for name, value in metadata]
        self._fields = (*self._fields, *named)

    def _begin(self, fields: Fields) -> None:
        self._response.begin(HTTPStatus.OK, (_JSON_FIELD, *fields))


def refused(error: RpcError) -> Reply:
    """Answer with an error."""
    fields: Fields = ()
    if error.status == Status.UNAUTHENTICATED:
        shown = "".join(filter(str.isprintable, error.message)).encode("ascii", "replace")
        fields = ((b"Www-Authenticate", shown),)
    return Reply(HTTP_STATUS[error.status], JSON, error_document(error), fields)


class DocumentAnswer(_Answer):
    """An answer of one message, which is sent when the call has succeeded."""

    def __init__(self, route: Route, response: ResponseWriter) -> None:
        super().__init__(route, response)
        self._message: bytes | Rope | None = None

    @property
    def has_room(self) -> bool:
        """Whether a message is written soon: always, for there is only one."""
        return True

    def put(self, message: bytes | Rope) -> None:
        """Keep the message."""
        self._message = message

    def end(self, error: RpcError | None) -> Writing | None:
        """Send the answer; if that takes long, return a coroutine that does it."""
        message = self._message
        if error is None and message is None:
            error = RpcError(Status.INTERNAL, "a unary call without an answer")
        self.error = error
        if error is not None or message is None:
            assert error is not None
            self._response.reply(refused(error))
            return None
        if len(message) > LONG_BYTES:
            return self._write(message)
        if len(message) > SHORT_BYTES:
            return self._write_whole(message)
        self._reply(written(self._route.answer.FromString(whole(message))).encode())
        return None

    def _reply(self, body: bytes) -> None:
        self._response.reply(Reply(HTTPStatus.OK, JSON, body, self._fields))

    async def _write_whole(self, message: bytes | Rope) -> None:
        try:
            self._reply(await self._writer.whole(self._route.answer, as_rope(message)))
        except Exception as error:  # noqa: BLE001  a handler's result may be invalid
            self.error = as_rpc_error(error, self._route.path)
            self._response.reply(refused(self.error))
        self._response.flush_soon()

    async def _write(self, message: bytes | Rope) -> None:
        self._message = None
        self._begin(self._fields)
        await self._writer.write(self._route.answer, as_rope(message))
        self._response.finish()
        self._response.flush_soon()


class LineAnswer(_Answer):
    """An answer of any number of messages, each sent as a line when it is ready."""

    def __init__(self, route: Route, response: ResponseWriter) -> None:
        super().__init__(route, response)
        self._has_begun = False
        self._queue: deque[bytes | Rope] = deque()
        """A long message that is being written, and the messages after it."""
        self._queued_bytes = 0
        self._is_writing = self._is_ended = False

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
        self._response.write(f'{{"result":{text}}}\n'.encode())
        return None

    @property
    def has_room(self) -> bool:
        """Whether a message is written soon."""
        return self._queued_bytes < MAX_QUEUED_BYTES

    def _write_queue(self) -> Writing:
        self._is_writing = True
        return self._write_all()

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write_line(as_rope(self._queue.popleft()))
        except Exception as error:  # noqa: BLE001  a handler's result may be invalid
            self._queue.clear()
            self._is_ended, self.error = True, as_rpc_error(error, self._route.path)
            self._response.write(b"\n")
        self._is_writing = False
        if self._is_ended:
            self._finish()
            self._response.flush_soon()

    async def _write_line(self, message: Rope) -> None:
        queued_bytes = len(message)
        if queued_bytes <= MAX_LINE_BYTES:
            text = await self._writer.whole(self._route.answer, message)
            self._response.write(b'{"result":%b}\n' % text)
        else:
            self._response.write(b'{"result":')
            await self._writer.write(self._route.answer, message)
            self._response.write(b"}\n")
        self._queued_bytes -= queued_bytes
        self._response.flush()

    def end(self, error: RpcError | None) -> None:
        """End the answer; after an error, with a last line."""
        self._is_ended, self.error = True, error
        if not self._is_writing:
            self._finish()

    def _finish(self) -> None:
        if not self._has_begun:
            if self.error is not None:
                self._response.reply(refused(self.error))
                return
            self._begin(())
        if self.error is not None:
            self._response.write(error_line(self.error))
        self._response.finish()
