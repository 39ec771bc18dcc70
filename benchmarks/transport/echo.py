"""The service that everything is measured with: it returns its input, and stores nothing."""

from typing import Final

from leasehold.http2.limits import KIB

SERVICE: Final = "bench.Echo"
UNARY: Final = f"/{SERVICE}/Unary"
STREAM: Final = f"/{SERVICE}/Stream"
"""Each message of a stream is answered by the same one."""
DOWNLOAD: Final = f"/{SERVICE}/Download"
"""A message with a number of pieces is answered by that many pieces."""

BODY: Final = bytes(range(ord("a"), ord("a") + 16)) * 2
PIECE: Final = b"\x5a" * (64 * KIB)


def name_of(path: str) -> str:
    """The name of a method, without that of the service."""
    return path.rpartition("/")[2]


def wanted(pieces: int) -> bytes:
    """A request for a number of pieces."""
    return pieces.to_bytes(4, "big")


def pieces_wanted(request: bytes) -> int:
    """How many pieces a request is for."""
    return int.from_bytes(request, "big")
