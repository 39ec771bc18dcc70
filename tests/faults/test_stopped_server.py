"""A real server, stopped with SIGSTOP for twice as long as its leases run.

Its own standstill is not held against its holders: who renews while it stands still, or when it
goes on again, keeps the lease. Who does not renew loses it, and the keys go too.
"""

import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leasehold.wire import rpc_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, SERVER, ServerProcess

LEASES = 20
TTL_S = 3
STOP_S = 6.0
DEADLINE_S = 30.0
POLL_S = 0.05
PREFIX, PREFIX_END = b"held/", b"held0"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")


class Holders:
    """The holders of all the leases, on one stream."""

    def __init__(self, calls: EtcdCalls) -> None:
        self._calls = calls
        self._requests: queue.SimpleQueue[pb.LeaseKeepAliveRequest | None] = queue.SimpleQueue()
        for lease in range(1, LEASES + 1):
            calls.grant(lease, TTL_S)
            calls.put(PREFIX + b"%d" % lease, b"", lease)
        self._answers: Iterator[Any] = calls.keep_alive(iter(self._requests.get, None))
        self.renew()
        assert self.answers() == [TTL_S] * LEASES

    def renew(self) -> None:
        """Ask for every lease."""
        for lease in range(1, LEASES + 1):
            self._requests.put(pb.LeaseKeepAliveRequest(ID=lease))

    def answers(self) -> list[int]:
        """Wait for the answers: the new time to live of each lease, 0 for one that has ended."""
        return [next(self._answers).TTL for _ in range(LEASES)]

    def living(self) -> int:
        """Count the leases that are there."""
        return sum(self._calls.lives(lease) for lease in range(1, LEASES + 1))

    def keys(self) -> int:
        """Count the keys that are there."""
        return len(self._calls.range(PREFIX, PREFIX_END).kvs)

    def leave(self) -> None:
        """Close the stream."""
        self._requests.put(None)


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(POLL_S)


@pytest.fixture
def program() -> Sequence[str | Path]:
    return SERVER


@pytest.fixture
def server(tmp_path: Path, program: Sequence[str | Path]) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, program).wait_until_ready() as started:
        yield started


@pytest.fixture
def holders(server: ServerProcess) -> Iterator[Holders]:
    with EtcdCalls(server.endpoint) as calls:
        made = Holders(calls)
        yield made
        made.leave()


def test_renewals_that_waited_in_the_socket_keep_their_leases(
    server: ServerProcess, holders: Holders
) -> None:
    server.stop()
    holders.renew()
    time.sleep(STOP_S)  # this is the fault, not a hope
    server.go_on()
    assert holders.answers() == [TTL_S] * LEASES
    assert (holders.living(), holders.keys()) == (LEASES, LEASES)


def test_holders_that_renew_when_the_server_goes_on_keep_their_leases(
    server: ServerProcess, holders: Holders
) -> None:
    server.stop()
    time.sleep(STOP_S)  # this is the fault, not a hope
    server.go_on()
    holders.renew()
    assert holders.answers() == [TTL_S] * LEASES
    assert (holders.living(), holders.keys()) == (LEASES, LEASES)


def test_leases_that_nobody_renews_end_all_the_same_and_their_keys_go_with_them(
    server: ServerProcess, holders: Holders
) -> None:
    server.stop()
    time.sleep(STOP_S)  # this is the fault, not a hope
    server.go_on()
    gone_on_at = time.monotonic()
    assert holders.living() == LEASES, "there was no time to renew"
    _wait_until(lambda: holders.keys() == 0, "the keys are gone")
    assert time.monotonic() - gone_on_at >= TTL_S / 2, "there was hardly time to renew"
    assert holders.living() == 0
    holders.renew()
    assert holders.answers() == [0] * LEASES


@pytest.mark.parametrize("program", [(FAULTY_SERVER, "standstill-counts")])
def test_a_server_that_counts_its_standstill_is_found_out(
    server: ServerProcess, holders: Holders
) -> None:
    server.stop()
    time.sleep(STOP_S)  # this is the fault, not a hope
    server.go_on()
    gone_on_at = time.monotonic()
    _wait_until(lambda: holders.living() == 0, "all leases are lost")
    assert time.monotonic() - gone_on_at < TTL_S / 2, "so there was time to renew"
