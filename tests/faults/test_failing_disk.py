"""The journal on a disk that fails, at every call that it makes, and in every way.

The call that fails says so, and what was acknowledged is there when the disk is in order again,
whole and in order, even if the power goes before. Of what was under way, the one batch may be there
too, whole. Nothing is taken for damage, and a journal that has failed does nothing any more.
"""

import contextlib
import copy
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from leasehold.errors import DamagedJournal, JournalFailed, StorageError
from leasehold.journal.data_dir import LOCK_NAME
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.testing import seeds
from tests.faults.failing_disk import (
    CHANGES,
    EVERY_OPERATION,
    FailingDisk,
    FailingFile,
    Fault,
    File,
    Operation,
    code_name,
)
from tests.faults.forgetful_disk import ForgetfulDisk
from tests.faults.test_power_cuts import User

MakeFault = Callable[..., Fault]

LOG_BYTES = 64 * 4120
LOOKS = EVERY_OPERATION - CHANGES
BAD: MakeFault = Fault
FULL: MakeFault = partial(Fault, CHANGES - {Operation.DELETE}, code=apsw.SQLITE_FULL)
TORN: MakeFault = partial(Fault, Operation.WRITE, code=apsw.SQLITE_FULL, part=0.5)
READ_ONLY: MakeFault = partial(Fault, CHANGES | {Operation.OPEN}, code=apsw.SQLITE_READONLY)
UNREADABLE: MakeFault = partial(Fault, LOOKS)
SHORT_READ: MakeFault = partial(Fault, Operation.READ, code=apsw.SQLITE_IOERR_SHORT_READ)
LOSING_SYNC: MakeFault = partial(Fault, Operation.SYNC, loses=True)
FAILURES: dict[str, MakeFault] = {
    "bad": BAD,
    "full": partial(FULL, lasts=True),
    "torn": TORN,
    "read-only": partial(READ_ONLY, lasts=True),
    "losing syncs": LOSING_SYNC,
}
MERCIES = (0.0, 0.5, 1.0)
SEEDS = 12
LIVES = 4
CHANCE = 0.01

each_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
what_was_left = pytest.mark.parametrize("left", ["closed", "killed"])


@pytest.fixture(autouse=True)
def _spare_the_real_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing, and keep the log short, for speed alone: it is made a thousand times."""
    monkeypatch.setattr("leasehold.journal.data_dir.os.fsync", lambda fd: None)
    monkeypatch.setattr("leasehold.journal.journal.LOG_BYTES", LOG_BYTES, raising=False)


@contextlib.contextmanager
def _room(tmp_path: Path) -> Iterator[Path]:
    """Lend a directory, and clear it away at once: there are very many."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        yield Path(name)


def _a_short_life(user: User, directory: Path, disk: FailingDisk) -> None:
    """Make, use, checkpoint, use and close; openings of what is there have tests of their own."""
    journal = user.open(directory, disk)
    try:
        user.append(journal)
        user.append(journal)
        journal.checkpoint()
        user.append(journal)
    except JournalFailed as failed:
        _check_that_it_does_nothing_more(journal, str(failed), disk)
        raise
    finally:
        journal.close()


def _check_that_it_does_nothing_more(journal: Journal, text: str, disk: FailingDisk) -> None:
    calls, changes = disk.plan(Fault()), disk.plan(Fault(CHANGES))
    for use in (
        lambda: journal.append(1000, 1000, b"too late"),
        journal.checkpoint,
        lambda: list(journal.rows()),
    ):
        with pytest.raises(JournalFailed) as refused:
            use()
        assert str(refused.value) == text
    assert calls.calls == 0, "a failed journal tries again"
    journal.close()
    assert changes.calls == 0, "a failed journal is changed by closing it"


def _calls_in_a_life(failure: MakeFault, tmp_path: Path) -> int:
    calls = failure()
    with _room(tmp_path) as room:
        _a_short_life(_a_user(), room / "data", FailingDisk(calls))
    return calls.calls


def _a_user() -> User:
    return User(Journal, random.Random(0))


def _check_the_text(error: StorageError, directory: Path) -> None:
    """Check that an error says what has failed, and what to do after a write."""
    assert not isinstance(error, DamagedJournal), "a disk that fails is taken for damage"
    assert str(directory / FILE_NAME) in str(error)
    assert "as planned" in str(error)
    if isinstance(error, JournalFailed):
        assert str(error).endswith("then start again")


def _contents(directory: Path) -> dict[str, bytes]:
    """Read all files but the lock, and a log that is still empty."""
    files = [path for path in directory.iterdir() if path.name != LOCK_NAME]
    return {path.name: content for path in files if (content := path.read_bytes())}


# Whatever fails


@each_failure
def test_any_single_call_may_fail(failure: MakeFault, tmp_path: Path) -> None:
    for at in range(1, _calls_in_a_life(failure, tmp_path) + 1):
        with _room(tmp_path) as room:
            _fail_and_come_back(failure(at=at), room, random.Random(at))


def _fail_and_come_back(fault: Fault, room: Path, rng: random.Random) -> None:
    """Let the power go after the failure, and let it not go: both must end well."""
    user, disk, directory, after = _a_user(), FailingDisk(fault), room / "data", room / "after"
    with pytest.raises(StorageError) as failed:
        _a_short_life(user, directory, disk)
    _check_the_text(failed.value, directory)
    if fault.lasts:
        with pytest.raises(StorageError, match="as planned"):
            Journal(directory, vfs=disk.name)
    disk.heal()
    disk.after_the_cut(directory, after, rng, mercy=rng.choice(MERCIES))
    copy.copy(user).open(after, ForgetfulDisk()).close()
    user.open(directory, disk).close()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_calls_may_fail_again_and_again(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    user, disk, directory = User(Journal, rng), FailingDisk(), tmp_path / "0"
    for life in range(1, LIVES + 1):
        failure = rng.choice((BAD, FULL, TORN, READ_ONLY))
        disk.plan(failure(chance=CHANCE, seed=rng.randrange(2**32), lasts=rng.random() < 0.5))
        with pytest.raises(StorageError, match="as planned"):
            user.live(directory, disk)
        disk.heal()
        if rng.random() < 0.5:
            before, directory = directory, tmp_path / str(life)
            disk.after_the_cut(before, directory, rng, mercy=rng.choice(MERCIES))
            disk = FailingDisk()
    user.open(directory, disk).close()


# Openings that fail


def _leave(directory: Path, left: str) -> User:
    """Make a journal as it is when it was closed, or when its process was killed."""
    user, used = _a_user(), directory.with_name("used")
    journal = user.open(used, FailingDisk())
    for _ in range(3):
        user.append(journal)
    journal.checkpoint()
    for _ in range(2):
        user.append(journal)
    if left == "closed":
        journal.close()
    shutil.copytree(used, directory)
    journal.close()
    return user


def _calls_of_an_opening(failure: MakeFault, found: Path, tmp_path: Path) -> int:
    calls = failure()
    with _room(tmp_path) as room:
        shutil.copytree(found, room / "data")
        disk = FailingDisk(calls)
        journal = Journal(room / "data", vfs=disk.name)
        disk.heal()
        journal.close()
    return calls.calls


@contextlib.contextmanager
def _refused(fault: Fault, found: Path, tmp_path: Path) -> Iterator[Path]:
    """Try in vain to open a copy of what was found, and lend it."""
    with _room(tmp_path) as room:
        directory, disk = room / "data", FailingDisk(fault)
        shutil.copytree(found, directory)
        with pytest.raises(StorageError) as refused:
            Journal(directory, vfs=disk.name)
        _check_the_text(refused.value, directory)
        yield directory


@each_failure
@what_was_left
def test_an_opening_that_fails_leaves_the_database_as_it_was(
    failure: MakeFault, left: str, tmp_path: Path
) -> None:
    user, found = _leave(tmp_path / "found", left), tmp_path / "found"
    for at in range(1, _calls_of_an_opening(failure, found, tmp_path) + 1):
        with _refused(failure(at=at), found, tmp_path) as directory:
            assert _contents(directory)[FILE_NAME] == _contents(found)[FILE_NAME]
            copy.copy(user).open(directory, ForgetfulDisk()).close()


@what_was_left
def test_an_opening_that_cannot_read_changes_nothing(left: str, tmp_path: Path) -> None:
    user, found = _leave(tmp_path / "found", left), tmp_path / "found"
    for at in range(1, _calls_of_an_opening(UNREADABLE, found, tmp_path) + 1):
        with _refused(UNREADABLE(at=at), found, tmp_path) as directory:
            assert _contents(directory) == _contents(found)
            copy.copy(user).open(directory, ForgetfulDisk()).close()


@what_was_left
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_short_read_is_refused_or_does_no_harm(part: float, left: str, tmp_path: Path) -> None:
    """SQLite takes what is missing at the end of a page for zeros; the journal must not."""
    user, found = _leave(tmp_path / "found", left), tmp_path / "found"
    calls, refusals = _calls_of_an_opening(SHORT_READ, found, tmp_path), 0
    for at in range(1, calls + 1):
        with _room(tmp_path) as room:
            directory, disk = room / "data", FailingDisk(SHORT_READ(at=at, part=part))
            shutil.copytree(found, directory)
            try:
                copy.copy(user).open(directory, disk).close()
            except StorageError:
                refusals += 1
                assert _contents(directory) == _contents(found)
                copy.copy(user).open(directory, ForgetfulDisk()).close()
    assert refusals >= calls // 2


@pytest.mark.parametrize("failure", [BAD, FULL], ids=["bad", "full"])
def test_an_opening_that_fails_says_what_to_do(failure: MakeFault, tmp_path: Path) -> None:
    disk = FailingDisk(failure(at=1))
    with pytest.raises(StorageError) as refused:
        Journal(tmp_path, vfs=disk.name)
    assert re.search(r"check that the disk .*start again", str(refused.value))


# The trap: a sync that fails loses what it was to sync, and the next one says that all is well


class Swallowing(Journal):
    """A seeded bug: a failure is passed over, in the hope of the next sync."""

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        """Say that it is on disk, whatever happens."""
        with contextlib.suppress(JournalFailed):
            super().append(first_revision, last_revision, changes)


def _sync_again(file: FailingFile, flags: int) -> None:
    """A seeded bug: a sync that has failed is tried again."""
    try:
        _sync(file, flags)
    except apsw.IOError:
        _sync(file, flags)


_sync = FailingFile.xSync


def _fall_into_the_trap(kind: type[Journal], tmp_path: Path) -> None:
    """Append while a sync fails, as if nothing was the matter, until the power goes."""
    user, disk, after = User(kind, random.Random(0)), FailingDisk(), tmp_path / "after"
    journal = user.open(tmp_path / "data", disk)
    user.append(journal)
    disk.plan(LOSING_SYNC(file=File.LOG, at=1))
    with contextlib.suppress(JournalFailed):
        user.append(journal)
        user.append(journal)
    disk.after_the_cut(tmp_path / "data", after, random.Random(0))
    journal.close()
    user.open(after, ForgetfulDisk()).close()


def test_the_journal_does_not_trust_a_disk_on_which_a_sync_has_failed(tmp_path: Path) -> None:
    _fall_into_the_trap(Journal, tmp_path)


def test_a_journal_that_passes_over_a_failed_sync_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="what was acknowledged is lost"):
        _fall_into_the_trap(Swallowing, tmp_path)


def test_a_journal_that_tries_a_failed_sync_again_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingFile, "xSync", _sync_again)
    with pytest.raises(AssertionError, match="what was acknowledged is lost"):
        _fall_into_the_trap(Journal, tmp_path)


def test_what_a_failed_sync_has_lost_is_not_built_upon(tmp_path: Path) -> None:
    """The next process still reads what was lost, and no sync of its own puts that on disk."""
    user, disk, after = _a_user(), FailingDisk(), tmp_path / "after"
    journal = user.open(tmp_path / "data", disk)
    disk.plan(LOSING_SYNC(at=1))
    with pytest.raises(JournalFailed):
        user.append(journal)
    journal.close()
    again = user.open(tmp_path / "data", disk)
    user.append(again)
    disk.after_the_cut(tmp_path / "data", after, random.Random(0))
    again.close()
    user.open(after, ForgetfulDisk()).close()


# The disk itself


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / FILE_NAME


def _open(disk: FailingDisk, path: Path) -> apsw.VFSFile:
    wanted = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
    return apsw.VFSFile(disk.name, str(path), [wanted, 0])


def _use_file(operation: Operation, file: apsw.VFSFile, disk: FailingDisk, path: Path) -> None:
    uses: dict[Operation, Callable[[], object]] = {
        Operation.OPEN: lambda: _open(disk, path),
        Operation.READ: lambda: file.xRead(1, 0),
        Operation.WRITE: lambda: file.xWrite(b"x", 0),
        Operation.TRUNCATE: lambda: file.xTruncate(1),
        Operation.SYNC: lambda: file.xSync(apsw.SQLITE_SYNC_NORMAL),
        Operation.FILE_SIZE: file.xFileSize,
        Operation.DELETE: lambda: disk.xDelete(str(path), False),
    }
    uses[operation]()


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("code", [None, apsw.SQLITE_FULL, apsw.SQLITE_READONLY])
def test_each_operation_fails_with_the_code_that_was_planned(
    operation: Operation, code: int | None, data: Path
) -> None:
    disk = FailingDisk()
    file = _open(disk, data)
    fault = disk.plan(Fault(operation, at=1, code=code))
    expected = operation.value if code is None else code
    with pytest.raises(apsw.Error, match=f"{code_name(expected)} as planned") as failed:
        _use_file(operation, file, disk, data)
    assert type(failed.value) is type(apsw.exception_for(expected))
    assert failed.value.extendedresult == expected  # type: ignore[attr-defined]
    assert (fault.calls, fault.failures) == (1, 1)
    for other in EVERY_OPERATION - {operation, Operation.OPEN, Operation.DELETE}:
        _use_file(other, file, disk, data)
    assert fault.calls == 1
    file.xClose()


def _which_fail(fault: Fault, data: Path, writes: int) -> list[int]:
    disk = FailingDisk(fault)
    file = _open(disk, data)
    failed = []
    for number in range(1, writes + 1):
        try:
            file.xWrite(b"x", 0)
        except apsw.IOError:
            failed.append(number)
    file.xClose()
    assert fault.failures == len(failed)
    return failed


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (Fault(Operation.WRITE), []),
        (Fault(Operation.WRITE, at=3), [3]),
        (Fault(Operation.WRITE, at=3, lasts=True), [3, 4, 5]),
        (Fault({Operation.WRITE, Operation.SYNC}, file=File.DATABASE, at=2), [2]),
        (Fault(Operation.WRITE, file=File.LOG, at=2), []),
    ],
)
def test_a_fault_strikes_when_and_where_it_was_planned(
    fault: Fault, failing: list[int], data: Path
) -> None:
    assert _which_fail(fault, data, writes=5) == failing


def test_what_fails_by_chance_depends_on_the_seed_alone(data: Path) -> None:
    first, same, other = (
        _which_fail(Fault(Operation.WRITE, chance=0.2, seed=seed), data, writes=200)
        for seed in (1, 1, 2)
    )
    assert first == same != other
    assert 20 <= len(first) <= 60


def test_of_a_torn_write_the_first_part_is_there_and_of_a_short_read_the_rest_is_not(
    data: Path,
) -> None:
    disk = FailingDisk()
    file = _open(disk, data)
    file.xWrite(b"0123456789", 0)
    disk.plan(Fault(Operation.WRITE, at=1, part=0.3))
    with pytest.raises(apsw.IOError):
        file.xWrite(b"abcdefghij", 0)
    assert file.xRead(10, 0) == b"abc3456789"
    disk.plan(SHORT_READ(at=1, part=0.5))
    assert file.xRead(10, 0) == b"abc34"
    file.xClose()


@pytest.mark.parametrize(("loses", "left"), [(False, b"old and new"), (True, b"old\0\0\0\0\0new")])
def test_what_a_sync_loses_can_be_read_until_the_power_goes(
    loses: bool, left: bytes, data: Path, tmp_path: Path
) -> None:
    disk = FailingDisk()
    file = _open(disk, data)
    file.xWrite(b"old", 0)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    disk.plan(Fault(Operation.SYNC, at=1, loses=loses))
    file.xWrite(b" and ", 3)
    with pytest.raises(apsw.IOError):
        file.xSync(apsw.SQLITE_SYNC_NORMAL)
    file.xWrite(b"new", 8)
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert file.xRead(11, 0) == b"old and new"
    file.xClose()
    disk.after_the_cut(data.parent, tmp_path / "after", random.Random(0))
    assert (tmp_path / "after" / FILE_NAME).read_bytes() == left
