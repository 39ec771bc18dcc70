"""Just enough HTTP/1.1 to answer plain GETs on the port that speaks gRPC."""

import re
from collections.abc import Callable
from http import HTTPMethod, HTTPStatus
from typing import Final

from leasehold.rpc.pages import Pages, Reply, find_page, plain

MAX_HEAD_BYTES: Final = 8 * 1024
"""The request line and header fields of one request."""

MAX_PIPELINED: Final = 100
"""Requests that are answered in one go; with more at once the connection is closed."""


class HTTP1:
    """The server's side of one HTTP/1.1 connection. It does no I/O."""

    is_pinged = has_streams = False
    unsent_bytes = taken_bytes = put_bytes = 0

    def __init__(self, pages: Pages, transmit: Callable[[bytes], None]) -> None:
        self._pages = pages
        self._transmit = transmit
        self._buffer = b""
        self._out: list[bytes] = []
        self.is_closing = False
        """Whether the connection is to be closed once the output is written."""
        self.activity = 0
        """How often something came in."""

    @property
    def has_greeted(self) -> bool:
        """Whether no request has come in in part."""
        return not self._buffer

    @property
    def begun(self) -> int:
        """How often something came in."""
        return self.activity

    def drain(self) -> None:
        """Do nothing: whoever asks again will be answered, or finds the connection closed."""

    def drop_stalled(self) -> bool:
        """Drop nothing: there is one thing at a time."""
        return False

    def ping(self) -> None:
        """Do nothing: there are no pings."""

    def receive(self, data: bytes) -> None:
        """Take what came in, and answer the requests that are complete."""
        self.activity += 1
        buffer, at = self._buffer + data, 0
        requests = 0
        while not self.is_closing:
            if buffer.startswith(b"\r\n", at):  # as after the body of an old client's request
                at += 2
                continue
            if buffer[at:] == b"\r":
                break
            end = buffer.find(_HEAD_END, at, at + MAX_HEAD_BYTES + len(_HEAD_END))
            if end >= 0:
                requests += 1
                self._request(buffer[at:end], is_last=requests >= MAX_PIPELINED)
                at = end + len(_HEAD_END)
            elif buffer[at : at + 1] and not buffer[at : at + 1].isalpha():
                self._hang_up()  # no method begins like this
            elif len(buffer) - at >= MAX_HEAD_BYTES + len(_HEAD_END):
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            else:
                break
        self._buffer = buffer[at:]
        if self._out:
            out, self._out = b"".join(self._out), []
            self.put_bytes += len(out)
            self._transmit(out)

    def lost(self) -> None:
        """Learn that the connection is gone."""
        self.is_closing = True

    def _request(self, head: bytes, *, is_last: bool) -> None:
        line, _, fields = head.partition(b"\r\n")
        parts = line.split(b" ")
        if parts[0] not in _METHODS and not parts[-1].startswith(b"HTTP/"):
            self._hang_up()
            return
        if len(parts) != _PARTS or parts[2] not in _VERSIONS:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        method, target, version = parts
        lines = fields.split(b"\r\n") if fields else []
        matches = [_FIELD.fullmatch(line) for line in lines]
        pairs = [(each[1].lower(), each[2].strip(b" \t").lower()) for each in matches if each]
        hosts = sum(name == b"host" for name, _ in pairs)
        if len(pairs) < len(lines) or hosts > 1 or (hosts == 0 and version != b"HTTP/1.0"):
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        if any(_announces_body(*pair) for pair in pairs):
            self._refuse(HTTPStatus.NOT_IMPLEMENTED)  # there is nothing here to post to
            return
        wishes = b",".join([value for name, value in pairs if name == b"connection"])
        closes = b"close" in [wish.strip() for wish in wishes.split(b",")]
        keeps_alive = version == b"HTTP/1.1" and not (closes or is_last)
        reply = find_page(self._pages, method, _ABSOLUTE.sub(b"", target) or b"/")
        self._reply(reply, is_head=method == b"HEAD", keeps_alive=keeps_alive)

    def _hang_up(self) -> None:
        """Say nothing to somebody who does not speak HTTP."""
        self.is_closing = True
        self._out.append(b"")

    def _refuse(self, status: HTTPStatus) -> None:
        self._reply(plain(status), is_head=False, keeps_alive=False)

    def _reply(self, reply: Reply, *, is_head: bool, keeps_alive: bool) -> None:
        self.is_closing = not keeps_alive
        fields = [
            f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
        ]
        head = "\r\n".join((*fields, "", "")).encode()
        self._out.append(head if is_head else head + reply.body)


def _announces_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value != b"0")


_PARTS: Final = 3
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
"""Without the spaces around a value: to look for them here takes quadratic time, or worse."""
_ABSOLUTE: Final = re.compile(rb"\Ahttps?://[^/?]*", re.IGNORECASE)
_METHODS: Final = frozenset(method.value.encode() for method in HTTPMethod)
_HEAD_END: Final = b"\r\n\r\n"
