"""Clients that hold leases on a server over a faulty link, under the eyes of an oracle.

The oracle knows true time. It holds the shipped client to three promises:

- a holder whose `check` has passed at some moment had its lease at the server at that moment, and
  when the server ends a lease, its holder relies on it no more;
- an outage that is shorter than what is trusted of a term after a renewal was due costs no lease;
- whoever leaves, leaves no lease behind.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from leasehold import Client, HeldLease, LeaseholdError, LeaseLost
from leasehold.basics.durations import seconds_of
from leasehold.errors import EndReason
from leasehold.leases.holder_view import session_margin_s
from leasehold.testing import Faults, Host, Simulation
from tests.simulation.far_engine import FarEngine, Server
from tests.simulation.oracle import Violation

MAX_DRIFT_PPM = 10_000.0
GRAIN_S = 1e-6
HOLDERS = 3
LEASES = 3
TERMS_S = (2.0, 3.0, 5.0, 10.0)
STORMY_LINK = Faults(loss=0.05, delay=(0.001, 0.1), spike=0.05, spike_delay=(0.1, 3.0))
QUIET_LINK = Faults(delay=(0.001, 0.02))
CALM_S = 40.0
PATIENCE_S = 3.0


@dataclass
class Holder:
    """A process that holds leases, and looks at them whenever it relies on one."""

    host: Host
    ttl_s: float
    client: Client | None = None
    held: dict[int, HeldLease] = field(default_factory=dict)
    lost: int = 0
    passed: int = 0


class HolderWorld:
    """A server, its holders, and who watches both."""

    def __init__(
        self,
        sim: Simulation,
        faults: Faults,
        ttl_s: float | None = None,
        patience_s: float = PATIENCE_S,
        streams: float = 0.5,
    ) -> None:
        self.sim = sim
        self.network = sim.network(faults)
        self.server = Server(self.network, self._host("server"), self._ended)
        self.holders = [
            Holder(self._host(f"holder{n}"), ttl_s or sim.random.choice(TERMS_S))
            for n in range(HOLDERS)
        ]
        self._patience_s = patience_s
        self._streams = streams
        self.last_passed: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.expired = 0
        self.stalls = 0.0
        """How often a holder stalls before it looks at its lease."""
        self.extra_renewals = 0.0
        """How often a holder renews by hand before it looks at its lease."""
        for holder in self.holders:
            self.start(holder)

    def _host(self, name: str) -> Host:
        drift = self.sim.random.choice((-1.0, 1.0, self.sim.random.uniform(-1.0, 1.0)))
        return self.sim.host(name, drift_ppm=drift * MAX_DRIFT_PPM)

    def start(self, holder: Holder) -> None:
        """Let a process begin, on its host."""
        streams = self.sim.random.random() < self._streams
        engine = FarEngine(self.server, holder.host, streams=streams)
        holder.client = Client(
            engine,
            clock=holder.host.clock,
            timeout=self._patience_s,
            random=self.sim.random,
        )
        holder.held.clear()
        for _ in range(LEASES):
            holder.host.start(self._hold, holder, holder.client)

    async def _hold(self, holder: Holder, client: Client) -> None:
        """Hold a lease as long as possible, for ever; a new one when it is lost."""
        while client is holder.client:
            try:
                async with client.lease(holder.ttl_s) as lease:
                    holder.held[lease.id] = lease
                    await self._rely_on(holder, lease)
            except LeaseLost:
                holder.lost += 1
            except (LeaseholdError, OSError):
                await asyncio.sleep(1.0)

    async def _rely_on(self, holder: Holder, lease: HeldLease) -> None:
        random = self.sim.random
        while True:
            await asyncio.sleep(random.uniform(0.1, holder.ttl_s / 2))
            if random.random() < self.extra_renewals:
                holder.host.start(self._renew, lease)
            if random.random() < self.stalls:
                holder.host.stall(random.uniform(0.0, 1.5 * holder.ttl_s))
            lease.check()
            holder.passed += 1
            self._passed(lease.id, holder.host.now)

    async def _renew(self, lease: HeldLease) -> None:
        try:
            await lease.renew()
        except (LeaseholdError, OSError):
            return

    # What the oracle sees.

    def _passed(self, lease: int, now: float) -> None:
        self.last_passed[lease] = now
        if lease in self.ended and self.ended[lease] < now - GRAIN_S:
            self.fail(f"lease {lease} was relied on {now - self.ended[lease]:.3f} s after its end")

    def _ended(self, lease: int, reason: EndReason) -> None:
        now = self.sim.now
        self.ended[lease] = now
        if reason is not EndReason.EXPIRED:
            return
        self.expired += 1
        if self.last_passed.get(lease, 0.0) > now + GRAIN_S:
            self.fail(f"lease {lease} has ended, and was relied on later")
        for holder in self.holders:
            held = holder.held.get(lease)
            if held is not None and not holder.host.down:
                self._check_untrusted(held)

    def _check_untrusted(self, lease: HeldLease) -> None:
        trusted_s = seconds_of(lease.remaining)
        if trusted_s > GRAIN_S:
            self.fail(f"lease {lease.id} has ended with {trusted_s:.3f} s left for its holder")

    def fail(self, why: str) -> None:
        """Say it where nobody takes it for something else."""

        def say() -> None:
            raise Violation(why)

        self.sim.after(0.0, say)

    # How it ends.

    def check_all_hold(self) -> None:
        """Over a healthy link everybody has what it wants."""
        for holder in self.holders:
            held = [lease for lease in holder.held.values() if lease.is_held]
            if len(held) != LEASES:
                raise Violation(f"{holder.host.name} holds {len(held)} leases over a healthy link")

    def wind_down(self) -> None:
        """Let all clients leave: then no lease is left but those of processes that crashed."""
        closing = []
        for holder in self.holders:
            client, holder.client = holder.client, None
            assert client is not None
            closing.append(holder.host.start(client.close))
        self.sim.run_until(lambda: all(task.done() for task in closing), within=30.0)
        for holder in self.holders:
            for lease in holder.held:
                if lease in self.server.disk:
                    raise Violation(f"{holder.host.name} has left lease {lease} behind")


def storms(seed: int, minutes: float = 2.0) -> HolderWorld:
    """Everything goes wrong; leases are lost, and never relied on for too long."""
    with Simulation(seed) as sim:
        world = HolderWorld(sim, STORMY_LINK)
        world.stalls = 0.01
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(1.0, 15.0))
            _mishap(world)
        _calm_down(world)
        world.check_all_hold()
        world.wind_down()
    return world


def late_answers(seed: int, minutes: float = 1.0) -> HolderWorld:
    """Answers take long, requests get lost for a while, and there are several at a time."""
    with Simulation(seed) as sim:
        world = HolderWorld(sim, QUIET_LINK, streams=sim.random.choice((0.0, 1.0)))
        world.extra_renewals = 0.5
        for holder in world.holders:
            slow = Faults(delay=(0.05, holder.ttl_s / 2))
            world.network.link(world.server.host, holder.host, slow, one_way=True)
        everybody = {holder.host for holder in world.holders}
        while sim.now < minutes * 60.0:
            ttl_s = sim.random.choice(world.holders).ttl_s
            sim.run_for(sim.random.uniform(0.2, 1.0) * ttl_s)
            world.network.partition(everybody, {world.server.host}, one_way=True)
            sim.run_for(sim.random.uniform(0.5, 1.3) * ttl_s)
            world.network.heal()
        for holder in world.holders:
            world.network.link(world.server.host, holder.host, None)
        _calm_down(world)
        world.check_all_hold()
        world.wind_down()
    return world


def hasty(seed: int) -> HolderWorld:
    """Clients give up before they have an answer: what they asked for does not stay."""
    with Simulation(seed) as sim:
        world = HolderWorld(sim, Faults(loss=0.05, delay=(0.05, 0.5)), ttl_s=3600.0, patience_s=0.4)
        for _ in range(5):
            sim.run_for(sim.random.uniform(1.0, 5.0))
            world.server.crash()
            sim.run_for(sim.random.uniform(0.0, 1.0))
            world.server.restart()
        world.network.default = QUIET_LINK
        sim.run_for(CALM_S)
        world.check_all_hold()
        held = {lease for holder in world.holders for lease in holder.held}
        if left := set(world.server.disk) - held:
            raise Violation(f"{len(left)} leases are there that nobody holds")
        world.wind_down()
    return world


def _calm_down(world: HolderWorld) -> None:
    world.stalls = 0.0
    world.network.heal()
    world.network.default = QUIET_LINK
    if world.server.host.down:
        world.server.restart()
    for holder in world.holders:
        if holder.host.down:
            holder.host.restart()
            world.start(holder)
    world.sim.run_until(
        lambda: not any(holder.host.halted for holder in world.holders), within=600.0
    )
    world.sim.run_for(CALM_S)


def _mishap(world: HolderWorld) -> None:
    random, sim = world.sim.random, world.sim
    holder = random.choice(world.holders)
    long_s = random.choice((1.0, 5.0, 20.0))
    match random.randrange(7):
        case 0:
            world.network.partition({holder.host}, {world.server.host})
            sim.after(random.uniform(0.1, long_s), world.network.heal)
        case 1:
            sides = [{holder.host}, {world.server.host}]
            random.shuffle(sides)
            world.network.partition(*sides, one_way=True)
            sim.after(random.uniform(0.1, long_s), world.network.heal)
        case 2 if not world.server.host.down:
            world.server.host.stop(random.uniform(0.1, long_s))
        case 3 if not world.server.host.down:
            world.server.crash()
            sim.after(random.uniform(0.1, long_s), partial(_restart, world))
        case 4 if not holder.host.down:
            holder.host.stop(random.uniform(0.1, long_s))
        case 5 if not holder.host.down:
            holder.host.suspend(random.uniform(0.1, long_s))
        case 6 if not holder.host.down:
            holder.host.crash()
            sim.after(random.uniform(0.1, 5.0), partial(_begin_anew, world, holder))
        case _:
            pass


def _restart(world: HolderWorld) -> None:
    if world.server.host.down:
        world.server.restart()


def _begin_anew(world: HolderWorld, holder: Holder) -> None:
    if holder.host.down:
        holder.host.restart()
        world.start(holder)


def short_outages(seed: int, outages: int = 6) -> HolderWorld:
    """The server is away for less than the holders can bear: nobody loses a lease."""
    with Simulation(seed) as sim:
        world = HolderWorld(sim, QUIET_LINK)
        sim.run_for(5.0)
        world.check_all_hold()
        lost = [holder.lost for holder in world.holders]
        bearable_s = min(_bearable_s(holder.ttl_s) for holder in world.holders)
        for _ in range(outages):
            sim.run_for(max(holder.ttl_s for holder in world.holders) * sim.random.uniform(1, 2))
            _outage(world, sim.random.uniform(0.3, 1.0) * bearable_s)
        sim.run_for(CALM_S)
        if [holder.lost for holder in world.holders] != lost:
            raise Violation(f"an outage of at most {bearable_s:.3f} s has cost a lease")
        world.check_all_hold()
        world.wind_down()
    return world


def _bearable_s(ttl_s: float) -> float:
    """How long the server may be away: the rest is for clocks, and for another attempt."""
    slack_s = ttl_s * 2 * MAX_DRIFT_PPM / 1e6 + ttl_s / 10 + 0.2
    return ttl_s - session_margin_s(ttl_s) - ttl_s / 3 - slack_s


def _outage(world: HolderWorld, seconds: float) -> None:
    sim, server = world.sim, world.server
    outages: list[Callable[[], object]] = [
        lambda: world.network.partition({server.host}),
        lambda: world.network.partition(
            {server.host}, {h.host for h in world.holders}, one_way=True
        ),
        lambda: server.host.stop(seconds),
        server.crash,
    ]
    sim.random.choice(outages)()
    sim.run_for(seconds)
    world.network.heal()
    _restart(world)
