"""A server that says what a test tells it to, in place of a channel: in virtual time, no sockets.

channel = ScriptedChannel(version="3.5.1")
engine = await channel.engine()
watch = engine.watch(b"a")
stream = await channel.opened(WATCH)
request = await stream.heard(pb.WatchRequest)
stream.say(pb.WatchResponse(created=True, watch_id=1))
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, Self, TypeVar, cast

from google.protobuf.message import Message

from leasehold.engine.remote import caller, etcd_leases, server_version, watch_hub
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.errors import ConnectionLost, Status
from leasehold.grpc.call_context import Metadata
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.testing import current_host
from leasehold.wire import leases_pb2
from leasehold.wire import maintenance_pb2 as maintenance
from leasehold.wire import rpc_pb2 as pb

WATCH = watch_hub.METHOD
KEEP_ALIVE = etcd_leases.METHOD
RANGE = caller.RANGE
CLUSTER = 7

M = TypeVar("M", bound=Message)
Answer = Callable[[bytes], Message]


def header(revision: int = 0, cluster: int = CLUSTER) -> pb.ResponseHeader:
    return pb.ResponseHeader(cluster_id=cluster, revision=revision)


class ScriptedStream:
    """A call with messages both ways; the test is the server."""

    def __init__(self, channel: "ScriptedChannel", path: str, metadata: Metadata) -> None:
        self._channel = channel
        self._path = path
        self.metadata = metadata
        self._to_server: asyncio.Queue[bytes] = asyncio.Queue()
        self._to_client: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.is_over = False

    # What the client does.

    async def __aenter__(self) -> Self:
        await self._channel.is_up.wait()
        self._channel.streams.append(self)
        self._channel.opening[self._path].put_nowait(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_over = True
        self._channel.streams.remove(self)

    async def send(self, message: bytes) -> None:
        self._to_server.put_nowait(message)

    async def receive(self) -> bytes | None:
        said = await self._to_client.get()
        if isinstance(said, Exception):
            raise said
        return said

    # What the test does.

    async def heard(self, kind: type[M]) -> M:
        """Wait for the next message of the client."""
        return kind.FromString(await self._to_server.get())

    @property
    def is_quiet(self) -> bool:
        """Whether the client has said nothing more."""
        return self._to_server.empty()

    def say(self, message: Message) -> None:
        self._to_client.put_nowait(message.SerializeToString())

    def end(self, error: Exception | None = None) -> None:
        self._to_client.put_nowait(error)


class ScriptedChannel:
    """What a `RemoteEngine` needs of a channel."""

    def __init__(self, version: str = "3.5.1", *, has_others: bool = True) -> None:
        self.version = version
        self.has_others = has_others
        self.address = "scripted:1"
        self.trouble = ""
        self.hung_up: list[str] = []
        self.streams: list[ScriptedStream] = []
        self.opening: dict[str, asyncio.Queue[ScriptedStream]] = defaultdict(asyncio.Queue)
        self.answers: dict[str, Answer] = {
            caller.STATUS: lambda _: maintenance.StatusResponse(
                header=header(), version=self.version
            ),
            server_version.RENEW_ALL_METHOD: self._renew_all,
            RANGE: lambda _: pb.RangeResponse(header=header(self.revision)),
        }
        self.revision = 1
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.connected_at: float | None = asyncio.get_running_loop().time()
        self.heard_at: float | None = self.connected_at

    def _renew_all(self, _: bytes) -> Message:
        if self.version != "ours":
            raise RpcError(Status.UNIMPLEMENTED, "unknown service leasehold.v1.Leases")
        return leases_pb2.RenewAllResponse(header=header())

    async def engine(self) -> RemoteEngine:
        engine = RemoteEngine(cast(Channel, self), Random(1), current_host().clock)
        await engine.start()
        return engine

    async def opened(self, path: str) -> ScriptedStream:
        """Wait for the client to open its next stream."""
        return await self.opening[path].get()

    def lose(self, why: str = "the connection was lost") -> None:
        """End every stream, as a connection that is lost does."""
        if self.connected_at is not None:
            self.connected_at += 1e-6  # the next one is another one
        for stream in list(self.streams):
            stream.end(ConnectionLost(why))

    # What the engine does.

    async def unary(self, path: str, message: bytes, **_: Any) -> bytes:
        await self.is_up.wait()
        await asyncio.sleep(0)
        if path not in self.answers:
            await asyncio.get_running_loop().create_future()  # no answer, ever
        return self.answers[path](message).SerializeToString()

    def stream(self, path: str, *, metadata: Metadata = (), **_: Any) -> ScriptedStream:
        return ScriptedStream(self, path, metadata)

    def hang_up(self, why: str) -> None:
        self.hung_up.append(why)
        self.lose(why)

    async def ready(self, *, wait_for_ready: bool = False) -> None:
        del wait_for_ready

    async def close(self) -> None:
        self.lose("the channel was closed")
