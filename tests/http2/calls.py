"""Calls of our gRPC services, in bytes: what a test says over HTTP/2, and what comes back.

A call carries what the transport has short cuts for, and answers of any size can be had with it.
"""

from typing import Final

from tests.http2.blocks import Fields
from tests.http2.conduct import Answer

_GRPC: Final[Fields] = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
_KEY: Final = b"http2/large"


def call_fields(path: bytes) -> Fields:
    """The fields of a call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        *_GRPC,
    ]


GRANT: Final = call_fields(b"/etcdserverpb.Lease/LeaseGrant")
PUT: Final = call_fields(b"/etcdserverpb.KV/Put")
RANGE: Final = call_fields(b"/etcdserverpb.KV/Range")
UNKNOWN_METHOD: Final = call_fields(b"/no.such.Service/Method")

GRANT_MESSAGE: Final = b"\x00\x00\x00\x00\x02\x08\x0a"
"""Asks for a lease of ten seconds."""
RANGE_MESSAGE: Final = b"\x00\x00\x00\x00" + bytes((len(_KEY) + 2, 0x0A, len(_KEY))) + _KEY
"""Asks for what `put_message` has put."""


def put_message(value: bytes) -> bytes:
    """Put a value, under the one key that is used here."""
    message = b"\x0a" + bytes((len(_KEY),)) + _KEY + b"\x12" + _varint(len(value)) + value
    return b"\x00" + len(message).to_bytes(4, "big") + message


def check_went_well(answer: Answer) -> None:
    """An answer of gRPC, with status 0, in trailers."""
    assert answer.status == 200, answer
    assert (b"content-type", b"application/grpc") in answer.fields, answer.fields
    assert (b"grpc-status", b"0") in answer.trailers, answer.trailers


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
