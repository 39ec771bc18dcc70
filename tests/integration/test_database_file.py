"""The lock on the database file: held from start to close, whatever else this process does.

Closing any descriptor of a file drops the POSIX locks of the process on it. Each test here does
something with a journal that is open and then looks, from another process, whether the file is
still locked; with open file description locks and with SQLite's own.
"""

import asyncio
import errno
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from leasehold.engine.embedded import open_engine
from leasehold.errors import DirectoryInUse, StorageError
from leasehold.journal import database_file
from leasehold.journal.data_dir import LOCK_NAME
from leasehold.journal.database_file import LOCKED_BYTES, LOCKED_FROM
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import FORMAT_VERSION, WITHOUT_HOLDERS
from leasehold.store.backup import Backups, back_up_directory
from leasehold.store.backup_file import draft_path
from leasehold.store.checking import check
from leasehold.store.restoring import restore

WITHIN_S = 60.0
LOG = f"{FILE_NAME}-wal"

LOOK = f"""
import fcntl, os, sqlite3, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
flock = struct.Struct("@hhqqi4x")
asked = flock.pack(fcntl.F_WRLCK, os.SEEK_SET, {LOCKED_FROM}, {LOCKED_BYTES}, 0)
kind = flock.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
connection = sqlite3.connect(sys.argv[1], timeout=0)
try:
    connection.execute("SELECT count(*) FROM batch").fetchall()
    said = "read"
except sqlite3.OperationalError as error:
    said = str(error)
connection.close()
print({{fcntl.F_WRLCK: "locked", fcntl.F_RDLCK: "shared", fcntl.F_UNLCK: "free"}}[kind], said)
"""  # noqa: S608  the numbers are ours


def look(directory: Path) -> str:
    """What another program finds: the lock, and whether it can read the database."""
    said = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", LOOK, directory / FILE_NAME],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    return said.stdout.strip()


LOCKED = "locked database is locked"


@pytest.fixture(params=["of the descriptor", "of SQLite"])
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which locks there are: those of Linux, or those that SQLite takes everywhere else."""
    kind: str = request.param
    if kind == "of SQLite":
        monkeypatch.setattr(database_file, "SET_LOCK", None)
    elif database_file.SET_LOCK is None:
        pytest.skip("this system has no open file description locks")
    return kind


@pytest.fixture
def directory(locks: str, tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def journal(directory: Path) -> Iterator[Journal]:
    made = Journal(directory)
    made.append(2, 2, b"")
    yield made
    made.close()


def test_the_database_is_locked_after_a_start_and_free_after_a_close(directory: Path) -> None:
    for _ in range(2):  # a new one, and one that is there
        journal = Journal(directory)
        assert look(directory) == LOCKED
        journal.close()
        assert look(directory) == "free read"


def test_the_database_is_locked_after_a_format_upgrade(directory: Path) -> None:
    Journal(directory).close()
    older = apsw.Connection(str(directory / FILE_NAME))
    older.execute(f"ALTER TABLE lease DROP COLUMN holder; PRAGMA user_version={WITHOUT_HOLDERS}")
    older.close()
    journal = Journal(directory)
    assert look(directory) == LOCKED
    journal.close()
    assert check(directory).format == FORMAT_VERSION


def test_the_database_stays_locked_while_the_journal_works(
    journal: Journal, directory: Path
) -> None:
    journal.checkpoint()
    journal.note("name", b"value")
    assert journal.fold(2)
    journal.shrink()
    journal.append(3, 3, b"")
    assert journal.history(3)
    assert look(directory) == LOCKED


async def _copies(directory: Path, target: Path) -> None:
    async with open_engine(directory) as engine:
        await engine.put(b"key", b"value")
        await engine.backup(target)
        await engine.backup(target, force=True)
        backups: Backups = engine._runtime.backups
        async with backups.snapshot() as snapshot:
            assert snapshot.size_bytes
        assert look(directory) == LOCKED
        restore(target, target.with_name("restored"))
        check(target)
        assert look(directory) == LOCKED


def test_the_database_stays_locked_after_backups_and_snapshots(
    directory: Path, tmp_path: Path
) -> None:
    asyncio.run(_copies(directory, tmp_path / "backup"))


def _linked(directory: Path) -> Path:
    link = directory.with_name("hard-link")
    os.link(directory / FILE_NAME, link)
    return link


def _symlinked(directory: Path) -> Path:
    link = directory.with_name("symlink")
    link.symlink_to(directory / FILE_NAME)
    return link


def _copy_of_directory(directory: Path) -> Path:
    """A directory with the same database under another name, and without its LOCK."""
    other = directory.with_name("other")
    other.mkdir()
    os.link(directory / FILE_NAME, other / FILE_NAME)
    return other


USES: dict[str, Callable[[Path], Any]] = {
    "check": check,
    "check the file": lambda directory: check(directory / FILE_NAME),
    "check a hard link": lambda directory: check(_linked(directory)),
    "check a symbolic link": lambda directory: check(_symlinked(directory)),
    "check a hard link in another directory": lambda directory: check(
        _copy_of_directory(directory)
    ),
    "back up": lambda directory: back_up_directory(directory, directory.with_name("backup")),
    "back up a hard link in another directory": lambda directory: back_up_directory(
        _copy_of_directory(directory), directory.with_name("backup")
    ),
    "restore the file": lambda directory: restore(
        directory / FILE_NAME, directory.with_name("restored")
    ),
    "restore a hard link": lambda directory: restore(
        _linked(directory), directory.with_name("restored")
    ),
    "open": Journal,
    "open a hard link in another directory": lambda directory: Journal(
        _copy_of_directory(directory)
    ),
}


@pytest.mark.parametrize("has_lock_file", [True, False])
@pytest.mark.parametrize("name", USES)
def test_other_uses_in_the_same_process_are_refused_and_drop_no_lock(
    name: str, has_lock_file: bool, journal: Journal, directory: Path
) -> None:
    if not has_lock_file:
        (directory / LOCK_NAME).unlink()
    with pytest.raises(DirectoryInUse):
        USES[name](directory)
    assert look(directory) == LOCKED
    journal.append(3, 3, b"undisturbed")


def test_a_draft_that_is_another_name_of_a_file_is_refused(
    journal: Journal, directory: Path, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    os.link(directory / FILE_NAME, draft_path(target))
    size = (directory / FILE_NAME).stat().st_size
    other = tmp_path / "stopped"
    Journal(other).close()
    with pytest.raises(StorageError, match="has another name"):
        back_up_directory(other, target)
    assert (directory / FILE_NAME).stat().st_size == size
    assert look(directory) == LOCKED


def test_a_child_process_that_ends_drops_no_lock(directory: Path) -> None:
    script = """
        import asyncio, os, sys
        from pathlib import Path
        from leasehold.journal import database_file
        from leasehold.engine.embedded import open_engine

        async def main():
            if sys.argv[2] == "of SQLite":
                database_file.SET_LOCK = None
            async with open_engine(sys.argv[1]) as engine:
                if os.fork() == 0:
                    os._exit(0)
                os.wait()
                print("ready", flush=True)
                sys.stdin.readline()

        asyncio.run(main())
    """
    kind = "of SQLite" if database_file.SET_LOCK is None else ""
    with subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", textwrap.dedent(script), directory, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert look(directory) == LOCKED
        process.communicate("\n", timeout=WITHIN_S)
    assert look(directory) == "free read"


def test_nothing_acknowledged_is_lost_when_another_program_opens_the_database(
    journal: Journal, directory: Path, tmp_path: Path
) -> None:
    assert look(directory) == LOCKED
    for revision in range(3, 8):
        journal.append(revision, revision, b"")
    left = tmp_path / "left"
    left.mkdir()
    for file in directory.glob(f"{FILE_NAME}*"):  # what a crash leaves
        shutil.copy(file, left)
    after = Journal(left)
    assert [row.first_revision for row in after.rows()] == [2, 3, 4, 5, 6, 7]
    after.close()


def test_a_database_that_another_program_reads_is_refused(directory: Path) -> None:
    Journal(directory).close()
    script = """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1])
        connection.execute("SELECT count(*) FROM batch").fetchall()
        print("ready", flush=True)
        sys.stdin.readline()
    """
    with subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", textwrap.dedent(script), directory / FILE_NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(DirectoryInUse, match="locked by another program"):
            Journal(directory)
        process.communicate("\n", timeout=WITHIN_S)
    Journal(directory).close()


# What only open file description locks can do.


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Path]:
    if database_file.SET_LOCK is None:
        pytest.skip("this system has no open file description locks")
    directory = tmp_path / "data"
    journal = Journal(directory)
    yield directory
    journal.append(2, 2, b"undisturbed")
    journal.close()


def test_the_lock_outlives_descriptors_that_other_code_closes(embedded: Path) -> None:
    (embedded / FILE_NAME).read_bytes()
    shutil.copytree(embedded, embedded.with_name("copy"))
    assert look(embedded) == LOCKED


def test_another_sqlite_in_the_same_process_is_refused(embedded: Path) -> None:
    other = sqlite3.connect(embedded / FILE_NAME, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        other.execute("SELECT count(*) FROM batch")
    other.close()
    assert (embedded / LOG).exists()
    assert look(embedded) == LOCKED


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOLCK])
def test_sqlite_locks_the_file_if_the_file_system_has_no_descriptor_locks(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, command: int, lock: bytes) -> bytes:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refuse)
        journal = Journal(tmp_path)
    assert look(tmp_path) == LOCKED
    journal.close()


# That it stays so: every call to `open` is looked at.

TRACED = """
import asyncio, os, sys
from pathlib import Path

import apsw
from leasehold.journal import database_file
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import check
from leasehold.journal.journal import Journal
from leasehold.store.restoring import restore
from leasehold.errors import DirectoryInUse

kind, room = sys.argv[1], Path(sys.argv[2])
if kind == "of SQLite":
    database_file.SET_LOCK = None
data = room / "data"
database = data / "leasehold.db"
is_open = False
opened = []

def hook(event, args):
    if event == "open" and is_open and isinstance(args[0], (str, bytes, os.PathLike)):
        try:
            if os.path.samefile(args[0], database):
                opened.append(args[0])
        except OSError:
            pass

sys.addaudithook(hook)
connect = apsw.Connection

class Connection(connect):
    def __init__(self, name, *args, **kwargs):
        global is_open
        super().__init__(name, *args, **kwargs)
        if str(name) == str(database):
            is_open = True

apsw.Connection = Connection

def refused(work):
    try:
        work()
    except DirectoryInUse:
        return
    raise AssertionError("it was not refused")

async def use():
    global is_open
    from leasehold.engine.embedded import open_engine
    async with open_engine(data) as engine:
        assert is_open
        await engine.put(b"key", b"value")
        await engine.compact(2)
        await engine.backup(room / "backup", force=True)
        async with engine._runtime.backups.snapshot():
            pass
        await engine._runtime.do(lambda journal: (journal.checkpoint(), journal.shrink()))
        refused(lambda: check(data))
        refused(lambda: check(database))
        refused(lambda: back_up_directory(data, room / "other"))
        refused(lambda: restore(database, room / "restored"))
        refused(lambda: Journal(data))
        check(room / "backup")
    is_open = False

asyncio.run(use())
older = connect(str(database))
older.execute("DELETE FROM lease; ALTER TABLE lease DROP COLUMN holder; PRAGMA user_version=2")
older.close()
journal = Journal(data)
assert is_open
journal.close()
print("opened:", opened)
"""


@pytest.mark.parametrize("kind", ["of the descriptor", "of SQLite"])
def test_nothing_opens_the_database_once_sqlite_has(kind: str, tmp_path: Path) -> None:
    said = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", TRACED, kind, tmp_path],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert said.stdout == "opened: []\n", said.stderr
