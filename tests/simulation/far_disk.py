"""The shipped engine on a simulated host, with a disk that outlives its process.

The journal is the shipped one, in memory, begun with what is left of another one. In place of the
thread that commits there is a timer: a batch takes a while to get to the disk, and its answers a
while to get out, so that a crash may come before, between and after.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

import apsw

from leasehold.basics.histogram import Histogram
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import Closed
from leasehold.journal import records
from leasehold.journal.journal import Journal
from leasehold.journal.journal_format import WRITE_IDENTITY, new_identity, pack_identity
from leasehold.journal.journal_rows import ReplayTarget
from leasehold.store import runtime
from leasehold.store.committer import COMMIT_BOUNDS_S
from leasehold.store.restoring import REVISIONS_AHEAD
from leasehold.store.store import Store
from leasehold.testing import Host
from tests.property.store_kit import KeptJournal

WRITE_S: Final = (0.0, 0.002)
"""How long a batch takes to get to the disk, and then as long until it is known."""

T = TypeVar("T")


class TimedCommitter:
    """A committer without a thread: what it does takes a while of virtual time."""

    def __init__(
        self,
        random: Random,
        store: Store,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        del on_failure  # this disk does not fail
        self.costs_s = Histogram(COMMIT_BOUNDS_S)
        self._random = random
        self._store = store
        self._journal = journal
        self._is_busy = False
        self._loop = asyncio.get_running_loop()
        store.on_pending = self._ask

    def do(self, chore: Callable[[Journal], T], *, is_ours: bool = False) -> "asyncio.Future[T]":
        """Have something done with the journal, soon."""
        del is_ours
        done: asyncio.Future[T] = self._loop.create_future()
        self._later(self._do, chore, done)
        return done

    async def close(self) -> None:
        """Do nothing: these engines are not closed, they crash."""
        raise Closed("a simulated server crashes")

    def _later(self, step: Callable[..., None], *args: object) -> None:
        self._loop.call_later(self._random.uniform(*WRITE_S), step, *args)

    def _do(self, chore: Callable[[Journal], T], done: "asyncio.Future[T]") -> None:
        if done.done():
            return
        try:
            done.set_result(chore(self._journal))
        except Exception as error:  # noqa: BLE001  the caller gets every failure
            done.set_exception(error)

    def _ask(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._later(self._write)

    def _write(self) -> None:
        batch = self._store.take_batch()
        if batch is None:
            self._is_busy = False
            return
        changes = b"".join(batch.changes)
        self._journal.append(batch.first_revision, batch.last_revision, changes)
        self._later(self._release)

    def _release(self) -> None:
        self._store.measure(self._journal.used_bytes)
        self._store.committed()
        self._later(self._write)


def open_engine(host: Host, random: Random, image: bytes | None) -> EmbeddedEngine:
    """Start an engine on a host, with what is on its disk; None for an empty one."""

    def journal(directory: Path | None, *, replay: ReplayTarget, vfs: str | None = None) -> Journal:
        assert directory is None
        assert vfs is None
        return KeptJournal(image, replay)

    def committer(*args: Any, **named: Any) -> TimedCommitter:
        return TimedCommitter(random, *args, **named)

    def open_and_start() -> EmbeddedEngine:
        engine = EmbeddedEngine(None, clock=host.clock)
        engine.start()
        return engine

    with patch.multiple(runtime, Journal=journal, Committer=committer):
        return host.call(open_and_start)


def image_of(engine: EmbeddedEngine) -> bytes:
    """Give what is on the disk of an engine."""
    journal = engine._runtime.journal
    assert isinstance(journal, KeptJournal)
    return journal.image()


def restored(image: bytes) -> bytes:
    """Make a backup what `leasehold restore` makes of it: another cluster, far ahead."""
    store = Store()
    journal = KeptJournal(image, store.replay)
    first, last = store.revision + 1, store.revision + REVISIONS_AHEAD
    journal.append(first, last, records.jumped(last) + records.compacted(last))
    ids, identity = new_identity(), journal.identity
    identity = identity._replace(cluster_id=ids.cluster_id, member_id=ids.member_id)
    progress = journal.progress._replace(batches=journal.progress.batches + 1)
    connection = journal._open_connection()
    assert isinstance(connection, apsw.Connection)
    connection.execute(WRITE_IDENTITY, pack_identity(identity, progress))
    made = journal.image()
    journal.close()
    return made
