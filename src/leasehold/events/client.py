"""Events in a client: mailboxes that it reads, and listeners that it serves.

    mailbox = await Mailbox.create(channel, 3600)
    ...  # register mailbox.target with a service
    async for event in mailbox.events():
        ...

    async with await serve_listener(print) as server:
        ...  # register server.listener with a service

Delivery is at least once: an event may come again, with the same number.
"""

import asyncio
import base64
import inspect
import logging
import math
import secrets
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.basics.addresses import parse_address
from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.callbacks import check_callable
from leasehold.basics.durations import (
    ANY,
    DurationLike,
    check_positive,
    check_seconds,
    to_wire_ms,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import CallFailed, LeaseholdError, NoSuchObject, Status, is_definite
from leasehold.events.listeners import MAX_LISTENER_ID, NOTIFY, event_of
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.health import SERVER, HealthService, ServingStatus
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease, granted_lease
from leasehold.serving.grpc_server import GrpcServer, check_local
from leasehold.wire import events_pb2 as pb

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
"""The default timeout of a call, besides the time that it is to wait for events."""

WAIT_S: Final = 30.0
"""How long `Mailbox.events` waits for events in one call."""

BATCH: Final = 100
"""Events that `Mailbox.events` reads in one call, and acknowledges together."""

RETRIES: Final = exponential(0.1, 5.0)
"""The longest waits after a failed call of `Mailbox.events`."""

_PATH: Final = "/leasehold.v1.Mailboxes/"
M = TypeVar("M", bound=Message)

EventCallback = Callable[[RemoteEvent], "Awaitable[object] | object"]
"""A plain function or a coroutine function that receives events."""


# Events as JSON.

Decoder = Callable[[RemoteEvent], Mapping[str, Any]]
"""Returns the payload of an event as values of JSON."""

_DECODERS: Final[dict[str, Decoder]] = {}


def register_decoder(service: str, decoder: Decoder) -> None:
    """Set how the payloads of a service are shown; `service` is its name, such as `renewal`."""
    _DECODERS[service] = decoder


def event_as_json(event: RemoteEvent) -> dict[str, Any]:
    """Return an event as values of JSON: its payload decoded if its service is known.

    Bytes are in base64. A payload that is not decoded is `payload_base64`.
    """
    shown: dict[str, Any] = {
        "service": event.service,
        "source": event.source,
        "kind": event.kind,
        "number": event.number,
        "handback": base64.b64encode(event.handback).decode(),
    }
    decoder = _DECODERS.get(event.service.rpartition("/")[2])
    if decoder is not None:
        try:
            return shown | {"payload": dict(decoder(event))}
        except Exception:  # a payload of a later version
            logger.exception("an event of %s cannot be decoded", event.service)
    return shown | {"payload_base64": base64.b64encode(event.payload).decode()}


# Mailboxes.


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event in a mailbox, and its position there."""

    position: int
    event: RemoteEvent


@dataclass(frozen=True, slots=True)
class MailboxStatus:
    """The state of a mailbox."""

    id: str
    remaining_s: float
    events: int
    bytes: int


class Mailbox:
    """A leased queue of events on a server. `create` or `find` makes it.

    Any client that has its id can read it. Two of them with the same id are equal.
    """

    def __init__(
        self,
        channel: Channel,
        mailbox_id: str,
        lease: RemoteLease,
        *,
        timeout_s: float = TIMEOUT_S,
        random: Random | None = None,
    ) -> None:
        self._channel = channel
        self.id = mailbox_id
        """Its id, with which any client finds it again."""
        self.lease = lease
        """Its lease: the mailbox ends with it. A renewal set can keep it alive."""
        self._timeout_s = timeout_s
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret

    @classmethod
    async def create(
        cls,
        channel: Channel,
        duration: DurationLike = ANY,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  it is sent to the server
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> Self:
        """Create a mailbox with a lease of `duration`.

        After a connection error there may be a mailbox without an owner; it ends with its lease.
        """
        request = pb.CreateMailboxRequest(ttl_ms=to_wire_ms(check_positive(duration)))
        sent_at = clock.boottime()
        answer = await call_mailboxes(
            channel, "Create", request, pb.CreateMailboxResponse, timeout=timeout
        )
        lease = _lease(channel, answer.grantor, answer.id, answer.ttl_ms, sent_at, clock)
        return cls(channel, answer.id, lease, timeout_s=timeout, random=random)

    @classmethod
    async def find(
        cls,
        channel: Channel,
        mailbox_id: str,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  it is sent to the server
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Return the mailbox with an id. Raises `NoSuchObject` if it has ended."""
        request = pb.ShowMailboxRequest(mailbox=mailbox_id)
        sent_at = clock.boottime()
        info = await call_mailboxes(
            channel, "Show", request, pb.MailboxInfo, timeout=timeout, idempotent=True
        )
        lease = _lease(channel, info.grantor, info.id, info.remaining_ms, sent_at, clock)
        return cls(channel, info.id, lease, timeout_s=timeout)

    @property
    def target(self) -> EventTarget:
        """The listener to register with services of the same cluster."""
        return EventTarget("", self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mailbox) and (self.id, self.lease) == (other.id, other.lease)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Mailbox {self.id}>"

    async def read(self, after: int = 0, limit: int = 0, wait: float = 0.0) -> list[ReceivedEvent]:
        """Return events after a position, in the order of arrival. They stay in the mailbox.

        If there is none, wait for one for `wait` seconds. The server limits both the number of
        events and the wait; a `limit` of 0 leaves the number to the server.
        """
        wait_s = 0.0 if wait == 0 else check_seconds(wait, "wait")
        request = pb.ReadMailboxRequest(
            mailbox=self.id, after=after, limit=limit, wait_ms=math.ceil(wait_s * 1000)
        )
        answer = await self._call("Read", request, pb.ReadMailboxResponse, wait_s)
        return [ReceivedEvent(each.position, event_of(each.event)) for each in answer.events]

    async def acknowledge(self, position: int) -> None:
        """Drop the events up to a position; idempotent."""
        request = pb.AcknowledgeRequest(mailbox=self.id, position=position)
        await self._call("Acknowledge", request, pb.AcknowledgeResponse)

    async def status(self) -> MailboxStatus:
        """Return the number and size of its events, and the remaining time of its lease."""
        info = await self._call("Show", pb.ShowMailboxRequest(mailbox=self.id), pb.MailboxInfo)
        remaining_s = _seconds(info.remaining_ms)
        return MailboxStatus(info.id, remaining_s, info.events, info.bytes)

    async def events(self) -> AsyncGenerator[RemoteEvent, None]:
        """Iterate over the events, now and later. An event is processed when the next is requested.

        Processed events are acknowledged in groups, and when the iterator is closed. Calls that
        fail are retried; `NoSuchObject` is raised when the mailbox has ended.
        """
        processed = acknowledged = 0
        try:
            while True:
                batch = await self._retried(lambda: self.read(processed, BATCH, WAIT_S))  # noqa: B023
                for received in batch:
                    yield received.event
                    processed = received.position
                await self._retried(lambda: self.acknowledge(processed))  # noqa: B023
                acknowledged = processed
        finally:
            if processed > acknowledged:
                await self.acknowledge(processed)

    async def _retried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        backoff = Backoff(RETRIES, self._random)
        while True:
            try:
                return await call()
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
                logger.info("a call for %r failed and is retried: %s", self, error)
            await asyncio.sleep(backoff.next_s())

    async def _call(self, method: str, request: Message, kind: type[M], wait_s: float = 0.0) -> M:
        timeout = self._timeout_s + wait_s
        return await call_mailboxes(
            self._channel, method, request, kind, timeout=timeout, idempotent=True
        )


async def call_mailboxes(
    channel: Channel,
    method: str,
    request: Message,
    kind: type[M],
    *,
    timeout: float = TIMEOUT_S,  # noqa: ASYNC109  it is sent to the server
    idempotent: bool = False,
) -> M:
    """Make a call of the service of mailboxes; raise errors of the library."""
    return await call_service(
        channel, _PATH + method, request, kind, timeout=timeout, idempotent=idempotent
    )


async def call_service(
    channel: Channel,
    path: str,
    request: Message,
    kind: type[M],
    *,
    timeout: float | None = None,  # noqa: ASYNC109  it is sent to the server
    idempotent: bool = False,
    known: Mapping[str, object] | None = None,
) -> M:
    """Make a call of any service; raise errors of the library. `known` is that of `as_ours`."""
    message = request.SerializeToString()
    try:
        answer = await channel.unary(path, message, timeout=timeout, idempotent=idempotent)
        return kind.FromString(answer)
    except RpcError as error:
        raise as_ours(error, len(message), known or {}) from error
    except DecodeError as error:
        raise CallFailed(f"invalid answer to {path}: {error}") from error


def _seconds(remaining_ms: int) -> float:
    return float("inf") if remaining_ms < 0 else remaining_ms / 1000.0


def _lease(
    channel: Channel, grantor: str, cookie: str, ttl_ms: int, sent_at: float, clock: Clock
) -> RemoteLease:
    landlord = RemoteLandlord(channel, clock=clock)
    return granted_lease(landlord, grantor, cookie, ttl_ms, sent_at)


# A listener in this process.


class ListenerServer:
    """A listener at an endpoint of this process; `serve_listener` makes one."""

    def __init__(self, server: GrpcServer, listener: EventTarget) -> None:
        self._server = server
        self.listener = listener
        """The listener to register with a service."""

    @property
    def address(self) -> str:
        """The address that was bound, with the port that was chosen."""
        return str(self._server.addresses[0])

    async def close(self) -> None:
        """Refuse further events. Registrations stay, and are retried, until they are cleared."""
        await self._server.close()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


async def serve_listener(
    callback: EventCallback,
    listen: str | Sequence[str] = "127.0.0.1:0",
    *,
    listener_id: str | None = None,
    advertise: str | None = None,
    tls: ssl.SSLContext | None = None,
    insecure: bool = False,
) -> ListenerServer:
    """Receive events in this process: `callback(event)` is called for each.

    `listen` is an address, or several; port 0 lets the system choose. `advertise` is the address at
    which servers reach it, by default the first one that was bound. The callback is a plain
    function or a coroutine function. Events of one registration come one after the other. If it
    raises `NoSuchObject`, the registration is cleared; after any other exception the event comes
    again.

    `listener_id` is that of a listener that was served before, so that a process that starts again
    at the same address receives the events of its registrations; by default it is a new one. A
    registration whose listener is served with another id is cleared.

    Any client that has the id of the listener can send events to it. So without `tls` only this
    machine is served, unless `insecure` is set.
    """
    check_callable(callback, "callback")
    if callback is None:
        raise TypeError("callback must be a function, not None")
    addresses = [listen] if isinstance(listen, str) else listen
    if tls is None and not insecure:
        check_local(addresses)
    if advertise is not None:
        parse_address(advertise)
    if listener_id is None:
        listener_id = secrets.token_hex(16)
    elif not 0 < len(listener_id) <= MAX_LISTENER_ID:
        raise ValueError(
            f"listener_id must have 1 to {MAX_LISTENER_ID} characters, got {len(listener_id)}"
        )
    service = ListenerService({listener_id: callback})
    health = HealthService()
    health.set(SERVER, ServingStatus.SERVING)
    server = GrpcServer({NOTIFY: Exchange(service.notify), **health.methods()})
    await server.start(addresses, tls)
    endpoint = advertise or _endpoint(str(server.addresses[0]), has_tls=tls is not None)
    return ListenerServer(server, EventTarget(endpoint, listener_id))


def _endpoint(address: str, *, has_tls: bool) -> str:
    is_tcp = not address.startswith("unix:")
    return f"https://{address}" if has_tls and is_tcp else address


class ListenerService:
    """`leasehold.v1.Listener` for callbacks in this process, by the ids of their listeners."""

    def __init__(self, callbacks: Mapping[str, EventCallback]) -> None:
        self._callbacks = callbacks

    def notify(self, message: bytes) -> DeferredAnswer:
        """Call the callback of a listener for each event, in order."""
        request = parse(pb.NotifyRequest.FromString, message)
        callback = self._callbacks.get(request.listener)
        if callback is None:
            raise RpcError(
                Status.NOT_FOUND, f"listener {request.listener!r} is not served by this process"
            )
        return self._notified(callback, list(map(event_of, request.events)))

    async def _notified(self, callback: EventCallback, events: Sequence[RemoteEvent]) -> Answer:
        for event in events:
            try:
                result = callback(event)
                if inspect.isawaitable(result):
                    await result
            except NoSuchObject:
                raise
            except Exception as error:
                logger.exception("a listener failed; event %d will be sent again", event.number)
                text = f"the listener failed: {type(error).__name__}: {error}"
                raise RpcError(Status.UNKNOWN, text) from error
        return pb.NotifyResponse().SerializeToString(), 0
