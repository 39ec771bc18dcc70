"""The stage for simulated leases: one landlord, several holders, a link between them."""

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leasehold import (
    FOREVER,
    Duration,
    DurationPolicy,
    EndReason,
    ExpiryStrategy,
    Landlord,
    Lease,
    Leased,
    LeaseDenied,
    RenewalManager,
    RenewalNotice,
    UnknownLease,
    exact,
)
from leasehold.basics.durations import Requested
from leasehold.leases.expiry_queue import STALE_SLACK
from leasehold.testing import Faults, Host, Network, Simulation
from tests.simulation.oracle import Oracle, Violation
from tests.simulation.remote import RemoteLease, Route, rent, serve

STORMY_LINK = Faults(loss=0.02, duplicate=0.02, delay=(0.001, 0.1), spike=0.01)
EXACT = exact()
MAX_DRIFT_PPM = 500.0
RTT_S = 0.5


@dataclass
class Holder:
    """A host that keeps leases alive."""

    host: Host
    route: Route
    manager: RenewalManager
    leases: list[RemoteLease] = field(default_factory=list)
    renting: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """What a world is made of."""

    holders: int = 4
    leases: int = 40
    terms: tuple[float, ...] = (20.0, 30.0, 60.0, 300.0)
    faults: Faults = STORMY_LINK
    expiry: ExpiryStrategy = EXACT
    managed: bool = True
    """Whether leases are given to renewal managers."""


class RefusingPolicy(DurationPolicy):
    """Renews no lease whose cookie is in `refused`."""

    def __init__(self, maximum: float, default: float) -> None:
        super().__init__(maximum, default)
        self.refused: set[Hashable] = set()
        self.refusals: Counter[Hashable] = Counter()

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        if leased.cookie in self.refused:
            self.refusals[leased.cookie] += 1
            raise LeaseDenied("no more")
        return super().renew(leased, requested, now)


class World:
    """A landlord and its holders in a simulation, under the eyes of an oracle."""

    def __init__(self, sim: Simulation, setting: Setting) -> None:
        self.sim = sim
        self.setting = setting
        self.slept: set[str] = set()
        self.lost: list[UnknownLease] = []
        drift = sim.random.uniform
        self.host = sim.host("landlord", drift_ppm=drift(-MAX_DRIFT_PPM, MAX_DRIFT_PPM))
        self.oracle = Oracle(sim, self.host)
        self.network: Network = sim.network(setting.faults)
        self._cookies = 0
        self.policy = RefusingPolicy(maximum=3600.0, default=30.0)
        self.landlord: Landlord[object] = Landlord(
            self.policy,
            on_ended=self._on_ended,
            expiry=setting.expiry,
            cookies=self._next_cookie,
            name="landlord",
            clock=self.host.clock,
        )
        serve(self.network, self.host, self.landlord, self.oracle)
        self.holders = [self._holder(n) for n in range(setting.holders)]

    def _next_cookie(self) -> int:
        self._cookies += 1
        return self._cookies

    def _on_ended(self, resource: object, reason: EndReason) -> None:
        try:
            self.oracle.ended(resource, reason)
        except Violation as violation:  # the landlord takes what an owner raises; the test must not
            self.sim.after(0.0, partial(_raise, violation))

    def _holder(self, number: int) -> Holder:
        drift = self.sim.random.uniform(-MAX_DRIFT_PPM, MAX_DRIFT_PPM)
        host = self.sim.host(f"holder{number}", drift_ppm=drift)
        manager = RenewalManager(rtt=RTT_S, clock=host.clock)
        return Holder(host, Route(self.network, host, self.host), manager)

    def rent_all(self) -> None:
        """Let every holder take its share of the leases, and manage them for ever."""
        share = self.setting.leases // self.setting.holders
        tasks = [holder.host.start(self._rent, holder, share) for holder in self.holders]
        self.sim.run_until(lambda: all(task.done() for task in tasks), within=120.0)
        for task in tasks:
            task.result()

    async def _rent(self, holder: Holder, share: int) -> None:
        for n, term in enumerate(self.setting.terms):
            await self._rent_some(holder, len(range(n, share, len(self.setting.terms))), term)

    async def _rent_some(self, holder: Holder, count: int, term: float) -> None:
        resources = [(holder.host.name, len(holder.leases) + n) for n in range(count)]
        for lease in await rent(holder.route, resources, term):
            self.oracle.held[lease.cookie] = lease
            holder.leases.append(lease)
            if self.setting.managed:
                listener = partial(self._noticed, holder, term)
                holder.manager.renew_until(lease, FOREVER, term, listener)

    def _noticed(self, holder: Holder, term: float, notice: RenewalNotice) -> None:
        """Report a notice, and rent a new lease in place of the lost one."""
        try:
            self.oracle.noticed(notice)
        except Violation as violation:  # the manager takes what a listener raises, too
            self.sim.after(0.0, partial(_raise, violation))
        holder.renting.append(holder.host.start(self._rent_some, holder, 1, term))

    def revoke(self, lease: Lease) -> bool:
        """End a lease at the landlord, behind its holder's back; False if it is over already."""
        outcome = self.host.call(self.landlord.cancel_all, [lease.cookie]).outcomes[0]
        return not isinstance(outcome, BaseException)

    def crash(self, holder: Holder) -> None:
        """Lose a holder, with all it knew."""
        holder.host.crash()
        self.oracle.crashed.add(holder.host.name)

    def crash_all(self) -> None:
        """Lose all holders."""
        for holder in self.live_holders():
            self.crash(holder)

    def cut_off(self, holder: Holder, seconds: float, *, one_way: bool = False) -> None:
        """Let a holder and the landlord not hear each other, or only one of them the other."""
        groups = [{holder.host}, {self.host}]
        if one_way:
            self.sim.random.shuffle(groups)
        self.network.partition(*groups, one_way=one_way)
        self.sim.after(seconds, self.network.heal)

    def put_to_sleep(self, host: Host, seconds: float, *, suspend: bool = False) -> None:
        """Stop a process, or suspend its machine."""
        self.slept.add(host.name)
        awake_from = self.oracle.awake_from
        awake_from[host.name] = max(awake_from.get(host.name, 0.0), self.sim.now + seconds)
        if suspend:
            host.suspend(seconds)
        else:
            host.stop(seconds)

    def live_holders(self) -> list[Holder]:
        """Holders that have not crashed."""
        return [holder for holder in self.holders if not holder.host.down]

    def check_all_accounted_for(self) -> None:
        """Every lease is managed still, or was the subject of exactly one notice."""
        for holder in self.live_holders():
            managed = {lease.cookie for lease in holder.manager.leases()}
            noticed = {lease.cookie for lease in holder.leases} & set(self.oracle.notices)
            missing: set[Hashable] = {lease.cookie for lease in holder.leases} - managed - noticed
            if missing or managed & noticed:
                raise Violation(f"{holder.host.name}: lost {missing}, twice {managed & noticed}")

    def wind_down(self) -> None:
        """Let all holders stop renewing; then everything must end, and leave nothing behind."""
        for holder in self.live_holders():
            if not all(task.done() for task in holder.renting):
                raise Violation(f"{holder.host.name} cannot rent a lease over a healthy link")
            holder.host.call(holder.manager.close)
        self.sim.run_for(max(self.setting.terms) + 60.0)
        for _ in range(len(self.landlord)):  # a lazy one needs calls to find out
            self.host.call(lambda: self.landlord.now)
        if len(self.landlord):
            raise Violation(f"{len(self.landlord)} leases never ended")
        if len(self.oracle.ends) != self.oracle.grants:
            raise Violation(f"{self.oracle.grants} grants, {len(self.oracle.ends)} owners told")
        self.check_nothing_left_behind()

    def check_nothing_left_behind(self) -> None:
        """The landlord keeps live leases and a bounded rest, nothing else."""
        queued = len(self.landlord.table._queue)
        if queued > 2 * len(self.landlord) + 2 * STALE_SLACK:
            raise Violation(f"{queued} queue entries for {len(self.landlord)} leases")


def _raise(error: Exception) -> None:
    raise error
