"""The journal on a disk that forgets what was not synced, with the power cut at any moment.

What `append` had returned for is there, whole and in order. Of what was under way, the one batch
may be there too, whole. The ids stay, and a term that was seen never comes again.
"""

import random
from pathlib import Path

import pytest

from leasehold.errors import StorageError
from leasehold.journal.journal import Journal
from leasehold.journal.journal_rows import BatchRow
from leasehold.testing import seeds
from tests.faults.forgetful_disk import ForgetfulDisk, PowerCut

SEEDS = 60
SEEDS_FOR_BUGS = 10
SEEDS_FOR_KILLS = 30
LIVES = 4
MOST_CALLS_TO_A_CUT = 250
LARGEST_BATCH_BYTES = 20_000
MERCIES = (0.0, 0.3, 0.7, 1.0)


@pytest.fixture(autouse=True)
def _no_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the real disk, which is not under test here, and takes its time."""
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)


class NeverSyncing(Journal):
    """A seeded bug: nothing is ever synced."""

    synchronous = "OFF"


class SyncingTooLate(Journal):
    """A seeded bug: only checkpoints are synced."""

    synchronous = "NORMAL"


class User:
    """Somebody who uses a journal, and remembers what it said."""

    def __init__(self, kind: type[Journal], rng: random.Random) -> None:
        self._kind = kind
        self._rng = rng
        self.acknowledged: list[BatchRow] = []
        self.under_way: BatchRow | None = None
        self.ids: tuple[int, int] | None = None
        self.term = 0

    def open(self, directory: Path, disk: ForgetfulDisk) -> Journal:
        """Open, and check that nothing was lost."""
        journal = self._kind(directory, vfs=disk.name)
        try:
            self._check(journal)
        except BaseException:
            journal.close()
            raise
        return journal

    def _check(self, journal: Journal) -> None:
        cluster_id, member_id, term = journal.identity
        assert self.ids in {None, (cluster_id, member_id)}, "another journal"
        assert term > self.term, "a term that was there before"
        self.ids, self.term = (cluster_id, member_id), term
        found = list(journal.rows())
        assert found[: len(self.acknowledged)] == self.acknowledged, "what was acknowledged is lost"
        more = found[len(self.acknowledged) :]
        assert more in ([], [self.under_way]), "what was never appended"
        self.acknowledged, self.under_way = found, None

    def append(self, journal: Journal) -> None:
        """Append a batch of any size."""
        revision = self.acknowledged[-1].last_revision + 1 if self.acknowledged else 2
        size = self._rng.choice((0, 100, 5_000, self._rng.randrange(LARGEST_BATCH_BYTES)))
        last = revision + self._rng.randrange(5)
        self.under_way = BatchRow(revision, last, self._rng.randbytes(size))
        journal.append(*self.under_way)
        self.acknowledged.append(self.under_way)
        self.under_way = None

    def live(self, directory: Path, disk: ForgetfulDisk) -> None:
        """Use the journal in all ways until the power goes."""
        while True:
            journal = self.open(directory, disk)
            try:
                self._use(journal)
            finally:
                journal.close()

    def _use(self, journal: Journal) -> None:
        for _ in range(self._rng.randrange(1, 12)):
            self.append(journal)
            if self._rng.random() < 0.2:
                journal.checkpoint()


def _live_until_the_cut(user: User, directory: Path, disk: ForgetfulDisk) -> None:
    with pytest.raises(PowerCut):
        user.live(directory, disk)
    assert disk.is_cut


def _live_through_cuts(kind: type[Journal], seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    user = User(kind, rng)
    directory = tmp_path / f"{seed}-0"
    for life in range(1, LIVES + 1):
        disk = ForgetfulDisk(cut_at=rng.randrange(1, MOST_CALLS_TO_A_CUT))
        _live_until_the_cut(user, directory, disk)
        before, directory = directory, tmp_path / f"{seed}-{life}"
        disk.after_the_cut(before, directory, rng, mercy=rng.choice(MERCIES))
    user.open(directory, ForgetfulDisk()).close()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_nothing_acknowledged_is_lost_whenever_the_power_goes(seed: int, tmp_path: Path) -> None:
    _live_through_cuts(Journal, seed, tmp_path)


@pytest.mark.parametrize("kind", [NeverSyncing, SyncingTooLate])
def test_a_journal_that_does_not_sync_is_found_out(kind: type[Journal], tmp_path: Path) -> None:
    found_out = 0
    for seed in range(SEEDS_FOR_BUGS):
        try:
            _live_through_cuts(kind, seed, tmp_path)
        except (AssertionError, StorageError):
            found_out += 1
    assert found_out >= SEEDS_FOR_BUGS // 2, "the disk does not forget"


def _a_short_life(user: User, directory: Path, disk: ForgetfulDisk) -> None:
    """Make, use, checkpoint, use, close, open and close: all that a journal does."""
    journal = user.open(directory, disk)
    try:
        user.append(journal)
        user.append(journal)
        journal.checkpoint()
        user.append(journal)
    finally:
        journal.close()
    user.open(directory, disk).close()


@pytest.mark.parametrize("mercy", [0.0, 0.5])
def test_the_power_may_go_at_every_single_call(mercy: float, tmp_path: Path) -> None:
    calls = ForgetfulDisk()
    _a_short_life(User(Journal, random.Random(0)), tmp_path / "whole", calls)
    for cut_at in range(1, calls.calls + 1):
        rng = random.Random(0)
        user, disk = User(Journal, rng), ForgetfulDisk(cut_at)
        before, after = tmp_path / f"{cut_at}-before", tmp_path / f"{cut_at}-after"
        with pytest.raises(PowerCut):
            _a_short_life(user, before, disk)
        disk.after_the_cut(before, after, rng, mercy=mercy)
        user.open(after, ForgetfulDisk()).close()


@pytest.mark.parametrize("seed", seeds(SEEDS_FOR_KILLS))
def test_what_a_journal_shows_after_a_kill_survives_a_power_cut_too(
    seed: int, tmp_path: Path
) -> None:
    """The killed process had written more than it had synced, and its successor has read that."""
    rng = random.Random(seed)
    user, disk = User(Journal, rng), ForgetfulDisk(cut_at=rng.randrange(1, MOST_CALLS_TO_A_CUT))
    before, after = tmp_path / "before", tmp_path / "after"
    _live_until_the_cut(user, before, disk)
    disk.restart()
    shown = user.open(before, disk)
    disk.after_the_cut(before, after, rng)
    user.open(after, ForgetfulDisk()).close()
    shown.close()
