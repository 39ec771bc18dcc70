"""A streaming call as a block: begun with it, and over with it."""

from collections.abc import Callable
from types import TracebackType

from leasehold.errors import ConnectFailed, Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.metadata import Metadata
from leasehold.rpc.request_heads import MIN_TIMEOUT_S
from leasehold.rpc.streaming_call import StreamingCall
from leasehold.rpc.switchboard import Switchboard


class Streaming:
    """Begins a call when the block is entered, and cancels what is not over when it is left."""

    __slots__ = ("_bind", "_board", "_call", "_metadata", "_path", "_tick", "_timeout_s", "_waits")

    def __init__(
        self,
        bind: Callable[[], Switchboard],
        path: str,
        timeout_s: float | None,
        metadata: Metadata | None,
        *,
        wait_for_ready: bool,
    ) -> None:
        self._bind = bind
        self._path = path
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._waits = wait_for_ready
        self._board: Switchboard | None = None
        self._call: StreamingCall | None = None
        self._tick = 0

    async def __aenter__(self) -> StreamingCall:
        """Begin the call, as soon as there is a connection."""
        if self._board is not None:
            raise RuntimeError("this call was begun before: make another one")
        board = self._board = self._bind()
        timeout_s = left_s = self._timeout_s
        until = None if timeout_s is None else board.now() + timeout_s
        line = board.connector.line
        if line is None:
            line = await board.line(self._path, until, timeout_s, wait_for_ready=self._waits)
            if until is not None:
                left_s = max(MIN_TIMEOUT_S, until - board.now())
            if not line.is_ready:
                raise ConnectFailed(f"the connection to {line.endpoint} is gone: {line.why}")
        fields = line.heads.get(self._path, left_s, self._metadata)
        call = self._call = StreamingCall(fields, board.max_message_bytes)
        call.packs = board.packs
        if until is not None and timeout_s is not None:
            self._tick = board.deadlines.add(call, until, timeout_s)
        line.begin(call)
        return call

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the call, if it is not over."""
        assert self._board is not None
        assert self._call is not None
        self._board.deadlines.discard(self._call, self._tick)
        self._call.failed(RpcError(Status.CANCELLED, "the block of the call was left"))
        self._call.cancel()
