"""The bodies of HTTP/1.1 requests: of a known length, or in chunks.

A body takes what is its own from the front of the connection's buffer, and leaves the rest.
"""

import re
from http import HTTPStatus
from typing import Final

from leasehold.rpc.http1_heads import HEAD_END, MAX_HEAD_BYTES, Refused, parse_fields
from leasehold.rpc.web import MAX_BODY_BYTES

MAX_CHUNK_LINE_BYTES: Final = 256
"""The line before a chunk: eight digits, and extensions that nobody uses."""

MAX_CHUNKS: Final = 65_536
"""Chunks of one body: for the largest that is 64 octets each."""


class TooLarge(Exception):
    """More than a body may have."""

    def __init__(self, body_bytes: int) -> None:
        super().__init__(body_bytes)
        self.body_bytes = body_bytes


class SizedBody:
    """A body whose length is known."""

    def __init__(self, length: int) -> None:
        if length > MAX_BODY_BYTES:
            raise TooLarge(length)
        self._left = length
        self.octets = bytearray()

    def take(self, buffer: bytearray) -> bool:
        """Take what is there; tell whether that is all."""
        piece = buffer[: self._left]
        del buffer[: self._left]
        self.octets += piece
        self._left -= len(piece)
        return not self._left


class ChunkedBody:
    """A body in chunks, each with its size before it, and trailers behind the last."""

    def __init__(self) -> None:
        self.octets = bytearray()
        self._left = 0
        """Of the current chunk, and of the line end behind it."""
        self._chunks = 0
        self._is_last = False

    def take(self, buffer: bytearray) -> bool:
        """Take what is there; tell whether that is all."""
        at = 0
        try:
            while not self._is_last:
                if self._left:
                    at = self._data(buffer, at)
                    if self._left:
                        return False
                line_end = buffer.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES)
                if line_end < 0:
                    if len(buffer) - at >= MAX_CHUNK_LINE_BYTES:
                        raise Refused(HTTPStatus.BAD_REQUEST, "the size of a chunk has no end")
                    return False
                self._size(bytes(buffer[at:line_end]))
                at = line_end + 2
        finally:
            del buffer[:at]
        return self._trailers(buffer)

    def _data(self, buffer: bytearray, at: int) -> int:
        """Take of the current chunk what is there, with the line end behind it."""
        data_bytes = max(0, self._left - 2)
        piece = buffer[at : at + data_bytes]
        self.octets += piece
        self._left -= len(piece)
        at += len(piece)
        if self._left <= 2 and len(buffer) - at >= 2:
            if buffer[at : at + 2] != b"\r\n":
                raise Refused(HTTPStatus.BAD_REQUEST, "a chunk that is longer than its size")
            self._left = 0
            at += 2
        return at

    def _size(self, line: bytes) -> None:
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "the size of a chunk is a hexadecimal number")
        size = int(match[1], 16)
        self._chunks += 1
        if len(self.octets) + size > MAX_BODY_BYTES:
            raise TooLarge(len(self.octets) + size)
        if self._chunks > MAX_CHUNKS:
            raise Refused(HTTPStatus.BAD_REQUEST, f"a body has at most {MAX_CHUNKS} chunks")
        self._is_last = not size
        self._left = size + 2 if size else 0

    def _trailers(self, buffer: bytearray) -> bool:
        """Pass over the trailers; they must be fields, but nobody reads them."""
        if buffer.startswith(b"\r\n"):
            del buffer[:2]
            return True
        end = buffer.find(HEAD_END, 0, MAX_HEAD_BYTES + len(HEAD_END))
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES + len(HEAD_END):
                raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        parse_fields(bytes(buffer[:end]))
        del buffer[: end + len(HEAD_END)]
        return True


def body_of(length: int | None) -> SizedBody | ChunkedBody:
    """Begin a body of this length, or in chunks."""
    return ChunkedBody() if length is None else SizedBody(length)


_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
