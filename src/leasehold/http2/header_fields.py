"""Checks of header fields (RFC 9113, 8.2 and 8.3). A violation resets its stream."""

import re
from collections.abc import Iterable
from typing import Final

from leasehold.http2.frames import ErrorCode, StreamFailed
from leasehold.http2.hpack import Field

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?![ \t])[^\x00\r\n]*(?<![ \t])")
_LOOSE_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
"""For answers: grpcio's servers send messages with spaces around them."""
_REQUEST: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_RESPONSE: Final = frozenset((b":status",))
_CONNECTION_FIELDS: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


def check_request(fields: tuple[Field, ...]) -> dict[bytes, bytes]:
    """Check the fields of a request; return the pseudo-header fields."""
    pseudo = _check(fields, _REQUEST)
    needed: tuple[bytes, ...] = (b":method", b":scheme", b":path")
    if pseudo.get(b":method") == b"CONNECT":
        needed = (b":authority",)
        if b":scheme" in pseudo or b":path" in pseudo:
            raise malformed("CONNECT must not have :scheme or :path")
    for name in needed:
        if not pseudo.get(name):
            raise malformed(f"{name.decode()} is missing or empty")
    path = pseudo.get(b":path", b"/")
    if not path.startswith(b"/") and (path, pseudo[b":method"]) != (b"*", b"OPTIONS"):
        raise malformed(f":path must begin with /, got {path!r}")
    return pseudo


def check_response(fields: tuple[Field, ...]) -> int:
    """Check the fields of an answer; return its status."""
    status = _check(fields, _RESPONSE, _LOOSE_VALUE).get(b":status", b"")
    if len(status) != _STATUS_DIGITS or not status.isdigit():
        raise malformed(f":status must be three digits, got {status!r}")
    return int(status)


def check_trailers(fields: tuple[Field, ...]) -> None:
    """Check the trailers of a request."""
    _check(fields, frozenset())


def check_answer_trailers(fields: tuple[Field, ...]) -> None:
    """Check the trailers of an answer."""
    _check(fields, frozenset(), _LOOSE_VALUE)


def content_length(fields: tuple[Field, ...]) -> int | None:
    """Return the declared length of the body."""
    lengths = {field.value for field in fields if field.name == b"content-length"}
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS:
        raise malformed(f"content-length must be one decimal number, got {length!r}")
    return int(length)


def _check(
    fields: Iterable[Field], allowed: frozenset[bytes], value: re.Pattern[bytes] = _VALUE
) -> dict[bytes, bytes]:
    pseudo: dict[bytes, bytes] = {}
    regular_began = False
    for field in fields:
        name = field.name
        if not value.fullmatch(field.value):
            raise malformed(f"value of {name!r} contains an invalid character")
        if not name.startswith(b":"):
            regular_began = True
            _check_regular(field)
        elif regular_began or name in pseudo or name not in allowed:
            raise malformed(
                f"{name!r} is repeated, comes after a regular field, or is not allowed here"
            )
        else:
            pseudo[name] = field.value
    return pseudo


def _check_regular(field: Field) -> None:
    if not _NAME.fullmatch(field.name):
        raise malformed(f"a field name must be a token in lower case, got {field.name!r}")
    if field.name in _CONNECTION_FIELDS:
        raise malformed(f"{field.name!r} is not allowed in HTTP/2")
    if field.name == b"te" and field.value != b"trailers":
        raise malformed(f"te must be trailers, not {field.value!r}")


def malformed(why: str) -> StreamFailed:
    """Return the error for a malformed HTTP message."""
    return StreamFailed(ErrorCode.PROTOCOL_ERROR, f"malformed: {why}")


_STATUS_DIGITS: Final = 3
_MAX_LENGTH_DIGITS: Final = 18
