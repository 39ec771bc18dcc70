"""Scenarios for locks: each takes a seed, and raises `Violation` if a promise was broken."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from leasehold.errors import LockDenied
from leasehold.leases.holder_view import session_margin_s
from leasehold.locks.ownership import Guard
from leasehold.testing import Faults, NotReached, Simulation
from tests.simulation.far_server import Stragglers
from tests.simulation.lock_world import (
    BRIEF,
    MAX_DRIFT_PPM,
    QUIET,
    STORMY,
    Habits,
    LockWorld,
    Process,
    crash_process,
    crash_server,
    mishap,
)
from tests.simulation.oracle import Violation

BUSY: Final = Habits(pause_s=(0.0, 0.5), work_s=(0.0, 0.3), stalls=0.02, cancels=0.1)
STALLING: Final = Habits(pause_s=(0.0, 0.3), work_s=(0.0, 0.3), stalls=0.2)
HASTY: Final = Habits(
    pause_s=(0.0, 0.2), work_s=(0.0, 0.1), cancels=0.6, tries=0.3, hurries=0.3, uncached=0.5
)
FICKLE: Final = Habits(
    pause_s=(0.0, 0.3), work_s=(0.0, 0.1), cancels=0.3, tries=0.4, hurries=0.4, uncached=0.3
)
SERENE: Final = Habits(pause_s=(0.0, 0.3), work_s=(0.0, 0.1), tries=0.0, hurries=0.0, uncached=0.0)
HANDOVER_S: Final = 1.0
"""How long it may take at most, over a quiet network, until who is next has a lock."""


def _finish(world: LockWorld) -> LockWorld:
    """After all faults: everybody gets everything, and nothing is left."""
    world.calm_down()
    world.check_everybody_gets_everything()
    world.stop_working()
    world.check_no_waiter_is_left()
    world.wind_down()
    return world


def storms(seed: int, minutes: float = 0.7, **options: Any) -> LockWorld:
    """Everything goes wrong."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, STORMY, habits=options.pop("habits", BUSY), **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 5.0))
            mishap(world)
        return _finish(world)


def stalls(seed: int, minutes: float = 0.5, **options: Any) -> LockWorld:
    """Holders are stopped, suspended, and stall just before they write; so does the server."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, QUIET, habits=STALLING, ttl_s=2.0, names=("a", "b"), **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.2, 3.0))
            for entries in list(world.oracle.live.values()):
                for held in entries:
                    if not held.host.halted and sim.random.random() < 0.5:
                        befall = sim.random.choice((held.host.stop, held.host.suspend))
                        befall(sim.random.uniform(0.5, 4.0))
            if sim.random.random() < 0.1 and not world.server.host.halted:
                world.server.host.stop(sim.random.uniform(0.5, 5.0))
        return _finish(world)


def stragglers(seed: int, minutes: float = 0.5, **options: Any) -> LockWorld:
    """Requests stay behind, and are executed seconds later; tasks are cancelled at any await."""
    with Simulation(seed) as sim:
        world = LockWorld(
            sim, Faults(delay=(0.001, 0.1)), habits=HASTY, ttl_s=10.0, names=("a", "b"), **options
        )
        while sim.now < minutes * 60.0:
            share = sim.random.choice((0.0, 0.05, 0.2, 0.4))
            world.server.stragglers = Stragglers(share, (0.2, 4.0))
            sim.run_for(sim.random.uniform(0.5, 5.0))
        return _finish(world)


def orphans(seed: int, rounds: int = 5, **options: Any) -> LockWorld:
    """Requests stay behind, answers are lost; once all is quiet again, nothing of that is left."""
    with Simulation(seed) as sim:
        world = LockWorld(
            sim, QUIET, habits=HASTY, ttl_s=10.0, foreigners=0, names=("a", "b"), **options
        )
        for _ in range(rounds):
            world.is_paused = False
            sim.run_for(sim.random.uniform(0.2, 1.5))
            world.server.stragglers = Stragglers(sim.random.choice((0.1, 0.4)), (0.5, 4.0))
            process = sim.random.choice(world.processes)
            if sim.random.random() < 0.5:
                world.network.partition({world.server.host}, {process.host}, one_way=True)
            sim.run_for(sim.random.uniform(0.2, 2.0))
            world.server.stragglers = Stragglers()
            world.network.heal()
            world.pause()
            sim.run_for(4.0)
            world.check_all_is_idle()
        world.wind_down()
        return world


def lost_answers(seed: int, minutes: float = 0.5, **options: Any) -> LockWorld:
    """What clients ask for is done, and they are not told; or it is not done."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, QUIET, habits=HASTY, names=("a", "b"), **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.2, 2.0))
            process = sim.random.choice(world.processes)
            sides = [{world.server.host}, {process.host}]
            sim.random.shuffle(sides)
            world.network.partition(*sides, one_way=True)
            sim.run_for(sim.random.choice((0.1, 0.5, 3.0)))
            world.network.heal()
        return _finish(world)


def crashes(seed: int, minutes: float = 0.5, **options: Any) -> LockWorld:
    """The server crashes, clients crash, both at the same time."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, QUIET, habits=BUSY, **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 6.0))
            if sim.random.random() < 0.6:
                crash_server(world, sim.random.uniform(0.0, 3.0))
            for process in world.processes:
                if sim.random.random() < 0.2:
                    crash_process(world, process, sim.random.uniform(0.0, 3.0))
        return _finish(world)


def restored(seed: int, **options: Any) -> LockWorld:
    """The server comes back from a backup: by the book, or with revisions gone back."""
    with Simulation(seed) as sim:
        by_the_book = sim.random.random() < 0.7
        # A resource that has seen higher tokens refuses those of a server that went back.
        world = LockWorld(sim, QUIET, habits=BUSY, is_fenced=by_the_book, **options)
        if not by_the_book:
            world.oracle.has_gone_back = True
            world.resource.on_lost_update = lambda _what: None
        for _ in range(2):
            sim.run_for(sim.random.uniform(2.0, 8.0))
            backup = world.server.backup()
            sim.run_for(sim.random.uniform(0.5, 8.0))
            world.server.restore(backup, by_the_book=by_the_book)
        return _finish(world)


def replaced(seed: int) -> LockWorld:
    """The server comes back from a backup: every guard is over with the first sign of that."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=3, ttl_s=10.0)
        backup = world.server.backup()
        guards = []
        for number, process in enumerate(world.processes):
            taking = process.host.start(_take, world, process, f"lock{number}")
            sim.run_until(taking.done, within=10.0)
            guards.append(taking.result())
        sim.run_for(sim.random.uniform(0.0, 5.0))
        by_the_book = sim.random.random() < 0.5
        world.oracle.has_gone_back = not by_the_book
        world.server.restore(backup, by_the_book=by_the_book)
        sim.run_for(5.0)
        if any(guard.is_held or not guard.lost for guard in guards):
            raise Violation("a guard has outlived its keyspace")
        world.wind_down()
        return world


# What must not happen while nothing much does.


def quiet(seed: int, **options: Any) -> LockWorld:
    """Nothing goes wrong: nobody loses anything, and the counts add up."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, QUIET, habits=SERENE, foreigners=0, ttl_s=10.0, **options)
        sim.run_for(30.0)
        world.stop_working()
        counting = world.ours[0].host.start(_count, world)
        sim.run_until(counting.done, within=10.0)
        counts = counting.result()
        if counts != dict(world.oracle.grants):
            raise Violation(f"counted {counts}, granted {dict(world.oracle.grants)}")
        _check_nobody_lost(world)
        world.check_no_waiter_is_left()
        world.wind_down()
        return world


def counted(seed: int, **options: Any) -> LockWorld:
    """Answers are lost, requests late, tasks cancelled: a count that is kept is exact all the same.

    Only what a client has acquired under a session that it lost is missing.
    """
    with Simulation(seed) as sim:
        habits = replace(HASTY, counts=True)
        world = LockWorld(
            sim, QUIET, habits=habits, ttl_s=10.0, foreigners=0, names=("a", "b"), **options
        )
        while sim.now < 30.0:
            world.server.stragglers = Stragglers(sim.random.choice((0.0, 0.1)), (0.2, 2.0))
            sim.run_for(sim.random.uniform(0.2, 2.0))
        world.server.stragglers = Stragglers()
        world.stop_working()
        sim.run_for(60.0)  # everything was idle for long enough
        counting = world.ours[0].host.start(_count, world)
        sim.run_until(counting.done, within=10.0)
        counts, grants = counting.result(), dict(world.oracle.grants)
        if any(process.lost for process in world.processes):
            if any(counts[name] > grants[name] for name in grants):
                raise Violation(f"counted {counts}, granted {grants}")
        elif counts != grants:
            raise Violation(f"counted {counts}, granted {grants}")
        world.wind_down()
        return world


def fickle(seed: int, **options: Any) -> LockWorld:
    """People only ask, give up after a while, are cancelled: nobody loses or fails by that."""
    with Simulation(seed) as sim:
        world = LockWorld(sim, QUIET, habits=FICKLE, names=("a", "b"), tasks=3, **options)
        sim.run_for(30.0)
        _check_nobody_lost(world)
        return _finish(world)


async def _count(world: LockWorld) -> dict[str, int]:
    client = world.ours[0].client
    assert client is not None
    counted = await client.count_acquisitions(*world.oracle.grants)
    if counted.not_reached:
        raise Violation(f"not reached: {counted.not_reached}")
    return counted.counts


def _check_nobody_lost(world: LockWorld) -> None:
    for process in world.processes:
        if process.lost or process.failed:
            why = f"{process.why_failed!r}"
            raise Violation(
                f"{process.host.name} lost {process.lost}, failed {process.failed}: {why}"
            )


async def _take(world: LockWorld, process: Process, name: str) -> Guard:
    client = process.client
    assert client is not None
    guard = await client.lock(name).acquire()
    world.granted(process, client, name, guard)
    return guard


def _idle_world(sim: Simulation, **options: Any) -> LockWorld:
    """Processes that do nothing by themselves, and are connected."""
    world = LockWorld(sim, QUIET, tasks=0, foreigners=0, **options)
    sim.run_until(lambda: all(process.client for process in world.processes), within=30.0)
    return world


def in_order(seed: int) -> LockWorld:
    """Over a quiet network a lock goes round in the order in which it was asked for, and soon."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=5, ttl_s=10.0)
        order: list[str] = []

        async def queue(process: Process, number: int) -> None:
            client = process.client
            assert client is not None
            async with client.lock("a") as guard:
                order.append(f"{process.host.name}.{number}")
                held = world.granted(process, client, "a", guard)
                await asyncio.sleep(0.1)
                world.oracle.released(held)

        first = world.processes[0]
        taking = first.host.start(_take, world, first, "a")
        sim.run_until(taking.done, within=10.0)
        asked, tasks = [], []
        for process in world.processes[1:]:
            tasks.append(process.host.start(queue, process, 0))
            asked.append(f"{process.host.name}.0")
            sim.run_for(0.5)
        late = world.processes[1]  # those who ask where it was asked for before come after others
        for number in (1, 2):
            tasks.append(late.host.start(queue, late, number))
            asked.append(f"{late.host.name}.{number}")
            sim.run_for(0.5)
        world.oracle.released(world.oracle.live["a"][0])
        first.host.call(taking.result().release)
        within_s = len(tasks) * (0.1 + HANDOVER_S)
        try:
            sim.run_until(lambda: all(task.done() for task in tasks), within=within_s)
        except NotReached as error:
            raise Violation(f"only {order} had it within {within_s} s") from error
        if order != asked:
            raise Violation(f"asked for in the order {asked}, had by {order}")
        world.wind_down()
        return world


def nested_names(seed: int) -> LockWorld:
    """Who has `a/b` keeps nobody from `a`, nor the other way round."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=3)
        names = ["a", "a/b", "a/b/c", "a/beef"]
        sim.random.shuffle(names)
        for name in names:
            process = sim.random.choice(world.processes)
            taking = process.host.start(_take, world, process, name)
            try:
                sim.run_until(taking.done, within=3.0)
            except NotReached as error:
                raise Violation(f"{name} cannot be had; held are {names}") from error
        sim.run_for(15.0)
        world.oracle.look()
        for entries in world.oracle.live.values():
            if not all(held.passes for held in entries):
                raise Violation(f"{entries[0].lock} was lost: {entries[0].guard!r}")
        world.wind_down()
        return world


def short_outages(seed: int, outages: int = 4) -> LockWorld:
    """One client, or the server, is away for less than can be borne: it costs nobody anything."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=4)
        for number, process in enumerate(world.processes):
            taking = process.host.start(_take, world, process, f"lock{number}")
            sim.run_until(taking.done, within=10.0)
        bearable_s = min(_bearable_s(process.ttl_s) for process in world.processes)
        for _ in range(outages):
            sim.run_for(sim.random.uniform(1.0, 12.0))
            process = sim.random.choice(world.processes)
            away_s = sim.random.uniform(0.3, 1.0) * bearable_s
            match sim.random.randrange(5):
                case 0:
                    world.network.partition({process.host}, {world.server.host})
                case 1:
                    world.network.partition({world.server.host})
                case 2:
                    world.network.partition({world.server.host}, {process.host}, one_way=True)
                case 3:
                    world.server.host.stop(away_s)
                case _:
                    crash_server(world, away_s)
            sim.run_for(away_s)
            world.network.heal()
        sim.run_for(20.0)
        for name, entries in world.oracle.live.items():
            if not all(held.passes for held in entries):
                raise Violation(f"an outage of at most {bearable_s:.3f} s has cost {name}")
        world.wind_down()
        return world


def _bearable_s(ttl_s: float) -> float:
    """How long the server may be away: the rest is for clocks, and for another attempt."""
    slack_s = ttl_s * 2 * MAX_DRIFT_PPM / 1e6 + ttl_s / 10 + 0.4
    return ttl_s - session_margin_s(ttl_s) - ttl_s / 3 - slack_s


def long_partition(seed: int) -> LockWorld:
    """Who is cut off for long loses its locks, and the next gets them; nobody else loses any."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=4)
        cut_off, heir, *others = world.processes
        takings = [
            process.host.start(_take, world, process, name)
            for process, name in ((cut_off, "a"), *((each, each.host.name) for each in others))
        ]
        sim.run_until(lambda: all(taking.done() for taking in takings), within=10.0)
        waiting = heir.host.start(_take, world, heir, "a")
        sim.run_for(sim.random.uniform(0.5, 5.0))
        world.network.partition({cut_off.host})
        within_s = cut_off.ttl_s * 1.02 + 1.0 + HANDOVER_S  # what an etcd is late, and rounding
        try:
            sim.run_until(waiting.done, within=within_s)
        except NotReached as error:
            raise Violation(
                f"a is not free {within_s:.1f} s after its holder was cut off"
            ) from error
        sim.run_for(sim.random.uniform(0.0, 10.0))
        world.network.heal()
        sim.run_for(10.0)
        for process in (heir, *others):
            for entries in world.oracle.live.values():
                if any(held.host is process.host and not held.passes for held in entries):
                    raise Violation(f"{process.host.name} has lost a lock, and was not cut off")
        world.wind_down()
        return world


def server_stall(seed: int) -> LockWorld:
    """The server stands still for longer than a term, and keeps all leases: who had a lock can have
    it again soon, its old session is not in its way."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=2, ttl_s=10.0, etcd=False)
        owner = world.processes[0]
        taking = owner.host.start(_take, world, owner, "a")
        sim.run_until(taking.done, within=10.0)
        sim.run_for(sim.random.uniform(0.0, 5.0))
        world.server.host.stop(20.0)
        sim.run_for(20.0)
        if not taking.result().lost:
            raise Violation("the holder was not told that its lock is lost")
        again = sim.random.choice(world.processes)
        taking = again.host.start(_take, world, again, "a")
        within_s = 5.0
        try:
            sim.run_until(taking.done, within=within_s)
        except NotReached as error:
            raise Violation(f"an old session is in the way for more than {within_s} s") from error
        world.wind_down()
        return world


def deleted_by_hand(seed: int) -> LockWorld:
    """Somebody deletes the key of a holder, or makes it anew: it is told at once."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=2)
        world.oracle.knows_owners = False
        owner, vandal = world.processes
        taking = owner.host.start(_take, world, owner, "a")
        sim.run_until(taking.done, within=10.0)
        guard = taking.result()

        async def meddle() -> None:
            assert vandal.client is not None
            engine = vandal.client.engine
            await engine.delete(guard.key)
            if sim.random.random() < 0.5:
                await engine.put(guard.key, b"mine")

        meddling = vandal.host.start(meddle)
        sim.run_until(meddling.done, within=10.0)
        sim.run_for(0.5)
        if guard.is_held or not guard.lost:
            raise Violation("a holder was not told that its key was deleted")
        cleaning = vandal.host.start(vandal.client.engine.delete, guard.key)  # type: ignore[union-attr]
        sim.run_until(cleaning.done, within=10.0)
        world.wind_down()
        return world


def woken(seed: int) -> LockWorld:
    """A process with an idle lock is stopped for longer than its session: it finds out when it is
    asked, and all who ask then are served one after the other."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=2, names=("a",))
        sleeper = sim.random.choice(world.processes)
        taking = sleeper.host.start(_take, world, sleeper, "a")
        sim.run_until(taking.done, within=10.0)
        world.oracle.released(world.oracle.live["a"][0])
        sleeper.host.call(taking.result().release)
        sim.run_for(sim.random.uniform(0.0, 1.0))
        befall = sim.random.choice((sleeper.host.stop, sleeper.host.suspend))
        befall(sim.random.uniform(0.9, 1.5) * sleeper.ttl_s)
        world.habits = BRIEF
        tasks = [sleeper.host.start(world.use, sleeper, "a") for _ in range(3)]
        sim.run_until(lambda: all(task.done() for task in tasks), within=60.0)
        for task in tasks:
            if task.exception() is not None:
                raise Violation(f"who asks is told: {task.exception()}") from task.exception()
        world.wind_down()
        return world


def late_mark(seed: int) -> LockWorld:
    """A mark that says no to one who has left is no answer for who comes after."""
    with Simulation(seed) as sim:
        world = _idle_world(sim, processes=3, ttl_s=10.0)
        owner, early, late = world.processes
        taking = owner.host.start(_take, world, owner, "a")
        sim.run_until(taking.done, within=10.0)
        sim.run_for(2.0)  # so that it watches the line
        slow = Faults(delay=(2.5, 2.6))
        world.network.link(owner.host, world.server.host, slow, one_way=True)

        async def ask(process: Process, recall_s: float) -> bool:
            assert process.client is not None
            try:
                lock = process.client.lock("a", recall_timeout=recall_s)
                guards.append(await lock.acquire(timeout=0))
            except LockDenied:
                return False
            return True

        guards: list[Guard] = []
        asking = early.host.start(ask, early, 1.0)
        sim.run_until(asking.done, within=10.0)
        world.oracle.released(world.oracle.live["a"][0])
        owner.host.call(taking.result().release)
        asking = late.host.start(ask, late, 20.0)
        sim.run_until(asking.done, within=30.0)
        if not asking.result():
            raise Violation("who only asks was denied a lock that was idle")
        world.network.link(owner.host, world.server.host, None, one_way=True)
        sim.run_for(5.0)
        world.wind_down()
        return world
