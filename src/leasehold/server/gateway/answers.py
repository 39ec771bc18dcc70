"""Answers as JSON: one document, or a line for each message."""

import asyncio
from collections.abc import Coroutine, Iterator
from http import HTTPStatus
from typing import Any, Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.pages import Reply
from leasehold.rpc.waiter import Waiter
from leasehold.rpc.web import Visit
from leasehold.server.gateway import refusals
from leasehold.server.gateway.cutting import cut
from leasehold.server.gateway.replies import CORS, JSON
from leasehold.server.gateway.routes import Route
from leasehold.server.gateway.writing import Pieces, written

LONG_BYTES: Final = 64 * 1024
"""A message that is longer is written piece by piece, each about so long."""

SLICE_S: Final = 0.002
"""How long writing goes on before it is others' turn."""

_FROM_GRPC: Final = ((b"Grpc-Metadata-Content-Type", b"application/grpc"),)
_JSON_FIELD: Final = (b"Content-Type", JSON.encode())


class _Answer:
    """What both kinds have in common."""

    def __init__(self, route: Route, visit: Visit) -> None:
        self._route = route
        self._visit = visit
        self._fields: Fields = _FROM_GRPC

    def add_fields(self, metadata: Fields) -> None:
        """Say something before the first message, as fields of HTTP."""
        named = [(b"Grpc-Metadata-" + name, value) for name, value in metadata]
        self._fields = (*self._fields, *named)

    def _refuse(self, error: RpcError) -> None:
        self._visit.reply(refused(error))


def refused(error: RpcError) -> Reply:
    """Answer with an error."""
    fields: Fields = CORS
    if error.status == Status.UNAUTHENTICATED:
        shown = error.message.encode("ascii", "replace").replace(b"\r", b" ").replace(b"\n", b" ")
        fields = (*CORS, (b"Www-Authenticate", shown))
    return Reply(refusals.HTTP_STATUS[error.status], JSON, refusals.document(error), fields)


class Document(_Answer):
    """An answer of one message, which is sent when the call has gone well."""

    def __init__(self, route: Route, visit: Visit) -> None:
        super().__init__(route, visit)
        self._message: bytes | None = None
        self._room = Waiter("writing")

    def put(self, message: bytes) -> None:
        """Keep the message."""
        self._message = message

    def relieved(self) -> None:
        """There is room again."""
        self._room.wake()

    def end(self, error: RpcError | None) -> Coroutine[Any, Any, None] | None:
        """Answer; if that takes a while, give what does it."""
        message = self._message
        if error is None and message is None:
            error = RpcError(Status.INTERNAL, "a unary call without an answer")
        if error is not None or message is None:
            assert error is not None
            self._refuse(error)
            return None
        if len(message) > LONG_BYTES:
            return self._write(message)
        body = written(self._route.answer.FromString(message)).encode()
        self._visit.reply(Reply(HTTPStatus.OK, JSON, body, (*self._fields, *CORS)))
        return None

    async def _write(self, message: bytes) -> None:
        visit = self._visit
        visit.begin(HTTPStatus.OK, (_JSON_FIELD, *self._fields, *CORS))
        began = visit.host.now()
        for text in _chunks(self._pieces(message)):
            if text:
                visit.write(text.encode())
                visit.flush()
            while not visit.has_room:
                await self._room.wait()
            if visit.host.now() - began >= SLICE_S:
                await asyncio.sleep(0)
                began = visit.host.now()
        visit.finish()
        visit.flush_soon()

    def _pieces(self, message: bytes) -> Iterator[str]:
        pieces = Pieces()
        for octets in cut(message, LONG_BYTES):
            yield from pieces.write(self._route.answer.FromString(octets))
        yield pieces.end()


def _chunks(pieces: Iterator[str]) -> Iterator[str]:
    """Gather pieces to chunks that are worth sending; empty ones in between, to take a breath."""
    gathered: list[str] = []
    size = 0
    for number, piece in enumerate(pieces):
        gathered.append(piece)
        size += len(piece)
        if size >= LONG_BYTES:
            yield "".join(gathered)
            gathered.clear()
            size = 0
        elif number % 100 == 0:
            yield ""
    yield "".join(gathered)


class Lines(_Answer):
    """An answer of any number of messages, each in a line when it is there."""

    def __init__(self, route: Route, visit: Visit) -> None:
        super().__init__(route, visit)
        self._has_begun = False

    def put(self, message: bytes) -> None:
        """Send a line."""
        if not self._has_begun:
            self._begin(self._fields)
        text = written(self._route.answer.FromString(message))
        self._visit.write(f'{{"result":{text}}}\n'.encode())

    def _begin(self, fields: Fields) -> None:
        self._has_begun = True
        self._visit.begin(HTTPStatus.OK, (_JSON_FIELD, *fields, *CORS))

    def relieved(self) -> None:
        """There is room again."""

    def end(self, error: RpcError | None) -> None:
        """End the answer; with a last line if something went wrong."""
        if error is not None and not self._has_begun:
            self._refuse(error)
            return
        if not self._has_begun:
            self._begin(())
        if error is not None:
            self._visit.write(refusals.last_line(error))
        self._visit.finish()
