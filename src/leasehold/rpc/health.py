"""gRPC's health checking, `grpc.health.v1.Health`, for any server on this transport.

The owner of a server says how its services are, by name; the empty name is the server as a whole.
Clients ask (Check, List), or are told of each change (Watch).

A watcher has no queue. It remembers what it was told last, and is told how things are if that is
something else: at once, or when its client takes messages again. What was true in between, and is
not any more, it never learns.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Exchange, Listener, Method, Speaker, Subscription
from leasehold.wire.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

MAX_NAME_BYTES: Final = 200
"""The longest name of a service, in UTF-8; gRPC's C++ has the same limit."""

MAX_LISTED: Final = 100
"""Services in the answer to a List, as the protocol says."""

SERVER: Final = ""
"""The name of the server as a whole."""


class ServingStatus(Enum):
    """How a service is."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3
    """What the watchers of a name are told that nobody has set."""


_ANSWERS: Final = {
    status: HealthCheckResponse(status=status.name).SerializeToString() for status in ServingStatus
}
_parse_check = HealthCheckRequest.FromString
_parse_list = HealthListRequest.FromString


class Health:
    """How the services of a server are."""

    def __init__(self) -> None:
        self._statuses: dict[str, ServingStatus] = {}
        self._watchers: dict[str, set[Watcher]] = {}
        self._has_shut_down = False

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/grpc.health.v1.Health/"
        return {
            path + "Check": Exchange(self.check),
            path + "List": Exchange(self.list),
            path + "Watch": Subscription(self.watch, reads_metadata=False),
        }

    # What the owner says.

    def set(self, service: str, status: ServingStatus) -> None:
        """Say how a service is; `SERVER` is all of them. After `shut_down` nobody is told."""
        if not isinstance(status, ServingStatus):
            raise TypeError(f"status must be a ServingStatus, not {status!r}")
        if status is ServingStatus.SERVICE_UNKNOWN:
            raise ValueError("SERVICE_UNKNOWN is what nobody has set; UNKNOWN can be")
        if _is_too_long(service):
            raise ValueError(f"{service!r} has more than {MAX_NAME_BYTES} octets")
        if not self._has_shut_down:
            self._statuses[service] = status
            _tell(self._watchers.get(service, ()))

    def shut_down(self) -> None:
        """Say that nothing is served any more, whatever anybody says later."""
        self._has_shut_down = True
        self._statuses = dict.fromkeys(self._statuses, ServingStatus.NOT_SERVING)
        _tell(watcher for watchers in self._watchers.values() for watcher in watchers)

    # What clients ask.

    def check(self, message: bytes) -> Answer:
        """Say how a service is."""
        service = _named(message)
        status = self._statuses.get(service)
        if status is None:
            raise RpcError(Status.NOT_FOUND, f"unknown service {service}")
        return _ANSWERS[status], 0

    def list(self, message: bytes) -> Answer:
        """Say how all services are."""
        parse(_parse_list, message)
        if len(self._statuses) > MAX_LISTED:
            why = f"more than {MAX_LISTED} services; check or watch them by name"
            raise RpcError(Status.RESOURCE_EXHAUSTED, why)
        answer = HealthListResponse()
        for service, status in self._statuses.items():
            answer.statuses[service].MergeFromString(_ANSWERS[status])
        return answer.SerializeToString(deterministic=True), 0

    def watch(self, speaker: Speaker) -> Listener:
        """Begin a stream."""
        return Watcher(self, speaker)

    # What watchers need.

    def status(self, service: str) -> ServingStatus:
        """How a service is, known or not."""
        return self._statuses.get(service, ServingStatus.SERVICE_UNKNOWN)

    def add(self, watcher: "Watcher", service: str) -> None:
        """Tell a watcher of changes from now on."""
        self._watchers.setdefault(service, set()).add(watcher)

    def discard(self, watcher: "Watcher", service: str) -> None:
        """Tell a watcher nothing any more."""
        watchers = self._watchers[service]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[service]


class Watcher:
    """One stream that is told how a service is."""

    __slots__ = ("_health", "_service", "_told", "speaker")

    def __init__(self, health: Health, speaker: Speaker) -> None:
        self.speaker = speaker
        self._health = health
        self._service: str | None = None
        self._told: ServingStatus | None = None

    def heard(self, message: bytes) -> None:
        """Take the one request: which service."""
        if self._service is not None:
            raise RpcError(Status.INTERNAL, "a second message in a call that takes one")
        self._service = _named(message)
        self._health.add(self, self._service)
        self.tell()

    def ended(self) -> None:
        """Go on: a client has nothing to add to its request."""
        if self._service is None:
            raise RpcError(Status.INTERNAL, "a call without a message")

    def relieved(self) -> None:
        """Tell what has changed while there was no room."""
        self.tell()
        self.speaker.flush()

    def gone(self) -> None:
        """Forget the watch."""
        if self._service is not None:
            self._health.discard(self, self._service)

    def tell(self) -> None:
        """Say how the service is, if that is news and the client takes it."""
        if self._service is None:
            return
        status = self._health.status(self._service)
        if status is not self._told and self.speaker.has_room:
            self._told = status
            self.speaker.say(_ANSWERS[status], 0)


def _tell(watchers: Iterable[Watcher]) -> None:
    """Tell them all before the first flush, which sends what all of a connection were told."""
    told = list(watchers)  # a flush may end a connection, and its watchers with it
    for watcher in told:
        watcher.tell()
    for watcher in told:
        watcher.speaker.flush()


def _named(message: bytes) -> str:
    service = parse(_parse_check, message).service
    if _is_too_long(service):
        why = f"the name of a service has at most {MAX_NAME_BYTES} octets"
        raise RpcError(Status.INVALID_ARGUMENT, why)
    return service


def _is_too_long(service: str) -> bool:
    return len(service.encode()) > MAX_NAME_BYTES
