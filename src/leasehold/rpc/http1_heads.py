"""The heads of HTTP/1.1 requests. What could be read in two ways is refused: see RFC 9112, 11.2."""

import re
from http import HTTPMethod, HTTPStatus
from typing import Final, NamedTuple

from leasehold.rpc.authority import parse_authority
from leasehold.rpc.hpack import MAX_FIELDS

MAX_HEAD_BYTES: Final = 8 * 1024
"""The request line and header fields of one request, or the trailers behind a body in chunks."""

HEAD_END: Final = b"\r\n\r\n"
BARE_LINE_END: Final = re.compile(rb"(?<!\r)\n")
"""What some take for the end of a line, and others do not."""


class Refused(Exception):
    """A request that is not answered, but refused; the connection ends with it."""

    def __init__(self, status: HTTPStatus, why: str = "") -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why


class NotHttp(Exception):
    """Whoever has said this does not speak HTTP."""


class RequestHead(NamedTuple):
    """What a request says before its body."""

    method: bytes
    target: bytes
    fields: list[tuple[bytes, bytes]]
    """Names in lower case, values without the spaces around them."""
    length: int | None
    """Of the body; None if it comes in chunks."""
    is_old: bool
    """Whether the client speaks HTTP/1.0, and so no chunks."""
    keeps_alive: bool
    wants_continue: bool
    """Whether the client waits for a word before it sends the body."""


def parse_head(head: bytes) -> RequestHead:
    """Read a head, without the empty line at its end."""
    line, _, rest = head.partition(b"\r\n")
    parts = line.split(b" ")
    if parts[0] not in _METHODS and not parts[-1].startswith(b"HTTP/"):
        raise NotHttp
    if len(parts) != _PARTS or parts[2] not in _VERSIONS or not _TOKEN.fullmatch(parts[0]):
        raise Refused(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    if not _TARGET.fullmatch(target) and (target, method) != (b"*", b"OPTIONS"):
        raise Refused(HTTPStatus.BAD_REQUEST, "a target is a path, with no control characters")
    is_old = version == b"HTTP/1.0"
    fields = parse_fields(rest)
    _check_host(fields, is_old=is_old)
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:  # its host counts instead of the field's (RFC 9112, 3.2.2)
        fields = [field for field in fields if field[0] != b"host"]
        fields.append((b"host", absolute[1]))
        _check_host(fields, is_old=is_old)
    wishes = _wishes(fields, b"connection")
    keeps_alive = b"keep-alive" in wishes if is_old else b"close" not in wishes
    expected = _wishes(fields, b"expect")
    if expected not in ([], [b"100-continue"]):
        raise Refused(HTTPStatus.EXPECTATION_FAILED)
    return RequestHead(
        method,
        _ABSOLUTE.sub(b"", target) or b"/",
        fields,
        _length(fields, is_old=is_old),
        is_old,
        keeps_alive and not (is_old and b"close" in wishes),
        bool(expected) and not is_old,
    )


def parse_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Read header fields, or trailers."""
    fields = []
    if lines.count(b"\r\n") >= MAX_FIELDS:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    for line in lines.split(b"\r\n") if lines else ():
        match = _FIELD.fullmatch(line)
        if match is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "a line that is no field")
        fields.append((match[1].lower(), match[2].strip(b" \t")))
    return fields


def _check_host(fields: list[tuple[bytes, bytes]], *, is_old: bool) -> None:
    """Refuse a request without `Host`, with several, and with one that is malformed."""
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or not (hosts or is_old):
        raise Refused(HTTPStatus.BAD_REQUEST, "a request has one Host field")
    try:
        for host in hosts:
            parse_authority(host.decode("ascii"))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "malformed Host field") from None


def _wishes(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Give the elements of a list that may be spread over several fields."""
    values = [value.lower() for each, value in fields if each == name]
    return [wish for value in values for part in value.split(b",") if (wish := part.strip())]


def _length(fields: list[tuple[bytes, bytes]], *, is_old: bool) -> int | None:
    """Find out how long the body is; a message that says it twice is an attempt at smuggling."""
    lengths = {value for name, value in fields if name == b"content-length"}
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if lengths or is_old:
            why = "a body has a length or comes in chunks, and not with HTTP/1.0"
            raise Refused(HTTPStatus.BAD_REQUEST, why)
        if codings != [b"chunked"]:
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "the only transfer encoding is chunked")
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise Refused(HTTPStatus.BAD_REQUEST, "a content length is one number")
    return int(length)


_PARTS: Final = 3
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
"""Without the spaces around a value: to look for them here takes quadratic time, or worse."""
_TARGET: Final = re.compile(
    rb"(?:/|https?://)(?:[^\x00-\x20\x7f%?]|%[0-9A-Fa-f]{2})*(?:\?[^\x00-\x20\x7f]*)?",
    re.IGNORECASE,
)
"""What etcd takes: octets from 0x80 on too, and in a query whatever is behind a percent sign."""
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE: Final = re.compile(rb"\Ahttps?://([^/?]*)", re.IGNORECASE)
_METHODS: Final = frozenset(method.value.encode() for method in HTTPMethod)
