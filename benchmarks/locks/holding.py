"""One client that holds many locks, on our server and on etcd: its traffic."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import leasehold
from benchmarks.client.keeping import naive_per_s
from benchmarks.common.children import each_from_child
from benchmarks.common.processes import cpu_s_of
from benchmarks.common.progress import tell
from benchmarks.common.tables import Table, figure
from benchmarks.etcd.servers import ETCD, OURS, CannotStart, Server
from benchmarks.locks.messages import GRPC
from benchmarks.locks.relay import relaying
from benchmarks.locks.scale import Scale
from benchmarks.locks.servers import running
from benchmarks.transport.report import NOTHING
from benchmarks.transport.samples import Cell, Cells, Figures, Run, spread_of
from leasehold.locks.ownership import Guard

PART: Final = "holding"
SERVERS: Final = {OURS: "ours, on Leasehold", ETCD: "ours, on etcd"}

MESSAGES, BYTES = "messages_per_s", "bytes_per_s"
CPU, SERVER_CPU = "cpu_s_per_s", "server_cpu_s_per_s"
LOCKS, TTL_S = "locks", "ttl_s"

CONCURRENT_CALLS: Final = 64
"""Acquired at the same time."""
START_S: Final = 120.0
"""For acquiring, beyond the time that is looked at."""


def measure_holding(run: Run, scale: Scale, directory: Path) -> None:
    """Have locks held on one server after the other."""
    for name in SERVERS:
        tell(f"holding {scale.locks:,} locks on {name}")
        try:
            with running(name, directory) as server:
                run.take(0, Cell(PART, PART, name), partial(_look, server, scale))
        except CannotStart as error:
            tell(f"holding locks on {name} is left out: {error}")
            run.missing.append(f"holding locks on {name}: {error}")


def _look(server: Server, scale: Scale) -> Figures:
    """Look at the wire and at both processes, while a client in another process holds locks."""
    limit_s = START_S + scale.holding_ttl_s + scale.holding_s
    with relaying(server.port, GRPC) as relay:
        states = [
            (relay.traffic(), cpu_s, cpu_s_of(server.pid), perf_counter())
            for cpu_s in each_from_child(limit_s, hold, relay.port, scale)
        ]
    (before, client_s, server_s, began), (after, client_end_s, server_end_s, ended) = states
    sent, took_s = after.since(before), ended - began
    return {
        MESSAGES: sent.messages / took_s,
        BYTES: (sent.sent + sent.received) / took_s,
        CPU: (client_end_s - client_s) / took_s,
        SERVER_CPU: (server_end_s - server_s) / took_s,
        LOCKS: scale.locks,
        TTL_S: scale.holding_ttl_s,
    }


def hold(port: int, scale: Scale) -> Iterator[float]:
    """Hold locks. Yields processor time used so far, at the beginning and at the end."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        guards = runner.run(_acquire(stack, port, scale))
        yield process_time()
        runner.run(_keep(guards, scale))
        yield process_time()
        runner.run(stack.aclose())


async def _acquire(stack: AsyncExitStack, port: int, scale: Scale) -> list[Guard]:
    turns = asyncio.Semaphore(CONCURRENT_CALLS)
    client = await stack.enter_async_context(
        leasehold.connect(f"127.0.0.1:{port}", session_ttl=scale.holding_ttl_s)
    )

    async def acquire(number: int) -> Guard:
        async with turns:
            return await client.lock(f"bench/{number:05d}").acquire()

    guards = await asyncio.gather(*map(acquire, range(scale.locks)))
    await asyncio.sleep(scale.holding_ttl_s / 2)  # to begin where nothing is due
    return guards


async def _keep(guards: list[Guard], scale: Scale) -> None:
    await asyncio.sleep(scale.holding_s)
    for guard in guards:
        guard.check()  # a run that has lost a lock does not count


def table(cells: Cells) -> Table:
    """What it takes to hold locks."""
    rows, locks, ttl_s = [], 0, 0.0
    for server, name in SERVERS.items():
        samples = cells.get(Cell(PART, PART, server))
        if samples:
            locks, ttl_s = int(samples[0].figures[LOCKS]), samples[0].figures[TTL_S]
            names = (MESSAGES, BYTES, CPU, SERVER_CPU)
            rows.append([name, *(_small(spread_of(samples, each).median) for each in names)])
    if rows:
        naive = figure(naive_per_s(locks, ttl_s))
        rows.append(["a lease for each lock, computed", naive, *[NOTHING] * 3])
    headings = ["", "messages/s", "bytes/s", "client, CPU s/s", "server, CPU s/s"]
    note = (
        "messages are those of the client, bytes those of both sides, counted on the wire; a "
        "library with a lease for each lock, as aetcd and etcd3 have it, sends a message for each "
        "after each third of its term"
    )
    return Table(f"Holding {locks:,} locks, with a lease of {ttl_s:g} s", headings, rows, note)


def _small(value: float) -> str:
    """Three digits that count, also of what is far below one."""
    return f"{value:.3g}" if 0.0 < abs(value) < 0.1 else figure(value)
