"""Header blocks that come in several frames: HEADERS, and then CONTINUATIONs (RFC 9113, 6.10)."""

from leasehold.rpc.frames import ConnectionFailed, ErrorCode
from leasehold.rpc.limits import Limits


class BlockAssembly:
    """A block of which the end has yet to come in; nothing else may come in before."""

    __slots__ = ("_block", "_continuations", "_limits", "began", "flags", "stream_id")

    def __init__(
        self, stream_id: int, flags: int, start: bytes, limits: Limits, began: float
    ) -> None:
        self.stream_id = stream_id
        self.flags = flags
        """Those of the HEADERS frame."""
        self.began = began
        """When the HEADERS frame came in."""
        self._block = bytearray(start)
        self._continuations = 0
        self._limits = limits

    def add(self, stream_id: int, payload: bytes) -> None:
        """Take the payload of a CONTINUATION."""
        if stream_id != self.stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION of another stream")
        self._block += payload
        self._continuations += 1
        limits = self._limits
        if (
            len(self._block) > limits.max_block_bytes
            or self._continuations > limits.max_continuations
        ):
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers of more than {limits.max_block_bytes} octets, or in more than "
                f"{limits.max_continuations} CONTINUATION frames",
            )

    @property
    def size_bytes(self) -> int:
        """What has come in of the block."""
        return len(self._block)

    def whole(self) -> bytes:
        """The block, once its end has come in."""
        return bytes(self._block)
