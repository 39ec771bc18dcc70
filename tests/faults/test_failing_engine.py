"""An engine whose disk fails: all are told, nothing acknowledged is lost, nothing is half done.

Users put pairs of keys in one transaction, move a key from lease to lease, delete, compact and read
the past, while the disk fails at some call: full, broken, or read-only.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from leasehold import (
    FROM_KEY,
    Closed,
    Compacted,
    JournalFailed,
    LeaseholdError,
    Put,
    StorageError,
    UnknownLease,
)
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.values import KeyValue, RangeResult
from leasehold.testing import seeds
from tests.faults.failing_disk import CHANGES, FailingDisk, Fault, Operation
from tests.support.linearizability import (
    Get,
    History,
    LeaseHistory,
    Read,
    Written,
    check,
    check_lease,
)
from tests.support.linearizability import Put as PutKey

DEADLINE_S = 60.0
USERS = 4
ROUNDS = 12
TTL_S = 1000.0
SEEDS = 24
KINDS = {
    "full": {"operations": frozenset({Operation.WRITE}), "code": apsw.SQLITE_FULL},
    "write": {"operations": frozenset({Operation.WRITE}), "part": 0.5},
    "sync": {"operations": frozenset({Operation.SYNC})},
    "read-only": {"operations": CHANGES, "code": apsw.SQLITE_READONLY, "lasts": True},
}


@pytest.fixture(autouse=True)
def _small_and_without_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)
    monkeypatch.setattr("leasehold.journal.journal.Journal.checkpoint_pages", 20)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MAX_REVISIONS", 8)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MIN_DROPPED", 4)


class Told:
    """What everybody was told of keys and leases, before the fault and after it."""

    def __init__(self) -> None:
        self.history = History()
        self.leases: dict[int, LeaseHistory] = {}

    async def grant(self, engine: EmbeddedEngine) -> int:
        began = time.monotonic()
        lease = await engine.grant(TTL_S)
        self.leases[lease.id] = LeaseHistory(lease.id)
        self.leases[lease.id].granted(TTL_S, began, time.monotonic())
        return lease.id

    async def put_both(
        self, engine: EmbeddedEngine, names: tuple[bytes, bytes], value: bytes, lease: int
    ) -> int:
        left, right = names
        transaction = (left, value)
        with (
            self.history.call(left, left, PutKey(value), transaction=transaction) as first,
            self.history.call(left, right, PutKey(value), transaction=transaction) as second,
        ):
            done = await engine.txn([], [Put(name, value, lease) for name in names])
            first.returned(Written(done.revision))
            second.returned(Written(done.revision))
        return done.revision

    async def revoke(self, engine: EmbeddedEngine, lease: int) -> None:
        began, returned = time.monotonic(), None
        try:
            await engine.revoke(lease)
            returned = time.monotonic()
        finally:
            self.leases[lease].revoked(began, returned)

    async def get(self, engine: EmbeddedEngine, name: bytes) -> Sequence[KeyValue]:
        with self.history.call("judge", name, Get()) as call:
            found = await engine.range(name)
            call.returned(_read_of(found))
        return found.pairs

    async def is_renewed(self, engine: EmbeddedEngine, lease: int) -> bool:
        began = time.monotonic()
        try:
            await engine.renew(lease)
        except UnknownLease:
            self.leases[lease].refused(began, time.monotonic())
            return False
        self.leases[lease].renewed(TTL_S, began, time.monotonic())
        return True

    def check(self) -> None:
        violations = [check(self.history), *map(check_lease, self.leases.values())]
        assert not any(violations), violations


def _read_of(found: RangeResult) -> Read:
    for pair in found.pairs:
        return Read(
            pair.value, pair.mod_revision, pair.version, pair.create_revision, found.revision
        )
    return Read(None, 0, 0, 0, found.revision)


class User:
    """Does things, and remembers what it was told."""

    def __init__(self, number: int, engine: EmbeddedEngine, told: Told | None = None) -> None:
        self._engine = engine
        self.told = told or Told()
        self.names = (b"left/%d" % number, b"right/%d" % number)
        self.acknowledged = -1
        self.sent = -1
        self.lease: int | None = None
        self.failure: LeaseholdError | None = None

    async def work(self) -> None:
        try:
            for number in range(ROUNDS):
                await self._round(number)
        except LeaseholdError as error:
            self.failure = error

    async def _round(self, number: int) -> None:
        engine, told = self._engine, self.told
        lease = await told.grant(engine)
        self.sent = number
        revision = await told.put_both(engine, self.names, b"%d" % number, lease)
        self.acknowledged = number
        old, self.lease = self.lease, lease
        if old is not None:
            await told.revoke(engine, old)  # its keys have moved: none goes with it
        if number % 4 == 3:
            await self._look_back(revision)

    async def _look_back(self, revision: int) -> None:
        try:
            await self._engine.compact(revision - 2)
            await self._engine.range(b"\0", FROM_KEY, revision=revision - 1)
        except Compacted:
            return  # somebody else was further


async def _life(engine: EmbeddedEngine) -> list[User]:
    engine.start()
    told = Told()
    users = [User(number, engine, told) for number in range(USERS)]
    watch = engine.watch(b"left/", b"left0")
    reader = asyncio.ensure_future(anext(watch))
    await asyncio.gather(*(user.work() for user in users))
    if any(user.failure is not None for user in users):
        await _assert_over(engine, users)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    try:
        await engine.close()
    except StorageError:
        assert engine._runtime.journal.has_failed
    return users


async def _assert_over(engine: EmbeddedEngine, users: list[User]) -> None:
    """Everybody was told the same, and nothing works any more."""
    for user in users:
        if user.acknowledged < ROUNDS - 1:
            assert isinstance(user.failure, JournalFailed), user.failure
            assert "start again" in str(user.failure)
    for call in (engine.put(b"x", b""), engine.range(b"\0", FROM_KEY), engine.grant(1)):
        with pytest.raises(JournalFailed):
            await call
    for user in users:
        if user.lease is not None:
            with pytest.raises(JournalFailed):
                await engine.renew(user.lease)


async def _check(directory: Path, users: list[User]) -> None:
    engine = EmbeddedEngine(directory)
    engine.start()
    for user in users:
        found = [await user.told.get(engine, name) for name in user.names]
        values = {int(pair.value) for pairs in found for pair in pairs}
        if user.acknowledged >= 0:
            assert all(found), "what was acknowledged is lost"
        assert len({tuple(pair.mod_revision for pair in pairs) for pairs in found}) == 1, (
            "half done"
        )
        assert all(user.acknowledged <= value <= user.sent for value in values), "went back"
        for pair in [pair for pairs in found for pair in pairs]:
            keys = (await engine.time_to_live(pair.lease, keys=True)).keys
            assert keys is not None
            assert pair.key in keys
        if user.lease is not None:
            await _check_lease(engine, user)
    await engine.close()
    for told in {user.told for user in users}:
        told.check()


async def _check_lease(engine: EmbeddedEngine, user: User) -> None:
    assert user.lease is not None
    if not await user.told.is_renewed(engine, user.lease):
        # A later one was on its way to take its place, and its end went with it unanswered.
        assert user.sent > user.acknowledged, "a lease is lost"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_nothing_acknowledged_is_lost_when_the_disk_fails(
    tmp_path: Path, kind: str, seed: int
) -> None:
    rng = random.Random(seed)
    engine = EmbeddedEngine(tmp_path)  # the file is made on a disk in order
    asyncio.run(_open_and_close(engine))
    disk = FailingDisk()
    fault = disk.plan(Fault(at=rng.randrange(1, 120), **KINDS[kind]))  # type: ignore[arg-type]
    try:
        engine = EmbeddedEngine(tmp_path, vfs=disk.name)
    except StorageError:
        users: list[User] = []
    else:
        users = asyncio.run(asyncio.wait_for(_life(engine), DEADLINE_S))
        if fault.failures and not fault.lasts:
            assert any(user.failure for user in users) or engine._runtime.journal.has_failed
    disk.heal()
    asyncio.run(asyncio.wait_for(_check(tmp_path, users), DEADLINE_S))


async def _open_and_close(engine: EmbeddedEngine) -> None:
    engine.start()
    await engine.close()
    with pytest.raises(Closed):
        await engine.put(b"a", b"")
