"""Listeners: the calls that bring events to them, and which of them a server may call.

A listener is a mailbox of the cluster, or a process that serves `leasehold.v1.Listener` at an
endpoint. The operator decides with a `CallbackPolicy` which endpoints may be registered.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from leasehold.basics.addresses import TcpAddress, is_local
from leasehold.basics.callbacks import ignore
from leasehold.basics.endpoint_list import EndpointList, normal_endpoint
from leasehold.basics.sockets import UNIX_PEER
from leasehold.errors import PermissionDenied
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.services.connection_pool import ConnectionPool
from leasehold.wire import events_pb2, services_pb2

NOTIFY_TIMEOUT_S: Final = 10.0
"""How long a listener may take for one call."""

MAX_CHANNELS: Final = 1024
"""Callback endpoints that are connected. The one that was not used for the longest time is closed
when there are more."""

CHANNEL_IDLE_S: Final = 60.0
"""How long a channel to a callback endpoint is kept open without a call."""

MAX_LISTENER_ID: Final = 256
"""Characters in the id of a listener."""

NOTIFY: Final = "/leasehold.v1.Listener/Notify"


class CallbackPolicy:
    """Decides which listeners may be registered.

    Mailboxes are always allowed, and so are endpoints at the address of the connection that
    registers them, with any port. All other endpoints must be on the list of the operator.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Parse the list: see `EndpointList`. ValueError: an entry is malformed."""
        self._allowed = EndpointList(allowed)

    def check(self, target: EventTarget, peer: str) -> EventTarget:
        """Return a target in its normal form, in which it is stored and called.

        `peer` is the address of the connection, as in the context of a call. Raises
        `PermissionDenied` if the endpoint is not allowed, and ValueError if the target is
        malformed.
        """
        if not 0 < len(target.id) <= MAX_LISTENER_ID:
            raise ValueError(
                f"id of a listener must have 1 to {MAX_LISTENER_ID} characters, got "
                f"{len(target.id)}"
            )
        if target.is_mailbox:
            return target
        endpoint = normal_endpoint(target.endpoint)
        if not self._allowed.allows(endpoint) and not (
            isinstance(endpoint, TcpAddress) and _is_at(endpoint, peer)
        ):
            raise PermissionDenied(
                f"callback endpoint {target.endpoint} is not allowed: register a mailbox or an "
                f"endpoint at the address of this connection ({peer}), or allow it with --callbacks"
            )
        return EventTarget(str(endpoint), target.id)


def _is_at(endpoint: TcpAddress, peer: str) -> bool:
    """Return whether an endpoint is at the address of a peer: the same host, or this machine."""
    if peer == UNIX_PEER:
        return is_local(endpoint)
    try:
        own = normal_endpoint(peer)
    except ValueError:
        return False
    assert isinstance(own, TcpAddress)
    return endpoint.host == own.host or (is_local(own) and is_local(endpoint))


# Wire forms.


def event_message(event: RemoteEvent) -> services_pb2.RemoteEvent:
    """Return the message of an event."""
    return services_pb2.RemoteEvent(
        service=event.service,
        source=event.source,
        kind=event.kind,
        number=event.number,
        handback=event.handback,
        payload=event.payload,
    )


def event_of(message: services_pb2.RemoteEvent) -> RemoteEvent:
    """Return the event of a message."""
    return RemoteEvent(
        message.service,
        message.source,
        message.kind,
        message.number,
        message.handback,
        message.payload,
    )


def notify_message(listener: str, events: Sequence[RemoteEvent]) -> bytes:
    """Return the message of a call of `Notify`."""
    return events_pb2.NotifyRequest(
        listener=listener, events=map(event_message, events)
    ).SerializeToString()


def target_message(target: EventTarget) -> services_pb2.ListenerTarget:
    """Return the message of a target."""
    return services_pb2.ListenerTarget(endpoint=target.endpoint, id=target.id)


def target_of(message: services_pb2.ListenerTarget) -> EventTarget:
    """Return the target of a message."""
    return EventTarget(message.endpoint, message.id)


# Calls.


Deliver = Callable[[str, Sequence[RemoteEvent]], Awaitable[None]]
"""Puts events into the mailbox with an id, in this server or another one of its cluster."""


class ListenerCalls:
    """Sends events to mailboxes with `deliver`, and to callback endpoints with gRPC."""

    def __init__(
        self,
        deliver: Deliver,
        *,
        timeout_s: float = NOTIFY_TIMEOUT_S,
        max_channels: int = MAX_CHANNELS,
        connect: Callable[[str], Channel] | None = None,
    ) -> None:
        """`connect` makes a channel to an endpoint; by default one without client certificate."""
        self._deliver = deliver
        self._timeout_s = timeout_s
        self._connect = connect or Channel
        self._channels: ConnectionPool[str, Channel] = ConnectionPool(
            "callback endpoints", max_channels, CHANNEL_IDLE_S
        )

    @property
    def channels(self) -> int:
        """How many callback endpoints have a channel."""
        return len(self._channels)

    async def send(
        self,
        target: EventTarget,
        events: Sequence[RemoteEvent],
        check: Callable[[], object] = ignore,
    ) -> None:
        """Return when the target has received all events; raise if it has not.

        `check` is called before they are sent on a connection that had to be waited for.
        """
        if target.is_mailbox:
            await self._deliver(target.id, events)
            return

        async def prepare() -> None:
            check()

        message = notify_message(target.id, events)
        endpoint = target.endpoint
        with self._channels.use(
            endpoint, lambda: self._connect(endpoint), f"events to {endpoint} are sent later"
        ) as channel:
            try:
                await channel.unary(
                    NOTIFY, message, timeout=self._timeout_s, idempotent=True, prepare=prepare
                )
            except RpcError as error:
                raise as_ours(error, len(message)) from error

    async def close(self) -> None:
        """Close all channels. The senders that use it must be closed before."""
        await self._channels.close()
