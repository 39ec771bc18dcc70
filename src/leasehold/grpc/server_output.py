"""The header blocks of answers, encoded, and the output of a server.

Every answer of gRPC begins with the same block (`:status: 200`, `content-type: application/grpc`)
and, if the call succeeded, ends with the same one (`grpc-status: 0`). So both fields are put into
the peer's dynamic table the first time, and are one byte each from then on. Nothing else ever
enters that table, hence their indices are known: the field that was added last is 62.

The usual answer is one short message. If the windows have room for it, it takes the fast path:
three frames of known shape in one piece (`Answers.answer`), and the stream is never queued.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from leasehold.grpc.error_details import TRAILER, encode_details
from leasehold.grpc.protocol import PREFIX_BYTES, RpcError, framed, percent_encoded
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.http2.header_encoder import Fields, HeaderEncoder, Pair, literals
from leasehold.http2.outbound import Outbound
from leasehold.http2.stream import Http2Stream

GRPC: Final = (b"content-type", b"application/grpc")
HEAD: Final = b"\x88\xbf"
"""The headers of an answer, once both fields are in the peer's table."""
TRAILERS: Final = b"\xbe"
"""The trailers of a successful call, once both fields are in the peer's table."""

MAX_SHORT_BYTES: Final = 2048
"""Answers up to this size are not counted before they are sent: they cost about as much as the
call."""

_OK: Final = (b":status", b"200")
_HEAD_FIELDS: Final = (_OK, GRPC)
_TRAILERS_FIELDS: Final = ((b"grpc-status", b"0"),)

_ANSWER: Final = Struct(">5sI2sIBIBI")  # a HEADERS frame, and the headers of DATA frame and message
_TRAILERS: Final = Struct(">5sI1s")
_HEADERS_FRAME: Final = bytes((0, 0, len(HEAD), frames.HEADERS, frames.END_HEADERS))
_TRAILERS_FRAME: Final = bytes(
    (0, 0, len(TRAILERS), frames.HEADERS, frames.END_HEADERS | frames.END_STREAM)
)


def ok_trailers(metadata: Fields) -> bytes:
    """Encode the trailers of a successful call that has metadata."""
    return literals((*_TRAILERS_FIELDS, *metadata))


def failed_trailers(error: RpcError) -> bytes:
    """Encode the trailers of a failed call; once, if many fail with the same error."""
    if error.encoded is None:
        error.encoded = _failed_trailers(error)
    return error.encoded


def _failed_trailers(error: RpcError) -> bytes:
    fields: list[Pair] = [(b"grpc-status", b"%d" % error.status)]
    if error.message:
        fields.append((b"grpc-message", percent_encoded(error.message)))
    details = encode_details(error)
    if details is not None:
        fields.append((TRAILER, details))
    return literals((*fields, *error.metadata))


class AnswerBlocks:
    """The blocks for the answers of one connection, in the order in which they are sent."""

    __slots__ = ("_encoder", "is_primed")

    def __init__(self) -> None:
        self._encoder = HeaderEncoder()
        self.is_primed = False
        """Whether both fields are in the peer's table, so that `HEAD` and `TRAILERS` will do."""

    def set_table_size(self, table_bytes: int) -> None:
        """Set the peer's limit for the table that we fill."""
        self._encoder.set_table_size(table_bytes)
        self.is_primed = False

    def head(self, metadata: Fields = ()) -> bytes:
        """Return the block before the first message."""
        return self._encoder.encode(_HEAD_FIELDS) + literals(metadata)

    def trailers(self) -> bytes:
        """Return the block after the last message of a successful call that has sent headers."""
        block = self._encoder.encode(_TRAILERS_FIELDS)
        self.is_primed = block == TRAILERS
        return block

    def failed(self, trailers: bytes, *, is_only_block: bool) -> bytes:
        """Return the block that ends a call with `trailers`, which are literals."""
        return (self.head() if is_only_block else self._encoder.take_prefix()) + trailers

    def plain(self, fields: Fields) -> bytes:
        """Return the headers of an answer that is not gRPC."""
        return self._encoder.take_prefix() + literals(fields)


class Answers(Outbound["AnsweringStream"]):
    """The output of a server. `over` is called with streams that have sent their last frame."""

    __slots__ = ("_blocks", "_over")

    def __init__(
        self,
        transmit: Callable[[bytes], None],
        flush_soon: Callable[[], None],
        over: Callable[["AnsweringStream"], None],
    ) -> None:
        super().__init__(transmit, flush_soon)
        self._over = over
        self._blocks = AnswerBlocks()

    def set_table_size(self, table_bytes: int) -> None:
        """Set the size of the table that header blocks may fill."""
        self._blocks.set_table_size(table_bytes)

    def answer(self, stream: "AnsweringStream", message: bytes) -> bool:
        """Send the only answer of a call, and its end, if it can take the fast path."""
        length = len(message) + PREFIX_BYTES
        if (
            length > self._window
            or length > stream.window
            or length > MAX_SHORT_BYTES
            or self._starved  # others have waited for longer
        ):
            return False
        if not self._blocks.is_primed:
            self._answer_first(stream, message)
            return True
        stream_id = stream.id
        self._out.append(
            _ANSWER.pack(
                _HEADERS_FRAME,
                stream_id,
                HEAD,
                length << 8,  # and the type of DATA, which is 0
                0,
                stream_id,
                0,
                len(message),
            )
            + message
            + _TRAILERS.pack(_TRAILERS_FRAME, stream_id, TRAILERS)
        )
        self._window -= length
        return True

    def _answer_first(self, stream: "AnsweringStream", message: bytes) -> None:
        """Send an answer whose fields are not in the peer's table yet, and add them."""
        data = framed(message)
        self.put_headers(stream, self._blocks.head(), 0)
        self._out.append(frames.frame(frames.DATA, 0, stream.id, data))
        self.put_headers(stream, self._blocks.trailers(), frames.END_STREAM)
        self._window -= len(data)

    def put_start(self, stream: "AnsweringStream") -> None:
        """Add the headers of an answer to the output."""
        fields = stream.head_fields or ()
        block = self._blocks.head(fields) if stream.is_grpc else self._blocks.plain(fields)
        self.put_headers(stream, block, 0)

    def put_end(self, stream: "AnsweringStream", ending: bytes) -> None:
        """Add the end of an answer to the output: a successful call has an empty `ending`."""
        if not stream.is_grpc:
            self._put_plain_end(stream)
        elif ending:
            block = self._blocks.failed(ending, is_only_block=not stream.has_head)
            self.put_headers(stream, block, frames.END_STREAM)
        else:
            if not stream.has_head:
                self.put_start(stream)
            self.put_headers(stream, self._blocks.trailers(), frames.END_STREAM)
        if not stream.remote_done:  # the client need not continue sending
            self._out.append(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
        self._over(stream)

    def _put_plain_end(self, stream: "AnsweringStream") -> None:
        if stream.has_head:
            self._out.append(frames.frame(frames.DATA, frames.END_STREAM, stream.id))
        else:
            block = self._blocks.plain(stream.head_fields or ())
            self.put_headers(stream, block, frames.END_STREAM)


class AnsweringStream(Http2Stream):
    """A stream of a client, as the output sees it."""

    __slots__ = ()

    is_grpc = True
    head_fields: Fields | None = None
    """The header fields: all of them, or for gRPC those besides the usual ones."""
    body_left: int | None = None
    """How much of the body is still to come, if the client has sent its length."""

    def drop_overdue(self, now: float) -> None:
        """End the call if its request takes too long to arrive completely."""
        raise NotImplementedError
