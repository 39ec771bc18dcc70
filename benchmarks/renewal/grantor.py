"""The grantor of the leases: a Leasehold server, and what its metrics count."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.etcd.servers import Server, get
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease

LOOK_S: Final = 0.25
"""How often to look whether leases were renewed, after a restart."""

LOOKS_PER_TERM: Final = 30
"""How often to look while leases are kept alive: reading metrics takes time of the grantor."""

CONCURRENT_GRANTS: Final = 64

_RENEWED: Final = "etcd_debugging_lease_renewed_total"
_EXPIRED: Final = "etcd_debugging_server_lease_expired_total"
_LEASES: Final = "leasehold_leases"
_CALLS: Final = re.compile(
    r'^grpc_server_started_total\{.*grpc_method="RenewAll".*\} (\d+)$', re.MULTILINE
)


class TooSlow(Exception):
    """Leases were not renewed in time."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a grantor has done so far."""

    renewals: int
    """Leases that were renewed, those of a batch one by one."""
    batches: int
    """Messages with any number of leases."""
    expired: int
    leases: int
    """Leases that are alive."""
    cpu_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Renewing:
    """The cost of keeping leases alive."""

    messages_per_s: float
    renewals_per_s: float
    cpu_s_per_s: float
    """Of the process that renews."""
    grantor_cpu_s_per_s: float
    lapses: int
    """Leases that have expired since the start of the grantor, also while they were added."""


def counts_of(server: Server) -> Counts:
    """Read the metrics of a server."""
    text = get(server.port, "/metrics")
    return Counts(
        _value(text, _RENEWED),
        sum(map(int, _CALLS.findall(text))),
        _value(text, _EXPIRED),
        _value(text, _LEASES),
        cpu_s_of(server.pid),
        monotonic(),
    )


def _value(metrics: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    if found is None:
        raise ValueError(f"the server has no metric {name}")
    return int(float(found[1]))


async def renewed(server: Server, count: int, limit_s: float, look_s: float = LOOK_S) -> Counts:
    """Wait until the server has renewed so many leases in all."""
    deadline = monotonic() + limit_s
    while True:
        counts = await asyncio.to_thread(counts_of, server)
        if counts.renewals >= count:
            return counts
        if monotonic() > deadline:
            raise TooSlow(f"{counts.renewals:,} of {count:,} renewals after {limit_s:g} s")
        await asyncio.sleep(look_s)


async def grant(landlord: RemoteLandlord, count: int, ttl_s: float) -> Sequence[RemoteLease]:
    """Grant leases, some at a time."""
    turns = asyncio.Semaphore(CONCURRENT_GRANTS)

    async def one() -> RemoteLease:
        async with turns:
            return await landlord.grant(duration=ttl_s)

    return await asyncio.gather(*(one() for _ in range(count)))


def renewing_between(before: Counts, after: Counts, messages: int, cpu_s: float) -> Renewing:
    """Return the figures of a time; `cpu_s` is that of the process that has sent the messages."""
    took_s = after.at_s - before.at_s
    return Renewing(
        messages / took_s,
        (after.renewals - before.renewals) / took_s,
        cpu_s / took_s,
        (after.cpu_s - before.cpu_s) / took_s,
        after.expired,
    )
