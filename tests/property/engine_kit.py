"""How the machine of the engine looks into it, and does by hand what threads and disks would do."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pytest

from leasehold.engine.interface import Watch
from leasehold.engine.values import Events
from leasehold.errors import Closed, LeaseholdError
from leasehold.journal.journal import Journal
from leasehold.journal.journal_rows import ReplayTarget
from leasehold.keyspace.operations import Delete, Op, Txn
from leasehold.store import housekeeping, runtime
from leasehold.store.store import Store
from tests.property.store_kit import KeptJournal, SpiedStore, Spy, make_limits_small

T = TypeVar("T")

NEVER_S = 1e9


@dataclass(eq=False)
class Call:
    """A call that somebody has made, and what is known of it."""

    name: str
    op: Any
    durable_revision: int
    """That of what could be read on disk when it began."""
    compacted: int
    granted: int
    """How many leases were granted before."""
    task: "asyncio.Task[Any]" = field(init=False)
    lease_was_gone: bool = False
    """Whether the lease that it is about was known to be gone at some time since it began."""
    is_applied: bool = False
    expected: Any = None
    refusal: type[LeaseholdError] | None = None
    position: int = 0
    """What must be on disk before it is answered."""


CALL: ContextVar[Call | None] = ContextVar("call", default=None)
"""Whose call is being carried out."""


@dataclass(eq=False)
class Watching:
    """A watch, and how far it was told."""

    watch: Watch
    key: bytes
    end: bytes
    told: int
    """The last revision that it was told of, or need not be told of."""
    wants_previous: bool
    puts: bool
    deletes: bool
    asked: int = 0
    """How often it may yet be told of progress: it may be asked for twice, and told once."""
    is_owed: bool = False
    """Whether it must be told of progress."""
    task: "asyncio.Task[Events] | None" = None


class Overseer(Spy, Protocol):
    """Who is told what happens inside."""

    image: bytes | None

    def begins(self, op: Op[Any]) -> set[int]:
        """An operation is about to be done; return the leases, to be added to meanwhile."""
        ...

    def was_applied(
        self, call: Call | None, op: Op[Any], result: Any, position: int, alive: set[int] | None
    ) -> None:
        """An operation was done in memory."""
        ...

    def was_refused(self, call: Call | None, op: Op[Any], error: LeaseholdError) -> None:
        """An operation was refused."""
        ...


class HookedStore(SpiedStore):
    """A store that tells what it does when it does it."""

    overseer: ClassVar[Overseer]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.spy = self.overseer
        super().__init__(*args, **kwargs)

    def apply(self, op: Op[T]) -> tuple[T, int]:
        """Tell what comes of an operation."""
        call = CALL.get()
        self.overseer.begins(op)
        try:
            result, position = super().apply(op)
        except LeaseholdError as error:
            self.overseer.was_refused(call, op, error)
            raise
        self.overseer.was_applied(call, op, result, position, None)
        return result, position

    def steps(self, op: Delete | Txn) -> Generator[Any, Any, tuple[Any, int]]:
        """Tell what comes of a long operation, at its end."""
        call, alive = CALL.get(), self.overseer.begins(op)
        try:
            result, position = yield from super().steps(op)
        except LeaseholdError as error:
            self.overseer.was_refused(call, op, error)
            raise
        self.overseer.was_applied(call, op, result, position, alive)
        return result, position


class HandCommitter:
    """A committer without a thread: everything is done when the machine says so."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.store = store
        self.journal = journal
        self.chores: deque[tuple[Callable[[Journal], Any], asyncio.Future[Any]]] = deque()
        self.is_pending = False
        self.under_way = False
        self._on_failure = on_failure
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        store.on_pending = self._ask

    def _ask(self) -> None:
        self.is_pending = True

    def do(self, chore: Callable[[Journal], T], *, is_ours: bool = False) -> "asyncio.Future[T]":
        """Have something done with the journal, in its turn."""
        done: asyncio.Future[T] = self._loop.create_future()
        if self._is_closed:
            done.set_exception(Closed("it was closed"))
        else:
            self.chores.append((chore, done))
        return done

    def commit(self) -> bool:
        """Write the open batch to disk; nobody knows of it yet."""
        batch = self.store.take_batch()
        if batch is None:
            return False
        assert self.is_pending, "nobody was told that there is something to be committed"
        self.is_pending = False
        self.under_way = True
        changes = b"".join(batch.changes)
        self.journal.append(batch.first_revision, batch.last_revision, changes)
        return True

    def release(self) -> None:
        """Say that it is there."""
        self.under_way = False
        self.store.measure(self.journal.used_bytes)
        self.store.committed()

    def work(self) -> None:
        """Do the next chore."""
        chore, done = self.chores.popleft()
        try:
            result = chore(self.journal)
        except Exception as error:  # noqa: BLE001  the caller gets every failure
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    async def close(self) -> None:
        """Write what is left."""
        self._is_closed = True
        for _, done in self.chores:
            if not done.done():
                done.set_exception(Closed("it was closed"))
        self.chores.clear()
        if self.under_way:
            self.release()
        if self.commit():
            self.release()


def _journal(directory: Path | None, *, replay: ReplayTarget, vfs: str | None = None) -> Journal:
    assert directory is None
    assert vfs is None
    return KeptJournal(HookedStore.overseer.image, replay)


async def _at_once(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put all this in the place of the real parts."""
    make_limits_small(monkeypatch)
    monkeypatch.setattr(runtime, "Store", HookedStore)
    monkeypatch.setattr(runtime, "Journal", _journal)
    monkeypatch.setattr(runtime, "Committer", HandCommitter)
    monkeypatch.setattr(asyncio, "to_thread", _at_once)
    # `test_lease_restarts` is about what is noted after crashes.
    monkeypatch.setattr(housekeeping, "AGE_NOTED_S", NEVER_S)
