"""Scenarios in which a few clients of single-writer files meet at the worst moment."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from leasehold.errors import LeaseholdError
from leasehold.files.recovery import WORKER_TTL_S
from leasehold.files.writer import FileWriter
from leasehold.testing import Faults, Simulation
from tests.simulation.far_server import Stragglers
from tests.simulation.files_habits import Habits
from tests.simulation.files_history import Session
from tests.simulation.files_scenarios import crash_process, resume_store, unless_down
from tests.simulation.files_stores import StoreFaults
from tests.simulation.files_world import HARD_S, QUIET, SOFT_S, FilesWorld, Process
from tests.simulation.oracle import Violation

IDLE: Final = Habits()


def _world(sim: Simulation, **options: Any) -> FilesWorld:
    options.setdefault("clients", 2)
    world = FilesWorld(sim, QUIET, habits=IDLE, tasks=0, **options)
    sim.run_until(lambda: all(process.files for process in world.processes), within=10.0)
    return world


async def _begin(
    world: FilesWorld, process: Process, path: str, mode: str = "ab"
) -> tuple[Session, FileWriter]:
    """Open a file, flush some bytes, and write others."""
    writer = await world.open_writer(process, path, mode)
    session = world.oracle.session(process.host.name)
    world.oracle.opened(session, writer.id, writer._file.record.stamp, writer.tell())
    process.sessions[session] = writer
    await writer.write(session.next_record(world.sim.random))
    await world.flush(process, session, writer)
    await writer.write(session.next_record(world.sim.random))
    return session, writer


def _run(world: FilesWorld, process: Process, *args: Any, within_s: float = 60.0) -> Any:
    task = process.host.start(*args)
    world.sim.run_until(task.done, within=within_s)
    return task.result()


async def _quietly(call: Callable[..., Awaitable[Any]], *args: Any) -> None:
    try:
        await call(*args)
    except (LeaseholdError, OSError):
        return


async def _append(world: FilesWorld, process: Process, path: str) -> None:
    """Take a file over, as soon as that is allowed, write to it, and close it."""
    process.busy += 1  # the end of the scenario waits for it
    for _ in range(60):
        try:
            session, writer = await _begin(world, process, path)
        except (LeaseholdError, OSError):
            await asyncio.sleep(0.5)
            continue
        await _quietly(world.close_writer, process, session, writer)
        if writer.closed:
            process.sessions.pop(session)
        break
    process.busy -= 1


def taken(seed: int, rounds: int = 4) -> FilesWorld:
    """A writer is stopped; another client, the monitor or none takes its file; it wakes up."""
    with Simulation(seed) as sim:
        world = _world(sim, stores=3)
        first, second = world.clients
        for number in range(rounds):
            path = f"{number % 2}"
            session, writer = _run(world, first, _begin, world, first, path)
            for_s = sim.random.uniform(0.5 * SOFT_S, 1.5 * HARD_S)
            flushing = None
            if sim.random.random() < 0.7:  # in the middle of a flush
                flushing = first.host.start(_quietly, world.flush, first, session, writer)
                sim.run_for(sim.random.uniform(0.0, 0.03))
            first.host.stop(for_s)
            if sim.random.random() < 0.5:
                second.host.start(_append, world, second, path)
            elif sim.random.random() < 0.5:
                unless_down(world.monitors[0].host, world.monitors[0].host.stop, for_s + 2.0)
            sim.run_until(lambda: not first.host.halted, within=60.0)
            if flushing is not None:
                sim.run_until(flushing.done, within=60.0)
            ends = world.close_writer if sim.random.random() < 0.6 else world.flush
            _run(world, first, _quietly, ends, first, session, writer)
            _run(world, first, writer.abort)
            first.sessions.pop(session)
            sim.run_for(1.0)
        world.paths = ("0", "1")
        return world.finish()


def two_recoveries(seed: int, rounds: int = 3) -> FilesWorld:
    """A process stops, or crashes, in the middle of a recovery; others go on with the file."""
    with Simulation(seed) as sim:
        world = _world(sim, clients=3)
        world.oracle.recovers_freely = True
        for disk in world.disks:
            disk.faults = StoreFaults(slow=0.2)
        first, second, third = world.clients
        for number in range(rounds):
            path = f"{number}"
            _run(world, first, _begin, world, first, path)
            crash_process(world, first, 1.0)
            assert second.files is not None
            second.host.start(_quietly, second.files.recover, path)
            sim.run_for(sim.random.uniform(0.0, 0.6))
            if sim.random.random() < 0.5:
                crash_process(world, second, 1.0)
                sim.run_for(WORKER_TTL_S + 6.0)
            else:
                second.host.stop(WORKER_TTL_S + sim.random.uniform(1.0, 6.0))
                third.host.start(_append, world, third, path)
                sim.run_until(lambda: not second.host.halted, within=60.0)
                sim.run_for(2.0)
            sim.run_until(lambda: first.files and second.files, within=60.0)
        world.paths = tuple(map(str, range(rounds)))
        return world.finish()


def unattended(seed: int, rounds: int = 3) -> FilesWorld:
    """Writers crash while no monitor runs, or while it is slow and others take their files."""
    with Simulation(seed) as sim:
        world = _world(sim)
        first, second = world.clients
        monitor = world.monitors[0]
        slow = Faults(delay=(0.2, 1.5))
        world.network.link(monitor.host, world.server.host, slow)
        for number in range(rounds):
            path = f"{number}"
            _run(world, first, _begin, world, first, path)
            crash_process(world, first, HARD_S)
            if sim.random.random() < 0.3:
                crash_process(world, monitor, HARD_S + sim.random.uniform(0.5, 3.0))
                sim.run_for(HARD_S + 4.0)
            else:
                sim.run_for(HARD_S + sim.random.uniform(-1.0, 3.0))
                _run(world, second, _append_and_hold, world, second, path)
                sim.run_for(4.0)
            sim.run_until(lambda: first.files, within=60.0)
        world.network.link(monitor.host, world.server.host, None)
        world.paths = tuple(map(str, range(rounds)))
        return world.finish()


async def _append_and_hold(world: FilesWorld, process: Process, path: str) -> None:
    """Take a file over, as soon as that is possible, and keep it open."""
    for _ in range(40):
        try:
            await _begin(world, process, path)
        except (LeaseholdError, OSError):
            await asyncio.sleep(0.2)
        else:
            return


def unanswered(seed: int, rounds: int = 5) -> FilesWorld:
    """Flushes are executed without an answer; no other client wants the file, so they succeed."""
    with Simulation(seed) as sim:
        world = _world(sim, clients=1, stores=3)
        client, server = world.clients[0], world.server
        session, writer = _run(world, client, _begin, world, client, "a")
        for _ in range(rounds):
            flushing = client.host.start(world.flush, client, session, writer)
            sim.run_for(sim.random.uniform(0.0, 0.08))
            world.network.partition({server.host}, {client.host}, one_way=True)
            sim.run_for(sim.random.uniform(0.1, 1.0))
            world.network.heal()
            sim.run_until(flushing.done, within=120.0)
            try:
                flushing.result()
            except (LeaseholdError, OSError) as error:
                raise Violation(f"a flush has failed: {error!r}") from error
            _run(world, client, writer.write, session.next_record(sim.random))
        if world.failures:
            raise Violation(f"calls have failed: {dict(world.failures)}")
        world.paths = ("a",)
        return world.finish()


def torn(seed: int, rounds: int = 5) -> FilesWorld:
    """A writer and a store crash while bytes are written, so that replicas end differently."""
    with Simulation(seed) as sim:
        world = _world(sim, clients=1, stores=3, appends=1.0)
        client, bad = world.clients[0], world.disks[0]
        for number in range(rounds):
            session, writer = _run(world, client, _begin, world, client, f"{number}")
            bad.faults = StoreFaults(slow=0.9)
            client.host.start(_quietly, world.flush, client, session, writer)
            sim.run_for(sim.random.uniform(0.1, 2.0))
            crash_process(world, client, 1.0)
            bad.garbles = sim.random.random() < 0.7
            bad.crash()
            if sim.random.random() < 0.4:
                for name in [each for each in bad.objects if writer.id in each]:
                    bad.shorten(name)
            bad.faults = StoreFaults()
            sim.after(sim.random.uniform(0.0, 5.0), partial(resume_store, bad))
            sim.run_for(6.0)
        world.paths = tuple(map(str, range(rounds)))
        return world.finish()


def late_creates(seed: int, rounds: int = 4) -> FilesWorld:
    """Creates stay behind and are executed late, when the file was deleted again."""
    with Simulation(seed) as sim:
        world = _world(sim)
        first, second = world.clients
        keeping = _run(world, first, _begin, world, first, "kept")  # so that the holder stays
        for _ in range(rounds):
            creating = first.host.start(_begin, world, first, "a", "xb")
            sim.run_for(sim.random.uniform(0.0, 0.03))
            world.server.stragglers = Stragglers(1.0, (0.5, 3.0))
            sim.run_for(sim.random.uniform(0.0, 0.1))
            world.server.stragglers = Stragglers()
            sim.run_until(creating.done, within=60.0)
            session, writer = creating.result()
            assert second.files is not None
            _run(world, second, second.files.delete, "a")
            _run(world, first, writer.abort)
            first.sessions.pop(session)
            sim.run_for(4.0)
        _run(world, first, world.close_writer, first, *keeping)
        world.paths = ("kept", "a")
        return world.finish()


def overtaken(seed: int, rounds: int = 4) -> FilesWorld:
    """A flush that seals a block is executed without an answer, and others recover the file."""
    with Simulation(seed) as sim:
        world = _world(sim, stores=3, config={"block_bytes": 20})
        world.oracle.recovers_freely = True
        first, second = world.clients
        for _ in range(rounds):
            session, writer = _run(world, first, _begin, world, first, "a")
            flushing = first.host.start(_quietly, world.flush, first, session, writer)
            sim.run_for(sim.random.uniform(0.02, 0.1))
            world.network.partition({world.server.host}, {first.host}, one_way=True)
            sim.run_for(sim.random.uniform(0.0, 0.1))
            assert second.files is not None
            _run(world, second, _quietly, second.files.recover, "a")
            world.network.heal()
            sim.run_until(flushing.done, within=120.0)
            _run(world, first, writer.write, session.next_record(sim.random))
            _run(world, first, _quietly, world.flush, first, session, writer)
            _run(world, first, _quietly, world.close_writer, first, session, writer)
            _run(world, first, writer.abort)
            first.sessions.pop(session)
        world.paths = ("a",)
        return world.finish()
