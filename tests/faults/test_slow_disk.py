"""A real server on a disk that takes 50 ms for a sync: whoever renews does not notice.

On a machine that does other things as well, a renewal may wait for a processor much longer than
that. So rounds with puts alternate with rounds without, and the best of each kind counts: the other
work makes rounds slower, never faster, and a server that waits for its disk does so in all of them.
"""

import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, ServerProcess

CLIENT = Path(__file__).with_name("renewal_client.py")
SYNC_MS = 50.0
LIMIT_MS = 5.0
TIMES_QUIET = 2.0
"""How much slower than without puts it may be, on a machine too busy for the limit."""
ROUNDS_MAX = 3
WRITERS = 4
RENEWALS = 400
INTERVAL_S = 0.005
LEASE, TTL_S = 7, 600
DEADLINE_S = 60.0


@dataclass
class Load:
    """Steady puts, one in flight for each writer."""

    endpoint: str
    took_ms: list[float] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def write(self, writer: int) -> None:
        """Put, again and again."""
        with EtcdCalls(self.endpoint) as calls:
            while not self.is_over.is_set():
                began = time.perf_counter()
                calls.put(b"key/%d" % writer, b"value")
                self.took_ms.append((time.perf_counter() - began) * 1000.0)


@contextmanager
def _load(endpoint: str) -> Iterator[Load]:
    load = Load(endpoint)
    with ThreadPoolExecutor(WRITERS) as pool:
        writers: list[Future[None]] = [pool.submit(load.write, n) for n in range(WRITERS)]
        try:
            yield load
        finally:
            load.is_over.set()
    for writer in writers:
        writer.result()


def _p99_ms(endpoint: str) -> float:
    arguments = [endpoint, str(LEASE), str(RENEWALS), str(INTERVAL_S)]
    done = subprocess.run(  # noqa: S603  our own script
        [sys.executable, "-W", "error", CLIENT, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    took_ms = sorted(float(line) for line in done.stdout.split())
    assert len(took_ms) == RENEWALS
    return took_ms[RENEWALS * 99 // 100]


def _p99_beside_puts_ms(endpoint: str) -> float:
    with _load(endpoint) as load:
        p99_ms = _p99_ms(endpoint)
    assert min(load.took_ms) >= SYNC_MS, "a put did not wait for the disk"
    assert len(load.took_ms) >= WRITERS * 2, "there was no load"
    return p99_ms


def _waits_for_the_disk(directory: Path, fault: str) -> bool:
    """Measure renewals on a server with a fault, beside puts and without."""
    quiet_ms, beside_puts_ms = math.inf, math.inf
    with ServerProcess(directory, (FAULTY_SERVER, fault)).wait_until_ready() as server:
        with EtcdCalls(server.endpoint) as calls:
            calls.grant(LEASE, TTL_S)
        for _ in range(ROUNDS_MAX):
            beside_puts_ms = min(beside_puts_ms, _p99_beside_puts_ms(server.endpoint))
            if beside_puts_ms < LIMIT_MS:
                return False
            quiet_ms = min(quiet_ms, _p99_ms(server.endpoint))
    print(f"p99 {beside_puts_ms} ms beside puts, {quiet_ms} ms without")
    return beside_puts_ms > max(LIMIT_MS, quiet_ms * TIMES_QUIET)


def test_a_renewal_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    assert not _waits_for_the_disk(tmp_path, "slow-disk")


def test_a_server_whose_event_loop_waits_for_the_disk_is_found_out(tmp_path: Path) -> None:
    assert _waits_for_the_disk(tmp_path, "slow-disk-inline")
