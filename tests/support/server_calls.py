"""Calls between servers without a network: fake channels, which call methods in this process.

    calls = ServerCalls()
    calls.servers["b:1"] = methods
    forwarder = Forwarder(shards, calls.channel)

Each call is recorded. An error of a method is the `RpcError` that a client would receive.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from leasehold.engine.interface import Engine
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, Metadata, Peer, as_pairs
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_rpc_error
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange, Method
from leasehold.services.shards import ShardListener, ShardOwnership, Shards


class ServerCall(NamedTuple):
    """A call of one server at another one."""

    address: str
    path: str
    message: bytes
    timeout_s: float | None
    metadata: Metadata


class ServerCalls:
    """The servers that can be called, and the calls that were made."""

    def __init__(self) -> None:
        self.servers: dict[str, Mapping[str, Method]] = {}
        self.made: list[ServerCall] = []
        self.open: list[str] = []
        """The addresses of the channels that are not closed, in the order of their opening."""
        self.failure: BaseException | None = None
        """Raised by each call, if it is set."""
        self.connecting: Callable[[], object] | None = None
        """Called once by the next call, which then has waited for its connection."""

    def channel(self, address: str) -> Channel:
        """Open a channel to a server."""
        return _FakeChannel(self, address)

    async def _call(self, call: ServerCall) -> bytes:
        self.made.append(call)
        if self.failure is not None:
            raise self.failure
        method = self.servers[call.address][call.path]
        assert isinstance(method, Exchange)
        context = a_context(call.path, call.metadata, call.timeout_s, "10.0.0.1")
        try:
            answer: Any = await method.call(call.message, context)  # type: ignore[misc]
        except Exception as error:
            raise as_rpc_error(error, call.path) from error
        assert isinstance(answer[0], bytes)
        return answer[0]


class _FakeChannel(Channel):
    def __init__(self, calls: ServerCalls, address: str) -> None:
        super().__init__(address)  # it is never connected
        self._calls = calls
        self._address = address
        self._under_way: set[asyncio.Future[bytes]] = set()
        calls.open.append(address)

    async def unary(self, path: str, message: bytes, **options: Any) -> bytes:
        assert self._address in self._calls.open, "the channel was closed"
        metadata = as_pairs(options["metadata"])
        connecting, self._calls.connecting = self._calls.connecting, None
        if connecting is not None:
            connecting()
            await options["prepare"]()
        call = ServerCall(self._address, path, message, options["timeout"], metadata)
        making = asyncio.ensure_future(self._calls._call(call))
        self._under_way.add(making)
        try:
            return await making
        except asyncio.CancelledError:
            if making in self._under_way:
                making.cancel()
                raise
            raise RpcError(Status.CANCELLED, "the channel was closed") from None
        finally:
            self._under_way.discard(making)

    async def close(self) -> None:
        under_way, self._under_way = self._under_way, set()
        for each in under_way:
            each.cancel()
        await asyncio.sleep(0)
        self._calls.open.remove(self._address)


class _FakePeer(Peer):
    __slots__ = ("_host",)

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    @property
    def address(self) -> str:
        return f"{self._host}:40312"


def a_context(
    path: str = "/test.Notes/Show",
    metadata: Metadata = (),
    timeout_s: float | None = None,
    host: str = "192.0.2.7",
    waited_s: float = 0.0,
) -> CallContext:
    """Return the context of a call of a client, received `waited_s` seconds ago."""
    return CallContext(path, metadata, _FakePeer(host), timeout_s, monotonic() - waited_s)


class FixedShards(Shards):
    """Shards whose owners a test sets; those without an entry have no owner."""

    def __init__(self, engine: Engine, address: str, owners: Mapping[int, str], count: int) -> None:
        super().__init__(engine, server=f"id of {address}", address=address, random=None)
        self.count = count
        self.owners = dict(owners)
        self.servers = {self.server}
        self._owned = {
            number: ShardOwnership(number) for number, owner in owners.items() if owner == address
        }

    def disown(self, number: int) -> None:
        """Lose a shard; its key is still there."""
        del self._owned[number]

    def address_of(self, number: int) -> str:
        return self.owners.get(number, "")

    def is_server(self, server: str) -> bool:
        return server in self.servers

    async def start(self, listeners: Sequence[ShardListener]) -> None:
        raise AssertionError("the shards are fixed")

    async def close(self) -> None:
        self._lose_all()
