"""Scenarios for the renewal service: each takes a seed, and raises `Violation`."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from leasehold.events.state import EventTarget
from leasehold.renewal.service import RenewalLimits
from leasehold.testing import Host, Simulation
from tests.simulation.far_server import Stragglers
from tests.simulation.renewal_clients import FAILURE, Habits
from tests.simulation.renewal_oracle import SetModel
from tests.simulation.renewal_world import (
    QUIET,
    STORMY,
    RenewalWorld,
    crash_server,
)

CALM_S: Final = 45.0

EVENTFUL: Final = Habits(
    pause_s=(0.1, 1.0),
    weights={"add": 10, "end_lease": 8, "listen": 3, "renew": 3, "remove": 1, "replace": 1},
    warnings_s=(8.0, 30.0),
)
WARNED: Final = Habits(
    pause_s=(0.1, 1.0),
    weights={"listen": 6, "add": 4, "end_lease": 3, "renew": 3},
    warnings_s=(20.0, 60.0),
)
SHORT: Final = Habits(
    pause_s=(0.1, 2.0),
    weights={"add": 8, "remove": 2, "renew": 2, "replace": 2},
    desired_s=(5.0, 30.0),
    warnings_s=(8.0, 30.0),
)


def _finish(world: RenewalWorld) -> RenewalWorld:
    world.calm_down(CALM_S)
    world.raise_if_violated()
    world.is_over = True
    world.sim.run_for(5.0)
    for server in world.servers:  # so that only what is stored counts
        crash_server(world, server, 0.0)
    world.sim.run_for(20.0)
    world.check_sets()
    world.wind_down()
    return world


def one_server(seed: int, minutes: float = 2.0, **options: Any) -> RenewalWorld:
    """A server with an embedded engine; everything fails at times."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, STORMY, **options)
        return _storm(world, minutes)


def several_servers(seed: int, minutes: float = 2.0, **options: Any) -> RenewalWorld:
    """Two or three servers on one keyspace; everything fails at times."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, STORMY, servers=sim.random.choice((2, 3)), **options)
        return _storm(world, minutes)


def restarts(seed: int, minutes: float = 2.0) -> RenewalWorld:
    """A server is killed again and again, and nothing else fails: no lease lapses."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, habits=SHORT)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(4.0, 20.0))
            crash_server(world, world.servers[0], sim.random.uniform(0.0, 1.0))
        return _finish(world)


def eventful(seed: int, minutes: float = 1.0) -> RenewalWorld:
    """Leases fail, listeners are slow or unreachable, and the server is killed often."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, habits=EVENTFUL)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            listener, for_s = sim.random.choice(world.listeners), sim.random.uniform(0.5, 5.0)
            if sim.random.random() < 0.5:
                crash_server(world, world.servers[0], sim.random.uniform(0.0, 0.3))
            elif sim.random.random() < 0.5:
                world.cut([world.servers[0].host], [listener.host], for_s)
            else:
                _set_for(world, listener, "slow_s", value=0.5, for_s=for_s)
        return _finish(world)


def stragglers(seed: int, minutes: float = 1.0) -> RenewalWorld:
    """Requests to the keyspace are executed late, and servers are stopped until they are lost."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, servers=2, habits=EVENTFUL)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 3.0))
            server = sim.random.choice(world.servers)
            _straggle(world, server.host, sim.random.uniform(1.0, 5.0))
        return _finish(world)


def reloads(seed: int, minutes: float = 1.0) -> RenewalWorld:
    """Writes have no answer again and again, so that sets are read again."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, etcd=sim.random.random() < 0.5, habits=WARNED)
        assert world.keyspace is not None
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 3.0))
            world.keyspace.stragglers = Stragglers(sim.random.choice((0.0, 0.2, 0.5)), (0.1, 3.0))
        return _finish(world)


def takeovers(seed: int, rounds: int = 6) -> RenewalWorld:
    """A server is stopped, its shards are taken over, and its last writes are executed then."""
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, servers=2, habits=EVENTFUL)
        assert world.keyspace is not None
        sim.run_for(5.0)
        for _ in range(rounds):
            server = sim.random.choice(world.servers)
            world.keyspace.stragglers = Stragglers(0.6, (4.0, 9.0))
            sim.run_for(sim.random.uniform(0.1, 1.0))
            world.keyspace.stragglers = Stragglers()
            _stop(server.host, sim.random.uniform(8.0, 12.0))
            sim.run_for(sim.random.uniform(13.0, 16.0))
        return _finish(world)


def _storm(world: RenewalWorld, minutes: float) -> RenewalWorld:
    sim = world.sim
    while sim.now < minutes * 60.0:
        sim.run_for(sim.random.uniform(1.0, 8.0))
        mishap(world)
    return _finish(world)


def mishap(world: RenewalWorld) -> None:
    """Let one thing fail, for a while."""
    sim, random = world.sim, world.sim.random
    server = random.choice(world.servers)
    landlord = random.choice(world.landlords)
    listener = random.choice(world.listeners)
    client = random.choice(world.clients)
    for_s = random.uniform(0.1, random.choice((1.0, 5.0, 20.0)))
    what: list[Callable[[], object]] = [
        lambda: crash_server(world, server, for_s),
        lambda: crash_server(world, server, for_s),
        lambda: _stop(server.host, for_s),
        lambda: _stop(server.host, for_s),
        lambda: world.cut([server.host], [landlord.host], for_s),
        lambda: world.cut([server.host], [each.host for each in world.landlords], for_s),
        lambda: world.cut([server.host], [listener.host], for_s),
        lambda: world.cut([client.host], [each.host for each in world.servers], for_s),
        lambda: _crash_other(world, landlord, for_s),
        lambda: _crash_other(world, listener, for_s),
        lambda: _set_for(world, landlord, "is_overloaded", value=True, for_s=for_s),
        lambda: _set_for(world, listener, "slow_s", value=random.uniform(0.5, 15.0), for_s=for_s),
    ]
    keyspace = world.keyspace
    if keyspace is not None:
        what += [
            lambda: world.cut([server.host], [keyspace.host], for_s),
            lambda: world.cut([server.host], [keyspace.host], for_s),
            lambda: world.cut([keyspace.host], [each.host for each in world.servers], for_s),
            lambda: _stop(keyspace.host, for_s),
            lambda: _crash_keyspace(world, for_s),
            lambda: _straggle(world, server.host, for_s),
            lambda: _straggle(world, server.host, for_s),
        ]
    sim.record("mishap")
    random.choice(what)()


def _stop(host: Host, for_s: float) -> None:
    if not host.down:
        host.stop(for_s)


def _crash_other(world: RenewalWorld, other: Any, for_s: float) -> None:
    def restart() -> None:
        if other.host.down:
            other.host.restart()
            other.serve()

    if not other.host.down:
        other.host.crash()
        world.sim.after(for_s, restart)


def _set_for(world: RenewalWorld, what: Any, name: str, *, value: Any, for_s: float) -> None:
    before = type(value)()
    setattr(what, name, value)
    world.sim.after(for_s, partial(setattr, what, name, before))


def _crash_keyspace(world: RenewalWorld, for_s: float) -> None:
    keyspace = world.keyspace
    assert keyspace is not None

    def restart() -> None:
        if keyspace.host.down:
            keyspace.restart()

    if not keyspace.host.down:
        keyspace.crash()
        world.sim.after(for_s, restart)


def _straggle(world: RenewalWorld, host: Host, for_s: float) -> None:
    """Let requests be executed late; the server that sends them may be stopped meanwhile."""
    keyspace, random = world.keyspace, world.sim.random
    assert keyspace is not None
    keyspace.stragglers = Stragglers(random.uniform(0.05, 0.4), (0.2, 10.0))
    world.sim.after(for_s, partial(setattr, keyspace, "stragglers", Stragglers()))
    if random.random() < 0.5:
        world.sim.after(random.uniform(0.0, for_s), partial(_stop, host, random.uniform(3.0, 12.0)))


def overflow(seed: int) -> tuple[list[int], int, int]:
    """A listener is unreachable while more leases fail than its queue has room for.

    Return the numbers that it has received in the end, the number of the last event, and the size
    of the queue.
    """
    room = 5
    with Simulation(seed) as sim:
        world = RenewalWorld(sim, QUIET, limits=RenewalLimits(members=room), tasks=0)
        client, landlord = world.clients[0], world.landlords[0]
        sim.run_for(1.0)
        set_id, _ = world.run(client, world.call, client, "create", "", 3600.0)
        model = world.oracle.sets[set_id] = SetModel(set_id, sim.now + 3599.0, sim.now + 3601.0)
        model.events[FAILURE].is_exact = False
        listener = world.listeners[0]
        target = EventTarget(listener.host.name, "target")
        listen = ("listen", set_id, FAILURE, target, b"target", 0.0)
        world.run(client, world.call, client, *listen)
        listener.host.crash()
        count = sim.random.randint(room + 1, 20)
        for number in range(count):
            name = f"lease{number}"
            landlord.grant(name, 6.0).is_cancelled = True
            reference = landlord.reference(name)
            add = ("add", set_id, reference, 1.0, 6.0, 60.0)
            world.run(client, world.call, client, *add)
            sim.run_for(sim.random.uniform(0.0, 3.0))
            if sim.random.random() < 0.2:
                crash_server(world, world.servers[0], 0.0)
                sim.run_for(0.5)
        sim.run_for(10.0)
        listener.host.restart()
        listener.serve()
        sim.run_for(400.0)
        last = landlord.grant("last", 6.0)
        last.is_cancelled = True
        add = ("add", set_id, landlord.reference("last"), 1.0, 6.0, 60.0)
        world.run(client, world.call, client, *add)
        sim.run_for(20.0)
        world.raise_if_violated()
        number = world.run(client, world.call, client, *listen)
        return sorted(model.events[FAILURE].received["target"]), number, room
