"""The heads of requests: checked, and made once for calls that are alike.

The fields are always in the same order, and a time-out is rounded, so that the header block of one
call repeats another's.
"""

import sys
from typing import Final

from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.metadata import Metadata, encode_metadata
from leasehold.rpc.timeouts import format_timeout

MAX_HEADS: Final = 1024
"""Heads that are remembered for one endpoint; beyond it all are forgotten."""

MIN_TIMEOUT_S: Final = 1e-9

_EXAMPLE: Final = "/package.Service/Method"
_PATH_AT: Final = 2


class RequestHeads:
    """The heads of the requests to one endpoint."""

    __slots__ = ("_before_path", "_behind_path", "_last", "_memo", "_metadata")

    def __init__(
        self, scheme: bytes, authority: bytes, user_agent: bytes, metadata: Fields = ()
    ) -> None:
        self._before_path: Fields = ((b":method", b"POST"), (b":scheme", scheme))
        self._behind_path: Fields = (
            (b":authority", authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", user_agent),
            (b"grpc-accept-encoding", b"identity,gzip"),
        )
        self._metadata = metadata
        self._memo: dict[tuple[object, ...], Fields] = {}
        """By what is sent: time-outs that are nearly the same have the same head."""
        self._last: tuple[float | None, bytes | None] = (None, None)
        """The time-out of the last call, and how it is written: often it is the next one's too."""

    def get(self, path: str, timeout_s: float | None, metadata: Metadata | None) -> Fields:
        """Give the head of a call; `TypeError` or `ValueError` if there cannot be one."""
        last, text = self._last
        if timeout_s is not last:
            check_timeout(timeout_s)
            text = None if timeout_s is None else format_timeout(max(timeout_s, MIN_TIMEOUT_S))
            self._last = (timeout_s, text)
        try:
            fields = self._memo.get((path, text, metadata))
        except TypeError:  # something that has no hash, and cannot be right
            fields = None
        return self._make(path, text, metadata) if fields is None else fields

    def _make(self, path: str, text: bytes | None, metadata: Metadata | None) -> Fields:
        check_path(path)
        timed: Fields = () if text is None else ((b"grpc-timeout", text),)
        fields = (
            *self._before_path,
            (b":path", path.encode()),
            *self._behind_path,
            *timed,
            *self._metadata,
            *(() if metadata is None else encode_metadata(metadata)),
        )
        if len(self._memo) >= MAX_HEADS:
            self._memo.clear()
        self._memo[(path, text, metadata)] = fields
        return fields


def path_of(fields: Fields) -> str:
    """The path of a method, out of the head of a call."""
    return fields[_PATH_AT][1].decode()


def check_path(path: str) -> None:
    """Refuse what is no method's path."""
    if not isinstance(path, str):
        raise TypeError(f"the path of a method is a text such as {_EXAMPLE!r}, not {path!r}")
    if not path.startswith("/") or not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"{path!r} is no path of a method, such as {_EXAMPLE!r}")


def check_timeout(timeout_s: float | None) -> None:
    """Refuse what is no time-out."""
    if timeout_s is None:
        return
    if not isinstance(timeout_s, int | float):
        raise TypeError(f"a time-out is a number of seconds, or None for none, not {timeout_s!r}")
    if not 0 < timeout_s <= sys.float_info.max:
        raise ValueError(f"a time-out is more than 0 s, or None for none, not {timeout_s!r}")
