"""Simulated replica stores: disks that processes reach over a network.

A call takes a while to arrive, to be performed, to be made durable, and to be answered, each drawn
from the seed. A request that was sent takes effect whatever happens to its sender, and may do so
although its answer is lost, or long after its sender was told that it has failed.

A store fails (each call is refused), hangs (calls wait until it continues), or crashes: then bytes
that were not durable are lost, or replaced by zeros, as after a loss of power.
"""

import asyncio
import builtins
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from leasehold.errors import Closed, UnsupportedOperation
from leasehold.files.replica_store import StoredObject
from leasehold.testing import Host, Simulation

STEP_S: Final = (0.0005, 0.01)
"""How long each step of a call takes."""

SLOW_S: Final = (0.05, 2.0)
"""How long a slow one takes."""

MAX_WAITING: Final = 10_000
"""Calls that wait for a store that hangs."""


class Mode(Enum):
    """How a store behaves."""

    UP = auto()
    FAILS = auto()
    HANGS = auto()


@dataclass
class StoreFaults:
    """How often calls of a store go wrong."""

    slow: float = 0.0
    lost: float = 0.0
    """The call is performed, and its answer lost."""
    late: float = 0.0
    """The caller gets an error, and the call is performed later."""
    late_s: tuple[float, float] = (0.5, 8.0)


@dataclass
class _Object:
    data: bytearray
    changed_at: float
    durable: bytes | None = None
    """The bytes that outlive a crash; None if the object does not."""


@dataclass(eq=False)
class Disk:
    """A replica store, as all processes see it."""

    sim: Simulation
    id: str
    appends: bool = True
    garbles: bool = False
    """Whether bytes that are not durable are zeros after a crash."""
    mode: Mode = Mode.UP
    faults: StoreFaults = field(default_factory=StoreFaults)
    objects: dict[str, _Object] = field(default_factory=dict)
    damaged: dict[str, None] = field(default_factory=dict)
    """Names of objects whose bytes were changed by a fault."""
    cut_from: dict[str, None] = field(default_factory=dict)
    """Names of hosts that cannot reach it."""
    deleted: Callable[["Disk", str], None] = lambda _disk, _name: None
    """Called before an object is deleted."""
    ahead_s: float = 0.0
    """How far its clock is ahead of the times of its objects."""
    calls: int = 0
    crashes: int = 0
    _waiting: list[Callable[[], None]] = field(default_factory=list)
    _starts: int = 0

    @property
    def url(self) -> str:
        """Its URL."""
        return f"sim://{self.id}"

    # Faults.

    def fail(self) -> None:
        """Refuse all calls."""
        self._set(Mode.FAILS)

    def hang(self) -> None:
        """Let all calls wait."""
        self._set(Mode.HANGS)

    def crash(self) -> None:
        """Lose the bytes that are not durable, and refuse all calls."""
        self.crashes += 1
        self._starts += 1
        self._waiting.clear()
        self._set(Mode.FAILS)
        for name, found in list(self.objects.items()):
            whole = bytes(found.data)
            if found.durable == whole:
                continue
            if found.durable is None and self.sim.random.random() < 0.5:
                del self.objects[name]
                continue
            durable = found.durable or b""
            kept = self.sim.random.randint(min(len(durable), len(whole)), len(whole))
            tail = whole[len(durable) : kept]
            if self.garbles:
                tail = bytes(len(tail))
            found.data[:] = durable + tail
            found.durable = bytes(found.data)

    def resume(self) -> None:
        """Work again, and perform the calls that have waited."""
        self._set(Mode.UP)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self.sim.carry(self.sim.random.uniform(*STEP_S), call)

    def damage(self, name: str) -> None:
        """Change a byte of an object."""
        found = self.objects[name]
        if not found.data:
            return
        place = self.sim.random.randrange(len(found.data))
        found.data[place] ^= 0x55
        found.durable = bytes(found.data)
        self.damaged[name] = None
        self.sim.record(f"{name} is damaged", self.id)

    def shorten(self, name: str) -> None:
        """Lose the end of an object, although it was durable."""
        found = self.objects[name]
        del found.data[self.sim.random.randrange(len(found.data)) :]
        found.durable = bytes(found.data)
        self.damaged[name] = None
        self.sim.record(f"{name} is cut", self.id)

    def lose(self, name: str) -> None:
        """Lose an object, although it was durable."""
        del self.objects[name]
        self.damaged[name] = None
        self.sim.record(f"{name} is lost", self.id)

    def _set(self, mode: Mode) -> None:
        self.mode = mode
        self.sim.record(mode.name.lower(), self.id)

    # For the oracle.

    def durable_bytes(self, name: str) -> bytes:
        """Return what an object has after a crash; nothing if it has none."""
        found = self.objects.get(name)
        return b"" if found is None or found.durable is None else found.durable

    # Calls.

    def request(
        self, host: Host, perform: Callable[[], Any], sync: str | None = None
    ) -> "asyncio.Future[Any]":
        """Send a call from a host; `sync` is the object that it makes durable."""
        sim, random = self.sim, self.sim.random
        answer: asyncio.Future[Any] = host.loop.create_future()
        self.calls += 1
        starts = self._starts

        def arrive() -> None:
            if self._starts != starts or self.mode == Mode.FAILS or host.name in self.cut_from:
                reply(None, ConnectionRefusedError(f"store {self.id} refuses calls"))
            elif self.mode == Mode.HANGS:
                if len(self._waiting) < MAX_WAITING:
                    self._waiting.append(arrive)
            else:
                execute()

        def execute() -> None:
            try:
                result = perform()
            except (OSError, Closed) as error:
                reply(None, error)
                return
            sim.carry(self._step_s(), lambda: make_durable(result))

        def make_durable(result: Any) -> None:
            if self._starts != starts:
                reply(None, ConnectionResetError(f"store {self.id} has crashed"))
                return
            found = None if sync is None else self.objects.get(sync)
            if found is not None:
                found.durable = bytes(found.data)
            is_lost = random.random() < self.faults.lost
            lost = ConnectionResetError(f"store {self.id}: the answer was lost")
            reply(None if is_lost else result, lost if is_lost else None)

        def reply(result: Any, error: Exception | None) -> None:
            sim.carry(self._step_s(), lambda: deliver(result, error))

        def deliver(result: Any, error: Exception | None) -> None:
            if answer.get_loop() is host.loop and not host.down:
                host.deliver(lambda: _settle(answer, result, error))

        if random.random() < self.faults.late:
            reset = ConnectionResetError(f"store {self.id}: the connection was lost")
            sim.carry(random.uniform(0.0, 1.0), lambda: deliver(None, reset))
            sim.carry(random.uniform(*self.faults.late_s), arrive)
        else:
            sim.carry(self._step_s(), arrive)
        return answer

    def _step_s(self) -> float:
        random = self.sim.random
        return random.uniform(*(SLOW_S if random.random() < self.faults.slow else STEP_S))

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        """Write bytes to an object."""
        found = self.objects.get(name)
        if not offset:
            if found is not None:
                raise FileExistsError(errno.EEXIST, "the object exists", name)
            self.objects[name] = _Object(bytearray(data), self.sim.now)
            return
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        if len(found.data) < offset:
            raise OSError(errno.EINVAL, f"the object has {len(found.data)} bytes", name)
        found.data[offset : offset + len(data)] = data
        found.changed_at = self.sim.now

    def put_whole(self, name: str, data: bytes) -> None:
        """Replace an object."""
        self.objects[name] = _Object(bytearray(data), self.sim.now, bytes(data))

    def read_at(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object."""
        found = self.objects.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return bytes(found.data[start : start + length])

    def size_of(self, name: str) -> int | None:
        """Return the size of an object."""
        found = self.objects.get(name)
        return None if found is None else len(found.data)

    def list_after(self, after: str, limit: int) -> list[StoredObject]:
        """Return the objects after a name."""
        names = sorted(name for name in self.objects if name > after)[:limit]
        found = [(name, self.objects[name]) for name in names]
        now = self.sim.now + self.ahead_s
        return [StoredObject(name, len(each.data), now - each.changed_at) for name, each in found]

    def delete(self, name: str) -> None:
        """Delete an object."""
        if name in self.objects:
            self.deleted(self, name)
            del self.objects[name]


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if answer.done():  # its caller has given up
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class DiskHandle:
    """A store as one process uses it: a `ReplicaStore`."""

    def __init__(self, disk: Disk, host: Host) -> None:
        self.id = disk.id
        self.url = disk.url
        self.keyspace = ""
        self.appends = disk.appends
        self._disk = disk
        self._host = host
        self._is_closed = False

    async def _ask(self, perform: Callable[[], Any], sync: str | None = None) -> Any:
        if self._is_closed:
            raise Closed(f"store {self.id} was closed")
        return await self._disk.request(self._host, perform, sync)

    async def append(self, name: str, offset: int, data: bytes, *, sync: bool = True) -> None:
        """Write data at an offset of an object; offset 0 creates it."""
        if not self.appends:
            raise UnsupportedOperation(f"store {self.id} cannot append")
        await self._ask(lambda: self._disk.write_at(name, offset, data), name if sync else None)

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole object."""
        await self._ask(lambda: self._disk.put_whole(name, data))

    async def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object."""
        found: bytes = await self._ask(lambda: self._disk.read_at(name, start, length))
        return found

    async def size(self, name: str) -> int | None:
        """Return the size of an object."""
        found: int | None = await self._ask(lambda: self._disk.size_of(name))
        return found

    async def list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        """Return the objects after a name."""
        found: builtins.list[StoredObject] = await self._ask(
            lambda: self._disk.list_after(after, limit)
        )
        return found

    async def delete(self, name: str) -> None:
        """Delete an object."""
        await self._ask(lambda: self._disk.delete(name))

    async def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True
