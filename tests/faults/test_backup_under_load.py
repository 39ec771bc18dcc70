"""Backups of a real process under load: what is in them, and what is left if somebody is killed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold.store.backup_file import draft_path
from leasehold.store.checking import check
from leasehold.store.restoring import restore
from tests.support import stopping

OWNER = Path(__file__).with_name("backup_owner.py")
WITHIN_S = 60.0


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


class Owner:
    """The process that has the directory, and what it has acknowledged."""

    def __init__(self, tmp_path: Path, *options: str) -> None:
        self.said = tmp_path / "acknowledged"
        with self.said.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-W", "error", OWNER, tmp_path / "data", *options], stdout=output
            )
        had = self.acknowledged
        until(lambda: self.acknowledged > had)

    @property
    def acknowledged(self) -> int:
        lines = self.said.read_text().splitlines(keepends=True)
        whole = [line for line in lines[-2:] if line.endswith("\n")]
        return int(whole[-1]) if whole else 0


@contextmanager
def owner(tmp_path: Path, *options: str) -> Iterator[Owner]:
    running = Owner(tmp_path, *options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait(WITHIN_S)


def start_backup(tmp_path: Path) -> "subprocess.Popen[str]":
    arguments = ("backup", "--data-dir", tmp_path / "data", tmp_path / "b.db")
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-W", "error", "-m", "leasehold", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def half_way(tmp_path: Path) -> bool:
    draft = draft_path(tmp_path / "b.db")
    return draft.exists() and draft.stat().st_size > 0


def test_all_that_was_acknowledged_before_is_in_the_backup_and_it_is_of_one_revision(
    tmp_path: Path,
) -> None:
    with owner(tmp_path) as running:
        for _ in range(3):
            before = running.acknowledged
            with start_backup(tmp_path) as backup:
                _, errors = backup.communicate(timeout=WITHIN_S)
            assert (backup.returncode, errors) == (0, "")
            found = check(tmp_path / "b.db")
            assert before <= found.revision
            until(lambda found=found: running.acknowledged >= found.revision)  # type: ignore[misc]
            assert found.keys == 17
            (tmp_path / "b.db").rename(tmp_path / f"{found.revision}.db")
    restored = restore(next(tmp_path.glob("*.db")), tmp_path / "restored")
    assert check(tmp_path / "restored").revision == restored.revision > 10**9


def test_commits_go_on_while_a_backup_is_made(tmp_path: Path) -> None:
    with owner(tmp_path, "--slow") as running, start_backup(tmp_path) as backup:
        until(lambda: half_way(tmp_path))
        before = running.acknowledged
        until(lambda: running.acknowledged > before + 50)
        assert backup.poll() is None  # it is still being made
        backup.kill()


def test_an_owner_that_is_killed_leaves_its_data_and_no_half_backup(tmp_path: Path) -> None:
    with owner(tmp_path, "--slow") as running, start_backup(tmp_path) as backup:
        until(lambda: half_way(tmp_path))
        running.process.kill()
        running.process.wait(WITHIN_S)
        said, errors = backup.communicate(timeout=WITHIN_S)
    assert (backup.returncode, said) == (1, "")
    assert errors.count("\n") == 1
    assert "did not confirm the backup" in errors
    assert {path.name for path in tmp_path.iterdir()} == {"data", "acknowledged"}
    found = check(tmp_path / "data")
    assert found.revision >= running.acknowledged
    with owner(tmp_path), start_backup(tmp_path) as backup:  # and the next one is as good as ever
        assert backup.wait(WITHIN_S) == 0
    assert check(tmp_path / "b.db").revision >= found.revision


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_killed_leaves_no_half_backup(number: int, tmp_path: Path) -> None:
    with owner(tmp_path, "--slow") as running, start_backup(tmp_path) as backup:
        until(lambda: half_way(tmp_path))
        backup.send_signal(number)
        backup.wait(WITHIN_S)
        until(lambda: not draft_path(tmp_path / "b.db").exists())
        before = running.acknowledged
        until(lambda: running.acknowledged > before + 10)
        if (tmp_path / "b.db").exists():  # the signal came when it was done
            assert check(tmp_path / "b.db").revision > 0


def test_both_killed_leave_what_the_next_backup_writes_over(tmp_path: Path) -> None:
    with owner(tmp_path, "--slow") as running, start_backup(tmp_path) as backup:
        until(lambda: half_way(tmp_path))
        stopping.stop(running.process.pid)
        backup.kill()
        running.process.kill()
        running.process.wait(WITHIN_S)
    assert draft_path(tmp_path / "b.db").exists()
    assert not (tmp_path / "b.db").exists()
    with start_backup(tmp_path) as backup:
        assert backup.wait(WITHIN_S) == 0
    assert not draft_path(tmp_path / "b.db").exists()
    assert check(tmp_path / "b.db").revision >= running.acknowledged
