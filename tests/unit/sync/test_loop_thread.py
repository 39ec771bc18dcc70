"""The one thread of a process: who may call, how often it is woken, and what comes back."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import leasehold
import leasehold.sync
from leasehold.sync import client_base
from leasehold.sync.loop_thread import loop_thread

WITHIN_S = 30.0


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:") as client:
        yield client


def test_all_clients_of_a_process_share_one_thread() -> None:
    with leasehold.sync.open("memory:"), leasehold.sync.open("memory:"):
        names = [each.name for each in threading.enumerate()]
        assert names.count("leasehold loop") == 1


def test_many_threads_may_use_one_client_at_once(client: leasehold.sync.Client) -> None:
    together = threading.Barrier(32)

    def work(number: int) -> int:
        together.wait(WITHIN_S)
        with client.lease(10) as lease:
            for each in range(20):
                client.kv.put(f"{number}/{each}", str(number), lease=lease)
            found = client.kv.range(f"{number}/", prefix=True)
            assert {pair.text for pair in found.pairs} == {str(number)}
        return found.total

    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(work, range(32))) == [20] * 32
    assert client.leases() == []
    assert client.kv.range("", prefix=True).total == 0


def test_a_blocking_call_in_the_thread_of_the_loop_is_refused(
    client: leasehold.sync.Client,
) -> None:
    said: list[object] = []
    done = threading.Event()

    def callback() -> None:
        try:
            client.kv.get("a")
        except RuntimeError as error:
            said.append(error)
        done.set()

    loop_thread().post(callback)
    assert done.wait(WITHIN_S)
    assert "would deadlock" in str(said[0])


def test_a_blocking_call_in_a_coroutine_is_allowed(client: leasehold.sync.Client) -> None:
    async def work() -> bytes | None:
        client.kv.put("a", "b")
        found = client.kv.get("a")
        return None if found is None else found.value

    assert asyncio.run(work()) == b"b"


def test_an_error_comes_with_its_type_and_is_held_by_nobody(
    client: leasehold.sync.Client,
) -> None:
    with pytest.raises(leasehold.UnknownLease) as raised:
        client.kv.put("a", "b", lease=123)
    assert any("test_loop_thread" in str(entry.path) for entry in raised.traceback)
    with pytest.raises(TypeError, match="key must be bytes or str"):
        client.kv.get(1)  # type: ignore[arg-type]


def test_arguments_are_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_base, "loop_thread", lambda: pytest.fail("a thread was started"))
    with pytest.raises(ValueError, match="timeout"):
        leasehold.sync.connect("127.0.0.1:1", timeout=-1)
    with pytest.raises(ValueError, match="quota_bytes"):
        leasehold.sync.open("memory:", quota_bytes=0)


def test_nobody_there_is_an_error_and_leaves_nothing_behind() -> None:
    with pytest.raises((leasehold.ConnectFailed, TimeoutError)):
        leasehold.sync.connect("127.0.0.1:1", timeout=0.2)


def test_a_closed_client_says_so(client: leasehold.sync.Client) -> None:
    lease = client.lease(10)
    client.close()
    client.close()
    for use in (
        partial(client.kv.get, "a"),
        partial(client.lease, 10),
        partial(client.kv.watch, "a"),
        client.leases,
    ):
        with pytest.raises(leasehold.Closed):
            use()
    assert not lease.is_held
    with pytest.raises(leasehold.LeaseLost) as lost:
        lease.check()
    assert isinstance(lost.value.__cause__, leasehold.Closed)


def test_a_call_under_way_when_the_client_is_closed_does_not_hang(
    client: leasehold.sync.Client,
) -> None:
    watch = client.kv.watch("a")
    waiting = threading.Event()

    def wait() -> str:
        waiting.set()
        try:
            watch.next(timeout=WITHIN_S)
        except leasehold.Closed:
            return "closed"
        return "told"

    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(wait)
        assert waiting.wait(WITHIN_S)
        client.close()
        assert waits.result(WITHIN_S) == "closed"


def test_a_time_limit_is_kept(client: leasehold.sync.Client) -> None:
    watch = client.kv.watch("a")
    with pytest.raises(TimeoutError):
        watch.next(timeout=0.01)
    client.kv.put("a", "1")
    assert watch.next(timeout=WITHIN_S).events[0].key == b"a"
