"""Clients that write, read, rename and recover the same files, stores, and their faults.

Each process has the shipped `Files` on a simulated engine, and some tasks; one or more processes
run the shipped monitor. Everything that is drawn is drawn from the seed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from leasehold.errors import (
    Closed,
    FileAlreadyOpen,
    FileDamaged,
    FileExists,
    FileNotFound,
    FilesError,
    IsADirectory,
    LeaseExpired,
    LeaseholdError,
    NotADirectory,
    RecoveryInProgress,
)
from leasehold.files.client import Files
from leasehold.files.file_keys import CONFIG, encode_config
from leasehold.files.monitor import Monitor
from leasehold.files.state import FilesConfig, StoreEntry
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper
from leasehold.testing import Faults, Host, NotReached, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import Stragglers
from tests.simulation.files_habits import CALM, Habits
from tests.simulation.files_history import Session
from tests.simulation.files_oracle import FilesOracle
from tests.simulation.files_server import EtcdLikeFilesServer, FilesServer
from tests.simulation.files_stores import Disk, DiskHandle, Mode, StoreFaults
from tests.simulation.lock_world import cancelled_at
from tests.simulation.oracle import Violation
from tests.support.kept_writers import FilesKeepingWriters

MAX_DRIFT_PPM: Final = 10_000.0
QUIET: Final = Faults(delay=(0.001, 0.02))
STORMY: Final = Faults(loss=0.02, delay=(0.001, 0.1), spike=0.02, spike_delay=(0.1, 3.0))
PATHS: Final = ("d/a", "d/b", "e/a", "c")
SOFT_S: Final = 3.0
HARD_S: Final = 8.0
ATTEMPTS: Final = 4
"""How often a writer repeats a call that has failed."""
END_S: Final = 400.0
"""How long writers may take to come to their end after all faults."""
CLOSED_S: Final = 400.0
"""How long the monitor may take to close all files: longer than it waits after some failures."""


@dataclass(eq=False)
class Process:
    """A program that uses files."""

    host: Host
    has_monitor: bool = False
    files: Files | None = None
    keeper: Keeper | None = None
    monitor: Monitor | None = None
    busy: int = 0
    """How many of its tasks do something."""
    sessions: dict[Session, FileWriter] = field(default_factory=dict)
    """Writers that have a file."""


class FilesWorld:
    """A server, stores, and processes that use files."""

    oracle_type: type[FilesOracle] = FilesOracle

    def __init__(
        self,
        sim: Simulation,
        faults: Faults = QUIET,
        *,
        habits: Habits = CALM,
        clients: int = 3,
        monitors: int = 1,
        tasks: int = 2,
        stores: int = 4,
        paths: tuple[str, ...] = PATHS,
        config: dict[str, Any] | None = None,
        etcd: bool | None = None,
        appends: float = 0.7,
        is_strict: bool = False,
    ) -> None:
        self.sim = sim
        self.habits = habits
        self.paths = paths
        self.is_strict = is_strict
        """Whether no call may fail for another reason than what others do to files."""
        self.is_over = False
        self.tasks = tasks
        self.failures: Counter[str] = Counter()
        self.network = sim.network(faults)
        like_etcd = sim.random.random() < 0.3 if etcd is None else etcd
        kind = EtcdLikeFilesServer if like_etcd else FilesServer
        self.server = kind(sim, self.network, self._host("server"))
        self.disks = [
            Disk(sim, f"store{n}", appends=sim.random.random() < appends) for n in range(stores)
        ]
        options: dict[str, Any] = {
            "soft_limit_s": SOFT_S,
            "hard_limit_s": HARD_S,
            "block_bytes": sim.random.choice((100, 400, 100_000)),
        }
        options.update(config or {})
        entries = tuple(StoreEntry(disk.id, disk.url) for disk in self.disks)
        self.config = FilesConfig(entries, **options)
        self.oracle = self.oracle_type(sim, self.disks, self.config)
        self.oracle.recovers_freely = any(name == "recover" for name, _ in habits.weights)
        self.server.follow(self.oracle)
        putting = self.server.host.start(self.server.engine.put, CONFIG, encode_config(self.config))
        sim.run_until(putting.done, within=10.0)
        self.processes = [
            Process(
                self._host(f"client{n}" if n < clients else f"monitor{n}"),
                has_monitor=n >= clients,
            )
            for n in range(clients + monitors)
        ]
        for process in self.processes:
            self.start(process)

    @property
    def clients(self) -> list[Process]:
        """Processes that write."""
        return [process for process in self.processes if not process.has_monitor]

    @property
    def monitors(self) -> list[Process]:
        """Processes that run a monitor."""
        return [process for process in self.processes if process.has_monitor]

    def _host(self, name: str) -> Host:
        drift = self.sim.random.choice((-1.0, 1.0, self.sim.random.uniform(-1.0, 1.0)))
        return self.sim.host(name, drift_ppm=drift * MAX_DRIFT_PPM)

    # Processes.

    def start(self, process: Process) -> None:
        """Start a process on its host."""
        process.files = None
        process.monitor = None
        process.busy = 0
        process.sessions.clear()
        process.host.start(self._live, process)

    async def _live(self, process: Process) -> None:
        host = process.host
        engine = FarKeyspace(self.server, host)
        await engine.start()
        process.keeper = Keeper(engine, host.clock, self.sim.random)
        process.files = FilesKeepingWriters(
            engine,
            process.keeper,
            f"{host.name}.{host.incarnation}",
            clock=host.clock,
            random=self.sim.random,
            open_store=partial(self.open_disk, host),
        )
        if process.has_monitor:
            process.monitor = Monitor(process.files.namespace, process.files.recoverer)
            process.monitor.start()
            return
        for _ in range(self.tasks):
            host.start(self._act, process, host.incarnation)

    def open_disk(self, host: Host, _store_id: str, url: str) -> DiskHandle:
        """Open a store on a host."""
        return DiskHandle(next(disk for disk in self.disks if disk.url == url), host)

    async def _act(self, process: Process, incarnation: int) -> None:
        random = self.sim.random
        while process.host.incarnation == incarnation:
            await asyncio.sleep(random.uniform(*self.habits.pause_s))
            if self.is_over:
                return
            names = [name for name, _ in self.habits.weights]
            weights = [weight for _, weight in self.habits.weights]
            action = random.choices(names, weights)[0]
            process.busy += 1
            try:
                await self._maybe_cancelled(self.act(process, action))
            except (LeaseholdError, OSError) as error:
                self.failed(process, action, error)
            finally:
                process.busy -= 1

    def failed(self, process: Process, action: str, error: BaseException) -> None:
        """Count an action that has failed; most failures are not allowed if nothing goes wrong."""
        self.failures[f"{action}: {type(error).__name__}"] += 1
        self.sim.record(f"{action} failed: {error!r}", process.host.name)
        expected = (FileAlreadyOpen, FileExists, FileNotFound, IsADirectory, NotADirectory)
        if self.is_strict and not isinstance(error, expected):
            self.oracle.fail(f"{action} of {process.host.name} has failed: {error!r}")

    async def _maybe_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        if self.sim.random.random() >= self.habits.cancels:
            await work
            return
        number, is_late = self.sim.random.randrange(1, 12), self.sim.random.random() < 0.5
        task = asyncio.ensure_future(cancelled_at(work, number, is_late=is_late))
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    # Actions.

    async def act(self, process: Process, action: str) -> None:
        """Perform one action of a process."""
        files, random = process.files, self.sim.random
        assert files is not None
        path = random.choice(self.paths)
        match action:
            case "write":
                await self.write(process, path, random.choice(self.habits.modes))
            case "read":
                await self.read(process, path)
            case "recover":
                await files.recover(path)
            case "rename":
                overwrite = random.random() < self.habits.overwrites
                await files.rename(path, random.choice(self.paths), overwrite=overwrite)
            case "move":
                await files.rename(*random.sample(("d", "e"), 2))
            case "delete":
                await files.delete(path)
            case "prune":
                await files.delete(random.choice(("d", "e")), recursive=True)
            case "look":
                await self._look(files, path)
            case _:
                raise AssertionError(action)

    async def _look(self, files: Files, path: str) -> None:
        async for _ in files.open_files():
            pass
        await files.holders()
        async for _ in files.list(""):
            pass
        await files.is_closed(path)

    async def read(self, process: Process, path: str, *, is_all: bool = False) -> None:
        """Read a file, twice if it grows."""
        files, oracle = process.files, self.oracle
        assert files is not None
        lengths = oracle.lengths()
        try:
            reader = await files.open(path, "rb")
            for _ in range(self.sim.random.randint(1, 2)):
                reader.seek(0)
                at_least = lengths.get(reader.id, 0)
                data = await reader.read()
                oracle.read(reader.id, data, at_least, is_all=is_all)
                lengths = oracle.lengths()
                await reader.refresh()
        except FileNotFound:
            return
        except FileDamaged as error:
            if all(disk.mode == Mode.UP and not disk.cut_from for disk in self.disks) and is_all:
                raise Violation(f"{path} cannot be read: {error}") from error
            raise
        await reader.close()

    async def open_writer(self, process: Process, path: str, mode: str) -> FileWriter:
        """Open a file for writing."""
        name = f"{process.host.name}.{process.host.incarnation}"
        self.oracle.openings[name] += 1
        try:
            opened = await self._open(process, path, mode)
        except FilesError:
            self.oracle.openings[name] -= 1  # otherwise it may still be executed
            raise
        self.oracle.openings[name] -= 1
        return opened

    async def _open(self, process: Process, path: str, mode: str) -> FileWriter:
        files = process.files
        assert files is not None
        match mode:
            case "append":
                return await files.append(path)
            case "over":
                return await files.create(path, overwrite=True)
            case "xb" | "ab" | "wb":
                return await files.open(path, mode)
        raise AssertionError(mode)

    async def write(self, process: Process, path: str, mode: str) -> None:
        """Open a file, write, flush, and close it."""
        writer = await self.open_writer(process, path, mode)
        session = self.oracle.session(process.host.name)
        stamp = writer._file.record.stamp
        self.oracle.opened(session, writer.id, stamp, writer.tell())
        process.sessions[session] = writer
        try:
            await self._write(process, session, writer)
        except (LeaseExpired, FileNotFound) as error:
            if self.is_strict:
                raise Violation(f"{path} was lost: {error!r}") from error
            self.failures[f"lost: {type(error).__name__}"] += 1
            await writer.abort()
        finally:
            if writer.closed:
                process.sessions.pop(session, None)

    async def _write(self, process: Process, session: Session, writer: FileWriter) -> None:
        random, habits, host = self.sim.random, self.habits, process.host
        for _ in range(random.randint(1, habits.rounds)):
            for _ in range(random.randint(1, 3)):
                await writer.write(session.next_record(random))
                await asyncio.sleep(random.uniform(*habits.work_s))
            if random.random() < habits.idles:
                await asyncio.sleep(random.uniform(0.0, 4 * self.config.soft_limit_s))
            if random.random() < habits.stalls:
                for_s = random.uniform(0.0, 1.3 * self.config.hard_limit_s)
                random.choice((host.stall, host.stop, host.suspend))(for_s)
            if random.random() < 0.8:
                await self.flush(process, session, writer)
            await asyncio.sleep(random.uniform(*habits.work_s))
        if random.random() < habits.leaves:
            return
        if random.random() < habits.aborts:
            session.is_aborted = True
            await writer.abort()
        else:
            await self.close_writer(process, session, writer)

    async def flush(self, process: Process, session: Session, writer: FileWriter) -> None:
        """Flush, sometimes while more is written."""
        if self.sim.random.random() < 0.2:
            length = len(session.stream)
            flushing = asyncio.ensure_future(self._repeated(process, writer.flush, "flush"))
            await asyncio.sleep(self.sim.random.uniform(0.0, 0.02))
            try:
                await writer.write(session.next_record(self.sim.random))
            finally:
                await flushing
        else:
            length = len(session.stream)
            await self._repeated(process, writer.flush, "flush")
        self.oracle.acked(session, writer.id, length, "flush")

    async def close_writer(self, process: Process, session: Session, writer: FileWriter) -> None:
        """Close a file."""
        length = len(session.stream)
        await self._repeated(process, writer.close, "close")
        self.oracle.acked(session, writer.id, length, "close")

    async def _repeated(
        self, process: Process, call: Callable[[], Coroutine[Any, Any, None]], what: str
    ) -> None:
        """Repeat a call of a writer that may succeed later."""
        for attempt in range(ATTEMPTS + 1):
            try:
                await call()
            except (LeaseExpired, FileNotFound, Closed):
                raise
            except (FilesError, LeaseholdError, OSError) as error:
                self.failed(process, what, error)
                if attempt == ATTEMPTS:
                    raise
                is_recovery = isinstance(error, RecoveryInProgress)
                await asyncio.sleep(self.sim.random.uniform(0.1, 5.0 if is_recovery else 2.0))
            else:
                return

    # The end.

    def calm_down(self, seconds: float = 2.0) -> None:
        """End all faults."""
        sim, server = self.sim, self.server
        server.stragglers = Stragglers()
        self.network.heal()
        self.network.default = QUIET
        for disk in self.disks:
            disk.faults = StoreFaults()
            disk.cut_from.clear()
            if disk.mode != Mode.UP:
                disk.resume()
        self.habits = CALM
        if server.host.down:
            server.restart()
        for process in self.processes:
            if process.host.down:
                process.host.restart()
                self.start(process)
        hosts = [server.host, *(process.host for process in self.processes)]
        sim.run_until(lambda: not any(host.halted for host in hosts), within=600.0)
        sim.run_for(seconds)

    def finish(self) -> "FilesWorld":
        """End all faults, let writers come to their end, and check all files."""
        self.calm_down()
        self.is_over = True
        sim = self.sim
        self._until(lambda: not any(p.busy for p in self.processes), END_S, self._busy)
        self._until(lambda: all(p.files for p in self.processes), 60.0, self._busy)
        tasks = [
            process.host.start(self._end_session, process, session, writer)
            for process in self.clients
            for session, writer in list(process.sessions.items())
            if not writer.closed
        ]
        self._until(lambda: all(task.done() for task in tasks), END_S, self._busy)
        for task in tasks:
            task.result()
        self.close_clients()
        self._until(lambda: not self.oracle.open_files(), CLOSED_S, self._still_open)
        sim.run_for(0.5)
        self.clean_up()
        self.check_contents()
        self.oracle.check_end()
        self._close(self.monitors)
        # Those of processes that have crashed expire.
        self._until(lambda: not self.server.lease_ids(), 3 * HARD_S, self._leases)
        return self

    def clean_up(self) -> None:
        """Let servers do what is left to be done, when all files are closed."""

    def _leases(self) -> str:
        return f"{len(self.server.lease_ids())} leases are left, and all clients are closed"

    def _until(
        self, predicate: Callable[[], object], within_s: float, why: Callable[[], str]
    ) -> None:
        try:
            self.sim.run_until(predicate, within=within_s)
        except NotReached as error:
            raise Violation(f"after {within_s:g} s: {why()}") from error

    def _busy(self) -> str:
        return f"calls do not end: {[p.host.name for p in self.processes if p.busy]}"

    def _still_open(self) -> str:
        files = [self.oracle.files[file_id].record for file_id in self.oracle.open_files()]
        return f"files are not closed: {files}"

    async def _end_session(self, process: Process, session: Session, writer: FileWriter) -> None:
        """Close a file that was left open; without faults, that works unless it was lost."""
        while True:
            try:
                await self.close_writer(process, session, writer)
            except (LeaseExpired, FileNotFound):
                await writer.abort()
            except RecoveryInProgress:
                continue  # its worker may have crashed: the monitor begins again
            except (LeaseholdError, OSError) as error:
                raise Violation(f"a writer cannot close {writer.path}: {error!r}") from error
            return

    def close_clients(self) -> None:
        """Close the files of all clients."""
        self._close(self.clients)

    def _close(self, processes: Sequence[Process]) -> None:
        tasks = [process.host.start(self._close_one, process) for process in processes]
        self._until(lambda: all(task.done() for task in tasks), 120.0, self._busy)
        for task in tasks:
            task.result()

    async def _close_one(self, process: Process) -> None:
        if process.monitor is not None:
            await process.monitor.close()
        assert process.files is not None
        assert process.keeper is not None
        await process.files.close()
        await process.keeper.close()
        await process.files.namespace.engine.close()

    def check_contents(self) -> None:
        """Read all files once more."""
        process = self.monitors[0]
        for path in self.paths:
            reading = process.host.start(self._read_all, process, path)
            self.sim.run_until(reading.done, within=120.0)
            reading.result()

    async def _read_all(self, process: Process, path: str) -> None:
        try:
            await self.read(process, path, is_all=True)
        except (IsADirectory, NotADirectory):
            return
