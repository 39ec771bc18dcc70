"""Routing of requests to handlers: the methods of a server, and the check of request headers.

There are two kinds of methods:

- `Exchange`: each message is answered by one message. A unary call is one exchange; a stream of
  exchanges ends when the client has ended its side. The handler is a plain function, which returns
  the answer and the position that must be released before it is sent (see `grpc.durability_gate`);
  a long answer is returned as `Pieces`, which are never joined. A handler that has to wait returns
  a coroutine instead, which returns the same.
- `Subscription`: the server sends messages at any time. The handler is an object that lives as long
  as the stream. `grpc.coroutine_handlers` makes one of a coroutine.

`intercept` installs a check on every call: see `grpc.call_context`.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, Interceptor, Metadata, decode_metadata
from leasehold.grpc.durability_gate import DurabilityGate, Hold
from leasehold.grpc.http_handlers import Reply, plain
from leasehold.grpc.protocol import GZIP, IDENTITY, RpcError
from leasehold.grpc.read_slots import ReadSlots
from leasehold.http2.header_encoder import Fields
from leasehold.http2.header_fields import check_request, content_length
from leasehold.http2.hpack import Field

Answer = tuple[bytes, int]
"""A message, and the position that must be released before it is sent."""


@dataclass(frozen=True)
class Pieces:
    """A message that is too long to be handled in one piece, and its position as with `Answer`."""

    pieces: list[bytes]
    position: int = 0


@dataclass(frozen=True)
class LongRead:
    """A long answer, which is begun only when there is a slot for it."""

    slots: ReadSlots
    begin: Callable[[], Coroutine[Any, Any, Pieces]]

    def __await__(self) -> Generator[Any, Any, Pieces]:
        """Read without a slot: inside the server's own process."""
        return self.begin().__await__()


DeferredAnswer = Coroutine[Any, Any, Answer | Pieces | LongRead] | LongRead
"""An answer that takes a while."""


class CallCounts:
    """The calls of one method: how many have ended, and with which status."""

    __slots__ = ("begun", "ended", "failures")

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        """Calls that have ended, with any status."""
        self.failures: dict[Status, int] = {}
        """Calls that ended with another status than OK, by status."""

    def failed(self, status: Status) -> None:
        """Count a call that is about to end with an error."""
        self.failures[status] = self.failures.get(status, 0) + 1

    @property
    def succeeded(self) -> int:
        """Calls that ended with OK."""
        return self.ended - sum(self.failures.values())


@dataclass(frozen=True)
class Exchange:
    """A method that answers each message with one message.

    `hold` takes an answer that has to wait. Only a method that changes nothing may use
    `DurabilityGate.hold_read`: other calls were executed by then, and must be answered.
    """

    call: Callable[..., Answer | Pieces | DeferredAnswer]
    """Called with the message and, if it `reads_context`, with the context of the call."""
    is_unary: bool = True
    hold: Hold = DurabilityGate.hold_answer
    reads_context: bool = False
    """Whether the handler is called with the context; then calls do not take the fast path."""
    interceptor: Interceptor | None = None
    counts: CallCounts = field(default_factory=CallCounts, compare=False)


class ServerStream(Protocol):
    """A stream, as the handler of a subscription sees it."""

    def send_message(self, message: bytes, position: int) -> None:
        """Send a message once `position` is released."""
        ...

    def answer_and_end(self, message: bytes, position: int) -> None:
        """Send the only answer of an executed call once `position` is released; end the call."""
        ...

    def end(self, error: RpcError | None = None, metadata: Fields = ()) -> None:
        """End the call, after all earlier messages; `metadata` is sent with the status OK."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the call with an exception of its handler."""
        ...

    @property
    def context(self) -> CallContext:
        """The context of the call; its metadata is empty without `reads_context`."""
        ...

    @property
    def connection(self) -> object:
        """The same object for all streams of one connection: a key for counting."""
        ...

    def send_head(self, metadata: Fields) -> None:
        """Send metadata before the first message; `ValueError` if it is too late."""
        ...

    def defer(self, size_bytes: int) -> None:
        """Let the client send no more than its window, until this much is `taken`."""
        ...

    def taken(self, size_bytes: int) -> None:
        """Credit the client for bytes that were deferred."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client has room; if not, `StreamHandler.relieved` is called when it has."""
        ...

    @property
    def has_own_room(self) -> bool:
        """Whether the client has room on this stream, whatever it does with others.

        If not, `StreamHandler.relieved` is called when it has.
        """
        ...

    def flush(self) -> None:
        """Send messages that were queued from outside of a handler's call."""
        ...

    def flush_soon(self) -> None:
        """Flush queued messages, together with other output of this turn of the loop."""
        ...


class StreamHandler(Protocol):
    """The handler of one stream of a subscription."""

    def message_received(self, message: bytes) -> None:
        """Called with a message of the client."""
        ...

    def ended(self) -> None:
        """Called when the client has ended its side, and will send nothing more."""
        ...

    def relieved(self) -> None:
        """Called when there is room again after there was none."""
        ...

    def gone(self) -> None:
        """Called when the stream is over, for any reason."""
        ...


class _NoHandler:
    """The handler of a call that is over. It does nothing."""

    def message_received(self, message: bytes) -> None:
        """Do nothing."""

    def ended(self) -> None:
        """Do nothing."""

    def relieved(self) -> None:
        """Do nothing."""

    def gone(self) -> None:
        """Do nothing."""


NO_HANDLER: Final = _NoHandler()


@dataclass(frozen=True)
class Subscription:
    """A method whose server may send messages at any time.

    A server that is closed waits a while for calls with `ends_by_itself`, and for no others.
    """

    open: Callable[[ServerStream], StreamHandler]
    ends_by_itself: bool = False
    waits_for_room: bool = False
    """Whether nothing is sent without `ServerStream.has_own_room`."""
    reads_context: bool = True
    """Whether the handler reads the metadata of the context. If not, a call does not keep its
    header fields."""
    interceptor: Interceptor | None = None
    counts: CallCounts = field(default_factory=CallCounts, compare=False)


Method = Exchange | Subscription
Methods = Mapping[str, Method]
"""The methods of a server, by path: `/package.Service/Method`."""


def intercept(methods: Methods, interceptor: Interceptor) -> dict[str, Method]:
    """Return the methods with an interceptor for all their calls, over gRPC and as JSON."""
    return {path: replace(method, interceptor=interceptor) for path, method in methods.items()}


class Head:
    """The parsed headers of all requests with the same header fields.

    Exactly one of `call`, `subscription`, `error` and `web` is set. The fields themselves are kept
    only for interceptors and handlers that read the context, and for web requests.
    """

    __slots__ = (
        "_fields",
        "_metadata",
        "_path",
        "begins_short",
        "call",
        "content_length",
        "counted_bytes",
        "counts",
        "encoding",
        "ends_by_itself",
        "error",
        "hold",
        "interceptor",
        "is_short",
        "is_unary",
        "keeps_fields",
        "reads_context",
        "subscription",
        "takes_gzip",
        "waits_for_room",
        "web",
    )

    def __init__(
        self,
        method: "Method | RpcError | WebHead",
        fields: tuple[Field, ...],
        length: int | None,
        path: bytes = b"",
    ) -> None:
        self.call = method.call if isinstance(method, Exchange) else None
        self.is_unary = isinstance(method, Exchange) and method.is_unary
        self.hold = method.hold if isinstance(method, Exchange) else DurabilityGate.hold_answer
        self.subscription = method.open if isinstance(method, Subscription) else None
        self.waits_for_room = isinstance(method, Subscription) and method.waits_for_room
        self.ends_by_itself = self.is_unary or (
            isinstance(method, Subscription) and method.ends_by_itself
        )
        self.counts = method.counts if isinstance(method, Exchange | Subscription) else CallCounts()
        self.error = method if isinstance(method, RpcError) else None
        self.web = method if isinstance(method, WebHead) else None
        self.content_length = length
        self.counted_bytes = 0
        """The size of large headers that are kept: it counts as received data meanwhile."""
        self.encoding = IDENTITY
        self.takes_gzip = False
        """Whether the answers may be compressed: if the requests are."""
        for each in fields:
            if each.name == b"grpc-encoding":
                self.encoding = GZIP if each.value == GZIP else IDENTITY
            elif each.name == b"grpc-accept-encoding":
                self.takes_gzip = GZIP in each.value
        self.takes_gzip = self.takes_gzip and self.encoding == GZIP
        self.interceptor: Interceptor | None = None
        self.reads_context = False
        self._path = path[:MAX_SHOWN_BYTES]
        if isinstance(method, Exchange | Subscription):
            self.interceptor = method.interceptor
            self.reads_context = method.reads_context
            self._path = path
        self.is_short = (
            self.call is not None and length is None and not (self.takes_gzip or self.reads_context)
        )
        """Whether a message in one frame can be passed to the handler as it is."""
        self.begins_short = self.is_short and self.interceptor is None
        """Whether nothing has to be done for a call before its message arrives."""
        needs_context = self.reads_context or self.interceptor is not None
        self.keeps_fields = needs_context or self.web is not None
        self._fields = fields if needs_context else ()
        self._metadata: Metadata | None = None

    @property
    def path(self) -> str:
        """The path of the request; of one that is for no method, only its beginning."""
        return self._path.decode(errors="backslashreplace")

    @property
    def metadata(self) -> Metadata:
        """The metadata of the request."""
        if self._metadata is None:
            self._metadata = decode_metadata(self._fields)
        return self._metadata


class WebHead(NamedTuple):
    """The headers of a request that is not a gRPC call, or why it is refused."""

    method: bytes
    target: bytes
    fields: tuple[Field, ...] = ()
    refusal: Reply | None = None


MAX_SHOWN_BYTES: Final = 64
"""How much of a path or content type an error quotes."""

_ACCEPTED: Final = ((b"grpc-accept-encoding", b"identity, gzip"),)


def resolve(fields: tuple[Field, ...], methods: Methods) -> Head:
    """Find the method that a request is for; a malformed request raises `StreamFailed`."""
    pseudo = check_request(fields)
    length = content_length(fields)
    method, target = pseudo[b":method"], pseudo.get(b":path", b"")
    regular = {each.name: each.value for each in fields}
    content_type = regular.get(b"content-type", b"")
    if method == b"POST" and _is_grpc(content_type):
        encoding = regular.get(b"grpc-encoding", IDENTITY)
        return Head(_method(target, methods, encoding), fields, length, target)
    refusal = None
    if target.decode(errors="replace") in methods:
        refusal = plain(HTTPStatus.METHOD_NOT_ALLOWED, "gRPC calls are made with POST")
        if method == b"POST":
            why = f"content-type must be application/grpc, not {_shown(content_type)!r}"
            refusal = plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
    regular_fields = tuple([field for field in fields if not field.name.startswith(b":")])
    if authority := pseudo.get(b":authority"):
        regular_fields = (Field(b"host", authority), *regular_fields)
    return Head(WebHead(method, target, regular_fields, refusal), fields, length)


def _method(raw_path: bytes, methods: Methods, encoding: bytes) -> Method | RpcError:
    method = methods.get(raw_path.decode(errors="replace"))
    if method is not None:
        if encoding not in (IDENTITY, GZIP):
            why = f"grpc: Decompressor is not installed for grpc-encoding {_shown(encoding)!r}"
            return RpcError(Status.UNIMPLEMENTED, why, metadata=_ACCEPTED)
        return method
    path = _shown(raw_path)
    service, _, name = path.removeprefix("/").partition("/")
    if any(known.startswith(f"/{service}/") for known in methods):
        why = f"unknown method {name} for service {service}"
    else:
        why = f"unknown service {service}"
    return RpcError(Status.UNIMPLEMENTED, why)


def _shown(value: bytes) -> str:
    """Return the part of a request's value that an answer quotes: little, as a request is cheap."""
    return value[:MAX_SHOWN_BYTES].decode(errors="backslashreplace")


def _is_grpc(content_type: bytes) -> bool:
    base = b"application/grpc"
    return content_type.startswith(base) and content_type[len(base) : len(base) + 1] in b"+;"
