"""The output of a client: heads of calls, messages, and the end of the client's side.

The usual call is one short message. If the windows have room for it, it takes the short way: two
frames in one piece (`Requests.request`), and the stream is never queued.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from leasehold.rpc import frames
from leasehold.rpc.client_call import ClientCall
from leasehold.rpc.grpc import COMPRESS_FROM_BYTES, PREFIX_BYTES, compress, framed
from leasehold.rpc.header_encoder import HeaderEncoder
from leasehold.rpc.outbound import Outbound

_MESSAGE: Final = Struct(">IBIBI")  # the heads of DATA frame and message


class Requests(Outbound[ClientCall]):
    """The output of a client."""

    __slots__ = ("_encoder",)

    def __init__(self, transmit: Callable[[bytes], None], flush_soon: Callable[[], None]) -> None:
        super().__init__(transmit, flush_soon)
        self._encoder = HeaderEncoder()

    def set_table_size(self, table_bytes: int) -> None:
        """Take the size of the table that header blocks may fill."""
        self._encoder.set_table_size(table_bytes)

    def set_max_list(self, list_bytes: int) -> None:
        """Take the size of the largest list of fields."""
        self._encoder.max_list_bytes = list_bytes
        self._encoder.forget()

    def encode(self, call: ClientCall) -> bytes:
        """Encode the head of a call, which must then be sent; `HeaderListTooLarge` if it cannot."""
        return self._encoder.encode(call.fields)

    def request(self, call: ClientCall, block: bytes, message: bytes) -> None:
        """Send a call that has one message."""
        length = len(message) + PREFIX_BYTES
        limit = frames.MIN_MAX_FRAME_BYTES
        stream_id = call.id
        if call.packs and len(message) >= COMPRESS_FROM_BYTES:
            self._request_long(call, block, compress(message))
            return
        if length > self._window or length > call.window or length > limit or len(block) > limit:
            self._request_long(call, block, framed(message))
            return
        self._window -= length
        call.has_head = call.local_done = True
        self._out.append(
            frames.HEAD.pack(len(block) << 8 | frames.HEADERS, frames.END_HEADERS, stream_id)
            + block
            + _MESSAGE.pack(length << 8, frames.END_STREAM, stream_id, 0, len(message))
            + message
        )

    def _request_long(self, call: ClientCall, block: bytes, octets: bytes) -> None:
        """Send a call that has one message, as far as the windows go."""
        self.put_headers(call, block, 0)
        call.unsent = bytearray(octets)
        call.ending = b""
        self.has_unsent(call, len(octets))

    def put_start(self, stream: ClientCall) -> None:
        """Nothing to do: a call begins with its head."""

    def put_end(self, stream: ClientCall, ending: bytes) -> None:
        """End our side of a call."""
        if not stream.local_done:
            stream.local_done = True
            self._out.append(frames.frame(frames.DATA, frames.END_STREAM, stream.id))
