"""A channel: calls to one of several servers, over one connection at a time.

Theory of operation. A call takes the line that there is (see `connecting`), or waits for one. If it
fails, `attempts` says whether it is made again.

A unary call is one future, one entry among the deadlines and one stream, and no task; whichever way
the coroutine that waits for it ends, all three are gone. Calls that are begun in the same turn of
the event loop leave in one piece.
"""

import asyncio
import os
import ssl
from asyncio import get_running_loop
from random import Random
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

import leasehold
from leasehold.errors import Closed, ConnectionLost, Status
from leasehold.rpc.addresses import Address
from leasehold.rpc.attempts import Attempts, Prepare
from leasehold.rpc.backoff import MAX_S
from leasehold.rpc.client_call import NotProcessed
from leasehold.rpc.client_connection import CLIENT_LIMITS
from leasehold.rpc.connecting import Connect, connect
from leasehold.rpc.endpoints import Endpoints, parse_endpoints
from leasehold.rpc.grpc import GZIP, RpcError
from leasehold.rpc.limits import Limits
from leasehold.rpc.metadata import MetadataLike, as_pairs, encode_metadata
from leasehold.rpc.request_heads import check_timeout
from leasehold.rpc.streaming import Streaming
from leasehold.rpc.switchboard import Conditions, Switchboard

KEEPALIVE_S: Final = 10.0
KEEPALIVE_TIMEOUT_S: Final = 5.0

_GZIPPED: Final = ((b"grpc-encoding", GZIP),)
_CLOSED: Final = "the channel was closed"


class Channel:
    """Makes calls: bytes in, bytes out.

    Nothing is connected until the first call. A channel belongs to the event loop of its first call
    and to its process.

    `endpoints` are addresses such as `127.0.0.1:2379`, `https://[::1]:2379` or `unix:/run/x.sock`;
    the first one that works is used. `tls` is a context as `client_tls` makes it; with `https://`
    that is the default. `metadata` goes with every call. After `keepalive` seconds of silence
    (None: never) while there are calls, the server has `keepalive_timeout` seconds to show that it
    is there. Between two attempts to connect there are at most `reconnect_max` seconds. With `gzip`
    long messages are compressed; answers may be in any case.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        tls: ssl.SSLContext | None = None,
        metadata: MetadataLike = (),
        user_agent: str | None = None,
        default_timeout: float | None = None,
        keepalive: float | None = KEEPALIVE_S,
        keepalive_timeout: float = KEEPALIVE_TIMEOUT_S,
        reconnect_max: float = MAX_S,
        gzip: bool = False,
        limits: Limits = CLIENT_LIMITS,
        random: Random | None = None,
        connect: Connect = connect,
    ) -> None:
        if user_agent is None:
            user_agent = f"leasehold/{leasehold.__version__}"
        for seconds in (default_timeout, keepalive, keepalive_timeout, reconnect_max):
            check_timeout(seconds)
        if keepalive_timeout is None:
            raise TypeError(
                "keepalive_timeout is a number of seconds, not None as keepalive may be"
            )
        _check_is("limits", limits, Limits)
        if random is not None:
            _check_is("random", random, Random)
        fields = encode_metadata(metadata) + (_GZIPPED if gzip else ())
        self._endpoints = parse_endpoints(endpoints, tls, user_agent, fields)
        self._default_timeout = default_timeout
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._conditions = Conditions(
            limits=limits,
            keepalive_s=keepalive,
            keepalive_timeout_s=keepalive_timeout,
            random=self._random,
            connect=connect,
            packs=gzip,
            reconnect_max_s=reconnect_max,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where calls can be made; None before the first, and after the end."""
        self._board: Switchboard | None = None
        self._opened_by = 0
        self._is_closed = False
        self._is_forked = False

    # Calls.

    async def unary(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  it is told to the server
        server_timeout: float | None = None,
        metadata: MetadataLike | None = None,
        wait_for_ready: bool = False,
        idempotent: bool = False,
        prepare: Prepare | None = None,
    ) -> bytes:
        """Make a call with one message and one answer.

        Without `wait_for_ready` it fails as soon as no endpoint can be connected to. `idempotent`
        says that it does no harm to execute it twice: then it is made again if a connection is lost
        on which it may have been executed. `prepare` is awaited before it is made again, or made on
        a connection that it had to wait for; what that raises ends the call. `server_timeout` is
        sent to the server in place of `timeout`, for a caller that cancels the call itself.

        Raises `RpcError` with the status of the server, or DEADLINE_EXCEEDED after `timeout`
        seconds; `ConnectFailed` (a connection cannot be made, and nothing was executed);
        `ConnectionLost` (nobody knows whether it was).
        """
        if not isinstance(message, bytes):
            raise TypeError(f"a message is bytes, not {message!r}")
        loop = get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        board = self._board
        assert board is not None
        if timeout is None:
            timeout = self._default_timeout
        pairs = None if metadata is None else as_pairs(metadata)
        line = board.connector.line
        heads = self._endpoints[0].heads if line is None else line.heads
        sent_s = timeout if server_timeout is None else server_timeout
        fields = heads.get(path, sent_s, pairs)  # or it is refused here
        until = None if timeout is None else loop.time() + timeout
        failure: NotProcessed | ConnectionLost | None = None
        if line is not None:
            try:
                return await board.attempt(line, fields, message, until, timeout)
            except (NotProcessed, ConnectionLost) as error:
                failure = error
        attempts = Attempts(
            board=board,
            path=path,
            message=message,
            metadata=pairs,
            until=until,
            timeout_s=timeout,
            server_timeout_s=server_timeout,
            wait_for_ready=wait_for_ready,
            idempotent=idempotent,
            random=self._random,
            prepare=prepare,
        )
        return await attempts.go_on(line, failure)

    def stream(
        self,
        path: str,
        *,
        timeout: float | None = None,
        metadata: MetadataLike | None = None,
        wait_for_ready: bool = False,
    ) -> Streaming:
        """Make a call with any number of messages both ways.

            async with channel.stream("/package.Service/Method") as call:
                await call.send(b"...")
                call.end()
                async for message in call:
                    ...

        What is not over at the end of the block is cancelled. `timeout` is for the whole call. It
        is never made again; an error says if it was not executed.
        """
        if timeout is None:
            timeout = self._default_timeout
        pairs = None if metadata is None else as_pairs(metadata)
        self._endpoints[0].heads.get(path, timeout, pairs)  # or it is refused here
        return Streaming(self._bound, path, timeout, pairs, wait_for_ready=wait_for_ready)

    # The connection.

    @property
    def address(self) -> Address | None:
        """The address that is connected to now; None if there is no connection."""
        line = None if self._board is None else self._board.connector.line
        return None if line is None else line.endpoint.address

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All addresses that it may connect to."""
        return tuple(str(endpoint) for endpoint in self._endpoints)

    @property
    def trouble(self) -> str:
        """Why there is no connection, as far as that is known; empty if there is one."""
        if self._board is None or self._board.connector.line is not None:
            return ""
        return self._board.connector.last_error

    @property
    def has_others(self) -> bool:
        """Whether there is another endpoint to go to."""
        return len(self._endpoints) > 1

    @property
    def connected_at(self) -> float | None:
        """When the connection was made, by the loop's clock; None if there is none."""
        line = None if self._board is None else self._board.connector.line
        return None if line is None else line.since

    @property
    def heard_at(self) -> float | None:
        """When something has last come in on it."""
        line = None if self._board is None else self._board.connector.line
        return None if line is None else line.keepalive.heard_at

    def hang_up(self, why: str) -> None:
        """Give up the connection that there is, because its server is of no use at present.

        Calls under way on it are `ConnectionLost`; later ones go to the next endpoint.
        """
        line = None if self._board is None else self._board.connector.line
        if line is not None:
            said = f"the connection to {line.endpoint} was given up: {why}"
            line.dismiss(ConnectionLost(said))

    async def ready(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  as for calls
        *,
        wait_for_ready: bool = False,
    ) -> None:
        """Connect now. Raises `ConnectFailed`, or `RpcError` with DEADLINE_EXCEEDED."""
        check_timeout(timeout)
        board, loop = self._bound(), get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        await board.line("the channel", until, timeout, wait_for_ready=wait_for_ready)

    def _bound(self) -> Switchboard:
        """Give what belongs to the running loop."""
        loop = get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        assert self._board is not None
        return self._board

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to a loop from now on; or refuse to be used where it must not be."""
        if self._is_forked:
            raise RuntimeError(
                f"this channel belongs to process {self._opened_by}, which still has it: make one "
                "after the fork, or start children with the `spawn` method"
            )
        if self._is_closed:
            raise Closed(_CLOSED)
        if self._board is not None:
            raise RuntimeError(
                "this channel belongs to the event loop of its first call: make one for each loop"
            )
        self._loop = loop
        self._opened_by = os.getpid()
        self._board = Switchboard(self._endpoints, loop, self._conditions)
        _bound_channels.add(self)

    def _abandon(self) -> None:
        """Be of no use in a child process; what the parent has stays as it is."""
        self._is_forked = True
        self._loop = None

    # The end.

    async def close(self) -> None:
        """Cancel what is under way, and close the connection, soon. Later calls are `Closed`."""
        if self._is_forked or self._is_closed:
            return
        if self._board is None:
            self._is_closed = True
            return
        board = self._bound()
        self._is_closed, self._loop = True, None
        await board.close(RpcError(Status.CANCELLED, _CLOSED))

    async def __aenter__(self) -> Self:
        """Close at the end of the block."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()


def _check_is(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of type {kind.__name__}, not {value!r}")


_bound_channels: WeakSet[Channel] = WeakSet()


def _abandon_all() -> None:
    for channel in list(_bound_channels):
        channel._abandon()  # noqa: SLF001  of the same module


os.register_at_fork(after_in_child=_abandon_all)
