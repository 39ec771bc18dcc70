"""The interface between handlers and requests that are not gRPC calls, in both versions of HTTP.

A handler is called with a whole request (`HttpRequest`), and answers through a `ResponseWriter`:
immediately with one `Reply`, or in pieces over time. If it has not answered when it returns, it
returns a `PendingResponse`, which is called for later events.

A page is a function without arguments that returns a `Reply`; `PagesOnly` serves pages alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from leasehold.basics.event_loop import EventLoop
from leasehold.clock import SYSTEM_CLOCK
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.http2.header_encoder import Fields

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""The largest body of a request: base64 of the largest message, and some spaces."""


class Reply(NamedTuple):
    """The answer of a page."""

    status: HTTPStatus
    content_type: str
    """Empty if there is no body."""
    body: bytes
    fields: Fields = ()
    """Further header fields."""


Page = Callable[[], Reply]
Pages = Mapping[str, Page]
"""Pages, by path."""


class HttpRequest(NamedTuple):
    """A whole request; the names of its fields are in lower case."""

    method: bytes
    target: bytes
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes


class ResponseWriter(Protocol):
    """The answer to a request, as its handler sees it."""

    @property
    def gate(self) -> DurabilityGate:
        """The gate for answers that are not on disk yet."""
        ...

    @property
    def loop(self) -> EventLoop:
        """The event loop."""
        ...

    @property
    def connection(self) -> object:
        """The connection of the request."""
        ...

    @property
    def peer(self) -> Peer:
        """The client."""
        ...

    def reply(self, reply: Reply) -> None:
        """Send the whole answer."""
        ...

    def add_fields(self, fields: Fields) -> None:
        """Add header fields to the answer."""
        ...

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        """Begin an answer in pieces; `fields` include its content type."""
        ...

    def write(self, data: bytes) -> None:
        """Send a piece."""
        ...

    def finish(self) -> None:
        """End an answer in pieces."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client has room; if not, `PendingResponse.relieved` is called when it has."""
        ...

    def body_taken(self) -> None:
        """Note that the body is not needed any more; until then it counts as received data."""
        ...

    def held(self, size_bytes: int) -> None:
        """Count bytes of this answer that wait for the gate; negative when they are sent."""
        ...

    def flush(self) -> None:
        """Flush the output."""
        ...

    def flush_soon(self) -> None:
        """Flush the output, together with other output of this turn of the loop."""
        ...


class PendingResponse(Protocol):
    """The handler of a request that is not answered completely."""

    @property
    def ends_by_itself(self) -> bool:
        """Whether a server that is closed should wait for its end."""
        ...

    def relieved(self) -> None:
        """Called when there is room again after there was none."""
        ...

    def dismissed(self, error: RpcError) -> None:
        """Called when the server is closed: answer with this error, or end with it."""
        ...

    def gone(self) -> None:
        """Called when the client is gone; nothing can be sent."""
        ...


class HttpHandler(Protocol):
    """Handles all requests of a server that are not gRPC calls."""

    def handle(self, request: HttpRequest, response: ResponseWriter) -> PendingResponse | None:
        """Answer a request; return None if it is answered completely."""
        ...

    def too_large(self, body_bytes: int) -> Reply:
        """Return the refusal of a body that has, or will have, more than `MAX_BODY_BYTES`."""
        ...


def find_page(pages: Pages, method: bytes, target: bytes) -> Reply:
    """Answer a request without a body."""
    page = pages.get(target.partition(b"?")[0].decode(errors="replace"))
    if page is None:
        return plain(HTTPStatus.NOT_FOUND)
    if method not in (b"GET", b"HEAD"):
        return plain(HTTPStatus.METHOD_NOT_ALLOWED)
    try:
        reply = page()
        _check_reply(reply)
        return reply
    except Exception:
        logger.exception("the page %r failed", target)
        return plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _check_reply(reply: object) -> None:
    if not (isinstance(reply, Reply) and isinstance(reply.body, bytes)):
        raise TypeError(f"a page must return a Reply with a body of bytes, not {reply!r}")


def date_field() -> tuple[bytes, bytes]:
    """Return the `Date` field of an answer that is sent now (RFC 9110, 6.6.1)."""
    return b"Date", _date(int(SYSTEM_CLOCK.wall()))


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def plain(status: HTTPStatus, why: str = "") -> Reply:
    """Return a page with a status and a reason."""
    text = f"{status.value} {why or status.phrase}\n"
    return Reply(status, "text/plain; charset=utf-8", text.encode())


class PagesOnly:
    """Answers with plain pages, and ignores bodies."""

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages or {}

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer a request."""
        response.reply(find_page(self._pages, request.method, request.target))

    def too_large(self, body_bytes: int) -> Reply:
        """Return the refusal of a body."""
        why = f"body must have at most {MAX_BODY_BYTES} bytes, got {body_bytes}"
        return plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def handle_safely(
    web: HttpHandler, request: HttpRequest, response: ResponseWriter
) -> PendingResponse | None:
    """Call the handler of a request; an exception that it raises affects this request only."""
    try:
        return web.handle(request, response)
    except Exception:
        logger.exception("the handler of %r failed", request.target)
        response.reply(plain(HTTPStatus.INTERNAL_SERVER_ERROR))
        return None
