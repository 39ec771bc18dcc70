"""gRPC's health checking, `grpc.health.v1.Health`, for any server on this transport.

The owner of a server sets the status of its services, by name; the empty name is the server as a
whole. Clients ask for it (Check, List), or receive each change (Watch).

A watcher has no queue. It remembers the status that it sent last, and sends the current one if that
differs: immediately, or when its client has room for messages again. States in between are never
sent.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import (
    Answer,
    Exchange,
    Method,
    ServerStream,
    StreamHandler,
    Subscription,
)
from leasehold.wire.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

MAX_NAME_BYTES: Final = 200
"""The longest name of a service, in UTF-8; gRPC's C++ has the same limit."""

MAX_LISTED: Final = 100
"""Services in the answer to a List, as in the protocol."""

SERVER: Final = ""
"""The name of the server as a whole."""


class ServingStatus(Enum):
    """The status of a service."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3
    """Sent to the watchers of a name that was never set."""


_ANSWERS: Final = {
    status: HealthCheckResponse(status=status.name).SerializeToString() for status in ServingStatus
}
_parse_check = HealthCheckRequest.FromString
_parse_list = HealthListRequest.FromString


class HealthService:
    """The status of each service of a server."""

    def __init__(self) -> None:
        self._statuses: dict[str, ServingStatus] = {}
        self._watchers: dict[str, set[HealthWatcher]] = {}
        self._has_shut_down = False

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/grpc.health.v1.Health/"
        return {
            path + "Check": Exchange(self.check),
            path + "List": Exchange(self.list),
            path + "Watch": Subscription(self.watch, reads_context=False),
        }

    # Called by the owner.

    def set(self, service: str, status: ServingStatus) -> None:
        """Set the status of a service; `SERVER` is all of them. Has no effect after `shut_down`."""
        if not isinstance(status, ServingStatus):
            raise TypeError(f"status must be a ServingStatus, not {status!r}")
        if status is ServingStatus.SERVICE_UNKNOWN:
            raise ValueError(
                "SERVICE_UNKNOWN is the status of names that were never set; use UNKNOWN"
            )
        if _is_too_long(service):
            raise ValueError(f"service name must have at most {MAX_NAME_BYTES} bytes: {service!r}")
        if not self._has_shut_down:
            self._statuses[service] = status
            _tell(self._watchers.get(service, ()))

    def shut_down(self) -> None:
        """Set everything to NOT_SERVING; later calls of `set` have no effect."""
        self._has_shut_down = True
        self._statuses = dict.fromkeys(self._statuses, ServingStatus.NOT_SERVING)
        _tell(watcher for watchers in self._watchers.values() for watcher in watchers)

    # Methods for clients.

    def check(self, message: bytes) -> Answer:
        """Return the status of a service."""
        service = _named(message)
        status = self._statuses.get(service)
        if status is None:
            raise RpcError(Status.NOT_FOUND, f"unknown service {service}")
        return _ANSWERS[status], 0

    def list(self, message: bytes) -> Answer:
        """Return the status of all services."""
        parse(_parse_list, message)
        if len(self._statuses) > MAX_LISTED:
            why = f"more than {MAX_LISTED} services; check or watch them by name"
            raise RpcError(Status.RESOURCE_EXHAUSTED, why)
        answer = HealthListResponse()
        for service, status in self._statuses.items():
            answer.statuses[service].MergeFromString(_ANSWERS[status])
        return answer.SerializeToString(deterministic=True), 0

    def watch(self, stream: ServerStream) -> StreamHandler:
        """Begin a stream."""
        return HealthWatcher(self, stream)

    # Called by watchers.

    def status(self, service: str) -> ServingStatus:
        """Return the status of a service, known or not."""
        return self._statuses.get(service, ServingStatus.SERVICE_UNKNOWN)

    def add(self, watcher: "HealthWatcher", service: str) -> None:
        """Notify a watcher of changes from now on."""
        self._watchers.setdefault(service, set()).add(watcher)

    def discard(self, watcher: "HealthWatcher", service: str) -> None:
        """Stop notifying a watcher."""
        watchers = self._watchers[service]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[service]


class HealthWatcher:
    """One stream of status changes of a service."""

    __slots__ = ("_health", "_service", "_told", "stream")

    def __init__(self, health: HealthService, stream: ServerStream) -> None:
        self.stream = stream
        self._health = health
        self._service: str | None = None
        self._told: ServingStatus | None = None

    def message_received(self, message: bytes) -> None:
        """Handle the only request: which service."""
        if self._service is not None:
            raise RpcError(
                Status.INTERNAL,
                "server-streaming calls have one request, got two",
            )
        self._service = _named(message)
        self._health.add(self, self._service)
        self.send_status()

    def ended(self) -> None:
        """Do nothing: the client only has its request to send."""
        if self._service is None:
            raise RpcError(Status.INTERNAL, "server-streaming calls have one request, got none")

    def relieved(self) -> None:
        """Send the status if it changed while there was no room."""
        self.send_status()
        self.stream.flush()

    def gone(self) -> None:
        """Remove the watch."""
        if self._service is not None:
            self._health.discard(self, self._service)

    def send_status(self) -> None:
        """Send the status, if it has changed and the client has room."""
        if self._service is None:
            return
        status = self._health.status(self._service)
        if status is not self._told and self.stream.has_room:
            self._told = status
            self.stream.send_message(_ANSWERS[status], 0)


def _tell(watchers: Iterable[HealthWatcher]) -> None:
    """Notify all watchers before the first flush: it sends for all of its connection."""
    notified = list(watchers)  # a flush may end a connection, and its watchers with it
    for watcher in notified:
        watcher.send_status()
    for watcher in notified:
        watcher.stream.flush()


def _named(message: bytes) -> str:
    service = parse(_parse_check, message).service
    if _is_too_long(service):
        why = f"service name must have at most {MAX_NAME_BYTES} bytes"
        raise RpcError(Status.INVALID_ARGUMENT, why)
    return service


def _is_too_long(service: str) -> bool:
    return len(service.encode()) > MAX_NAME_BYTES
