"""Metadata: what callers and handlers tell each other besides messages, as header fields.

A key that ends in `-bin` has any bytes as its value, in base64 on the wire; every other value is
printable ASCII. What gRPC and HTTP use for themselves is not metadata, and cannot be sent as such.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.hpack import Field

Metadata = tuple[tuple[str, str | bytes], ...]
"""Keys and values in their order; a key may come more than once."""

MetadataLike = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]

MAX_SHOWN: Final = 64
"""How much of a key is repeated to whoever sent it."""

_BINARY: Final = "-bin"
_PAIR: Final = 2
_PAIRS: Final = "tuples of key and value such as ('x-key', 'value')"
_KEY: Final = re.compile(r"[0-9a-z_.-]+")
_TEXT: Final = re.compile(r"[\x20-\x7e]*")
_RESERVED: Final = frozenset(
    (
        *("content-type", "te", "host", "content-length", "user-agent"),
        *("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"),
    )
)
_OF_HTTP: Final = frozenset(
    (b"content-type", b"te", b"host", b"content-length", b"accept-encoding", b"user-agent")
)


def encode_metadata(metadata: MetadataLike) -> Fields:
    """Check metadata and give the fields for it."""
    return tuple([_encode(*_checked(pair)) for pair in as_pairs(metadata)])


def as_pairs(metadata: MetadataLike) -> Metadata:
    """Take metadata, once, whatever it is given as."""
    if isinstance(metadata, Mapping):
        return tuple(metadata.items())
    given: object = metadata  # which may be anything
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"metadata is a mapping, or {_PAIRS}, not {metadata!r}")
    return tuple(metadata)


def _checked(pair: tuple[str, str | bytes]) -> tuple[str, str | bytes]:
    given: object = pair
    if not isinstance(given, tuple) or len(given) != _PAIR:
        raise TypeError(f"metadata is {_PAIRS}, not {pair!r}")
    return pair


def _encode(key: str, value: str | bytes) -> tuple[bytes, bytes]:
    if not isinstance(key, str):
        raise TypeError(f"a metadata key is a str, not {key!r}")
    if not _KEY.fullmatch(key) or key.startswith("grpc-") or key in _RESERVED:
        raise ValueError(
            f"{key!r} cannot be a metadata key: it has lower-case letters, digits, '-', '_' and "
            "'.', and is none that gRPC or HTTP use themselves"
        )
    if key.endswith(_BINARY):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata {key!r} is binary, so its value is bytes, not {value!r}")
        return key.encode(), base64.b64encode(value).rstrip(b"=")
    if not isinstance(value, str):
        raise TypeError(f"metadata {key!r} is text, so its value is a str, not {value!r}")
    if not _TEXT.fullmatch(value):
        raise ValueError(
            f"metadata {key!r} has {value!r}: text is printable ASCII; end the key in '-bin' for "
            "anything else"
        )
    return key.encode(), value.strip(" ").encode()


def decode_metadata(fields: Iterable[Field]) -> Metadata:
    """Give the metadata among the fields of a request or an answer."""
    found: list[tuple[str, str | bytes]] = []
    for field in fields:
        name = field.name
        if name.startswith((b":", b"grpc-")) or name in _OF_HTTP:
            continue
        key = name.decode("ascii")
        if key.endswith(_BINARY):
            found += [(key, _decode_binary(key, part)) for part in field.value.split(b",")]
        else:
            found.append((key, field.value.decode("latin-1")))
    return tuple(found)


def _decode_binary(key: str, value: bytes) -> bytes:
    try:
        return base64.b64decode(value.strip() + b"=" * (-len(value.strip()) % 4), validate=True)
    except binascii.Error:
        shown = key[:MAX_SHOWN]
        raise RpcError(Status.INTERNAL, f"metadata {shown!r} is not base64") from None
