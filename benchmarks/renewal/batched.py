"""Leases in renewal sets: adding them, renewing them in batches, and a restart of the service."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import leasehold
from benchmarks.common.processes import cpu_s_of, settled_bytes
from benchmarks.common.progress import tell
from benchmarks.etcd.servers import OURS, Place, Server, running, starting, wait_ready
from benchmarks.renewal.grantor import (
    LOOKS_PER_TERM,
    Renewing,
    counts_of,
    grant,
    renewed,
    renewing_between,
)
from benchmarks.renewal.scale import Scale
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease
from leasehold.renewal.client import RenewalSet

SET_S: Final = 3600.0
"""The term of the sets: longer than a measurement."""


@dataclass(frozen=True, slots=True)
class Adding:
    """The cost of adding leases to sets."""

    per_s: float
    cpu_us: float
    """Of the service, for each lease."""
    bytes_per_lease: float
    """Memory of the service."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A service that was killed, and started again."""

    renewed_s: float
    """Until every lease was renewed, from the start of the process on."""
    cpu_s: float
    lapses: int


@dataclass(frozen=True, slots=True)
class Batched:
    """What was found for one number of sets."""

    adding: Adding
    renewing: Renewing
    restart: Restart
    members: int
    """Leases in the sets at the end."""


async def measure_batched(
    scale: Scale, sets: int, directory: Path, turn: asyncio.Lock | None = None
) -> Batched:
    """Put leases into sets, look at their renewals, then restart the service.

    What keeps the machine busy is done while `turn` is held, so that several measurements can
    share the long time in which leases are only renewed.
    """
    turn = turn or asyncio.Lock()
    with ExitStack() as stack:
        async with turn:
            grantor = stack.enter_context(running(OURS, directory))
            options = ("--renew-at", f"127.0.0.1:{grantor.port}")
            first = stack.enter_context(ExitStack())
            service = first.enter_context(running(OURS, directory, options=options))
            async with leasehold.connect(f"127.0.0.1:{service.port}") as client:
                made = [await client.renewal_set(SET_S) for _ in range(sets)]
                tell(f"adding {scale.leases:,} leases to {sets:,} sets")
                adding = await _add_all(scale, grantor, service, made)
        tell(f"renewing the leases of {sets:,} sets, rounds: {scale.rounds}")
        renewing = await _renew(scale, grantor, service)
        async with turn:
            os.kill(service.pid, signal.SIGKILL)
            first.close()
            tell(f"restarting the service with {sets:,} sets")
            before, began = counts_of(grantor), monotonic()
            place = Place(OURS, service.data)
            service = stack.enter_context(starting(place, options=options))
            after = await renewed(grantor, before.renewals + scale.leases, 3 * scale.ttl_s)
            restart = Restart(
                after.at_s - began, cpu_s_of(service.pid), after.expired - renewing.lapses
            )
            await asyncio.to_thread(wait_ready, service)
            members = await _members(service, made)
    return Batched(adding, renewing, restart, members)


async def _add_all(
    scale: Scale, grantor: Server, service: Server, sets: Sequence[RenewalSet]
) -> Adding:
    """Grant leases and add them, some at a time: the first ones must not expire meanwhile."""
    empty_bytes = await asyncio.to_thread(settled_bytes, service.pid)
    cpu_s, took_s = cpu_s_of(service.pid), 0.0
    async with RemoteLandlord(f"127.0.0.1:{grantor.port}") as landlord:
        for first in range(0, scale.leases, scale.adding):
            leases = await grant(landlord, min(scale.adding, scale.leases - first), scale.ttl_s)
            began = monotonic()
            await _add(scale, leases, sets)
            took_s += monotonic() - began
    cpu_s = cpu_s_of(service.pid) - cpu_s
    full_bytes = await asyncio.to_thread(settled_bytes, service.pid)
    return Adding(
        scale.leases / took_s,
        1e6 * cpu_s / scale.leases,
        (full_bytes - empty_bytes) / scale.leases,
    )


async def _add(scale: Scale, leases: Sequence[RemoteLease], sets: Sequence[RenewalSet]) -> None:
    turns = asyncio.Semaphore(scale.adds_at_once)

    async def one(place: int, lease: RemoteLease) -> None:
        async with turns:
            await sets[place % len(sets)].renew_for(lease, leasehold.FOREVER)

    await asyncio.gather(*(one(place, lease) for place, lease in enumerate(leases)))


async def _renew(scale: Scale, grantor: Server, service: Server) -> Renewing:
    """Look at the renewals until every lease was renewed a few times."""
    before, cpu_s = counts_of(grantor), cpu_s_of(service.pid)
    limit_s = 2 * scale.rounds * scale.ttl_s
    until = before.renewals + scale.rounds * scale.leases
    after = await renewed(grantor, until, limit_s, scale.ttl_s / LOOKS_PER_TERM)
    messages = after.batches - before.batches
    return renewing_between(before, after, messages, cpu_s_of(service.pid) - cpu_s)


async def _members(service: Server, sets: Sequence[RenewalSet]) -> int:
    async with leasehold.connect(f"127.0.0.1:{service.port}") as client:
        found = [await client.renewal_set(id=each.id) for each in sets]
        return sum([(await each.info()).members for each in found])
