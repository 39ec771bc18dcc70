"""Runs that end well unless the code is wrong; each raises `Violation` if a promise was broken.

They are used twice: the shipped code must pass them, and each seeded bug must fail one of them.
"""

import asyncio
from collections.abc import Hashable

from leasehold import ExpiryStrategy, LeaseDenied, UnknownLease, exact
from leasehold.testing import Faults, Simulation
from tests.simulation.oracle import Violation
from tests.simulation.remote import RemoteLease
from tests.simulation.world import Setting, World

MINUTE_S = 60.0
HOUR_S = 3600.0

QUIET_LINK = Faults(delay=(0.001, 0.15), duplicate=0.05)
"""Late, doubled and reordered messages, none of them lost, all within the round-trip allowance."""

FAST_LINK = Faults(delay=(0.001, 0.01))

CALLS_PER_TERM = 2
"""More renewal calls than this for each term and holder, retries included, is not batched."""

HURRIED_CALLS_PER_TERM = 4
"""The same, where terms are shorter than the round-trip allowance and renewed after a third."""

TURNS_PER_S = 100
"""More turns than this, of all hosts together, is spinning where terms are tens of seconds."""


def calm(
    seed: int, *, expiry: ExpiryStrategy | None = None, leases: int = 40, minutes: int = 30
) -> World:
    """The landlord answers within every term: then no lease may lapse, whatever else happens."""
    setting = Setting(faults=QUIET_LINK, leases=leases, expiry=expiry or exact())
    with Simulation(seed) as sim:
        world = World(sim, setting)
        world.rent_all()
        while sim.now < minutes * MINUTE_S:
            sim.run_for(sim.random.uniform(20.0, 60.0))
            if sim.random.random() < 0.5:
                holder = sim.random.choice(world.holders)
                world.cut_off(holder, sim.random.uniform(0.1, 0.8))
            else:
                world.host.stop(sim.random.uniform(0.1, 1.2))
            sim.run_for(3.0)
            world.check_nothing_left_behind()
        _check_no_lapse(world)
        _check_batched(world, CALLS_PER_TERM)
        if sim.turns > TURNS_PER_S * sim.now:
            raise Violation(f"{sim.turns} turns in {sim.now:.0f} s: somebody spins")
        world.wind_down()
    return world


def hurried(seed: int) -> World:
    """Terms shorter than the time that is allowed for a round trip: still no lapse, no spinning."""
    setting = Setting(leases=30, terms=(0.2, 0.5, 1.01), faults=FAST_LINK)
    with Simulation(seed) as sim:
        world = World(sim, setting)
        world.rent_all()
        sim.run_for(20.0)
        _check_no_lapse(world)
        _check_batched(world, HURRIED_CALLS_PER_TERM)
        world.wind_down()
    return world


def stormy(seed: int, *, leases: int = 40, minutes: int = 60) -> World:
    """Everything goes wrong: leases may lapse, but never silently, early, twice or in trust."""
    with Simulation(seed) as sim:
        world = World(sim, Setting(leases=leases))
        world.rent_all()
        revoked: set[Hashable] = set()
        while sim.now < minutes * MINUTE_S:
            sim.run_for(sim.random.uniform(10.0, 60.0))
            _mishap(world, revoked)
            world.check_nothing_left_behind()
        world.network.heal()
        sim.run_for(2 * max(world.setting.terms))
        world.check_all_accounted_for()
        _check_notices(world, revoked)
        world.wind_down()
    return world


def refused(seed: int) -> World:
    """The landlord says no: the holder is told once, at once, and does not ask again."""
    with Simulation(seed) as sim:
        world = World(sim, Setting(faults=FAST_LINK))
        world.rent_all()
        sim.run_for(MINUTE_S)
        victims = [sim.random.choice(holder.leases) for holder in world.holders]
        world.policy.refused.update(lease.cookie for lease in victims)
        sim.run_for(2 * max(world.setting.terms))
        for lease in victims:
            notice = world.oracle.notices.pop(lease.cookie)
            if not isinstance(notice.error, LeaseDenied):
                raise Violation(f"denied, but noticed as {notice}")
            if world.policy.refusals[lease.cookie] != 1:
                raise Violation(f"asked again {world.policy.refusals[lease.cookie]} times")
            world.policy.refused.remove(lease.cookie)
        if world.oracle.notices:
            raise Violation(f"{len(world.oracle.notices)} notices for leases that were not denied")
        world.wind_down()
    return world


def turnover(seed: int) -> World:
    """Many leases come and go at long terms: what they leave behind must not add up."""
    with Simulation(seed) as sim:
        world = World(sim, Setting(holders=1, leases=4))
        world.rent_all()
        for _ in range(50):
            for _ in range(100):
                lease = world.host.call(world.landlord.grant, world.oracle.new_copy(), HOUR_S)
                world.oracle.granted(world.host.call(world.landlord.resource, lease.cookie))
                assert world.revoke(lease)
            world.check_nothing_left_behind()
            sim.run_for(1.0)
        world.wind_down()
    return world


def brink(seed: int) -> World:
    """Holders renew at the last moment, and the landlord is stopped at any moment, shortly.

    With an answer and a request of up to 50 ms each, 50 ms remain of the term of a second.
    Renewals that came in during the stop are waiting when it goes on, and must be heard first.
    """
    term_s = 1.0
    setting = Setting(
        holders=2, leases=20, terms=(term_s,), faults=Faults(delay=(0.001, 0.05)), managed=False
    )
    with Simulation(seed) as sim:
        world = World(sim, setting)
        world.rent_all()
        for holder in world.holders:
            for lease in holder.leases:
                holder.host.start(_keep_alive, world, lease, 0.85 * term_s, 0.0)
        for _ in range(30):
            sim.run_for(sim.random.uniform(1.3, 3.0))
            world.host.stop(sim.random.uniform(0.26, 1.2))
        _check_none_lost(world)
        world.crash_all()
        world.wind_down()
    return world


def stall(seed: int) -> World:
    """The landlord is stopped for longer than the terms: no holder that comes back loses a lease.

    In half of the stalls nothing reaches the landlord meanwhile: then holders are in back-off when
    it goes on, and their renewals are not waiting for it.
    """
    term_s = 3.0
    setting = Setting(holders=2, leases=20, terms=(term_s,), faults=FAST_LINK, managed=False)
    with Simulation(seed) as sim:
        world = World(sim, setting)
        world.rent_all()
        for holder in world.holders:
            for lease in holder.leases:
                holder.host.start(_keep_alive, world, lease, 1.0, 2.0)
        for _ in range(5):
            sim.run_for(sim.random.uniform(4.0, 6.0))
            stalled_s = sim.random.uniform(4.0, 12.0)
            if sim.random.random() < 0.5:
                world.network.partition({world.host})
                sim.after(stalled_s, world.network.heal)
            world.host.stop(stalled_s)
            sim.run_for(stalled_s)
        sim.run_for(10.0)
        _check_none_lost(world)
        world.crash_all()
        world.wind_down()
    return world


async def _keep_alive(
    world: World, lease: RemoteLease, interval_s: float, backoff_s: float
) -> None:
    """Renew a lease for ever, as a holder that never gives up."""
    random = world.sim.random
    while True:
        await asyncio.sleep(interval_s)
        while True:
            try:
                async with asyncio.timeout(0.4 if backoff_s else None):
                    await lease.renew(world.setting.terms[0])
                break
            except TimeoutError:
                await asyncio.sleep(random.uniform(0.1, backoff_s))
            except UnknownLease as error:
                world.lost.append(error)
                return


def _mishap(world: World, revoked: set[Hashable]) -> None:
    random = world.sim.random
    holder = random.choice(world.live_holders())
    match random.randrange(10):
        case 0:
            world.cut_off(holder, random.uniform(0.1, 40.0))
        case 1:
            world.cut_off(holder, random.uniform(100.0, 700.0))
        case 2:
            world.cut_off(holder, random.uniform(0.1, 40.0), one_way=random.random() < 0.5)
        case 3:
            world.put_to_sleep(world.host, random.uniform(0.1, 12.0))
        case 4:
            world.put_to_sleep(holder.host, random.uniform(0.1, 60.0))
        case 5:
            world.put_to_sleep(holder.host, random.uniform(0.1, 90.0), suspend=True)
        case 6:
            world.put_to_sleep(world.host, random.uniform(0.1, 30.0), suspend=True)
        case 7:
            host = random.choice((holder.host, world.host))
            host.jump_wall(random.uniform(-HOUR_S, HOUR_S))
        case 8 if len(world.live_holders()) > 2:
            world.crash(holder)
        case _:
            lease = random.choice(holder.leases)
            if not world.host.halted and world.revoke(lease):
                revoked.add(lease.cookie)


def _check_no_lapse(world: World) -> None:
    if world.oracle.notices:
        notice = next(iter(world.oracle.notices.values()))
        raise Violation(f"gave up although the landlord answered in time: {notice}")
    world.check_all_accounted_for()


def _check_batched(world: World, calls_per_term: int) -> None:
    calls, elapsed_s = len(world.oracle.batches), world.sim.now
    most = sum(calls_per_term * elapsed_s / term for term in world.setting.terms)
    if calls > most * world.setting.holders:
        raise Violation(f"{calls} renewal calls in {elapsed_s:.0f} s: not batched, or spinning")


def _check_notices(world: World, revoked: set[Hashable]) -> None:
    live = {lease.cookie for holder in world.live_holders() for lease in holder.leases}
    unnoticed = (revoked & live) - set(world.oracle.notices)
    if unnoticed:
        raise Violation(f"revoked, and their holders were never told: {unnoticed}")
    for lapse in world.oracle.lapses():
        assert isinstance(lapse.lease, RemoteLease)
        if lapse.error is None and lapse.lease.route.holder.name not in world.slept:
            raise Violation(f"{lapse.lease!r} lapsed, and nobody had tried to renew it")


def _check_none_lost(world: World) -> None:
    if world.lost:
        raise Violation(f"a stall of the landlord cost {len(world.lost)} leases: {world.lost[0]}")
