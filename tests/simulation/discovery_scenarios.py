"""Scenarios for the discovery service: each takes a seed, and raises `Violation`."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from leasehold.discovery.state import DISCARDED_GROUP_S
from leasehold.testing import Faults, Simulation
from tests.simulation.discovery_world import (
    GROUPS,
    NAMES,
    DiscoveryWorld,
    Habits,
    crash_server,
)
from tests.simulation.far_server import Stragglers

CALM_S: Final = 330.0
"""Longer than a locator, or a discarded registrar, waits for its next call after a storm."""

CHANGING: Final = Habits(pause_s=(0.05, 1.0), weights={"groups": 8, "locators": 8, "nothing": 2})
DISCARDING: Final = Habits(pause_s=(0.5, 8.0), weights={"discard": 5, "groups": 2, "nothing": 4})
PATIENT: Final = Habits(
    pause_s=(10.0, 60.0), weights={"groups": 1, "locators": 1, "nothing": 4}, locators=(2, 3, 4)
)
STAYING: Final = Habits(pause_s=(60.0, 120.0), weights={"nothing": 1}, locators=(len(NAMES),))
LEAVING: Final = Habits(pause_s=(0.5, 4.0), weights={"cancel": 1, "nothing": 2}, locators=(0, 1))

PROMPT_S: Final = 0.018
"""How long an answer and a write take, and less than a registrar takes to be found."""

SLOW: Final = Faults(delay=(0.1, 0.4))
"""Between the server and its keyspace."""


def _finish(world: DiscoveryWorld) -> DiscoveryWorld:
    world.calm_down(CALM_S)
    world.check_registrations(is_restarted=False)
    crash_server(world, 0.0)  # so that only what is stored counts
    world.sim.run_for(20.0)
    world.check_registrations(is_restarted=True)
    world.wind_down()
    return world


def storm(seed: int, minutes: float = 2.0, **options: Any) -> DiscoveryWorld:
    """A server with an embedded engine; registrars, listeners and the server fail at times."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 6.0))
            mishap(world)
        return _finish(world)


def restarts(seed: int, rounds: int = 12) -> DiscoveryWorld:
    """A server is killed again and again, and registrars come and go: events have no gap."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=PATIENT, clients=5)
        world.oracle.late_s = PROMPT_S
        for _ in range(rounds):
            sim.run_for(sim.random.uniform(1.0, 5.0))
            sim.random.choice((_come_or_go, _regroup))(world)
            sim.run_for(sim.random.uniform(0.0, 0.06))
            crash_server(world, sim.random.uniform(0.0, 0.5))
        return _finish(world)


def interests(seed: int, minutes: float = 0.7) -> DiscoveryWorld:
    """Clients change their interests all the time; registrars change, and the server restarts."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=CHANGING, clients=4)
        _slow_down(world)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.1, 1.5))
            what = (_come_or_go, _regroup, _regroup, _slow_down, _crash_briefly)
            sim.random.choice(what)(world)
        return _finish(world)


def slow_writes(seed: int, rounds: int = 10) -> DiscoveryWorld:
    """The same on a keyspace that takes long to answer: much happens during each write."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=CHANGING, has_keyspace=True, clients=5)
        assert world.keyspace is not None
        world.network.link(world.server.host, world.keyspace.host, SLOW)
        for _ in range(rounds):
            world.is_paused = False
            sim.run_for(3.0)
            for _ in range(4):
                _regroup(world)
                sim.run_for(sim.random.uniform(0.0, 0.5))
            world.is_paused = True
            sim.run_for(8.0)
            world.check_registrations(is_restarted=False, is_delivered=False)
        return _finish(world)


def newcomers(seed: int, rounds: int = 4) -> DiscoveryWorld:
    """Registrars answer slowly after each restart, and registrations are made all the time."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=LEAVING)
        for _ in range(rounds):
            sim.run_for(sim.random.uniform(2.0, 6.0))
            _slow_down(world)
            crash_server(world, sim.random.uniform(0.0, 0.5))
        sim.run_for(20.0)
        return _finish(world)


def patient(seed: int, minutes: float = 2.5) -> DiscoveryWorld:
    """Registrations want groups and locators for long, and registrars regroup or are replaced."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=PATIENT, clients=2)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(2.0, 15.0))
            sim.random.choice((_regroup, _leave, _take_place, _crash_briefly, _silence))(world)
        return _finish(world)


def both_ways(seed: int, rounds: int = 12) -> DiscoveryWorld:
    """Registrations want groups and all locators, and registrars leave groups and return."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=STAYING, clients=1)
        for _ in range(rounds):
            sim.run_for(sim.random.uniform(10.0, 20.0))
            sim.random.choice((_regroup, _leave))(world)
        return _finish(world)


def discards(seed: int, minutes: float = 2.0) -> DiscoveryWorld:
    """Clients discard registrars, which are silent, and do not answer at times."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, habits=DISCARDING)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, DISCARDED_GROUP_S))
            sim.random.choice((_silence, _hang, _slow_down, _crash_briefly))(world)
        return _finish(world)


def stragglers(seed: int, minutes: float = 1.0) -> DiscoveryWorld:
    """A server on a keyspace whose requests have no answer, and are executed late."""
    with Simulation(seed) as sim:
        world = DiscoveryWorld(sim, has_keyspace=True, habits=CHANGING)
        assert world.keyspace is not None
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 3.0))
            share = sim.random.choice((0.0, 0.1, 0.3))
            world.keyspace.stragglers = Stragglers(share, (0.1, 4.0))
            mishap(world)
        return _finish(world)


# What can happen.


def mishap(world: DiscoveryWorld) -> None:
    """Let one thing happen."""
    sim = world.sim
    sim.record("mishap")
    what: list[Callable[[DiscoveryWorld], object]] = [
        _come_or_go,
        _come_or_go,
        _regroup,
        _regroup,
        _silence,
        _cut,
        _hang,
        _slow_down,
        _take_place,
        _crash_briefly,
        _crash_briefly,
        _listener_fails,
        _listener_fails,
        _listener_is_gone,
    ]
    sim.random.choice(what)(world)


def _for_s(world: DiscoveryWorld) -> float:
    return world.sim.random.uniform(0.1, world.sim.random.choice((2.0, 20.0, 150.0)))


def _pick(world: DiscoveryWorld) -> str:
    names = [name for name in world.registrars.registrars if name not in world.gone]
    return world.sim.random.choice(names)


def _restore(world: DiscoveryWorld, name: str) -> None:
    if name not in world.gone:
        world.registrars.restore(name)


def _come_or_go(world: DiscoveryWorld) -> None:
    network, random = world.registrars, world.sim.random
    absent = [name for name in NAMES if name not in network.registrars]
    down = [name for name, each in network.registrars.items() if not each.is_up]
    name = random.choice((*absent, *down, _pick(world), _pick(world)))
    if name in absent:
        network.add(name, " ".join(each for each in GROUPS if random.random() < 0.5))
    elif name in down:
        _restore(world, name)
    else:
        world.oracle.bad_at[name] = world.sim.now
        random.choice((network.kill, network.stop))(name)
        if random.random() < 0.8:
            world.sim.after(_for_s(world), partial(_restore, world, name))


def _regroup(world: DiscoveryWorld) -> None:
    random, name = world.sim.random, _pick(world)
    groups = " ".join(each for each in GROUPS if random.random() < 0.5)
    world.oracle.regrouped_at[name] = world.sim.now
    world.registrars.join(name, groups)


def _leave(world: DiscoveryWorld) -> None:
    """Have a registrar leave all groups that are wanted by name."""
    name = _pick(world)
    world.oracle.regrouped_at[name] = world.sim.now
    world.registrars.join(name, "other")


def _silence(world: DiscoveryWorld) -> None:
    name = _pick(world)
    world.registrars.silence(name)
    if world.sim.random.random() < 0.5:
        for view in world.registrars.views:  # as if its TTL had passed
            view.deliver(partial(_withdrawn, view, name))
    world.sim.after(_for_s(world), partial(_restore, world, name))


def _withdrawn(view: Any, name: str) -> None:
    view.withdrawn(name)


def _cut(world: DiscoveryWorld) -> None:
    name = _pick(world)
    world.registrars.cut(name)
    world.sim.after(_for_s(world), partial(_restore, world, name))


def _hang(world: DiscoveryWorld) -> None:
    name = _pick(world)
    world.registrars[name].is_hanging = True
    world.sim.after(_for_s(world), partial(_restore, world, name))


def _slow_down(world: DiscoveryWorld) -> None:
    world.registrars.answer_s = world.sim.random.uniform(0.0, 0.5)


def _take_place(world: DiscoveryWorld) -> None:
    """Have a registrar go for good, and another one answer at its endpoints."""
    if not world.gone:  # else the other one may go, too
        gone = _pick(world)
        world.gone.add(gone)
        other = _pick(world)
        world.registrars.kill(gone)
        for endpoint in world.registrars[gone].endpoints:
            world.registrars.replace(endpoint, other)
        world.oracle.bad_at[gone] = world.sim.now


def _crash_briefly(world: DiscoveryWorld) -> None:
    crash_server(world, world.sim.random.uniform(0.0, 3.0))


def _listener_fails(world: DiscoveryWorld) -> None:
    sim, for_s = world.sim, min(30.0, _for_s(world))
    listener = sim.random.choice(world.listeners)
    if sim.random.random() < 0.5:
        listener.slow_s = 0.5
        sim.after(for_s, partial(setattr, listener, "slow_s", 0.0))
    elif not listener.host.down:
        listener.host.crash()

        def restart() -> None:
            if listener.host.down:
                listener.host.restart()
                listener.serve()

        sim.after(for_s, restart)


def _listener_is_gone(world: DiscoveryWorld) -> None:
    models = [each for each in world.oracle.registrations.values() if each.ended_at is None]
    if models:
        gone = world.sim.random.choice(models).listener
        for listener in world.listeners:
            listener.gone.add(gone)
