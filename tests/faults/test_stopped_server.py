"""A real server, stopped with SIGSTOP for longer than its leases run.

Its own standstill is not held against its holders: who renews while it stands still, or when it
goes on again, keeps the lease. Who does not renew loses it, and the keys go too. In any case, no
lease ends before its term, nor much later than the standstill explains.
"""

import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leasehold.wire import rpc_pb2 as pb
from tests.faults.crash_ledger import Ledger
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, SERVER, ServerProcess
from tests.support.linearizability import Stall

LEASES = 20
TTL_S = 8
"""Longer than a busy machine takes to make 20 calls, or keeps a process waiting."""
STOP_S = 10.0
DEADLINE_S = 30.0
POLL_S = 0.05
PREFIX, PREFIX_END = b"held/", b"held0"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")


class Holders:
    """The holders of all the leases, on one stream."""

    def __init__(self, calls: EtcdCalls) -> None:
        self._calls = calls
        self.ledger = Ledger()
        self.gone_on_at = 0.0
        """When the server was about to go on."""
        self._sent: deque[tuple[int, float]] = deque()
        self._requests: queue.SimpleQueue[pb.LeaseKeepAliveRequest | None] = queue.SimpleQueue()
        for lease in range(1, LEASES + 1):
            self.ledger.grant("holder", calls, lease, TTL_S)
            calls.put(PREFIX + b"%d" % lease, b"", lease)
        self._answers: Iterator[Any] = calls.keep_alive(iter(self._requests.get, None))
        self.renew()
        assert self.answers() == [TTL_S] * LEASES

    def renew(self) -> None:
        """Ask for every lease."""
        for lease in range(1, LEASES + 1):
            self._sent.append((lease, time.monotonic()))
            self._requests.put(pb.LeaseKeepAliveRequest(ID=lease))

    def answers(self) -> list[int]:
        """Wait for the answers: the new time to live of each lease, 0 for one that has ended."""
        return [self._answer() for _ in range(LEASES)]

    def _answer(self) -> int:
        ttl_s: int = next(self._answers).TTL
        lease, sent = self._sent.popleft()
        seen, now = self.ledger.leases[lease], time.monotonic()
        if ttl_s:
            seen.renewed(ttl_s, sent, now)
        else:
            seen.seen_gone(sent, now)
        return ttl_s

    def living(self) -> int:
        """Count the leases that are there."""
        ask = self.ledger.time_to_live
        return sum(ask("holder", self._calls, lease).TTL >= 0 for lease in range(1, LEASES + 1))

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
        made.ledger.check()


@contextmanager
def stopped(server: ServerProcess, holders: Holders) -> Iterator[None]:
    """Stop the server, and let it go on after the block and after a while."""
    stopped_at = time.monotonic()
    server.stop()
    yield
    time.sleep(STOP_S)  # this is the fault, not a hope
    holders.gone_on_at = time.monotonic()
    server.go_on()
    holders.ledger.pauses.append(Stall(stopped_at, time.monotonic()))


def test_renewals_that_waited_in_the_socket_keep_their_leases(
    server: ServerProcess, holders: Holders
) -> None:
    with stopped(server, holders):
        holders.renew()
    assert holders.answers() == [TTL_S] * LEASES
    assert (holders.living(), holders.keys()) == (LEASES, LEASES)


def test_holders_that_renew_when_the_server_goes_on_keep_their_leases(
    server: ServerProcess, holders: Holders
) -> None:
    with stopped(server, holders):
        pass
    holders.renew()
    assert holders.answers() == [TTL_S] * LEASES
    assert (holders.living(), holders.keys()) == (LEASES, LEASES)


def test_leases_that_nobody_renews_end_all_the_same_and_their_keys_go_with_them(
    server: ServerProcess, holders: Holders
) -> None:
    with stopped(server, holders):
        pass
    assert holders.living() == LEASES, "there was no time to renew"
    _wait_until(lambda: holders.keys() == 0, "the keys are gone")
    assert time.monotonic() - holders.gone_on_at >= TTL_S / 2, "there was hardly time to renew"
    assert holders.living() == 0
    holders.renew()
    assert holders.answers() == [0] * LEASES


@pytest.mark.parametrize("program", [(FAULTY_SERVER, "standstill-counts")])
def test_a_server_that_counts_its_standstill_is_found_out(
    server: ServerProcess, holders: Holders
) -> None:
    with stopped(server, holders):
        pass
    holders.renew()
    assert holders.answers() == [0] * LEASES, (
        "all leases are lost, although there was time to renew"
    )
