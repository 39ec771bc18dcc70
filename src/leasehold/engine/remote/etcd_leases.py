"""Leases on an etcd: whole seconds, and a message for each renewal."""

import asyncio
from collections.abc import Sequence
from typing import Final

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.keep_alive import KeepAlives
from leasehold.engine.remote.leases import RemoteLeases, by_end
from leasehold.engine.remote.refusals import About
from leasehold.engine.values import LeaseInfo, Renewed
from leasehold.errors import UnknownLease
from leasehold.wire import rpc_pb2 as pb

LOOKUPS_AT_ONCE: Final = 64
"""Leases that are asked for at the same time, to list all of them."""

_PATH: Final = "/etcdserverpb.Lease/"


class EtcdLeases(RemoteLeases):
    """Leases as etcd has them."""

    def __init__(self, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> None:
        self._caller = caller
        self._keep_alives = KeepAlives(caller, clock)

    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Begin a lease."""
        request = pb.LeaseGrantRequest(TTL=round(ttl_s), ID=lease)
        granted = await self._caller.ask(
            _PATH + "LeaseGrant", request, pb.LeaseGrantResponse, about=About(lease=lease)
        )
        term_s = float(granted.TTL)
        return LeaseInfo(granted.ID, term_s, term_s, None, 0)

    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases, each for itself."""
        return await self._keep_alives.renew_all(leases)

    def has_answered_since(self, moment: float) -> bool:
        """Say whether any renewal was answered since then."""
        return self._keep_alives.answered_at >= moment

    async def revoke(self, lease: int) -> int:
        """End a lease."""
        answer = await self._caller.ask(
            _PATH + "LeaseRevoke",
            pb.LeaseRevokeRequest(ID=lease),
            pb.LeaseRevokeResponse,
            about=About(lease=lease),
        )
        revision: int = answer.header.revision
        return revision

    async def time_to_live(self, lease: int, *, keys: bool) -> LeaseInfo:
        """Say how long a lease has to run."""
        found = await self._caller.ask(
            _PATH + "LeaseTimeToLive",
            pb.LeaseTimeToLiveRequest(ID=lease, keys=True),
            pb.LeaseTimeToLiveResponse,
            about=About(lease=lease),
            idempotent=True,
        )
        if found.TTL < 0:
            raise UnknownLease(lease)
        names = tuple(sorted(found.keys))
        shown = names if keys else None
        return LeaseInfo(lease, float(found.grantedTTL), float(found.TTL), shown, len(names))

    async def listed(self) -> Sequence[LeaseInfo]:
        """List the leases: all ids, and then each; what ends meanwhile is left out."""
        answer = await self._caller.ask(
            _PATH + "LeaseLeases",
            pb.LeaseLeasesRequest(),
            pb.LeaseLeasesResponse,
            idempotent=True,
        )
        turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._look_up(each.ID, turns)) for each in answer.leases]
        except ExceptionGroup as failures:  # they are all of a kind: there is no server
            raise failures.exceptions[0] from None
        return by_end(found for task in tasks if (found := task.result()) is not None)

    async def _look_up(self, lease: int, turns: asyncio.Semaphore) -> LeaseInfo | None:
        async with turns:
            try:
                return await self.time_to_live(lease, keys=False)
            except UnknownLease:
                return None

    async def close(self) -> None:
        """End what is under way."""
        await self._keep_alives.close()
