"""Reading the protobuf messages of calls."""

from collections.abc import Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError

M = TypeVar("M", bound=Message)

_NO_MESSAGE: Final = "grpc: error unmarshalling request:"
_NO_STREAMED_MESSAGE: Final = "grpc: failed to unmarshal the received message"


def parse(parser: Callable[[bytes], M], message: bytes, *, is_streamed: bool = False) -> M:
    """Read a message; one that is none is refused, in Go's words for calls or for streams."""
    try:
        return parser(message)
    except DecodeError as error:
        what = _NO_STREAMED_MESSAGE if is_streamed else _NO_MESSAGE
        raise RpcError(Status.INTERNAL, f"{what} {error}") from error
