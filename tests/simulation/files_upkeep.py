"""Servers that close, collect and repair files while clients write and everything goes wrong.

The servers are the shipped `FilesService`. Data is kept for a short time, and servers look for work
often, so that in a run of a minute they delete and copy much.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from leasehold.errors import LeaseholdError
from leasehold.files import (
    client,
    collector,
    known_config,
    repairer,
    service,
    state,
    store_changes,
    writer,
)
from leasehold.files.client import Files
from leasehold.files.namespace import ANSWER_S
from leasehold.files.service import FilesService
from leasehold.testing import Faults, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import Stragglers
from tests.simulation.files_habits import Habits
from tests.simulation.files_scenarios import (
    crash_process,
    crash_server,
    mishap,
    resume_store,
    trouble_store,
)
from tests.simulation.files_stores import Disk, StoreFaults
from tests.simulation.files_upkeep_oracle import UpkeepOracle
from tests.simulation.files_world import HARD_S, QUIET, STORMY, FilesWorld, Process
from tests.simulation.oracle import Violation

KEEP_S: Final = 10.0
LONG_KEEP_S: Final = 60.0
"""More than a transaction takes that is executed late."""
EVERY_S: Final = 3.0
"""The time between two rounds of a server."""
SOON_S: Final = 5.0
LATE_S: Final = 100.0
"""More than twice the time that a transaction takes, without faults and with them."""
CONFIG_S: Final = 2.0
OUTDATED_S: Final = 60.0
"""More than the removal of a store takes."""
PAUSE_S: Final = 10.0
MAX_PIECES: Final = 6
CLEAN_S: Final = 600.0
"""How long servers may take for everything that is left."""

BUSY: Final = Habits(
    pause_s=(0.0, 2.0),
    work_s=(0.0, 0.2),
    leaves=0.05,
    weights=(("write", 20), ("read", 4), ("rename", 3), ("delete", 4), ("prune", 1), ("look", 1)),
    modes=("xb", "ab", "ab", "ab", "wb", "append", "over"),
)
PEACEFUL: Final = Habits(
    pause_s=(0.0, 1.0),
    work_s=(0.0, 0.2),
    overwrites=0.0,
    weights=(("write", 20), ("read", 4), ("rename", 3), ("repair", 1), ("fsck", 1)),
    modes=("xb", "ab", "wb"),
)
STEADY: Final = Habits(
    pause_s=(0.0, 2.0),
    work_s=(0.0, 0.2),
    rounds=9,
    weights=(("write", 8), ("read", 1)),
    modes=("ab",),
)
REPAIRING: Final = Habits(
    pause_s=(0.0, 0.5), weights=(("write", 8), ("read", 4), ("verify", 2), ("fsck", 1))
)


class UpkeepWorld(FilesWorld):
    """A server with an engine, stores, clients, and servers that keep the files in order."""

    oracle_type = UpkeepOracle
    oracle: UpkeepOracle

    def __init__(self, sim: Simulation, faults: Faults = QUIET, **options: Any) -> None:
        options.setdefault("monitors", 2)
        options.setdefault("habits", BUSY)
        options["config"] = {"keep_s": KEEP_S, **options.get("config", {})}
        self._services: dict[Process, FilesService] = {}
        super().__init__(sim, faults, **options)

    async def _live(self, process: Process) -> None:
        if not process.has_monitor:
            await super()._live(process)
            return
        host = process.host
        engine = FarKeyspace(self.server, host)
        await engine.start()
        upkeep = FilesService(
            engine,
            [disk.url for disk in self.disks],
            clock=host.clock,
            random=self.sim.random,
            open_store=partial(self.open_disk, host),
        )
        self._services[process] = upkeep
        process.keeper, process.files = upkeep._keeper, upkeep.files
        upkeep.start()

    async def _close_one(self, process: Process) -> None:
        if process.has_monitor:
            await self._services[process].close()
        await super()._close_one(process)

    async def act(self, process: Process, action: str) -> None:
        """Perform one action of a process."""
        files = process.files
        assert files is not None
        match action:
            case "repair" | "verify":
                await files.repair(verify=action == "verify")
            case "fsck":
                async for _ in files.fsck(deep=self.sim.random.random() < 0.5):
                    pass
            case _:
                await super().act(process, action)

    def configure(self, **changes: Any) -> None:
        """Change the configuration, as an operator does."""
        process = next(each for each in self.processes if each.files and not each.host.down)
        assert process.files is not None
        process.host.start(self._configure, process.files, changes)

    async def _configure(self, files: Files, changes: dict[str, Any]) -> None:
        with suppress(LeaseholdError, OSError, ValueError):
            await files.configure(**changes)

    def clean_up(self) -> None:
        """Let servers do what is left to be done, when all files are closed."""
        process = self.monitors[0]
        assert process.files is not None
        self.sim.run_for(self.config.orphan_s + 2 * EVERY_S)  # all objects are old now
        until = self.sim.now + CLEAN_S
        if any(disk.damaged for disk in self.disks):
            repairing = process.host.start(partial(process.files.repair, verify=True))
            self._until(repairing.done, CLEAN_S, lambda: "a repair does not end")
        while why := self.oracle.left_over():
            if self.sim.now > until:
                raise Violation(f"after {CLEAN_S:g} s: {why}")
            self.sim.run_for(EVERY_S)


@contextmanager
def _upkeep(seed: int, late_s: float = SOON_S, config_s: float = CONFIG_S) -> Iterator[Simulation]:
    """Begin a simulation with servers that look for work often."""
    with ExitStack() as stack:
        for owner, name, value in (
            (state, "LATE_S", late_s),
            (collector, "ROUND_S", EVERY_S),
            (service, "COLLECT_S", EVERY_S),
            (service, "REPAIR_S", EVERY_S),
            (writer, "MAX_PIECES", MAX_PIECES),
            (repairer, "MAX_PIECES", MAX_PIECES),
            (known_config, "CONFIG_S", config_s),
            (client, "store_id", lambda url: url.removeprefix("sim://")),
            (state, "store_id", lambda url: url.removeprefix("sim://")),
            (store_changes, "PAUSE_S", PAUSE_S),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield stack.enter_context(Simulation(seed))


def tidy(seed: int, minutes: float = 0.4) -> UpkeepWorld:
    """Nothing goes wrong: what is replaced is deleted when its time has come."""
    with _upkeep(seed) as sim:
        world = UpkeepWorld(sim, habits=PEACEFUL, is_strict=True)
        sim.run_for(minutes * 60.0)
        world.finish()
        return world


def storms(seed: int, minutes: float = 0.7) -> UpkeepWorld:
    """Everything goes wrong."""
    with _upkeep(seed, LATE_S) as sim:
        world = UpkeepWorld(sim, STORMY, config=_kept(sim))
        _expect_late(world)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            mishap(world)
        world.finish()
        return world


def crashes(seed: int, minutes: float = 0.6) -> UpkeepWorld:
    """Writers, servers and the engine crash."""
    with _upkeep(seed, LATE_S) as sim:
        world = UpkeepWorld(sim, config=_kept(sim))
        _expect_late(world)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            if sim.random.random() < 0.2:
                crash_server(world, sim.random.uniform(0.0, 2.0))
            for process in world.processes:
                if sim.random.random() < 0.2:
                    crash_process(world, process, sim.random.uniform(0.0, 3.0))
        world.finish()
        return world


def bad_stores(seed: int, minutes: float = 0.7) -> UpkeepWorld:
    """Stores fail, hang, crash and return: blocks have too few replicas, and are repaired."""
    with _upkeep(seed) as sim:
        world = UpkeepWorld(sim, clients=2, stores=sim.random.choice((3, 4, 5)))
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.5, 4.0))
            trouble_store(world)
            for disk in world.disks:
                lost, late = sim.random.choice(((0.0, 0.0), (0.05, 0.0), (0.0, 0.05), (0.1, 0.1)))
                disk.faults = StoreFaults(slow=0.05, lost=lost, late=late)
        world.finish()
        return world


def late(seed: int, minutes: float = 0.6) -> UpkeepWorld:
    """Requests stay behind and are executed later, also those of repairs and of deletes."""
    with _upkeep(seed, LATE_S) as sim:
        world = UpkeepWorld(sim, config=_kept(sim), clients=2)
        _expect_late(world)
        while sim.now < minutes * 60.0:
            share = sim.random.choice((0.0, 0.05, 0.2, 0.4))
            world.server.stragglers = Stragglers(share, (0.2, 15.0))
            if sim.random.random() < 0.5:
                trouble_store(world)
            sim.run_for(sim.random.uniform(0.5, 4.0))
        world.finish()
        return world


def damage(seed: int, minutes: float = 0.6) -> UpkeepWorld:
    """A store loses, cuts and damages objects; clients ask for repairs."""
    with _upkeep(seed) as sim:
        world = UpkeepWorld(sim, habits=REPAIRING)
        bad = sim.random.choice(world.disks)
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(0.2, 2.0))
            for _ in range(2):
                names = [name for name, each in bad.objects.items() if each.data and "-" in name]
                if names:
                    spoil = sim.random.choice((bad.damage, bad.shorten, bad.lose))
                    spoil(sim.random.choice(names))
            if sim.random.random() < 0.1:
                crash_process(world, sim.random.choice(world.clients), 1.0)
        world.finish()
        return world


def wrong_ages(seed: int, minutes: float = 0.5) -> UpkeepWorld:
    """The clocks of stores are ahead, so that all objects look old; blocks may be merged."""
    with _upkeep(seed) as sim:
        appends = sim.random.choice((1.0, 0.0))
        world = UpkeepWorld(sim, habits=STEADY, stores=3, appends=appends)
        for disk in world.disks:
            disk.ahead_s = 1e6
            disk.faults = StoreFaults(slow=0.3)
        sim.run_for(minutes * 60.0)
        world.finish()
        return world


def slow_repairs(seed: int, minutes: float = 0.7) -> UpkeepWorld:
    """Blocks of many pieces are merged by several servers, of which one is slow."""
    with _upkeep(seed) as sim:
        config = {"keep_s": 0.0, "block_bytes": 100_000}
        world = UpkeepWorld(
            sim, habits=STEADY, clients=2, monitors=3, stores=3, appends=0.0, config=config
        )
        world.oracle.late_s = ANSWER_S
        slow = Faults(delay=(3.0, 4.5))
        world.network.link(world.monitors[0].host, world.server.host, slow)
        sim.run_for(minutes * 60.0)
        world.network.link(world.monitors[0].host, world.server.host, None)
        world.finish()
        return world


def removals(seed: int, minutes: float = 1.5, config_s: float = CONFIG_S) -> UpkeepWorld:
    """Stores are removed, emptied once they have left, and added again; others fail."""
    with _upkeep(seed, config_s=config_s) as sim:
        habits = replace(BUSY, pause_s=(0.0, 6.0), leaves=0.02)
        world = UpkeepWorld(sim, habits=habits, clients=2, stores=5)
        removed: list[Disk] = []
        while sim.now < minutes * 60.0:
            sim.run_for(sim.random.uniform(1.0, 8.0))
            for disk in dict.fromkeys(removed):
                if disk.id not in world.oracle.config.staying | world.oracle.config.leaving:
                    world.oracle.counts["removed stores"] += 1
                    disk.objects.clear()
                    world.configure(add=[disk.url])
                    sim.run_for(1.0)
                    removed = [each for each in removed if each is not disk]
            staying = [each for each in world.disks if each.id in world.oracle.config.staying]
            if len(staying) > 3:
                disk = sim.random.choice(staying)
                world.configure(remove=[disk.url])
                removed.append(disk)
                sim.run_for(1.0)
                if sim.random.random() < 0.3:
                    disk.fail()
                    sim.after(sim.random.uniform(1.0, 40.0), partial(resume_store, disk))
            if sim.random.random() < 0.1:
                crash_process(world, sim.random.choice(world.processes), 1.0)
        world.finish()
        return world


def outdated(seed: int) -> UpkeepWorld:
    """The same, and processes do not read the configuration again before it is too late."""
    return removals(seed, config_s=OUTDATED_S)


def damaged_sources(seed: int, minutes: float = 0.5) -> UpkeepWorld:
    """One store damages objects, and another one fails: blocks are copied from what is left."""
    with _upkeep(seed) as sim:
        world = UpkeepWorld(sim, habits=STEADY, clients=2, stores=4)
        bad, failing = world.disks[:2]
        while sim.now < minutes * 60.0:
            failing.fail()
            for _ in range(20):
                sim.run_for(0.1)
                for name, each in list(bad.objects.items()):
                    if each.data and "-" in name and name not in bad.damaged:
                        bad.damage(name)
            failing.resume()
            sim.run_for(sim.random.uniform(1.0, 3.0))
        world.finish()
        return world


def _kept(sim: Simulation) -> dict[str, Any]:
    return {"keep_s": sim.random.choice((0.0, KEEP_S, LONG_KEEP_S))}


def _expect_late(world: UpkeepWorld) -> None:
    world.oracle.late_s = ANSWER_S + 2 * HARD_S
