"""Forwarding: any server takes a call, and passes it on to the server that owns the shard.

A call about an object of another server's shard is sent to that server with the same message, the
remaining time and the metadata of its caller. The answer, or the error with its details, is
returned unchanged. Two fields of metadata are added:

    leasehold-forwarded  the id of the server that passes the call on
    leasehold-peer       the address of the client

A call that has the first of them is not passed on again: while servers disagree about the owner of
a shard it would run in circles. The address is believed only if that id is one of a server of the
cluster. Clients cannot read these ids, so a client cannot claim the address of another one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import Any, Final, TypeVar

from leasehold.basics.addresses import is_local, parse_address
from leasehold.basics.sockets import UNIX_PEER
from leasehold.errors import (
    ConnectFailed,
    ConnectionLost,
    LeaseholdError,
    PermissionDenied,
    ShardLost,
    Status,
    TooBusy,
)
from leasehold.grpc.call_context import CallContext, Metadata, encode_metadata
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import REFUSED, detail_of
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.retries import Prepare
from leasehold.grpc.routes import Answer, Exchange, Method
from leasehold.services.connection_pool import ConnectionPool
from leasehold.services.shards import Shards

T = TypeVar("T")

FORWARDED: Final = "leasehold-forwarded"
PEER: Final = "leasehold-peer"

MAX_CHANNELS: Final = 64
"""Connections to other servers; an idle one is closed for another server."""

TIMEOUT_S: Final = 30.0
"""The timeout of a call that this server makes for itself.

One that is passed on has the deadline of its client, or none: it may wait as long as its handler
lets it."""

Handler = Callable[[bytes, CallContext], Coroutine[Any, Any, bytes]]
"""A coroutine function that answers the message of a call."""

RequestHandler = Callable[[Any, CallContext], Coroutine[Any, Any, bytes]]
"""One that answers the decoded request."""


def methods_of(service: str, handlers: Mapping[str, Handler]) -> dict[str, Method]:
    """Return the unary methods of a service, by path: one for each name and coroutine function.

    A handler returns when its changes are durable, so its answer waits for nothing more. It raises
    ValueError for arguments that it does not accept, before anything is changed.
    """
    return {f"/{service}/{name}": _unary(handler) for name, handler in handlers.items()}


def _unary(handler: Handler) -> Exchange:
    async def call(message: bytes, context: CallContext) -> Answer:
        try:
            return await handler(message, context), 0
        except ValueError as error:
            if isinstance(error, LeaseholdError):
                raise
            raise RpcError(Status.INVALID_ARGUMENT, str(error), detail=REFUSED) from error

    return Exchange(call, reads_context=True)


async def completed(work: Coroutine[Any, Any, T], running: set[asyncio.Task[Any]]) -> T:
    """Run a change to its end, even if its caller is cancelled; `running` keeps its task.

    A change that was cut off half-way would be one of unknown outcome: all state of its object
    would have to be read again.
    """
    task = asyncio.get_running_loop().create_task(work)
    running.add(task)
    task.add_done_callback(running.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # it concerns no caller any more
        raise


class Forwarder:
    """Calls a handler in this server, or the same method of the server that owns the shard."""

    def __init__(
        self,
        shards: Shards,
        open_channel: Callable[[str], Channel] = Channel,
        *,
        max_channels: int = MAX_CHANNELS,
    ) -> None:
        """`open_channel` returns a channel to an address, with TLS if servers use it."""
        self._shards = shards
        self._open_channel = open_channel
        self._channels: ConnectionPool[str, Channel] = ConnectionPool("other servers", max_channels)
        self._running: set[asyncio.Task[bytes]] = set()

    # Handlers.

    def at_owner(self, kind: type[Any], field: str, handler: RequestHandler) -> Handler:
        """Return a handler that answers where an object is served.

        `kind` is the class of the request, and `field` the name of its field with the id.
        """

        async def answer(message: bytes, context: CallContext) -> bytes:
            request = parse(kind.FromString, message)

            async def execute(_message: bytes, context: CallContext) -> bytes:
                return await handler(request, context)

            return await self.call(getattr(request, field), message, context, execute)

        return answer

    def anywhere(self, handler: Handler) -> Handler:
        """Return a handler that answers at any server with a shard, such as to create an object."""
        return partial(self.call_any, handler=handler)

    def to_end(
        self, handler: Callable[[T, CallContext], Coroutine[Any, Any, bytes]]
    ) -> Callable[[T, CallContext], Coroutine[Any, Any, bytes]]:
        """Return a handler that executes a call to its end, even if the client has gone."""

        async def answer(request: T, context: CallContext) -> bytes:
            return await completed(handler(request, context), self._running)

        return answer

    # Calls.

    async def call(
        self, object_id: str, message: bytes, context: CallContext, handler: Handler
    ) -> bytes:
        """Answer a call about an object, where it is served."""
        shard = self._shards.shard_of(object_id)
        if self._shards.owned(shard) is not None:
            return await handler(message, context)
        return await self.pass_on(shard, context.path, message, context)

    def server_of(self, object_id: str) -> str:
        """Return the address of the server that serves an object; empty if it is this server.

        Raises `ShardLost` if no server does.
        """
        shard = self._shards.shard_of(object_id)
        if self._shards.owned(shard) is not None:
            return ""
        if not (address := self._address(shard)):
            raise self._without_owner(shard)
        return address

    def others(self) -> dict[str, int]:
        """Return the other servers that own shards: one shard by each address."""
        shards: dict[str, int] = {}
        for shard in range(self._shards.count):
            if self._shards.owned(shard) is None and (address := self._address(shard)):
                shards.setdefault(address, shard)
        return shards

    async def listed(
        self,
        message: bytes,
        context: CallContext,
        own: Iterable[T],
        others: Callable[[bytes], Iterable[T]],
    ) -> list[T]:
        """Return the objects that all servers list for a call, in the order of their ids.

        `own` are those of this server; `others` returns those in the answer of another one.
        """
        found = list(own)
        if not is_forwarded(context):
            for shard in self.others().values():
                found += others(await self.pass_on(shard, context.path, message, context))
        return sorted(found, key=attrgetter("id"))

    async def call_any(self, message: bytes, context: CallContext, handler: Handler) -> bytes:
        """Answer a call that any server with a shard can answer."""
        if self._shards.all_owned:
            return await handler(message, context)
        others = [number for number in range(self._shards.count) if self._address(number)]
        shard = self._shards.random.choice(others) if others else 0
        return await self.pass_on(shard, context.path, message, context)

    async def pass_on(
        self, shard: int, path: str, message: bytes, context: CallContext | None = None
    ) -> bytes:
        """Make a call at the server that owns a shard.

        `context` is that of the call that is passed on; None for a call of this server itself.
        Raises `RpcError`, and `ConnectionLost` if the outcome is unknown.
        """
        if context is not None and is_forwarded(context):
            raise _refusal(ShardLost(shard, "the call was passed on to a server that has lost it"))
        address = self._address(shard)
        if not address:
            raise _refusal(self._without_owner(shard))
        return await self.call_at(address, path, message, context)

    async def call_at(
        self,
        address: str,
        path: str,
        message: bytes,
        context: CallContext | None = None,
        prepare: Prepare | None = None,
    ) -> bytes:
        """Make a call at a server, as `pass_on` does; `prepare` is as for `Channel.unary`."""
        metadata = self._metadata(context)
        try:
            if self._channels.is_closed:
                raise ConnectFailed("this server is being stopped")
            with self._channels.use(address, lambda: self._connect(address), "retry") as channel:
                return await channel.unary(
                    path,
                    message,
                    timeout=_remaining_s(context),
                    metadata=metadata,
                    prepare=prepare,
                )
        except (ConnectFailed, TooBusy) as error:  # nothing was executed
            raise _refusal(error) from error
        except RpcError as error:
            if self._channels.is_closed and error.status is Status.CANCELLED:  # by `close`
                raise ConnectionLost(error.message) from error
            raise

    def _address(self, shard: int) -> str:
        """Return the address of another server."""
        address = self._shards.address_of(shard)
        return "" if address == self._shards.address else address

    def _without_owner(self, shard: int) -> ShardLost:
        if not self._shards.address_of(shard):
            return ShardLost(shard, "it has no owner at present")
        return ShardLost(
            shard,
            f"its owner has the address of this server, {self._shards.address}: this server was "
            "restarted just now, or two servers have the same --advertise address",
        )

    def _metadata(self, context: CallContext | None) -> Metadata:
        mine = (FORWARDED, self._shards.server)
        if context is None:
            return (mine,)
        passed_on = [pair for pair in context.metadata if _can_be_sent(pair)]
        if is_local_peer(context.peer.address):
            return (*passed_on, mine)  # loopback is another machine at the other server
        return (*passed_on, mine, (PEER, context.peer.address))

    def client_address(self, context: CallContext) -> str:
        """Return the address of the client that made a call, at this or another server."""
        address = dict(context.metadata).get(PEER)
        if isinstance(address, str) and self._shards.is_server(_forwarder_of(context)):
            return address
        return context.peer.address

    def check_operator(self, context: CallContext, what: str) -> None:
        """Raise `PermissionDenied` unless a call comes from the machine of its server.

        Ids are the only protection of objects until there is authentication: so only the operator
        of a server may list them.
        """
        if is_forwarded(context) and self._shards.is_server(_forwarder_of(context)):
            return  # it was checked by the other server
        if not is_local_peer(context.peer.address):
            raise PermissionDenied(
                f"all {what} are listed only for clients on the machine of the server, not for "
                f"{context.peer.address}"
            )

    # Channels.

    def _connect(self, address: str) -> Channel:
        try:
            return self._open_channel(address)
        except ValueError as error:  # it is not an argument of the client
            text = f"the address of another server is not valid: {error}"
            raise ConnectFailed(text) from error

    async def close(self) -> None:
        """Close all connections to other servers. Nothing is passed on afterwards."""
        await self._channels.close()


def is_local_peer(peer: str) -> bool:
    """Return whether the address of a client is one of this machine: loopback, a Unix socket."""
    if peer == UNIX_PEER:
        return True
    try:
        return is_local(parse_address(peer))
    except ValueError:
        return False


def _forwarder_of(context: CallContext) -> str:
    return str(dict(context.metadata).get(FORWARDED))


def is_forwarded(context: CallContext) -> bool:
    """Return whether a call was passed on by another server."""
    return any(key == FORWARDED for key, _ in context.metadata)


def _can_be_sent(pair: tuple[str, str | bytes]) -> bool:
    if pair[0] in (FORWARDED, PEER):
        return False
    with suppress(ValueError, TypeError):
        encode_metadata([pair])
        return True
    return False


def _remaining_s(context: CallContext | None) -> float | None:
    """Return how long a call may take; None without a limit."""
    if context is None:
        return TIMEOUT_S
    return None if context.deadline is None else max(0.001, context.deadline - monotonic())


def _refusal(error: LeaseholdError) -> RpcError:
    """Return the error of a call that was not executed here or elsewhere."""
    detail = detail_of(error, is_whole_call=True) or REFUSED
    return RpcError(error.status, f"leasehold: {error}", detail=detail)
