"""Leases that end next, on either kind of server, without asking for more than a few at a time.

A Leasehold server lists leases with their ends, 10,000 in one answer. An etcd lists ids only, and
each lease is a call. So the ends that were told are remembered: a lease ends no sooner than it was
said to, unless somebody ends it, and then it is listed no more. Asked again are those of which
nothing is known, and then those that end first by what was told last; they are the ones that are
shown.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.etcd_leases import EtcdLeases
from leasehold.engine.remote.lease_service import HolderLease, LeaseService
from leasehold.engine.values import LeaseInfo
from leasehold.errors import UnknownLease
from leasehold.wire import rpc_pb2 as pb

MAX_LEASES: Final = 10_000
"""Leases that are looked at each time."""

MAX_LOOKUPS: Final = 200
"""Leases that an etcd is asked for each time, one by one."""

LOOKUPS_AT_ONCE: Final = 32

RELIST_S: Final = 10.0
"""How long a list of ids is good for, if it is longer than what is looked at."""

_LEASES: Final = "/etcdserverpb.Lease/LeaseLeases"


class Leases(NamedTuple):
    """Leases as they are now."""

    by_end: Sequence[HolderLease]
    """Those that were looked at, first those that end first."""
    total: int | None
    """How many there are; None if there are more, and nobody has said how many."""


class OurLeases:
    """Leases on a Leasehold server."""

    def __init__(self, caller: Caller) -> None:
        self._service = LeaseService(caller)

    async def read(self) -> Leases:
        """Look at them: at the first ones by id, if there are too many."""
        pages = self._service.pages(page_size=MAX_LEASES)
        found = await anext(pages)
        total = len(found) if len(found) < MAX_LEASES else None
        await pages.aclose()  # type: ignore[attr-defined]
        return Leases(sorted(found, key=lambda each: each.info.remaining), total)


class _Told(NamedTuple):
    """What an etcd has said of a lease."""

    info: LeaseInfo
    ends_at_s: float


class TheirLeases:
    """Leases on an etcd."""

    def __init__(self, caller: Caller, clock: Callable[[], float]) -> None:
        self._caller = caller
        self._leases = EtcdLeases(caller)
        self._clock = clock
        self._told: dict[int, _Told] = {}
        self._ids: list[int] = []
        self._listed_at_s: float | None = None

    async def read(self) -> Leases:
        """Look at them: at few that have to be asked for, and at what others said before."""
        await self._list()
        some = self._ids[:MAX_LEASES]
        self._told = {each: self._told[each] for each in some if each in self._told}
        wanted = sorted(some, key=self._end_of)[:MAX_LOOKUPS]
        turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        await asyncio.gather(*(self._look_up(each, turns) for each in wanted))
        now_s = self._clock()
        seen = [
            HolderLease(told.info._replace(remaining=max(0.0, told.ends_at_s - now_s)), "")
            for told in self._told.values()
        ]
        return Leases(sorted(seen, key=lambda each: each.info.remaining), len(self._ids))

    async def _list(self) -> None:
        now_s = self._clock()
        is_short = len(self._ids) <= MAX_LEASES
        if self._listed_at_s is None or is_short or now_s >= self._listed_at_s + RELIST_S:
            answer = await self._caller.ask(
                _LEASES, pb.LeaseLeasesRequest(), pb.LeaseLeasesResponse, idempotent=True
            )
            self._ids = sorted(each.ID for each in answer.leases)
            self._listed_at_s = now_s

    def _end_of(self, lease: int) -> float:
        return self._told[lease].ends_at_s if lease in self._told else float("-inf")

    async def _look_up(self, lease: int, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                info = await self._leases.time_to_live(lease, keys=False)
            except UnknownLease:
                self._told.pop(lease, None)
            else:
                self._told[lease] = _Told(info, self._clock() + info.remaining)
