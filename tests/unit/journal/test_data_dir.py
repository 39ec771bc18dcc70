"""A data directory: what is synced when it is made, and that one process at a time has it."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

import pytest

from leasehold.errors import DirectoryInUse, ForeignJournal
from leasehold.journal import data_dir
from leasehold.journal.data_dir import (
    FILE_NAME,
    LOCK_NAME,
    DataDirectory,
    sync_file,
    why_unusable,
)

FULL_SYNC = 51
"""`F_FULLFSYNC`, as macOS has it."""

STEPS_TO_WRITE_A_FILE = ("write", "fsync", "replace", "fsync")


class Stopped(BaseException):
    """The process ends here."""


class Steps:
    """The system calls that change the disk, in order; the process ends before the chosen one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_before: int | None = None) -> None:
        self.taken: list[str] = []
        self.synced: list[Path] = []
        self._stop_before = stop_before
        for name in ("write", "fsync", "replace", "mkdir"):
            monkeypatch.setattr(f"leasehold.journal.data_dir.os.{name}", self._wrap(name))

    def _wrap(self, name: str) -> object:
        real = getattr(os, name)

        def step(*arguments: object, **options: object) -> object:
            if len(self.taken) == self._stop_before:
                raise Stopped
            self.taken.append(name)
            if name == "fsync":
                self.synced.append(Path(f"/proc/self/fd/{arguments[0]}").readlink())
            return real(*arguments, **options)

        return step


def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    DataDirectory(directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777])
def test_a_directory_that_others_may_use_is_warned_about_and_keeps_its_mode(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    DataDirectory(directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) == mode
    (warning,) = caplog.messages
    assert warning == (
        f"{directory} can be accessed by other users (its mode is {mode:04o}): "
        f"run chmod 0700 {directory}"
    )


def test_a_database_that_others_may_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).touch()
    (tmp_path / FILE_NAME).chmod(0o644)
    DataDirectory(tmp_path).close()
    (warning,) = caplog.messages
    assert warning.endswith(f"(its mode is 0644): run chmod 0600 {tmp_path / FILE_NAME}")


@pytest.mark.parametrize("mode", [0o700, 0o500, 0o2700])
def test_a_directory_for_its_owner_alone_is_not_warned_about(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    with contextlib.suppress(PermissionError):
        DataDirectory(directory).close()
    assert caplog.messages == []


# Syncs on macOS, where `fsync` leaves data in the cache of the drive.


def _full_syncs(monkeypatch: pytest.MonkeyPatch, failure: int = 0) -> list[str]:
    done: list[str] = []

    def full_sync(fd: int, command: int) -> int:
        assert command == FULL_SYNC
        done.append("full")
        if failure:
            raise OSError(failure, os.strerror(failure))
        return 0

    monkeypatch.setattr(data_dir, "FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("plain"))
    return done


def test_files_and_directories_are_synced_through_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(DataDirectory(tmp_path)) as directory:
        done = _full_syncs(monkeypatch)
        directory.write_whole("name", b"content")
    assert done == ["full", "full"]


def test_a_file_system_without_full_syncs_gets_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    done = _full_syncs(monkeypatch, errno.ENOTSUP)
    sync_file(0)
    assert done == ["full", "plain"]


def test_a_full_sync_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = _full_syncs(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync_file(0)
    assert done == ["full"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_each_directory_that_is_made_is_synced_into_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    DataDirectory(tmp_path / "a" / "b").close()
    assert steps.taken[:4] == ["mkdir", "fsync", "mkdir", "fsync"]
    assert steps.synced == [tmp_path, tmp_path / "a"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_directory_that_others_made_is_synced_into_its_parent_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    steps = Steps(monkeypatch)
    DataDirectory(tmp_path / "a").close()
    assert steps.synced == [tmp_path]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_is_synced_before_it_gets_its_name_and_its_name_thereafter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDirectory(tmp_path)
    steps = Steps(monkeypatch)
    directory.write_whole("file", b"content")
    assert tuple(steps.taken) == STEPS_TO_WRITE_A_FILE
    assert steps.synced == [tmp_path / "file.new", tmp_path]
    assert (tmp_path / "file").read_bytes() == b"content"
    directory.close()


@pytest.mark.parametrize("step", range(len(STEPS_TO_WRITE_A_FILE)))
def test_a_file_is_there_whole_or_not_at_all_wherever_its_making_ends(
    step: int, tmp_path: Path
) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        Steps(patched, stop_before=step)
        with pytest.raises(Stopped):
            directory.write_whole("file", b"content")
    named = step > STEPS_TO_WRITE_A_FILE.index("replace")
    assert (tmp_path / "file").exists() == named
    directory.write_whole("file", b"other")
    assert (tmp_path / "file").read_bytes() == b"other"
    directory.close()


def test_what_a_system_call_takes_in_parts_is_written_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    directory = DataDirectory(tmp_path)
    monkeypatch.setattr(
        "leasehold.journal.data_dir.os.write", lambda fd, data: write(fd, bytes(data[:3]))
    )
    directory.write_whole("file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    directory.close()


def test_a_second_use_in_the_same_process_is_refused(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    with pytest.raises(DirectoryInUse, match="is already open in this process"):
        DataDirectory(tmp_path)
    first.close()
    DataDirectory(tmp_path).close()


@pytest.mark.parametrize("left", [b"", b"1\n", b"99999999999999999999", b"nonsense" * 9])
def test_a_lock_file_that_was_left_behind_means_nothing(left: bytes, tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(left)
    directory = DataDirectory(tmp_path)
    assert (tmp_path / LOCK_NAME).read_bytes().split()[0] == b"%d" % os.getpid()
    directory.close()


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.close()
    directory.close()
    DataDirectory(tmp_path).close()


@pytest.mark.parametrize("named", [".", "member"])
def test_a_directory_of_etcd_is_refused_before_anything_is_written(
    named: str, tmp_path: Path
) -> None:
    for name in ("snap", "wal"):
        (tmp_path / "member" / name).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ForeignJournal, match=r"data of etcd.*use another.*make-mirror"):
        DataDirectory(tmp_path / named)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_is_ours_already_is_had_whatever_else_is_there(tmp_path: Path) -> None:
    for name in ("snap", "wal"):
        (tmp_path / "member" / name).mkdir(parents=True)
    (tmp_path / FILE_NAME).touch()
    DataDirectory(tmp_path).close()


def test_who_may_not_write_is_told_so_and_whose_it_is(tmp_path: Path) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a" / LOCK_NAME))
    said = why_unusable(tmp_path / "a", denied)
    assert "Errno" not in said
    assert f"may not write {tmp_path / 'a' / LOCK_NAME} ({tmp_path} belongs to the user " in said
    assert "chown" in said


def test_a_file_is_no_directory_and_a_full_disk_is_another_matter(tmp_path: Path) -> None:
    (tmp_path / "b.db").touch()
    wrong = NotADirectoryError(errno.ENOTDIR, "Not a directory", str(tmp_path / "b.db"))
    assert "it is a file: name a directory" in why_unusable(tmp_path / "b.db", wrong)
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path))
    assert "No space left on device; check that the disk" in why_unusable(tmp_path, full)
