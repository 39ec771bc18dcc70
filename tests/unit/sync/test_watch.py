"""Watches for blocking code: nothing is lost between the loop and the reader."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import leasehold
import leasehold.sync
from leasehold.sync.iterators import MAX_FETCHED
from tests.support.scripts import until

WITHIN_S = 30.0


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:") as client:
        yield client


def _is_watched(client: leasehold.sync.Client) -> bool:
    runtime = client._client.engine._runtime  # type: ignore[attr-defined]
    return bool(runtime.store.watchers.any_live)


def test_a_watch_tells_each_revision_once_and_in_order(client: leasehold.sync.Client) -> None:
    many = 3 * MAX_FETCHED
    with client.kv.watch("a") as watch:
        for number in range(many):
            client.kv.put("a", str(number))
        told = [watch.next(timeout=WITHIN_S) for _ in range(many)]
    assert [each.revision for each in told] == list(range(2, many + 2))


def test_one_trip_to_the_loop_brings_all_that_is_there(
    client: leasehold.sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.kv.watch("a") as watch:
        for number in range(10):
            client.kv.put("a", str(number))
        assert watch.next(timeout=WITHIN_S).revision == 2
        with monkeypatch.context() as stuck:
            stuck.setattr(watch._thread, "run", _no_trip)
            assert [next(watch).revision for _ in range(9)] == list(range(3, 12))
        with pytest.raises(TimeoutError, match="no event within"):
            watch.next(timeout=0.001)


def _no_trip(work: object) -> None:
    raise AssertionError("it was fetched before")


def test_cancelling_from_another_thread_ends_the_iteration(
    client: leasehold.sync.Client,
) -> None:
    watch = client.kv.watch("a")
    seen = threading.Semaphore(0)

    def read() -> int:
        count = 0
        for _ in watch:
            count += 1
            seen.release()
        return count

    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(read)
        client.kv.put("a", "1")
        assert seen.acquire(timeout=WITHIN_S)
        watch.close()
        assert reader.result(WITHIN_S) == 1
    assert list(watch) == []
    with pytest.raises(leasehold.Closed):
        watch.next()


def test_a_watch_that_is_left_by_break_is_cancelled(client: leasehold.sync.Client) -> None:
    def begin() -> leasehold.sync.Watch:
        watch = client.kv.watch("a")
        client.kv.put("a", "1")
        return watch

    for events in begin():
        assert events.revision == 2
        assert _is_watched(client)
        break
    until(lambda: gc.collect() >= 0 and not _is_watched(client))


def test_a_watch_that_cannot_go_on_says_why(client: leasehold.sync.Client) -> None:
    for number in range(5):
        client.kv.put("a", str(number))
    client.kv.compact(4)
    with pytest.raises(leasehold.Compacted):
        list(client.kv.watch("a", start=2))


def test_what_was_told_before_an_end_is_read_first(client: leasehold.sync.Client) -> None:
    watch = client.kv.watch("a")
    client.kv.put("a", "1")
    client.kv.put("a", "2")
    client.close()
    assert [watch.next().revision, watch.next().revision] == [2, 3]
    with pytest.raises(leasehold.Closed):
        next(watch)


def test_two_readers_of_one_watch_are_refused(client: leasehold.sync.Client) -> None:
    watch = client.kv.watch("a")
    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(next, watch)
        until(lambda: watch._watch._watch._reader is not None)  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="one reader"):
            watch.next(timeout=WITHIN_S)
        client.kv.put("a", "1")
        assert reader.result(WITHIN_S).revision == 2
    watch.cancel()


def test_progress_can_be_asked_for(client: leasehold.sync.Client) -> None:
    with client.kv.watch("a") as watch:
        client.kv.put("b", "1")
        watch.request_progress()
        events = watch.next(timeout=WITHIN_S)
        assert (events.revision, list(events.events)) == (2, [])
        watch.ready()
