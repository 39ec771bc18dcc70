"""One client that keeps many leases alive, on our server and on etcd: what that takes.

What the client sends is counted where it leaves: calls, and messages on streams.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import leasehold
from benchmarks.client.scale import Scale
from benchmarks.common.children import in_child
from benchmarks.common.processes import cpu_s_of
from benchmarks.common.progress import tell
from benchmarks.engine.ticker import Ticker
from benchmarks.etcd.servers import ETCD, OURS, CannotStart, Server, running
from benchmarks.transport.samples import Cell, Figures, Run
from leasehold.client.client import Client
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.values import Renewed
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_call import StreamingCall
from leasehold.leases.renewal_times import SESSION_RENEW
from leasehold.sessions.held_lease import HeldLease

PART: Final = "keeping"
SERVERS: Final = (OURS, ETCD)

MESSAGES, BYTES, RENEWALS = "messages_per_s", "bytes_per_s", "renewals_per_s"
CPU, SERVER_CPU = "cpu_s_per_s", "server_cpu_s_per_s"
LONGEST_MS: Final = "longest_pause_ms"
"""The most processor time that the client's event loop spent in one turn, while others waited."""

CONCURRENT_GRANTS: Final = 64
START_S: Final = 60.0
"""For granting, beyond the time that is looked at."""


def name_of(leases: int, ttl_s: float) -> str:
    """What a cell is called."""
    return f"{leases:,} leases of {ttl_s:g} s"


def naive_per_s(leases: int, ttl_s: float) -> float:
    """Messages in a second of a client that renews each lease alone, after a third of its term."""
    return leases / (ttl_s / 3)


def measure_keeping(run: Run, scale: Scale, directory: Path) -> None:
    """Have leases kept on one server after the other."""
    for name in SERVERS:
        tell(f"keeping {scale.leases:,} leases on {name}")
        try:
            with running(name, directory) as server:
                _take(run, scale, server)
        except CannotStart as error:
            tell(f"keeping leases on {name} is left out: {error}")
            run.missing.append(f"keeping leases on {name}: {error}")


def _take(run: Run, scale: Scale, server: Server) -> None:
    cell = Cell(PART, name_of(scale.leases, scale.ttl_s), server.name)
    limit_s = START_S + scale.ttl_s + scale.keeping_s
    run.take(0, cell, partial(in_child, limit_s, keep, server.port, server.pid, scale))


def keep(port: int, server_pid: int, scale: Scale) -> Figures:
    """Keep leases, and look at it for a while. In a process of its own."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    return asyncio.run(_keep(port, server_pid, scale))


async def _keep(port: int, server_pid: int, scale: Scale) -> Figures:
    sent, period_s = Sent(), scale.ttl_s * SESSION_RENEW
    async with leasehold.connect(f"127.0.0.1:{port}") as client:
        leases = await _grant(client, scale)
        await asyncio.sleep(1.5 * period_s)  # to begin and end where nothing is due
        before, began = _used(sent, server_pid), perf_counter()
        await asyncio.sleep(scale.keeping_s)
        after, took_s = _used(sent, server_pid), perf_counter() - began
        async with Ticker() as ticker:  # afterwards, because it takes time as well
            await asyncio.sleep(period_s)
        _check(leases)
    figures = {name: (after[name] - before[name]) / took_s for name in after}
    return figures | {LONGEST_MS: 1e3 * ticker.pause.busy_s}


def _used(sent: "Sent", server_pid: int) -> Figures:
    return {
        MESSAGES: sent.messages,
        BYTES: sent.size_bytes,
        RENEWALS: sent.renewals,
        CPU: process_time(),
        SERVER_CPU: cpu_s_of(server_pid),
    }


async def _grant(client: Client, scale: Scale) -> list[HeldLease]:
    turns = asyncio.Semaphore(CONCURRENT_GRANTS)

    async def grant() -> HeldLease:
        async with turns:
            return await client.lease(scale.ttl_s)

    return await asyncio.gather(*(grant() for _ in range(scale.leases)))


class LeasesLost(Exception):
    """A client has not kept what it was to keep: its figures mean nothing."""


def _check(leases: Iterable[HeldLease]) -> None:
    lost = sum(not lease.is_held for lease in leases)
    if lost:
        raise LeasesLost(f"{lost} leases were lost")


@dataclass(slots=True)
class Sent:
    """Counts what all clients of this process send, for as long as it lives."""

    messages: int = 0
    size_bytes: int = 0
    renewals: int = 0

    def __post_init__(self) -> None:
        unary, send, renew_all = Channel.unary, StreamingCall.send, RemoteEngine.renew_all

        async def counted_unary(channel: Channel, path: str, message: bytes, **how: Any) -> bytes:
            self._count(message)
            return await unary(channel, path, message, **how)

        async def counted_send(call: StreamingCall, message: bytes) -> None:
            self._count(message)
            await send(call, message)

        async def counted_renew_all(engine: RemoteEngine, leases: Iterable[int]) -> Renewed:
            renewed = await renew_all(engine, leases)
            self.renewals += len(renewed.terms)
            return renewed

        Channel.unary = counted_unary  # type: ignore[method-assign,assignment]
        StreamingCall.send = counted_send  # type: ignore[method-assign,assignment]
        RemoteEngine.renew_all = counted_renew_all  # type: ignore[method-assign,assignment]

    def _count(self, message: bytes) -> None:
        self.messages += 1
        self.size_bytes += len(message)
