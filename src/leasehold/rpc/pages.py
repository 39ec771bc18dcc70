"""Plain pages, for whoever speaks HTTP on the port that speaks gRPC: the same in both versions."""

import logging
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from leasehold.clock import SYSTEM_CLOCK
from leasehold.rpc.header_encoder import Fields

logger = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What a page answers with."""

    status: HTTPStatus
    content_type: str
    """Empty if there is nothing to say about it, as there is no body."""
    body: bytes
    fields: Fields = ()
    """What else is said before the body."""


Page = Callable[[], Reply]
Pages = Mapping[str, Page]
"""Pages, by path."""


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
        raise TypeError(f"a page is a function that returns a Reply, its body bytes, not {reply!r}")


def date_field() -> tuple[bytes, bytes]:
    """Give the `Date` field of an answer that is sent now (RFC 9110, 6.6.1)."""
    return b"Date", _date(int(SYSTEM_CLOCK.wall()))


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def plain(status: HTTPStatus, why: str = "") -> Reply:
    """Say why there is no page."""
    text = f"{status.value} {why or status.phrase}\n"
    return Reply(status, "text/plain; charset=utf-8", text.encode())
