"""Scenarios for single-writer files: each takes a seed, and raises `Violation`."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from leasehold.files.replica_io import StoreFailed
from leasehold.testing import Faults, Host, Simulation
from tests.simulation.far_server import Stragglers
from tests.simulation.files_habits import Habits
from tests.simulation.files_stores import Disk, Mode, StoreFaults
from tests.simulation.files_world import (
    HARD_S,
    QUIET,
    SOFT_S,
    STORMY,
    FilesWorld,
    Process,
)

ALL: Final = Habits(
    pause_s=(0.0, 1.5),
    stalls=0.05,
    leaves=0.05,
    cancels=0.05,
    weights=(
        ("write", 20),
        ("read", 8),
        ("recover", 2),
        ("rename", 3),
        ("move", 1),
        ("delete", 2),
        ("prune", 1),
        ("look", 1),
    ),
    modes=("xb", "ab", "ab", "ab", "wb", "append", "over"),
)
PEACEFUL: Final = Habits(
    pause_s=(0.0, 2.0),
    idles=0.15,
    overwrites=0.0,
    weights=(("write", 10), ("read", 4), ("rename", 3), ("move", 2), ("look", 1)),
    modes=("xb", "ab", "wb", "append"),
)
WRITING: Final = Habits(pause_s=(0.0, 0.5), work_s=(0.0, 0.2), rounds=6)
SLEEPY: Final = Habits(
    pause_s=(0.0, 1.0), stalls=0.25, leaves=0.1, weights=(("write", 8), ("read", 3))
)
LEAVING: Final = Habits(
    pause_s=(0.0, 1.0), leaves=0.5, aborts=0.0, weights=(("write", 8), ("read", 1))
)
CHANGING: Final = Habits(
    pause_s=(0.0, 0.5),
    work_s=(0.0, 0.1),
    rounds=2,
    weights=(("write", 10), ("delete", 4), ("prune", 2), ("rename", 2), ("read", 2)),
    modes=("xb", "ab", "wb", "over"),
)
RECOVERING: Final = Habits(
    pause_s=(0.0, 0.7), work_s=(0.0, 0.3), weights=(("write", 6), ("recover", 6), ("read", 2))
)


def storms(seed: int, minutes: float = 0.3, **options: Any) -> FilesWorld:
    """Everything goes wrong."""
    with Simulation(seed) as sim:
        world = FilesWorld(sim, STORMY, habits=options.pop("habits", ALL), **options)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 5.0))
            mishap(world)
        return world.finish()


def peace(seed: int, minutes: float = 0.25) -> FilesWorld:
    """Nothing goes wrong: no writer loses its file, whatever others want and rename."""
    with Simulation(seed) as sim:
        world = FilesWorld(sim, QUIET, habits=PEACEFUL, is_strict=True)
        world.oracle.takes_nothing_over = True
        sim.run_for(minutes * 60.0)
        return world.finish()


def bad_stores(seed: int, minutes: float = 0.25) -> FilesWorld:
    """Stores fail, hang, crash and return; their answers are lost, and their calls late."""
    with Simulation(seed) as sim:
        stores = sim.random.choice((3, 3, 4, 5))
        world = FilesWorld(sim, QUIET, habits=WRITING, clients=2, stores=stores)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.2, 3.0))
            trouble_store(world)
            for disk in world.disks:
                lost, late = sim.random.choice(((0.0, 0.0), (0.05, 0.0), (0.0, 0.05), (0.1, 0.1)))
                disk.faults = StoreFaults(slow=0.05, lost=lost, late=late)
        return world.finish()


def woken(seed: int, minutes: float = 0.4) -> FilesWorld:
    """Writers are stopped and wake up again; meanwhile others take their files over."""
    with Simulation(seed) as sim:
        world = FilesWorld(sim, QUIET, habits=SLEEPY, paths=("a", "b"), monitors=1)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            process = sim.random.choice(world.clients)
            befall = sim.random.choice((process.host.stop, process.host.suspend))
            unless_down(process.host, befall, sim.random.uniform(0.1, HARD_S * 1.2))
            if sim.random.random() < 0.3:
                disk = sim.random.choice(world.disks)
                disk.faults = StoreFaults(slow=0.3, late=sim.random.choice((0.0, 0.1)))
        return world.finish()


def stragglers(seed: int, minutes: float = 0.2) -> FilesWorld:
    """Requests stay behind and are executed later; files are created and deleted all the time."""
    with Simulation(seed) as sim:
        habits = sim.random.choice((CHANGING, WRITING, ALL))
        world = FilesWorld(sim, Faults(delay=(0.001, 0.05)), habits=habits, paths=("d/a", "e/b"))
        while sim.now < minutes * 60.0:
            share = sim.random.choice((0.0, 0.05, 0.2, 0.4))
            world.server.stragglers = Stragglers(share, (0.2, 4.0))
            sim.run_for(sim.random.uniform(0.5, 4.0))
        return world.finish()


def lost_answers(seed: int, minutes: float = 0.25) -> FilesWorld:
    """Requests of clients are executed without an answer, or not executed."""
    with Simulation(seed) as sim:
        habits = sim.random.choice((WRITING, RECOVERING, CHANGING))
        world = FilesWorld(sim, QUIET, habits=habits)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.1, 1.5))
            process = sim.random.choice(world.processes)
            sides = [{world.server.host}, {process.host}]
            sim.random.shuffle(sides)
            world.network.partition(*sides, one_way=True)
            sim.run_for(sim.random.choice((0.1, 0.5, 5.0)))
            world.network.heal()
        return world.finish()


def crashes(seed: int, minutes: float = 0.25) -> FilesWorld:
    """Writers, monitors and the server crash."""
    with Simulation(seed) as sim:
        world = FilesWorld(sim, QUIET, habits=RECOVERING, monitors=2)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            if sim.random.random() < 0.3:
                crash_server(world, sim.random.uniform(0.0, 2.0))
            for process in world.processes:
                if sim.random.random() < 0.25:
                    crash_process(world, process, sim.random.uniform(0.0, 3.0))
        return world.finish()


def abandoned(seed: int, rounds: int = 2) -> FilesWorld:
    """Writers end without closing their files, and stores fail: the monitor closes all of them."""
    with Simulation(seed) as sim:
        paths = tuple(f"d/{n}" for n in range(8))
        world = FilesWorld(sim, QUIET, habits=LEAVING, paths=paths, clients=2, monitors=2)
        for _ in range(rounds):
            sim.run_for(sim.random.uniform(2.0, 6.0))
            for process in world.clients:
                crash_process(world, process, sim.random.uniform(0.5, HARD_S))
            for disk in world.disks:
                if sim.random.random() < 0.5:
                    sim.random.choice((disk.fail, disk.hang, disk.crash))()
            sim.run_for(sim.random.uniform(5.0, HARD_S + 5.0))
            crash_process(world, sim.random.choice(world.monitors), sim.random.uniform(0.5, 5.0))
            for disk in world.disks:
                if disk.mode != Mode.UP:
                    sim.after(sim.random.uniform(0.0, 20.0), partial(resume_store, disk))
        return world.finish()


def damage(seed: int, minutes: float = 0.2) -> FilesWorld:
    """One of the stores damages its objects; writers crash, and readers read."""
    with Simulation(seed) as sim:
        world = FilesWorld(
            sim,
            QUIET,
            habits=Habits(pause_s=(0.0, 0.5), weights=(("write", 4), ("read", 8))),
            stores=3,
        )
        bad = sim.random.choice(world.disks)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.2, 2.0))
            names = list(bad.objects)
            for name in sim.random.sample(names, min(2, len(names))):
                bad.damage(name)
            if sim.random.random() < 0.2:
                crash_process(world, sim.random.choice(world.clients), 1.0)
        return world.finish()


def power_loss(seed: int, rounds: int = 4) -> FilesWorld:
    """All stores lose what is not durable, and writers crash at that time."""
    with Simulation(seed) as sim:
        world = FilesWorld(sim, QUIET, habits=WRITING, clients=2, stores=3, appends=1.0)
        for disk in world.disks:
            disk.faults = StoreFaults(slow=0.3)
        for left in reversed(range(rounds)):
            sim.run_for(sim.random.uniform(0.5, 3.0))
            for process in world.clients:
                if sim.random.random() < 0.7:
                    crash_process(world, process, sim.random.uniform(0.1, 2.0))
            for disk in world.disks:
                if sim.random.random() < 0.8 or not (left or disk.crashes):  # each at least once
                    disk.crash()
                    sim.after(sim.random.uniform(0.0, 5.0), partial(resume_store, disk))
            sim.run_for(sim.random.choice((0.5, SOFT_S, HARD_S)))
        return world.finish()


# Faults.


def unless_down(host: Host, befall: Callable[[float], None], for_s: float) -> None:
    """Stop a host that runs."""
    if not host.down:
        befall(for_s)


def crash_process(world: FilesWorld, process: Process, for_s: float) -> None:
    """Crash a process, and start it again."""
    if not process.host.down:
        _notice_failed_stores(world.sim, process.host)
        process.host.crash()
        world.sim.after(for_s, partial(_begin_process, world, process))


def _notice_failed_stores(sim: Simulation, host: Host) -> None:
    """Retrieve the errors of stores that a `gather` would have retrieved after all its calls."""
    for task, (_, name) in list(sim._failures._tasks.items()):
        if name == host.name and isinstance(getattr(task, "_exception", None), StoreFailed):
            task.exception()


def _begin_process(world: FilesWorld, process: Process) -> None:
    if process.host.down:
        process.host.restart()
        world.start(process)


def crash_server(world: FilesWorld, for_s: float) -> None:
    """Crash the server, and start it again."""
    if not world.server.host.down:
        world.server.crash()
        world.sim.after(for_s, partial(_restart, world))


def _restart(world: FilesWorld) -> None:
    if world.server.host.down:
        world.server.restart()


def resume_store(disk: Disk) -> None:
    """Let a store work again."""
    if disk.mode != Mode.UP:
        disk.resume()


def trouble_store(world: FilesWorld) -> None:
    """Let a store fail, hang or crash, or be out of reach of a process, for a while."""
    random, sim = world.sim.random, world.sim
    disk, for_s = random.choice(world.disks), random.uniform(0.1, random.choice((1.0, 5.0, 40.0)))
    if random.random() < 0.25:
        name = random.choice(world.processes).host.name
        disk.cut_from[name] = None
        sim.after(for_s, lambda: disk.cut_from.pop(name, None))
    elif disk.mode == Mode.UP:
        random.choice((disk.fail, disk.hang, disk.crash))()
        sim.after(for_s, partial(resume_store, disk))


def mishap(world: FilesWorld) -> None:
    """Let something go wrong."""
    random, sim, server = world.sim.random, world.sim, world.server
    process = random.choice(world.processes)
    for_s = random.uniform(0.1, random.choice((1.0, 5.0, 1.5 * HARD_S)))
    what: list[Callable[[], object]] = [
        lambda: world.network.partition({process.host}, {server.host}),
        lambda: world.network.partition({process.host}, {server.host}, one_way=True),
        lambda: world.network.partition({server.host}, {process.host}, one_way=True),
        lambda: unless_down(server.host, server.host.stop, for_s),
        lambda: crash_server(world, for_s),
        lambda: unless_down(process.host, process.host.stop, for_s),
        lambda: unless_down(process.host, process.host.suspend, for_s),
        lambda: crash_process(world, process, for_s),
        lambda: trouble_store(world),
        lambda: trouble_store(world),
        lambda: _straggle(world, for_s),
    ]
    random.choice(what)()
    sim.after(for_s, world.network.heal)


def _straggle(world: FilesWorld, for_s: float) -> None:
    world.server.stragglers = Stragglers(world.sim.random.uniform(0.02, 0.3))

    def end() -> None:
        world.server.stragglers = Stragglers()

    world.sim.after(for_s, end)
