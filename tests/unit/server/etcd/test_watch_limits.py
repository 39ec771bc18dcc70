"""How many watches a connection and a server may have, and how much memory their keys may take."""

from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.grpc.call_context import CallContext, Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.routes import StreamHandler
from leasehold.journal.journal_format import Identity
from leasehold.server.etcd import watch as watch_module
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.etcd.watch import WatchService
from leasehold.server.gateway.json_call import JsonCall
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import rpc_pb2 as pb


class Stream:
    """A stream of watches on a connection, and what was answered last."""

    has_room = True

    def __init__(self, service: WatchService, connection: object) -> None:
        self.connection = connection
        self.said: list[pb.WatchResponse] = []
        stream: Any = self
        self.handler: StreamHandler = service.open(stream)

    def send_message(self, message: bytes, _position: int) -> None:
        self.said.append(pb.WatchResponse.FromString(message))

    def flush(self) -> None:
        """Everything is sent immediately."""

    def create(self, key: bytes = b"k", range_end: bytes = b"") -> str:
        """Ask for a watch; return why it is refused."""
        create = pb.WatchCreateRequest(key=key, range_end=range_end)
        request = pb.WatchRequest(create_request=create)
        self.handler.message_received(request.SerializeToString())
        answer = self.said[-1]
        assert answer.created
        assert answer.canceled is bool(answer.cancel_reason)
        assert (answer.watch_id == -1) is answer.canceled
        return str(answer.cancel_reason)

    def cancel(self, watch_id: int) -> None:
        request = pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=watch_id))
        self.handler.message_received(request.SerializeToString())


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MAX_WATCHES", 3)
    monkeypatch.setattr(watch_module, "MAX_ALL_WATCHES", 5)


def made() -> WatchService:
    runtime = Runtime(None, clock=current_host().clock)
    runtime.store.start()
    return WatchService(ServiceContext(runtime, DurabilityGate(), Identity(1, 2, 3)))


def test_a_connection_has_a_number_of_watches_on_all_its_streams() -> None:
    async def main() -> None:
        service = made()
        one, other = Stream(service, "a"), Stream(service, "a")
        assert [one.create(), one.create(), other.create()] == [""] * 3
        assert other.create() == (
            "leasehold: a connection may have at most 3 watches, and each 1024 bytes of keys count "
            "as one more; open another connection"
        )
        one.cancel(0)
        assert other.create() == ""
        assert one.create() != ""
        other.handler.gone()
        assert [one.create(), one.create()] == [""] * 2
        one.handler.gone()
        assert (service._weights, service._total) == ({}, 0)

    run_virtual(main)


def test_a_server_has_a_number_of_watches_on_all_connections() -> None:
    async def main() -> None:
        service = made()
        streams = [Stream(service, number) for number in range(3)]
        assert [stream.create() for stream in streams for _ in range(2)][:5] == [""] * 5
        assert streams[2].create() == (
            "leasehold: the server may have at most 5 watches, and each 1024 bytes of keys count "
            "as one more"
        )
        streams[0].handler.gone()
        assert streams[2].create() == ""

    run_virtual(main)


KIB = 1024


@pytest.mark.parametrize(
    ("key", "range_end"),
    [(b"k" * 2 * KIB, b""), (b"k", b"l" * 2 * KIB), (b"k" * KIB, b"l" * KIB)],
    ids=["key", "range_end", "both"],
)
def test_a_watch_weighs_as_much_as_its_keys(key: bytes, range_end: bytes) -> None:
    async def main() -> None:
        service = made()
        one, other = Stream(service, "a"), Stream(service, "a")
        assert one.create(key, range_end) == ""
        assert service._weights == {"a": 3}
        assert other.create() != ""
        one.cancel(0)
        assert service._weights == {}
        assert other.create(key[: KIB - 1]) == ""
        assert service._weights == {"a": 1 + min(len(key), KIB - 1) // KIB}
        assert one.create(key, range_end) != ""
        other.handler.gone()
        assert one.create(key, range_end) == ""
        one.handler.gone()
        assert (service._weights, service._total) == ({}, 0)

    run_virtual(main)


def test_a_watch_without_a_key_is_subtracted_as_it_was_added() -> None:
    async def main() -> None:
        service = made()
        stream = Stream(service, "a")
        assert stream.create(b"", b"l" * (KIB - 1)) == ""  # an empty key is kept as one byte
        assert service._total == 1
        stream.cancel(0)
        assert (service._weights, service._total) == ({}, 0)

    run_virtual(main)


def test_the_weight_of_all_watches_is_limited() -> None:
    async def main() -> None:
        service = made()
        streams = [Stream(service, number) for number in range(2)]
        assert streams[0].create(b"k" * 2 * KIB) == ""
        assert "the server may have at most" in streams[1].create(b"k" * 2 * KIB)
        assert streams[1].create(b"k" * KIB) == ""
        assert service._total == 5

    run_virtual(main)


def test_the_watches_of_one_connection_through_the_gateway_count_together() -> None:
    """Each request of the gateway is a call of its own, and HTTP/2 has many on one connection."""

    class Visit:
        connection = "a"
        gate = DurabilityGate()

    visit: Any = Visit()
    route: Any = None
    for gives_many in (False, True):
        route = SimpleNamespace(gives_many=gives_many)
        context = CallContext("/a.B/C", (), Peer(), None, 0.0)
        assert JsonCall(route, visit, context).connection == "a"
