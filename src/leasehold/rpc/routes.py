"""Which handler a request goes to: the methods of a server, and the check of a request's head.

There are two kinds of methods:

- `Exchange`: each message is answered by one message. A unary call is one exchange; a stream of
  exchanges ends when the client has ended its side. The handler is a plain function, which returns
  the answer and the position that must be released before it leaves (see `rpc.gate`). If it has to
  wait for something itself it returns a coroutine instead, which returns the same.
- `Subscription`: the server speaks when it has something to say. The handler is an object that
  lives as long as the stream.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol

from leasehold.errors import Status
from leasehold.rpc.frames import ErrorCode, StreamFailed
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.hpack import Field

Answer = tuple[bytes, int]
"""A message, and the position that must be released before it leaves."""


class Pieces(NamedTuple):
    """A message that is too long to be handled in one go; it may leave at once."""

    pieces: list[bytes]


Later = Coroutine[Any, Any, Answer | Pieces]
"""An answer that takes a while."""


class Exchange(NamedTuple):
    """A method that answers each message with one message."""

    call: Callable[[bytes], Answer | Later]
    is_unary: bool = True


class Speaker(Protocol):
    """A stream, as the handler of a subscription sees it."""

    def say(self, message: bytes, position: int) -> None:
        """Send a message once `position` is released."""
        ...

    def end(self, error: RpcError | None = None) -> None:
        """End the call, after all that was said before."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is said; if not, `Listener.relieved` tells when it has."""
        ...

    def flush(self) -> None:
        """Send what was said by somebody who was not called from here."""
        ...


class Listener(Protocol):
    """The handler of one stream of a subscription."""

    def heard(self, message: bytes) -> None:
        """Take a message of the client."""
        ...

    def ended(self) -> None:
        """The client has ended its side, and will say nothing more."""
        ...

    def relieved(self) -> None:
        """There is room again after there was none."""
        ...

    def gone(self) -> None:
        """The stream is over, for whatever reason."""
        ...


class Subscription(NamedTuple):
    """A method whose server speaks by itself."""

    open: Callable[[Speaker], Listener]


Method = Exchange | Subscription
Methods = Mapping[str, Method]
"""The methods of a server, by path: `/package.Service/Method`."""


class HTTPRefusal(NamedTuple):
    """What is no gRPC call is answered with a status of HTTP, and why."""

    status: int
    why: str


class Head:
    """What is known of all requests with the same header fields.

    Exactly one of `call`, `subscription`, `error` and `http_refusal` is set.
    """

    __slots__ = ("call", "error", "http_refusal", "is_unary", "subscription")

    def __init__(self, method: "Method | RpcError | HTTPRefusal") -> None:
        self.call = method.call if isinstance(method, Exchange) else None
        self.is_unary = isinstance(method, Exchange) and method.is_unary
        self.subscription = method.open if isinstance(method, Subscription) else None
        self.error = method if isinstance(method, RpcError) else None
        self.http_refusal = method if isinstance(method, HTTPRefusal) else None


MAX_SHOWN_BYTES: Final = 200
"""How much of a path or content type is repeated to whoever sent it."""

_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_NEEDED: Final = (b":method", b":scheme", b":path")
_CONNECTION_FIELDS: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_UPPER_CASE: Final = frozenset(range(ord("A"), ord("Z") + 1))


def resolve(fields: tuple[Field, ...], methods: Methods) -> Head:
    """Find the method that a request is for; a malformed request raises `StreamFailed`."""
    pseudo = _pseudo_fields(fields)
    for name in _NEEDED:
        if name not in pseudo:
            raise _malformed(f"no {name.decode()}")
    regular = {field.name: field.value for field in fields}
    if pseudo[b":method"] != b"POST":
        return Head(HTTPRefusal(405, "gRPC calls are made with POST"))
    content_type = regular.get(b"content-type", b"")
    if not _is_grpc(content_type):
        shown = _shown(content_type)
        return Head(HTTPRefusal(415, f"content-type must be application/grpc, not {shown!r}"))
    return Head(_method(pseudo[b":path"], methods))


def _method(path_octets: bytes, methods: Methods) -> Method | RpcError:
    method = methods.get(path_octets.decode(errors="replace"))
    if method is not None:
        return method
    path = _shown(path_octets)
    service, _, name = path.removeprefix("/").partition("/")
    if any(known.startswith(f"/{service}/") for known in methods):
        why = f"unknown method {name} for service {service}"
    else:
        why = f"unknown service {service}"
    return RpcError(Status.UNIMPLEMENTED, why)


def _shown(value: bytes) -> str:
    """What an answer repeats of a request: not much, for its sender pays a few octets a call."""
    return value[:MAX_SHOWN_BYTES].decode(errors="replace")


def _is_grpc(content_type: bytes) -> bool:
    base = b"application/grpc"
    return content_type.startswith(base) and content_type[len(base) : len(base) + 1] in b"+;"


def _pseudo_fields(fields: tuple[Field, ...]) -> dict[bytes, bytes]:
    """Check the fields of a request as RFC 9113, 8.2 and 8.3, says; return the pseudo ones."""
    pseudo: dict[bytes, bytes] = {}
    regular_began = False
    for field in fields:
        name = field.name
        if not name.startswith(b":"):
            regular_began = True
            _check_regular(field)
        elif regular_began or name in pseudo or name not in _PSEUDO:
            raise _malformed(f"{name!r} is repeated, out of place, or not a request's")
        else:
            pseudo[name] = field.value
    return pseudo


def _check_regular(field: Field) -> None:
    if not field.name or not _UPPER_CASE.isdisjoint(field.name):
        raise _malformed(f"field name {field.name!r} is empty or not in lower case")
    if field.name in _CONNECTION_FIELDS:
        raise _malformed(f"{field.name!r} has no meaning in HTTP/2")
    if field.name == b"te" and field.value != b"trailers":
        raise _malformed(f"te must be trailers, not {field.value!r}")


def _malformed(why: str) -> StreamFailed:
    return StreamFailed(ErrorCode.PROTOCOL_ERROR, f"malformed request: {why}")
