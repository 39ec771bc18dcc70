"""An engine on a disk that forgets what was not synced, with the power cut at any moment.

The users are those of `test_failing_engine`: transactions, leases that keys are moved between,
compaction, reads of the past. What they were told is there after the cut, and nothing is half done.
"""

import asyncio
import contextlib
import itertools
import random
from functools import partial
from pathlib import Path

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import LeaseholdError, StorageError
from leasehold.journal.journal import Journal
from leasehold.testing import seeds
from tests.faults.forgetful_disk import ForgetfulDisk, PowerCut
from tests.faults.test_failing_engine import DEADLINE_S, USERS, User, _check

SEEDS = 40
SEEDS_FOR_BUGS = 12
MOST_CALLS_TO_A_CUT = 500
MERCIES = (0.0, 0.3, 0.7, 1.0)


@pytest.fixture(autouse=True)
def _small_and_without_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)
    monkeypatch.setattr("leasehold.journal.journal.LOG_BYTES", 100_000)
    monkeypatch.setattr("leasehold.journal.journal.Journal.checkpoint_pages", 20)
    monkeypatch.setattr("leasehold.journal.folding.CHANGES_PER_STEP", 3)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MAX_REVISIONS", 8)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MIN_DROPPED", 4)


async def _life(directory: Path, disk: ForgetfulDisk, *, shrinks: bool) -> list[User]:
    engine = EmbeddedEngine(directory, vfs=disk.name)
    engine.start()
    users = [User(number, engine) for number in range(USERS)]
    shrinking = asyncio.create_task(_shrink(engine)) if shrinks else None
    await asyncio.gather(*(user.work() for user in users))
    if shrinking is not None:
        shrinking.cancel()
    with contextlib.suppress(PowerCut):
        await engine.close()
    return users


async def _shrink(engine: EmbeddedEngine) -> None:
    """Give free space back all the time, and note things in between."""
    with contextlib.suppress(LeaseholdError, PowerCut):
        for number in itertools.count():
            await engine._runtime.do(Journal.shrink)
            await engine._runtime.do(partial(Journal.note, name="number", value=b"%d" % number))


def _live_until_the_cut(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    disk = ForgetfulDisk(cut_at=rng.randrange(1, MOST_CALLS_TO_A_CUT))
    before, after = tmp_path / f"{seed}-before", tmp_path / f"{seed}-after"
    users: list[User] = []
    with contextlib.suppress(PowerCut):
        life = _life(before, disk, shrinks=seed % 2 == 1)
        users = asyncio.run(asyncio.wait_for(life, DEADLINE_S))
    disk.after_the_cut(before, after, rng, mercy=rng.choice(MERCIES))
    asyncio.run(asyncio.wait_for(_check(after, users), DEADLINE_S))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_nothing_acknowledged_is_lost_whenever_the_power_goes(seed: int, tmp_path: Path) -> None:
    _live_until_the_cut(seed, tmp_path)


def test_an_engine_that_does_not_sync_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "synchronous", "OFF")
    found_out = 0
    for seed in range(SEEDS_FOR_BUGS):
        try:
            _live_until_the_cut(seed, tmp_path)
        except (AssertionError, StorageError):
            found_out += 1
    assert found_out >= SEEDS_FOR_BUGS // 4, "the disk does not forget"
