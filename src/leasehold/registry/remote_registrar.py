"""The registrar of a Leasehold server, as a client calls it."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.clock import Clock
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.errors import CallFailed
from leasehold.events.client import call_service
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease, granted_lease
from leasehold.registry.item_watch import Update, decoded_item
from leasehold.registry.messages import template_message
from leasehold.registry.state import Item, Template
from leasehold.wire import registry_pb2 as pb

PATH: Final = "/leasehold.v1.Registry/"

M = TypeVar("M", bound=Message)


class RemoteRegistrar:
    """The registrar behind a connection."""

    def __init__(self, engine: RemoteEngine, patience: CallTimeouts, clock: Clock) -> None:
        self._channel = engine.channel
        self._patience = patience
        self._landlord = RemoteLandlord(engine.channel, clock=clock)

    async def call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        timeout: Timeout = None,  # noqa: ASYNC109
        *,
        known: Mapping[str, object] | None = None,
    ) -> M:
        """Make a call, again if it only reads. `known` is that of `as_ours`."""
        is_read = method in {"Lookup", "Browse", "Describe"}
        sending = call_service(
            self._channel, PATH + method, request, kind, idempotent=is_read, known=known
        )
        return await self._patience.wait(sending, timeout)

    def lease(self, grantor: str, cookie: str, ttl_ms: int, sent_at: float) -> RemoteLease:
        """Return a lease that the registrar has granted."""
        return granted_lease(self._landlord, grantor, cookie, ttl_ms, sent_at)

    def updates(self, template: Template, *, passing: bool) -> AsyncGenerator[Update, None]:
        """Return the items that match, and their changes."""
        request = pb.WatchItemsRequest(template=template_message(template), passing=passing)
        return stream_updates(self._channel, PATH + "Watch", request)

    async def close(self) -> None:
        """Do nothing: the connection is the engine's."""


async def stream_updates(
    channel: Channel, path: str, request: Message
) -> AsyncGenerator[Update, None]:
    """Yield the messages of a registrar: the snapshot in one piece, and then changes."""
    snapshot: dict[str, Item] = {}
    try:
        async with channel.stream(path) as call:
            await call.send(request.SerializeToString())
            call.end()
            async for message in call:
                try:
                    answer = pb.WatchItemsResponse.FromString(message)
                except DecodeError as error:
                    raise CallFailed(f"invalid answer to {path}: {error}") from error
                for data in answer.items:
                    item = decoded_item(data)
                    if item is not None:
                        snapshot[item.id] = item
                if answer.is_complete:
                    yield Update(snapshot)
                    snapshot = {}
                if answer.changes:
                    yield Update(
                        None, [(each.id, decoded_item(each.item)) for each in answer.changes]
                    )
    except RpcError as error:
        raise as_ours(error) from error
    raise CallFailed("the server has ended the watch")
