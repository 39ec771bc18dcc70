"""Whether shared watches pay: one client with many cached locks, with and without grouping.

    python -m benchmarks.locks.watching [LOCKS ...]

For each number of locks a fresh server is started twice. A client in a process of its own acquires
and releases all locks, which stay in its cache and are watched there. With grouping the client has
one watch for them; without it one for each lock, all on one stream. It reports the time to acquire
all locks, the memory of client and server, and the cost of a change: the hand-over of a cached lock
to another client.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import Any, Final
from unittest.mock import patch

import leasehold
from benchmarks.common.children import each_from_child
from benchmarks.common.processes import cpu_s_of
from benchmarks.common.tables import Table, figure
from benchmarks.etcd.servers import OURS, Server
from benchmarks.locks.servers import running
from leasehold.locks import watch_subscriptions

CONCURRENT_CALLS: Final = 64
"""Locks that are acquired at the same time."""

CHANGES: Final = 1_000
"""Keys that another client puts and deletes in the queues of cached locks."""

TTL_S: Final = 60.0
LIMIT_S: Final = 300.0
NEVER: Final = 10**9

HEADINGS: Final = (
    "locks",
    "watches",
    "acquire all, s",
    "client, MB",
    "server, MB",
    "change, client CPU µs",
    "change, server CPU µs",
    "hand over, ms",
)


def main() -> None:
    """Measure, and print a table."""
    numbers = [int(each) for each in sys.argv[1:]] or [1_000, 9_000]
    with tempfile.TemporaryDirectory() as directory:
        rows = [
            _measure(Path(directory), locks, is_grouped=is_grouped)
            for locks in numbers
            for is_grouped in (True, False)
        ]
    note = f"changes: {CHANGES:,} hand-overs of cached locks to another client, one after the other"
    print(Table("Watches of cached locks", list(HEADINGS), rows, note).as_text())


def _measure(directory: Path, locks: int, *, is_grouped: bool) -> list[str]:
    with running(OURS, directory) as server:
        before_mb = _server_mb(server)
        states = [
            (*state, _server_mb(server), cpu_s_of(server.pid))
            for state in each_from_child(LIMIT_S, _work, server.port, locks, is_grouped)
        ]
    (_, _, client_before_mb, *_), (acquired_s, cpu_s, client_mb, mb, server_s) = states[:2]
    handed_s, cpu_end_s, _, _, server_end_s = states[2]
    each = 1e6 / CHANGES
    return [
        f"{locks:,}",
        "grouped" if is_grouped else "one each",
        figure(acquired_s),
        figure(client_mb - client_before_mb),
        figure(mb - before_mb),
        figure((cpu_end_s - cpu_s) * each),
        figure((server_end_s - server_s) * each),
        figure(handed_s * each / 1_000),
    ]


def _server_mb(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024


def _work(port: int, locks: int, is_grouped: bool) -> Iterator[tuple[float, float, float]]:
    """Acquire and release all locks, then have some of them handed over.

    Yields seconds taken, processor time and memory in MB: before, after acquiring, after changes.
    """
    logging.getLogger("leasehold").setLevel(logging.ERROR)
    limits: dict[str, Any] = dict.fromkeys(("GROUP_FROM", "WHOLE_FROM", "MAX_ALONE"), NEVER)
    alone = nullcontext() if is_grouped else patch.multiple(watch_subscriptions, **limits)
    with alone, asyncio.Runner() as runner:
        yield 0.0, process_time(), _memory_mb()
        client = leasehold.connect(f"127.0.0.1:{port}", session_ttl=TTL_S)
        holder = runner.run(client.__aenter__())
        began = perf_counter()
        runner.run(_acquire(holder, locks))
        yield perf_counter() - began, process_time(), _memory_mb()
        other = leasehold.connect(f"127.0.0.1:{port}", session_ttl=TTL_S)
        taker = runner.run(other.__aenter__())
        began = perf_counter()
        runner.run(_take_over(taker, locks))
        yield perf_counter() - began, process_time(), _memory_mb()
        runner.run(taker.close())
        runner.run(holder.close())


def _memory_mb() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


async def _acquire(client: leasehold.Client, locks: int) -> None:
    turns = asyncio.Semaphore(CONCURRENT_CALLS)

    async def once(number: int) -> None:
        async with turns, client.lock(f"bench/{number:05d}"):
            pass

    await asyncio.gather(*map(once, range(locks)))
    await asyncio.sleep(1.0)  # until all are watched


async def _take_over(client: leasehold.Client, locks: int) -> None:
    for number in range(min(CHANGES, locks)):
        async with client.lock(f"bench/{number:05d}", cache=False):
            pass


if __name__ == "__main__":
    main()
