"""Which handler a request goes to: the methods of a server, and the check of a request's head.

There are two kinds of methods:

- `Exchange`: each message is answered by one message. A unary call is one exchange; a stream of
  exchanges ends when the client has ended its side. The handler is a plain function, which returns
  the answer and the position that must be released before it leaves (see `rpc.gate`); a long answer
  comes as `Pieces`, and is never put together. If the handler has to wait for something itself it
  returns a coroutine instead, which returns the same.
- `Subscription`: the server speaks when it has something to say. The handler is an object that
  lives as long as the stream. `rpc.conversations` makes one of a coroutine.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from leasehold.errors import Status
from leasehold.rpc.fields import check_request, content_length
from leasehold.rpc.gate import Gate, Hold
from leasehold.rpc.grpc import GZIP, IDENTITY, RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.hpack import Field
from leasehold.rpc.metadata import Metadata, decode_metadata
from leasehold.rpc.pages import Reply, plain
from leasehold.rpc.read_slots import ReadSlots
from leasehold.rpc.tally import Tally

Answer = tuple[bytes, int]
"""A message, and the position that must be released before it leaves."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A message that is too long to be handled in one go, and its position as with `Answer`."""

    pieces: list[bytes]
    position: int = 0


@dataclass(frozen=True, slots=True)
class LongRead:
    """An answer that is long, and is begun only when there is a slot for it."""

    slots: ReadSlots
    begin: Callable[[], Coroutine[Any, Any, Pieces]]

    def __await__(self) -> Generator[Any, Any, Pieces]:
        """Read without a slot: inside the server's own process."""
        return self.begin().__await__()


Later = Coroutine[Any, Any, Answer | Pieces | LongRead] | LongRead
"""An answer that takes a while."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A method that answers each message with one message.

    `hold` takes an answer that has to wait. Only a method that changes nothing may name
    `Gate.hold_read`: the others are executed by then, and must be answered.
    """

    call: Callable[[bytes], Answer | Pieces | Later]
    is_unary: bool = True
    hold: Hold = Gate.hold_answer
    tally: Tally = field(default_factory=Tally, compare=False)


class Speaker(Protocol):
    """A stream, as the handler of a subscription sees it."""

    def say(self, message: bytes, position: int) -> None:
        """Send a message once `position` is released."""
        ...

    def answer_and_end(self, message: bytes, position: int) -> None:
        """Send the only answer of a call that was executed once `position` is released; end it."""
        ...

    def end(self, error: RpcError | None = None, metadata: Fields = ()) -> None:
        """End the call, after all that was said before; `metadata` goes with an end that is OK."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the call with what a handler raised."""
        ...

    @property
    def metadata(self) -> Metadata:
        """What the caller says besides its messages."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """How long the call may take; at its end the transport ends it."""
        ...

    @property
    def connection(self) -> object:
        """The same object for all streams of one connection: to count things by it."""
        ...

    def send_head(self, metadata: Fields) -> None:
        """Say something before the first message; later it is too late, and `ValueError`."""
        ...

    def defer(self, octets: int) -> None:
        """Have the client send no more than its window, until this much is `taken`."""
        ...

    def taken(self, octets: int) -> None:
        """Let the client send again what was deferred."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is said; if not, `Listener.relieved` tells when it has."""
        ...

    @property
    def has_own_room(self) -> bool:
        """Whether the client takes what is said on this stream, whatever it does with others.

        If not, `Listener.relieved` tells when it has.
        """
        ...

    def flush(self) -> None:
        """Send what was said by somebody who was not called from here."""
        ...

    def flush_soon(self) -> None:
        """Send what was said, with what others on the connection say in this turn of the loop."""
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


class _Nobody:
    """The handler of a call that is over. It does nothing."""

    def heard(self, message: bytes) -> None:
        """Do nothing."""

    def ended(self) -> None:
        """Do nothing."""

    def relieved(self) -> None:
        """Do nothing."""

    def gone(self) -> None:
        """Do nothing."""


NOBODY: Final = _Nobody()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A method whose server speaks by itself.

    A server that is closed waits a while for calls that end by themselves, and for no others.
    """

    open: Callable[[Speaker], Listener]
    ends_by_itself: bool = False
    waits_for_room: bool = False
    """Whether nothing is said without `Speaker.has_own_room`."""
    reads_metadata: bool = True
    """Whether the handler reads `Speaker.metadata`. If not, a call does not keep its head."""
    tally: Tally = field(default_factory=Tally, compare=False)


Method = Exchange | Subscription
Methods = Mapping[str, Method]
"""The methods of a server, by path: `/package.Service/Method`."""


class Head:
    """What is known of all requests with the same header fields.

    Exactly one of `call`, `subscription`, `error` and `web` is set. The fields themselves are kept
    only for handlers that read metadata, and for web requests.
    """

    __slots__ = (
        "_fields",
        "_metadata",
        "_shown_path",
        "call",
        "content_length",
        "counted_bytes",
        "encoding",
        "ends_by_itself",
        "error",
        "hold",
        "is_short",
        "is_unary",
        "keeps_fields",
        "subscription",
        "takes_gzip",
        "tally",
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
        self.hold = method.hold if isinstance(method, Exchange) else Gate.hold_answer
        self.subscription = method.open if isinstance(method, Subscription) else None
        self.waits_for_room = isinstance(method, Subscription) and method.waits_for_room
        self.ends_by_itself = self.is_unary or (
            isinstance(method, Subscription) and method.ends_by_itself
        )
        self.tally = method.tally if isinstance(method, Exchange | Subscription) else Tally()
        self.error = method if isinstance(method, RpcError) else None
        self.web = method if isinstance(method, WebHead) else None
        self.content_length = length
        self.counted_bytes = 0
        """The size of a large head whose fields are kept: it counts as received data meanwhile."""
        self.encoding = IDENTITY
        self.takes_gzip = False
        """Whether the answers may be compressed: as the requests are."""
        for each in fields:
            if each.name == b"grpc-encoding":
                self.encoding = GZIP if each.value == GZIP else IDENTITY
            elif each.name == b"grpc-accept-encoding":
                self.takes_gzip = GZIP in each.value
        self.takes_gzip = self.takes_gzip and self.encoding == GZIP
        self.is_short = self.call is not None and length is None and not self.takes_gzip
        """Whether a message in one frame can be given to the handler as it is."""
        reads_metadata = isinstance(method, Subscription) and method.reads_metadata
        self.keeps_fields = reads_metadata or self.web is not None
        self._fields = fields if reads_metadata else ()
        self._shown_path = path[:MAX_SHOWN_BYTES]
        self._metadata: Metadata | None = None

    @property
    def path(self) -> str:
        """The path of the request, for the log."""
        return _shown(self._shown_path)

    @property
    def metadata(self) -> Metadata:
        """What the caller says besides its messages."""
        if self._metadata is None:
            self._metadata = decode_metadata(self._fields)
        return self._metadata


class WebHead(NamedTuple):
    """The head of a request that is no gRPC call, or why it is refused."""

    method: bytes
    target: bytes
    fields: tuple[Field, ...] = ()
    refusal: Reply | None = None


MAX_SHOWN_BYTES: Final = 64
"""How much of a path or content type is repeated to whoever sent it."""

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


def _method(path_octets: bytes, methods: Methods, encoding: bytes) -> Method | RpcError:
    method = methods.get(path_octets.decode(errors="replace"))
    if method is not None:
        if encoding not in (IDENTITY, GZIP):
            why = f"grpc: Decompressor is not installed for grpc-encoding {_shown(encoding)!r}"
            return RpcError(Status.UNIMPLEMENTED, why, metadata=_ACCEPTED)
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
    return value[:MAX_SHOWN_BYTES].decode(errors="backslashreplace")


def _is_grpc(content_type: bytes) -> bool:
    base = b"application/grpc"
    return content_type.startswith(base) and content_type[len(base) : len(base) + 1] in b"+;"
