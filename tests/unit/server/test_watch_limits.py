"""How many watches a connection, and a server, may have."""

from typing import Any

import pytest

from leasehold.engine.journal_format import Identity
from leasehold.engine.runtime import Runtime
from leasehold.rpc.gate import Gate
from leasehold.rpc.routes import Listener
from leasehold.server.etcd import watch as watch_module
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.watch import Watch
from leasehold.testing import current_host, run_virtual
from leasehold.wire import rpc_pb2 as pb


class Stream:
    """A stream of watches on a connection, and what was answered last."""

    has_room = True

    def __init__(self, service: Watch, connection: object) -> None:
        self.connection = connection
        self.said: list[pb.WatchResponse] = []
        speaker: Any = self
        self.listener: Listener = service.open(speaker)

    def say(self, message: bytes, _position: int) -> None:
        self.said.append(pb.WatchResponse.FromString(message))

    def flush(self) -> None:
        """Everything is sent immediately."""

    def create(self) -> str:
        """Ask for a watch; return why it is refused."""
        request = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k"))
        self.listener.heard(request.SerializeToString())
        answer = self.said[-1]
        assert answer.created
        assert answer.canceled is bool(answer.cancel_reason)
        assert (answer.watch_id == -1) is answer.canceled
        return str(answer.cancel_reason)

    def cancel(self, watch_id: int) -> None:
        request = pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=watch_id))
        self.listener.heard(request.SerializeToString())


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MAX_WATCHES", 3)
    monkeypatch.setattr(watch_module, "MAX_ALL_WATCHES", 5)


def made() -> Watch:
    runtime = Runtime(None, clock=current_host().clock)
    runtime.store.start()
    return Watch(Desk(runtime, Gate(), Identity(1, 2, 3)))


def test_a_connection_has_a_number_of_watches_on_all_its_streams() -> None:
    async def main() -> None:
        service = made()
        one, other = Stream(service, "a"), Stream(service, "a")
        assert [one.create(), one.create(), other.create()] == [""] * 3
        assert other.create() == "leasehold: a connection has at most 3 watches; open another one"
        one.cancel(0)
        assert other.create() == ""
        assert one.create() != ""
        other.listener.gone()
        assert [one.create(), one.create()] == [""] * 2
        one.listener.gone()
        assert (service._counts, service._total) == ({}, 0)

    run_virtual(main)


def test_a_server_has_a_number_of_watches_on_all_connections() -> None:
    async def main() -> None:
        service = made()
        streams = [Stream(service, number) for number in range(3)]
        assert [stream.create() for stream in streams for _ in range(2)][:5] == [""] * 5
        assert streams[2].create() == "leasehold: the server has at most 5 watches"
        streams[0].listener.gone()
        assert streams[2].create() == ""

    run_virtual(main)
