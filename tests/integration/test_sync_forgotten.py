"""Blocking clients, leases and watches that are garbage-collected open are reported."""

import gc
import logging
from collections.abc import Iterator

import pytest

import leasehold
import leasehold.sync
from leasehold.basics.lease_ids import shown_lease
from tests.support.scripts import printed_by, until

TTL_S = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:.* was garbage-collected:ResourceWarning")
"""They are issued in the thread of the loop; the log is looked at here."""


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:") as client:
        yield client


def _reported(caplog: pytest.LogCaptureFixture, text: str) -> None:
    def is_reported() -> bool:
        gc.collect()
        return text in caplog.messages

    until(is_reported)


def _watchers(client: leasehold.sync.Client) -> int:
    return len(client._client.engine._runtime.store.watchers)  # type: ignore[attr-defined]


def test_a_client_that_is_forgotten_is_reported_and_what_it_made_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = leasehold.sync.open("memory:", name="me")
    kept, kv, lock = client._client, client.kv, client.lock("x")
    lease = client.lease(TTL_S)
    thread = client._thread
    del client
    text = "client 'me' was garbage-collected without being closed"
    _reported(caplog, f"{text}; it is closed when the program ends")
    kv.put("a", "1", lease=lease)
    with lock as guard:
        guard.check()
    lease.end()
    leasehold.sync.Client(thread, kept).close()


def test_a_lease_that_is_forgotten_is_reported_and_kept(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    number = client.lease(TTL_S).id
    text = f"lease {shown_lease(number)} was garbage-collected without being ended or released"
    _reported(caplog, f"{text}; it is renewed until its client is closed")
    assert client.lease_info(number).id == number


def test_a_lease_that_was_detached_is_kept_without_a_report(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    detached = client.lease(TTL_S).detach()
    forgotten = client.lease(TTL_S).id
    text = f"lease {shown_lease(forgotten)} was garbage-collected without being ended or released"
    _reported(caplog, f"{text}; it is renewed until its client is closed")
    assert shown_lease(detached) not in caplog.text
    assert client.lease_info(detached).id == detached


def test_callbacks_of_a_forgotten_lease_are_called(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []
    number = client.lease(TTL_S, on_loss=lambda lease, _error: told.append(lease.id)).id
    _reported(
        caplog,
        f"lease {shown_lease(number)} was garbage-collected without being ended or released; "
        "it is renewed until its client is closed",
    )
    client.revoke(number)
    until(lambda: told == [number])


def test_a_watch_that_is_forgotten_is_cancelled_and_reported(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    watch = client.kv.watch("a")
    assert _watchers(client) == 1
    del watch
    text = "a watch of b'a' was garbage-collected without being cancelled"
    _reported(caplog, f"{text}; it is cancelled now")
    assert _watchers(client) == 0


def test_a_watch_that_is_left_by_break_is_not_reported(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what earlier tests have forgotten is reported before the put is answered
    start = client.kv.put("a", "1").revision
    caplog.clear()
    for _ in client.kv.watch("a", start=start):
        break
    until(lambda: gc.collect() >= 0 and not _watchers(client))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_program_ends_without_a_word_whether_or_not_it_closes_its_client() -> None:
    """A client that is still referred to at the end of the program is closed then."""
    assert (
        printed_by("""
            import logging
            import leasehold.sync

            logging.basicConfig()
            with leasehold.sync.open("memory:") as closed:
                with closed.lease(10), closed.kv.watch("a"):
                    closed.kv.put("a", "1")
            left = leasehold.sync.open("memory:")
            lease, watch = left.lease(10), left.kv.watch("a")
            print("done")
        """)
        == "done\n"
    )


def test_a_child_process_reports_nothing_and_its_parent_goes_on() -> None:
    assert (
        printed_by("""
            import gc, logging, os, warnings
            import leasehold.sync
            from leasehold.sessions import held_lease
            from leasehold.client import kv

            logging.basicConfig()
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads
            client = leasehold.sync.open("memory:")
            lease, watch = client.lease(10), client.kv.watch("a")
            child = os.fork()
            if not child:
                try:
                    posted = []
                    held_lease.post = kv.post = lambda *args: posted.append(args)
                    del client, lease, watch
                    gc.collect()
                    print(posted, flush=True)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            lease.check()
            client.kv.put("a", "1", lease=lease)
            print(watch.next(timeout=30).events[0].key)
            client.close()
        """)
        == "[]\nb'a'\n"
    )
