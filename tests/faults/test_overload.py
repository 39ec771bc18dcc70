"""More writes than the disk takes: what is beyond the limit is refused at once, and nothing else.

The disk of this server takes 50 ms for a sync, and none ends while a test says so. Then writes wait
for it, 10,000 at most. All that touches memory only, or what is on disk, must go on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic, perf_counter
from typing import Any, Final

import grpc
import pytest

from benchmarks.common.processes import resident_bytes_of
from benchmarks.etcd.workloads import PREFIX
from benchmarks.longrun.flood import FloodCalls
from leasehold.grpc.durability_gate import MAX_WAITING
from leasehold.wire import rpc_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, ServerProcess

CONNECTIONS: Final = 12
EACH: Final = 1_000
BEYOND: Final = CONNECTIONS * EACH - MAX_WAITING
RENEWALS: Final = 50
LEASE, TTL_S = 7, 600
UNTOUCHED: Final = b"untouched"
TEXT: Final = "etcdserver: too many requests"
DEADLINE_S: Final = 60.0
MOST_GROWN_BYTES: Final = 64 * 1024 * 1024


class Flood:
    """Writes in great numbers, and what became of them."""

    def __init__(self, endpoint: str) -> None:
        port = int(endpoint.rpartition(":")[2])
        self._calls = [FloodCalls(port, number) for number in range(CONNECTIONS)]
        self.wait(lambda: self.waiting == 0)
        self._before = self.acknowledged

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self._calls)

    @property
    def new(self) -> int:
        """Those that were acknowledged since the first few."""
        return self.acknowledged - self._before

    @property
    def refused(self) -> int:
        """Those that were refused with the right status and text."""
        assert not any(each.others for each in self._calls), [each.others for each in self._calls]
        return sum(each.refused_calls for each in self._calls)

    @property
    def waiting(self) -> int:
        return sum(each.in_flight + len(each.due) for each in self._calls)

    def begin(self) -> None:
        """Make very many calls."""
        for each in self._calls:
            each.due.extend([perf_counter()] * EACH)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Send and receive until something is so."""
        until = monotonic() + DEADLINE_S
        by_sock = {each.sock: each for each in self._calls}
        while not condition():
            assert monotonic() < until, f"{self.new} acknowledged, {self.refused} refused"
            for each in self._calls:
                each.push()
            stuck = [each.sock for each in self._calls if each.is_stuck]
            ready, _, _ = select(list(by_sock), stuck, (), 0.01)
            for sock in ready:
                by_sock[sock].receive(perf_counter())

    def close(self) -> None:
        for each in self._calls:
            each.close()


@contextmanager
def _stalled(directory: Path) -> Iterator[None]:
    """Have no sync end."""
    stall = directory / "stall"
    stall.touch()
    try:
        yield
    finally:
        stall.unlink()


def _served(directory: Path) -> ServerProcess:
    return ServerProcess(directory, (FAULTY_SERVER, "stalling-disk")).wait_until_ready()


def _check_refused(call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        call(*args, **kwargs)
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.value.details() == TEXT


def _check_writes_are_refused(calls: EtcdCalls) -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"other", value=b""))
    _check_refused(calls.put, b"other", b"")
    _check_refused(calls.delete, b"other")
    _check_refused(calls.txn, success=[put])
    _check_refused(calls.grant, LEASE + 1, TTL_S)
    _check_refused(calls.revoke, LEASE)


def _check_the_rest_goes_on(calls: EtcdCalls) -> None:
    """The disk stands still: whatever is answered here did not wait for it."""
    requests: Sequence[Any] = [pb.LeaseKeepAliveRequest(ID=LEASE)] * RENEWALS
    assert [answer.TTL for answer in calls.keep_alive(iter(requests))] == [TTL_S] * RENEWALS
    assert calls.renew(LEASE).TTL == TTL_S
    [untouched] = calls.range(UNTOUCHED).kvs
    assert untouched.value == b"as it was"
    assert calls.range(b"never there").count == 0
    assert calls.time_to_live(LEASE).TTL > 0


def _written(calls: EtcdCalls) -> int:
    flooded = PREFIX + b"flood/"
    return sum(pair.version for pair in calls.range(flooded, flooded[:-1] + b"0").kvs)


def test_beyond_ten_thousand_waiting_answers_writes_are_refused_at_once_and_only_they(
    tmp_path: Path,
) -> None:
    with _served(tmp_path) as server, EtcdCalls(server.endpoint) as calls:
        calls.put(UNTOUCHED, b"as it was")
        calls.grant(LEASE, TTL_S)
        flood = Flood(server.endpoint)
        before = resident_bytes_of(server.pid)
        with _stalled(tmp_path):
            flood.begin()
            flood.wait(lambda: flood.refused >= BEYOND)
            _check_writes_are_refused(calls)
            _check_the_rest_goes_on(calls)
            assert resident_bytes_of(server.pid) - before < MOST_GROWN_BYTES
            assert (flood.refused, flood.waiting) == (BEYOND, MAX_WAITING)
            assert flood.new <= 0, "nothing was on disk"
        flood.wait(lambda: flood.waiting == 0)
        assert (flood.new, flood.refused) == (MAX_WAITING, BEYOND)
        flood.begin()  # it has recovered: nobody had to do anything
        flood.wait(lambda: flood.waiting == 0)
        assert calls.put(b"other", b"").header.revision
        acknowledged = flood.acknowledged
        flood.close()
        server.kill()
    with _served(tmp_path) as server, EtcdCalls(server.endpoint) as calls:
        assert _written(calls) == acknowledged, "what was refused was not done, all else was"
        assert calls.lives(LEASE)
