"""A client that renews each of its leases with a message of its own, as clients of etcd do.

All messages are sent on one stream of `LeaseKeepAlive`, for each lease after a third of its term.
"""

import asyncio
from collections import deque
from pathlib import Path
from time import monotonic, process_time
from typing import Final

from benchmarks.common.children import in_child
from benchmarks.common.progress import tell
from benchmarks.etcd.servers import OURS, Server, running
from benchmarks.renewal.grantor import (
    LOOKS_PER_TERM,
    Renewing,
    counts_of,
    grant,
    renewed,
    renewing_between,
)
from benchmarks.renewal.scale import Scale
from leasehold.engine.remote.etcd_leases import METHOD
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_call import StreamingCall
from leasehold.landlord.remote_landlord import RemoteLandlord
from leasehold.leases.renewal_times import SESSION_RENEW
from leasehold.wire import rpc_pb2 as pb

TICKS: Final = 40
"""How often in the time between two renewals of a lease to look for leases that are due."""

MAX_TICK_S: Final = 0.5

SETUP_S: Final = 300.0
"""For granting the leases."""


class LeaseLapsed(Exception):
    """A lease was not kept, so the figures mean nothing."""


async def measure_one_by_one(
    scale: Scale, directory: Path, turn: asyncio.Lock | None = None
) -> Renewing:
    """Keep leases alive in a process of its own, while `turn` is held."""
    async with turn or asyncio.Lock():
        with running(OURS, directory) as grantor:
            tell(f"renewing {scale.leases:,} leases one by one")
            limit_s = SETUP_S + 2 * scale.rounds * scale.ttl_s
            return await asyncio.to_thread(in_child, limit_s, _keep_all, grantor, scale)


def _keep_all(grantor: Server, scale: Scale) -> Renewing:
    return asyncio.run(_keep(grantor, scale))


async def _keep(grantor: Server, scale: Scale) -> Renewing:
    endpoint = f"127.0.0.1:{grantor.port}"
    channel = Channel([endpoint])
    try:
        async with channel.stream(METHOD) as call, asyncio.TaskGroup() as tasks:
            keeper = Keeper(call, scale.ttl_s * SESSION_RENEW)
            work = [tasks.create_task(keeper.send()), tasks.create_task(keeper.receive())]
            async with RemoteLandlord(endpoint) as landlord:
                for first in range(0, scale.leases, scale.adding):
                    count = min(scale.adding, scale.leases - first)
                    keeper.add([each.cookie for each in await grant(landlord, count, scale.ttl_s)])
            before, sent, cpu_s = counts_of(grantor), keeper.sent, process_time()
            until = before.renewals + scale.rounds * scale.leases
            limit_s, look_s = 2 * scale.rounds * scale.ttl_s, scale.ttl_s / LOOKS_PER_TERM
            after = await renewed(grantor, until, limit_s, look_s)
            found = renewing_between(before, after, keeper.sent - sent, process_time() - cpu_s)
            for task in work:
                task.cancel()
    finally:
        await channel.close()
    return found


class Keeper:
    """Sends a message for each lease whenever it is due."""

    def __init__(self, call: StreamingCall, period_s: float) -> None:
        self._call = call
        self._period_s = period_s
        self._due: deque[tuple[float, bytes]] = deque()
        """Messages in the order in which they are due."""
        self.sent = 0

    def add(self, leases: list[object]) -> None:
        """Keep leases that were just granted, their renewals spread over time."""
        now = monotonic()
        for lease in leases:
            assert isinstance(lease, int)
            message = pb.LeaseKeepAliveRequest(ID=lease).SerializeToString()
            self._due.append((now + self._period_s, message))

    async def send(self) -> None:
        """Send what is due, until cancelled."""
        tick_s = min(MAX_TICK_S, self._period_s / TICKS)
        while True:
            now = monotonic()
            while self._due and self._due[0][0] <= now:
                _, message = self._due.popleft()
                await self._call.send(message)
                self.sent += 1
                self._due.append((monotonic() + self._period_s, message))
            await asyncio.sleep(tick_s)

    async def receive(self) -> None:
        """Read the answers, until cancelled."""
        async for answer in self._call:
            if pb.LeaseKeepAliveResponse.FromString(answer).TTL <= 0:
                raise LeaseLapsed("the server does not have a lease any more")
