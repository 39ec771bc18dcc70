"""A channel: calls to one of several servers, over one connection at a time.

Theory of operation. A call uses the current connection (see `connecting`), or waits for one. If it
fails, `retries` decides whether it is retried.

A unary call is one future, one entry among the deadlines and one stream, without a task. All three
are removed when the coroutine that waits for the call ends, for any reason. Calls that begin in the
same turn of the event loop are sent in one write.
"""

import asyncio
import os
import ssl
from asyncio import get_running_loop
from dataclasses import replace
from random import Random
from typing import Final, Self

from leasehold.basics.addresses import Address, TcpAddress
from leasehold.basics.backoff import MAX_S
from leasehold.basics.fork_hooks import call_in_child
from leasehold.basics.version import USER_AGENT
from leasehold.errors import Closed, ConnectionLost, Status
from leasehold.grpc.call_context import MetadataLike, as_pairs, encode_metadata
from leasehold.grpc.call_dispatch import CallDispatcher, ConnectionOptions, Streaming
from leasehold.grpc.client_call import NotProcessed
from leasehold.grpc.client_connection import CLIENT_LIMITS
from leasehold.grpc.client_headers import check_timeout
from leasehold.grpc.connecting import Connect, connect
from leasehold.grpc.endpoints import Endpoint, Endpoints, parse_endpoints
from leasehold.grpc.protocol import GZIPPED, RpcError
from leasehold.grpc.retries import Attempts, Prepare
from leasehold.http2.limits import ConnectionLimits

KEEPALIVE_S: Final = 10.0
KEEPALIVE_TIMEOUT_S: Final = 5.0

_CLOSED: Final = "the channel was closed"


class Channel:
    """Makes calls with bytes as request and answer.

    Nothing is connected until the first call. A channel belongs to the event loop of its first call
    and to its process.

    `endpoints` are addresses such as `127.0.0.1:2379`, `https://[::1]:2379` or `unix:/run/x.sock`;
    the first one that works is used. `tls` is a context as `client_tls` makes it, which is the
    default with `https://`. `metadata` is sent with every call. After `keepalive` seconds of
    silence (None: never) while there are calls, the server must answer a ping within
    `keepalive_timeout` seconds. The pause between two attempts to connect is at most
    `reconnect_max` seconds. With `gzip` long messages are compressed; compressed answers are always
    accepted.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        tls: ssl.SSLContext | None = None,
        metadata: MetadataLike = (),
        user_agent: str = USER_AGENT,
        default_timeout: float | None = None,
        keepalive: float | None = KEEPALIVE_S,
        keepalive_timeout: float = KEEPALIVE_TIMEOUT_S,
        reconnect_max: float = MAX_S,
        gzip: bool = False,
        limits: ConnectionLimits = CLIENT_LIMITS,
        random: Random | None = None,
        connect: Connect = connect,
    ) -> None:
        for seconds in (default_timeout, keepalive, keepalive_timeout, reconnect_max):
            check_timeout(seconds)
        if keepalive_timeout is None:
            raise TypeError("keepalive_timeout must be a number of seconds, not None")
        _check_is("limits", limits, ConnectionLimits)
        if random is not None:
            _check_is("random", random, Random)
        fields = encode_metadata(metadata) + (GZIPPED if gzip else ())
        self._endpoints = parse_endpoints(endpoints, tls, user_agent, fields)
        self._default_timeout = default_timeout
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._options = ConnectionOptions(
            limits=limits,
            keepalive_s=keepalive,
            keepalive_timeout_s=keepalive_timeout,
            random=self._random,
            connect=connect,
            packs=gzip,
            reconnect_max_s=reconnect_max,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the channel; None before the first call, and after `close`."""
        self._dispatcher: CallDispatcher | None = None
        self._opened_by = 0
        self._is_closed = False
        self._is_forked = False

    # Calls.

    async def unary(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  it is sent to the server
        server_timeout: float | None = None,
        metadata: MetadataLike | None = None,
        wait_for_ready: bool = False,
        idempotent: bool = False,
        prepare: Prepare | None = None,
    ) -> bytes:
        """Make a call with one message and one answer.

        Without `wait_for_ready` it fails as soon as no endpoint can be connected to. With
        `idempotent` it is safe to execute the call twice: it is then retried if a connection is
        lost on which it may have been executed. `prepare` is awaited before a retry, and before an
        attempt on a connection that the call had to wait for; an exception that it raises ends the
        call. `server_timeout` is sent to the server in place of `timeout`, for a caller that
        cancels the call itself.

        Raises `RpcError` with the status of the server, or DEADLINE_EXCEEDED after `timeout`
        seconds; `ConnectFailed` (no connection could be made; the call was not executed);
        `ConnectionLost` (it is unknown whether the call was executed).
        """
        if not isinstance(message, bytes):
            raise TypeError(f"a message must be bytes, not {message!r}")
        loop = get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        dispatcher = self._dispatcher
        assert dispatcher is not None
        if timeout is None:
            timeout = self._default_timeout
        pairs = None if metadata is None else as_pairs(metadata)
        connection = dispatcher.connector.connection
        heads = self._endpoints[0].heads if connection is None else connection.heads
        sent_s = timeout if server_timeout is None else server_timeout
        fields = heads.get(path, sent_s, pairs)  # raises if they are invalid
        until = None if timeout is None else loop.time() + timeout
        failure: NotProcessed | ConnectionLost | None = None
        if connection is not None:
            try:
                return await dispatcher.attempt(connection, fields, message, until, timeout)
            except (NotProcessed, ConnectionLost) as error:
                failure = error
        attempts = Attempts(
            dispatcher=dispatcher,
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
        return await attempts.go_on(connection, failure)

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

        A call that is not over at the end of the block is cancelled. `timeout` is for the whole
        call. It is never retried; an error tells if it was not executed.
        """
        if timeout is None:
            timeout = self._default_timeout
        pairs = None if metadata is None else as_pairs(metadata)
        self._endpoints[0].heads.get(path, timeout, pairs)  # raises if they are invalid
        return Streaming(self._bound, path, timeout, pairs, wait_for_ready=wait_for_ready)

    # The connection.

    @property
    def address(self) -> Address | None:
        """The address of the current connection; None if there is no connection."""
        connection = None if self._dispatcher is None else self._dispatcher.connector.connection
        return None if connection is None else connection.endpoint.address

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All addresses that the channel may connect to."""
        return tuple(str(endpoint) for endpoint in self._endpoints)

    @property
    def dial_addresses(self) -> tuple[str, ...]:
        """All addresses, for another process: with `https://` where this channel uses TLS."""
        return tuple(map(_dial_address, self._endpoints))

    @property
    def trouble(self) -> str:
        """Why there is no connection, if the reason is known; empty if there is one."""
        if self._dispatcher is None or self._dispatcher.connector.connection is not None:
            return ""
        return self._dispatcher.connector.last_error

    @property
    def has_others(self) -> bool:
        """Whether there is more than one endpoint."""
        return len(self._endpoints) > 1

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of its first endpoint; None if that is without TLS."""
        return self._endpoints[0].tls

    @property
    def connected_at(self) -> float | None:
        """When the connection was made, by the loop's clock; None if there is none."""
        connection = None if self._dispatcher is None else self._dispatcher.connector.connection
        return None if connection is None else connection.since

    @property
    def heard_at(self) -> float | None:
        """When data was last received on it."""
        connection = None if self._dispatcher is None else self._dispatcher.connector.connection
        return None if connection is None else connection.keepalive.heard_at

    def hang_up(self, why: str) -> None:
        """Give up the current connection, because its server is unusable at present.

        Calls under way on it raise `ConnectionLost`; later ones go to the next endpoint.
        """
        connection = None if self._dispatcher is None else self._dispatcher.connector.connection
        if connection is not None:
            reason = f"the connection to {connection.endpoint} was given up: {why}"
            connection.dismiss(ConnectionLost(reason))

    async def ready(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  as for calls
        *,
        wait_for_ready: bool = False,
    ) -> None:
        """Connect now. Raises `ConnectFailed`, or `RpcError` with DEADLINE_EXCEEDED."""
        check_timeout(timeout)
        dispatcher, loop = self._bound(), get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        await dispatcher.connection("the channel", until, timeout, wait_for_ready=wait_for_ready)

    def _bound(self) -> CallDispatcher:
        """Return the switchboard of the running loop."""
        loop = get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        assert self._dispatcher is not None
        return self._dispatcher

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind the channel to a loop; raise if it belongs to another loop or process."""
        if self._is_forked:
            raise RuntimeError(
                f"this channel was opened in process {self._opened_by}: make another one "
                "after the fork, or start children with the `spawn` method"
            )
        if self._is_closed:
            raise Closed(_CLOSED)
        if self._dispatcher is not None:
            raise RuntimeError(
                "this channel belongs to the event loop of its first call: make one for each loop"
            )
        self._loop = loop
        self._opened_by = os.getpid()
        self._dispatcher = CallDispatcher(self._endpoints, loop, self._options)
        call_in_child(self, Channel._abandon)

    def _abandon(self) -> None:
        """Make the channel unusable in a child process; the parent's connection is not touched."""
        self._is_forked = True
        self._loop = None

    # The end.

    async def close(self) -> None:
        """Cancel calls under way and close the connection soon. Later calls raise `Closed`."""
        if self._is_forked or self._is_closed:
            return
        if self._dispatcher is None:
            self._is_closed = True
            return
        dispatcher = self._bound()
        self._is_closed, self._loop = True, None
        await dispatcher.close(RpcError(Status.CANCELLED, _CLOSED))

    async def __aenter__(self) -> Self:
        """Close at the end of the block."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()


def _dial_address(endpoint: Endpoint) -> str:
    address = endpoint.address
    if endpoint.tls is not None and isinstance(address, TcpAddress):
        address = replace(address, is_tls=True)
    return str(address)


def _check_is(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {value!r}")
