"""The context of a call: what its interceptor and its handler can read besides the message.

A call has the same context whether it was made with gRPC or as JSON over HTTP.

Metadata are values that callers and handlers send besides messages. The value of a key that ends in
`-bin` is any bytes, in base64 on the wire; every other value is printable ASCII. Fields that gRPC
and HTTP use themselves are not metadata, and cannot be sent as such. A timeout (`grpc-timeout`) has
at most eight digits and a unit.

An interceptor is a function that is called with the context of every call, before the handler and
before the message is read. It refuses a call by raising an error: `RpcError` with its status, or an
error of Leasehold. `routes.intercept` installs it in the methods of a server, which gRPC and the
JSON gateway share. So a check on every call is installed in one place.

An interceptor may return a function, the done callback. It is called once, with the status of the
call, when the call is over: its status was sent, or it was cancelled, reset, or lost with its
connection (`CANCELLED`). A call that the interceptor refuses has no done callback.

A call has a cost for this only if its method has an interceptor, or a handler that reads the
context. No context is made for other calls, and their header fields are not kept. A call with a
done callback does not take the fast path.
"""

import asyncio
import base64
import binascii
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final

from leasehold.basics.sockets import peer_of
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.http2.header_encoder import Fields
from leasehold.http2.hpack import Field

logger = logging.getLogger(__name__)

Metadata = tuple[tuple[str, str | bytes], ...]
"""Keys and values in their order; a key may come more than once."""

MetadataLike = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]

MAX_SHOWN: Final = 64
"""How much of a key an error quotes."""

_BINARY: Final = "-bin"
_PAIR: Final = 2
_USE_BIN: Final = "for bytes use a key that ends with '-bin'"
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
    """Check metadata and return its fields."""
    return tuple([_encode(*_checked(pair)) for pair in as_pairs(metadata)])


def as_pairs(metadata: MetadataLike) -> Metadata:
    """Return metadata of any accepted form as pairs; it is iterated once."""
    if isinstance(metadata, Mapping):
        return tuple(metadata.items())
    given: object = metadata  # it may be anything
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"metadata must be a mapping, or {_PAIRS}, not {metadata!r}")
    return tuple(metadata)


def _checked(pair: tuple[str, str | bytes]) -> tuple[str, str | bytes]:
    given: object = pair
    if not isinstance(given, tuple) or len(given) != _PAIR:
        raise TypeError(f"metadata must be {_PAIRS}, not {pair!r}")
    return pair


def _encode(key: str, value: str | bytes) -> tuple[bytes, bytes]:
    if not isinstance(key, str):
        raise TypeError(f"a metadata key must be a str, not {key!r}")
    if not _KEY.fullmatch(key) or key.startswith("grpc-") or key in _RESERVED:
        raise ValueError(
            f"{key!r} cannot be a metadata key: use lower-case letters, digits, '-', '_' and '.', "
            "and no name that gRPC or HTTP reserve"
        )
    if key.endswith(_BINARY):
        if not isinstance(value, bytes):
            raise TypeError(
                f"the value of metadata {key!r} must be bytes, not {value!r}: "
                "the key ends with '-bin'"
            )
        return key.encode(), base64.b64encode(value).rstrip(b"=")
    if not isinstance(value, str):
        raise TypeError(f"the value of metadata {key!r} must be a str, not {value!r}; {_USE_BIN}")
    if not _TEXT.fullmatch(value):
        raise ValueError(
            f"the value of metadata {key!r} must be printable ASCII, not {value!r}; {_USE_BIN}"
        )
    return key.encode(), value.strip(" ").encode()


def decode_metadata(fields: Iterable[Field]) -> Metadata:
    """Return the metadata among the fields of a request or an answer."""
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


# Timeouts.

MAX_DIGITS: Final = 8
MAX_TIMEOUT_S: Final = 99_999_999 * 3600.0

_JUST_BELOW: Final = 1 - 1e-9
_JUST_ABOVE: Final = 1 + 1e-9
_UNITS_S: Final = {
    b"n": 1e-9,
    b"u": 1e-6,
    b"m": 1e-3,
    b"S": 1.0,
    b"M": 60.0,
    b"H": 3600.0,
}
_FORM: Final = re.compile(rb"([0-9]{1,8})([numSMH])")
_DIGITS: Final = b"0123456789"


def is_timeout(text: bytes) -> bool:
    """Return whether a `grpc-timeout` is well-formed: much cheaper than `parse_timeout`."""
    return text.lstrip(_DIGITS) in _UNITS_S and 1 < len(text) <= MAX_DIGITS + 1


def parse_timeout(text: bytes) -> float:
    """Parse a `grpc-timeout` into seconds; raise `ValueError` if it is not one."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"malformed grpc-timeout: {text[: 2 * MAX_DIGITS]!r}")
    return int(match[1]) * _UNITS_S[match[2]]


def format_timeout(timeout_s: float) -> bytes:
    """Format a timeout, rounded up to two digits: so that one call's headers repeat another's.

    It only matters to the server if this client has failed to give up in time.
    """
    bounds, texts = _texts()
    return texts[min(bisect_left(bounds, timeout_s * _JUST_BELOW), len(texts) - 1)]


@cache
def _texts() -> tuple[list[float], list[bytes]]:
    """Return all timeouts of two digits, in the finest unit that has room for them."""
    bounds, texts = [0.0], [b"1n"]
    for unit, unit_s in _UNITS_S.items():
        for zeros in range(MAX_DIGITS - 1):
            for digits in range(10 if zeros else 1, 100):
                count = digits * 10**zeros
                if count * unit_s > bounds[-1] * _JUST_ABOVE:
                    bounds.append(count * unit_s)
                    texts.append(b"%d%b" % (count, unit))
    return [*bounds, MAX_TIMEOUT_S], [*texts, b"%dH" % (10**MAX_DIGITS - 1)]


class Peer:
    """The client at the other end of a connection."""

    __slots__ = ("_name", "_transport")

    def __init__(self, transport: asyncio.BaseTransport | None = None) -> None:
        self._transport = transport
        self._name: object = None if transport is None else transport.get_extra_info("peername")

    @property
    def address(self) -> str:
        """The address of the client, such as `127.0.0.1:40312`, or `a Unix socket`."""
        return peer_of(self._name)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, as `ssl.SSLSocket.getpeercert` returns it.

        None without TLS, and if the client has sent none. It was verified if there is one.
        """
        if self._transport is None:
            return None
        return self._transport.get_extra_info("peercert") or None


class CallContext:
    """The circumstances of one call."""

    __slots__ = ("began", "metadata", "path", "peer", "timeout_s")

    def __init__(
        self, path: str, metadata: Metadata, peer: Peer, timeout_s: float | None, began: float
    ) -> None:
        self.path = path
        """The method: `/package.Service/Method`, also for a call as JSON."""
        self.metadata = metadata
        """The metadata of the request; of a JSON request, the fields that are passed on."""
        self.peer = peer
        self.timeout_s = timeout_s
        """How long the call may take, as the client sent it; None without a limit."""
        self.began = began
        """When the request was received, by `time.monotonic`."""

    @property
    def deadline(self) -> float | None:
        """When the transport ends the call, by `time.monotonic`; None without a limit."""
        return None if self.timeout_s is None else self.began + self.timeout_s


DoneCallback = Callable[[Status], None]
"""Called once when a call is over, with its status. It runs on the event loop, so it must not
block; an exception that it raises is logged."""

Interceptor = Callable[[CallContext], DoneCallback | None]
"""Called before the handler of every call; raises an error to refuse the call."""


def call_interceptor(interceptor: Interceptor, context: CallContext) -> DoneCallback | None:
    """Call an interceptor; return its done callback, which then raises nothing, or None."""
    callback = interceptor(context)
    if callback is None:
        return None
    if not callable(callback):  # such as the result of a coroutine function
        raise TypeError(f"an interceptor must return a function or None, not {callback!r}")
    return partial(_call_done, callback, context.path)


def _call_done(callback: DoneCallback, path: str, status: Status) -> None:
    try:
        callback(status)
    except Exception:
        logger.exception("the done callback of a call of %s failed", path)
