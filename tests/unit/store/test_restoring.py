"""The revision of a restored directory: above every revision that was ever given out."""

import asyncio
import hashlib
import sqlite3
from pathlib import Path

import pytest

from leasehold import open_engine
from leasehold.errors import StorageError
from leasehold.journal.journal import Journal
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import check
from leasehold.store.restoring import (
    EARLIEST_US,
    MAX_RESTORED_REVISION,
    REVISIONS_AHEAD,
    restore,
)

SECOND_US = 1_000_000
DIGEST_BYTES = 32
TIME_BYTES = 512
BASE_US = EARLIEST_US + 10**9


class WallClock:
    """A wall clock that stands still."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def wall(self) -> float:
        return self.now_us / SECOND_US

    def monotonic(self) -> float:
        raise AssertionError("not asked for")

    def boottime(self) -> float:
        raise AssertionError("not asked for")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("leasehold.store.backup.SYSTEM_CLOCK", WallClock(BASE_US))
    return monkeypatch


def backed_up(tmp_path: Path, revision: int = 2) -> Path:
    """Make a backup at `BASE_US`, of a journal at a revision."""
    journal = Journal(tmp_path / "data")
    journal.append(2, revision, b"")
    journal.close()
    return back_up_directory(tmp_path / "data", tmp_path / "backup").path


def without_time(backup: Path) -> Path:
    """Make a backup of an older release out of one of this release."""
    pages = backup.read_bytes()[: -DIGEST_BYTES - TIME_BYTES]
    older = backup.with_name("older")
    older.write_bytes(pages + hashlib.sha256(pages).digest())
    return older


def restored(backup: Path, name: str, now_us: int, above: int | None = None) -> int:
    directory = backup.with_name(name)
    report = restore(backup, directory, above=above, clock=WallClock(now_us))
    assert check(directory).revision == check(directory).compacted == report.revision
    return report.revision


def test_a_backup_has_the_time_at_which_it_was_made(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup = backed_up(tmp_path)
    assert check(backup).backup_time_us == BASE_US
    assert check(without_time(backup)).backup_time_us is None


def test_the_restored_revision_is_the_wall_clock_in_microseconds(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup = backed_up(tmp_path)
    assert restored(backup, "now", BASE_US) == BASE_US
    assert restored(backup, "later", BASE_US + 7 * SECOND_US) == BASE_US + 7 * SECOND_US


def test_the_restored_revision_is_a_billion_above_a_backup_that_is_ahead_of_the_clock(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    revision = BASE_US + 5
    backup = backed_up(tmp_path, revision)
    assert restored(backup, "now", BASE_US) == revision + REVISIONS_AHEAD
    later = restored(backup, "later", BASE_US + SECOND_US)
    assert later == revision + REVISIONS_AHEAD + SECOND_US, "a second restore repeats nothing"


def test_the_restored_revision_is_that_of_above(clock: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backup = backed_up(tmp_path)
    assert restored(backup, "above", BASE_US, above=BASE_US + 1) == BASE_US + 1
    assert restored(backup, "below", BASE_US, above=17) == BASE_US
    most = MAX_RESTORED_REVISION
    assert restored(backup, "most", BASE_US, above=most) == most < 2**53


def test_one_backup_restored_again_and_again_repeats_no_revision(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup = backed_up(tmp_path)
    last = 0
    for number in range(3):
        revision = restored(backup, f"restored {number}", BASE_US + number * SECOND_US)
        assert revision > last
        last = revision + 100_000  # as many as a server gives out in a second, and more


def test_a_backup_of_a_restored_directory_restored_twice_repeats_no_revision(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    restored(backed_up(tmp_path), "first", BASE_US + 60 * SECOND_US)
    clock.setattr("leasehold.store.backup.SYSTEM_CLOCK", WallClock(BASE_US + 61 * SECOND_US))
    again = back_up_directory(tmp_path / "first", tmp_path / "again").path
    second = restored(again, "second", BASE_US + 62 * SECOND_US)
    assert restored(again, "third", BASE_US + 63 * SECOND_US) == second + SECOND_US


def test_a_later_restore_is_ahead_of_an_earlier_one_whichever_backups_they_are_of(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The backup of a directory that was just restored, and then the older backup again."""
    older = backed_up(tmp_path)
    restored(older, "first", BASE_US + 60 * SECOND_US)
    clock.setattr("leasehold.store.backup.SYSTEM_CLOCK", WallClock(BASE_US + 61 * SECOND_US))
    newer = back_up_directory(tmp_path / "first", tmp_path / "newer").path
    second = restored(newer, "second", BASE_US + 62 * SECOND_US)
    assert restored(older, "third", BASE_US + 63 * SECOND_US) == second + SECOND_US


def test_a_backup_whose_last_batches_are_folded_is_restored_ahead(tmp_path: Path) -> None:
    """The batch of a compaction changes no key: folded, it leaves an older batch as the last."""

    async def main() -> None:
        async with open_engine(tmp_path / "data") as engine:
            for number in range(3):
                await engine.put(b"k%d" % number, b"")
            await engine.compact(4, wait=True)

    asyncio.run(main())
    backup = back_up_directory(tmp_path / "data", tmp_path / "backup").path
    with sqlite3.connect(backup) as file:
        (last,), (folded,) = file.execute(
            "SELECT max(id) FROM batch UNION ALL SELECT folded FROM identity"
        )
    assert last < folded
    report = restore(backup, tmp_path / "restored")
    assert check(tmp_path / "restored").revision == report.revision > REVISIONS_AHEAD
    again = back_up_directory(tmp_path / "restored", tmp_path / "again").path
    assert check(again).revision == report.revision


@pytest.mark.parametrize("now_us", [0, BASE_US - 1, MAX_RESTORED_REVISION + 1, 2**62])
def test_a_clock_that_must_be_wrong_is_refused_without_above(
    now_us: int, clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup = backed_up(tmp_path)
    with pytest.raises(StorageError, match=r"was made at 2026-.* UTC or later, .*--above REVISION"):
        restored(backup, "refused", now_us)
    assert not (tmp_path / "refused").exists()
    assert restored(backup, "named", now_us, above=BASE_US * 2) == BASE_US * 2
    assert restored(backup, "low", now_us, above=0) == BASE_US, "not below the backup's own time"


def test_a_backup_without_a_time_is_restored_by_a_clock_of_this_release(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    older = without_time(backed_up(tmp_path))
    assert restored(older, "good", BASE_US) == BASE_US
    with pytest.raises(StorageError, match="--above REVISION"):
        restored(older, "refused", EARLIEST_US - 1)
    assert restored(older, "named", 0, above=BASE_US) == BASE_US


@pytest.mark.parametrize("above", [-1, MAX_RESTORED_REVISION + 1, 2**64])
def test_a_revision_that_is_out_of_range_is_refused(above: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"above must be from 0 to .*, got {above}"):
        restore(tmp_path / "backup", tmp_path / "restored", above=above)


def test_a_revision_that_would_be_too_high_is_refused(
    clock: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backup = backed_up(tmp_path, MAX_RESTORED_REVISION)
    for above in (None, 1):
        with pytest.raises(StorageError, match=f"must be at most {MAX_RESTORED_REVISION}, but"):
            restored(backup, "refused", BASE_US, above=above)
    assert not (tmp_path / "refused").exists()
