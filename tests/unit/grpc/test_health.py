"""Health checking, rule by rule; the messages are read and written by protobuf."""

from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from leasehold.errors import Status
from leasehold.grpc.health import MAX_LISTED, MAX_NAME_BYTES, SERVER, HealthService, ServingStatus
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import ServerStream, StreamHandler
from leasehold.wire.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from tests.support.h2_peer import WATCH as OTHER
from tests.support.h2_peer import Peer, Service

UNKNOWN: Final = ServingStatus.UNKNOWN
SERVING: Final = ServingStatus.SERVING
NOT_SERVING: Final = ServingStatus.NOT_SERVING
SERVICE_UNKNOWN: Final = ServingStatus.SERVICE_UNKNOWN

LONGEST: Final = "é" * (MAX_NAME_BYTES // 2)
CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
NO_MESSAGE: Final = b"\xff"


class Client:
    """A stream, as `HealthService` sees it, and what its client has got of it."""

    def __init__(self) -> None:
        self.has_room = True
        self.got: list[ServingStatus] = []
        self.on_flush: Callable[[], None] = lambda: None
        self._said: list[bytes] = []

    def send_message(self, message: bytes, position: int) -> None:
        assert position == 0, "health waits for no disk"
        self._said.append(message)

    def end(self, error: RpcError | None = None) -> None:
        raise AssertionError(f"health has ended a stream: {error}")

    def flush(self) -> None:
        self.got += map(_status, self._said)
        self._said.clear()
        self.on_flush()


def _status(message: bytes) -> ServingStatus:
    return ServingStatus(int(HealthCheckResponse.FromString(message).status))


def _request(service: str = SERVER) -> bytes:
    return HealthCheckRequest(service=service).SerializeToString()


def _check(health: HealthService, service: str = SERVER) -> ServingStatus:
    answer, position = health.check(_request(service))
    assert position == 0
    return _status(answer)


def _listed(health: HealthService) -> dict[str, ServingStatus]:
    answer, _ = health.list(HealthListRequest().SerializeToString())
    statuses = HealthListResponse.FromString(answer).statuses
    return {service: ServingStatus(int(each.status)) for service, each in statuses.items()}


def _open(health: HealthService, client: Client) -> StreamHandler:
    return health.watch(cast(ServerStream, client))  # as much of one as is needed here


def _watch(health: HealthService, service: str = SERVER) -> tuple[Client, StreamHandler]:
    """Watch as a connection would have it: the request, the end of the client's side, a flush."""
    client = Client()
    handler = _open(health, client)
    handler.message_received(_request(service))
    handler.ended()
    client.flush()
    return client, handler


def _refusal(call: Callable[..., Any], *arguments: Any) -> Status:
    with pytest.raises(RpcError) as caught:
        call(*arguments)
    return caught.value.status


@pytest.fixture
def health() -> HealthService:
    return HealthService()


# Check and List.


@pytest.mark.parametrize("status", [UNKNOWN, SERVING, NOT_SERVING])
def test_a_check_says_what_the_owner_has_set(health: HealthService, status: ServingStatus) -> None:
    health.set("a.B", status)
    assert _check(health, "a.B") is status


def test_the_last_word_counts(health: HealthService) -> None:
    health.set("a.B", SERVING)
    health.set("a.B", NOT_SERVING)
    assert _check(health, "a.B") is NOT_SERVING


@pytest.mark.parametrize("service", [SERVER, "a.C", "a.B "])
def test_a_check_of_a_name_that_nobody_has_set_is_not_found(
    health: HealthService, service: str
) -> None:
    health.set("a.B", SERVING)
    assert _refusal(health.check, _request(service)) is Status.NOT_FOUND


def test_a_list_has_all_services(health: HealthService) -> None:
    assert _listed(health) == {}
    health.set(SERVER, SERVING)
    health.set("a.B", NOT_SERVING)
    health.set("a.C", UNKNOWN)
    assert _listed(health) == {SERVER: SERVING, "a.B": NOT_SERVING, "a.C": UNKNOWN}


def test_a_list_of_more_than_its_limit_is_refused(health: HealthService) -> None:
    for index in range(MAX_LISTED):
        health.set(f"service.{index}", SERVING)
    assert len(_listed(health)) == MAX_LISTED
    health.set("one.more", SERVING)
    assert _refusal(health.list, b"") is Status.RESOURCE_EXHAUSTED


def test_the_longest_name_may_be_set_checked_and_watched(health: HealthService) -> None:
    assert len(LONGEST.encode()) == MAX_NAME_BYTES
    health.set(LONGEST, SERVING)
    assert _check(health, LONGEST) is SERVING
    assert _watch(health, LONGEST)[0].got == [SERVING]


def test_a_longer_name_is_refused(health: HealthService) -> None:
    longer = _request(LONGEST + "x")
    assert _refusal(health.check, longer) is Status.INVALID_ARGUMENT
    assert _refusal(_open(health, Client()).message_received, longer) is Status.INVALID_ARGUMENT
    with pytest.raises(ValueError, match=f"at most {MAX_NAME_BYTES} bytes: '{LONGEST}x'"):
        health.set(LONGEST + "x", SERVING)


def test_what_is_no_message_is_refused(health: HealthService) -> None:
    for call in (health.check, health.list, _open(health, Client()).message_received):
        assert _refusal(call, NO_MESSAGE) is Status.INTERNAL


def test_an_owner_cannot_set_what_is_no_status(health: HealthService) -> None:
    for value in (None, 1, "SERVING"):
        with pytest.raises(TypeError, match="ServingStatus"):
            health.set(SERVER, value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="SERVICE_UNKNOWN"):
        health.set(SERVER, SERVICE_UNKNOWN)
    assert _listed(health) == {}


# Watch.


def test_a_watcher_is_told_at_once_how_things_are(health: HealthService) -> None:
    health.set("a.B", NOT_SERVING)
    assert _watch(health, "a.B")[0].got == [NOT_SERVING]


def test_the_first_word_needs_no_flush_of_its_own(health: HealthService) -> None:
    client = Client()
    client.on_flush = lambda: pytest.fail("a connection flushes after its handlers")
    _open(health, client).message_received(_request())


def test_a_watcher_of_an_unknown_name_is_told_so_and_then_of_changes(health: HealthService) -> None:
    client, _ = _watch(health, "a.B")
    assert client.got == [SERVICE_UNKNOWN]
    health.set("a.B", SERVING)
    health.set("a.B", NOT_SERVING)
    assert client.got == [SERVICE_UNKNOWN, SERVING, NOT_SERVING]


def test_only_changes_are_told(health: HealthService) -> None:
    health.set("a.B", SERVING)
    client, _ = _watch(health, "a.B")
    health.set("a.B", SERVING)
    health.set("a.B", NOT_SERVING)
    health.set("a.B", NOT_SERVING)
    assert client.got == [SERVING, NOT_SERVING]


def test_only_changes_of_the_watched_service_are_told(health: HealthService) -> None:
    one, _ = _watch(health, "a.B")
    other, _ = _watch(health, "a.C")
    health.set("a.B", SERVING)
    assert one.got == [SERVICE_UNKNOWN, SERVING]
    assert other.got == [SERVICE_UNKNOWN]


def test_all_watchers_of_a_service_are_told(health: HealthService) -> None:
    clients = [_watch(health)[0] for _ in range(5)]
    health.set(SERVER, SERVING)
    assert [client.got for client in clients] == [[SERVICE_UNKNOWN, SERVING]] * 5


def test_a_slow_watcher_is_told_the_latest_only(health: HealthService) -> None:
    client, handler = _watch(health)
    client.has_room = False
    for status in (SERVING, NOT_SERVING, SERVING, NOT_SERVING):
        health.set(SERVER, status)
    assert client.got == [SERVICE_UNKNOWN]
    client.has_room = True
    handler.relieved()
    assert client.got == [SERVICE_UNKNOWN, NOT_SERVING]


def test_a_slow_watcher_is_told_nothing_if_all_is_as_it_was(health: HealthService) -> None:
    health.set(SERVER, SERVING)
    client, handler = _watch(health)
    client.has_room = False
    health.set(SERVER, NOT_SERVING)
    health.set(SERVER, SERVING)
    client.has_room = True
    handler.relieved()
    assert client.got == [SERVING]


def test_a_watch_that_begins_without_room_is_told_when_there_is_some(health: HealthService) -> None:
    client = Client()
    client.has_room = False
    handler = _open(health, client)
    handler.message_received(_request())
    health.set(SERVER, SERVING)
    client.has_room = True
    handler.relieved()
    assert client.got == [SERVING]


def test_room_before_the_request_tells_nothing(health: HealthService) -> None:
    client = Client()
    _open(health, client).relieved()
    assert client.got == []


def test_a_watcher_that_is_gone_is_told_nothing_and_forgotten(health: HealthService) -> None:
    gone, handler = _watch(health, "a.B")
    stays, other = _watch(health, "a.B")
    handler.gone()
    health.set("a.B", SERVING)
    assert (gone.got, stays.got) == ([SERVICE_UNKNOWN], [SERVICE_UNKNOWN, SERVING])
    other.gone()
    assert health._watchers == {}


def test_a_watcher_that_never_asked_may_go(health: HealthService) -> None:
    _open(health, Client()).gone()
    assert health._watchers == {}


def test_watchers_may_go_while_others_are_told(health: HealthService) -> None:
    watches = [_watch(health) for _ in range(3)]

    def all_go() -> None:
        while watches:
            client, handler = watches.pop()
            client.on_flush = lambda: None
            handler.gone()

    for client, _ in watches:
        client.on_flush = all_go
    health.set(SERVER, SERVING)
    assert not watches
    assert health._watchers == {}


def test_a_second_request_is_refused(health: HealthService) -> None:
    _, handler = _watch(health)
    assert _refusal(handler.message_received, _request()) is Status.INTERNAL


def test_a_watch_without_a_request_is_refused(health: HealthService) -> None:
    assert _refusal(_open(health, Client()).ended) is Status.INTERNAL


# The end.


def test_shutting_down_makes_everything_not_serving(health: HealthService) -> None:
    for service, status in ((SERVER, SERVING), ("a.B", UNKNOWN), ("a.C", NOT_SERVING)):
        health.set(service, status)
    health.shut_down()
    assert set(_listed(health).values()) == {NOT_SERVING}
    assert _check(health, "a.B") is NOT_SERVING
    assert _watch(health, "a.C")[0].got == [NOT_SERVING]


def test_shutting_down_is_told_to_watchers_once(health: HealthService) -> None:
    health.set("a.B", SERVING)
    client, _ = _watch(health, "a.B")
    health.shut_down()
    health.shut_down()
    assert client.got == [SERVING, NOT_SERVING]


def test_what_is_set_after_shutting_down_is_ignored(health: HealthService) -> None:
    health.set(SERVER, SERVING)
    client, _ = _watch(health)
    health.shut_down()
    health.set(SERVER, SERVING)
    health.set("a.B", SERVING)
    assert _listed(health) == {SERVER: NOT_SERVING}
    assert client.got == [SERVING, NOT_SERVING]


def test_shutting_down_does_not_make_a_name_known(health: HealthService) -> None:
    client, _ = _watch(health, "a.B")
    health.shut_down()
    assert client.got == [SERVICE_UNKNOWN]
    assert _refusal(health.check, _request("a.B")) is Status.NOT_FOUND


# On a connection.


@pytest.fixture
def peer(health: HealthService) -> Peer:
    service = Service()
    service.ends_when_client_does = False
    service.methods |= health.methods()
    return Peer(service)


def test_a_connection_answers_checks(health: HealthService, peer: Peer) -> None:
    health.set("a.B", SERVING)
    reply = peer.call(_request("a.B"), CHECK)
    assert (reply.status, [_status(each) for each in reply.messages]) == (0, [SERVING])
    assert peer.call(_request("a.C"), CHECK).status == Status.NOT_FOUND


def test_a_connection_carries_changes_to_a_client_that_has_ended_its_side(
    health: HealthService, peer: Peer
) -> None:
    stream = peer.begin(_request(), WATCH)
    peer.pump()
    health.set(SERVER, SERVING)
    peer.pump()
    health.shut_down()
    peer.pump()
    told = [_status(each) for each in peer.reply(stream).messages]
    assert told == [SERVICE_UNKNOWN, SERVING, NOT_SERVING]
    assert not peer.reply(stream).is_ended


def test_a_connection_without_room_carries_the_latest_when_there_is_some(
    health: HealthService, peer: Peer
) -> None:
    watch, other = peer.begin(_request(), WATCH), peer.begin(b"", OTHER)
    peer.pump()
    peer.takes_data = False
    [ear] = peer.service.ears
    while ear.stream.has_room:
        ear.stream.send_message(bytes(1024 * 1024), 0)
    for status in (SERVING, UNKNOWN, NOT_SERVING):
        health.set(SERVER, status)
    peer.pump()
    assert [_status(each) for each in peer.reply(watch).messages] == [SERVICE_UNKNOWN]
    peer.takes_data = True
    peer.client.acknowledge_received_data(len(peer.reply(other).body), other)
    peer.pump()
    told = [_status(each) for each in peer.reply(watch).messages]
    assert told == [SERVICE_UNKNOWN, NOT_SERVING]


def test_a_watch_that_its_client_resets_is_forgotten(health: HealthService, peer: Peer) -> None:
    stream = peer.begin(_request(), WATCH)
    peer.pump()
    peer.client.reset_stream(stream)
    peer.pump()
    assert health._watchers == {}


def test_a_refused_watch_ends_with_the_reason_and_is_forgotten(
    health: HealthService, peer: Peer
) -> None:
    stream = peer.open(WATCH)
    peer.say(stream, _request("a.B"), _request("a.C"), end=True)
    peer.pump()
    assert peer.reply(stream).status == Status.INTERNAL
    assert health._watchers == {}
