"""Requests that are no gRPC calls, in both versions of HTTP: what a handler is given, and gives.

A handler is called with a whole request (`Ask`), and answers through a `Visit`: at once with one
`Reply`, or in pieces as they come up. If it has not answered when it returns, it returns a
`Visitor`, which is told what happens meanwhile.
"""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.host import Host
from leasehold.rpc.pages import Pages, Reply, find_page, plain

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""The body of a request: base64 of the largest message, and some spaces."""


class Ask(NamedTuple):
    """A whole request; the names of its fields are in lower case."""

    method: bytes
    target: bytes
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes


class Visit(Protocol):
    """The answer to a request, as its handler sees it."""

    @property
    def gate(self) -> Gate:
        """What holds back answers that are not on disk."""
        ...

    @property
    def host(self) -> Host:
        """The event loop."""
        ...

    @property
    def connection(self) -> object:
        """The connection that the request came on."""
        ...

    def reply(self, reply: Reply) -> None:
        """Answer, all at once."""
        ...

    def add_fields(self, fields: Fields) -> None:
        """Send these header fields as well, whatever the answer is."""
        ...

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        """Begin an answer that comes in pieces; `fields` include its content type."""
        ...

    def write(self, octets: bytes) -> None:
        """Send a piece."""
        ...

    def finish(self) -> None:
        """End an answer that came in pieces."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is sent; if not, `Visitor.relieved` tells when it does."""
        ...

    def body_taken(self) -> None:
        """Note that the body is not needed any more; until then it counts as received data."""
        ...

    def held(self, octets: int) -> None:
        """Count what waits for the gate, and is to be sent here; less than 0 when it is sent."""
        ...

    def flush(self) -> None:
        """Hand on what was sent."""
        ...

    def flush_soon(self) -> None:
        """Hand on what was sent, with what else is sent in this turn of the loop."""
        ...


class Visitor(Protocol):
    """Who has yet to answer a request, or to finish."""

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is worth waiting for the end before a server is closed."""
        ...

    def relieved(self) -> None:
        """There is room again after there was none."""
        ...

    def dismissed(self, error: RpcError) -> None:
        """The server is closed: answer with this error, or end with it."""
        ...

    def gone(self) -> None:
        """Whoever asked is not there any more; nothing can be said."""
        ...


class Web(Protocol):
    """Answers all requests of a server that are no gRPC calls."""

    def handle(self, ask: Ask, visit: Visit) -> Visitor | None:
        """Answer a request; None if that was done already."""
        ...

    def too_large(self, body_bytes: int) -> Reply:
        """Refuse a body that has, or will have, more than `MAX_BODY_BYTES`."""
        ...


class PagesOnly:
    """Answers with plain pages, and looks at no bodies."""

    def __init__(self, pages: Pages | None = None) -> None:
        self._pages = pages or {}

    def handle(self, ask: Ask, visit: Visit) -> None:
        """Answer a request."""
        visit.reply(find_page(self._pages, ask.method, ask.target))

    def too_large(self, body_bytes: int) -> Reply:
        """Refuse a body."""
        why = f"a body has at most {MAX_BODY_BYTES} octets, not {body_bytes}"
        return plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def handle_safely(web: Web, ask: Ask, visit: Visit) -> Visitor | None:
    """Have a request handled; what a handler raises is its own fault, and nobody else's."""
    try:
        return web.handle(ask, visit)
    except Exception:
        logger.exception("the handler of %r failed", ask.target)
        visit.reply(plain(HTTPStatus.INTERNAL_SERVER_ERROR))
        return None
