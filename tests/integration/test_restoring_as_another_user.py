"""A backup that the user who restores it may only read."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from leasehold.journal.journal import Journal
from leasehold.store.backup import back_up_directory

NOBODY = 65534


def _state(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_mode)
        for file in directory.iterdir()
    }


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can enter, unlike `tmp_path`."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_backup_is_not_written_to(tmp_path: Path, public: Path) -> None:
    """Neither the file nor its directory: the user who restores it may write neither."""
    place = public / "place"
    place.mkdir()
    backup = place / "backup"
    Journal(tmp_path / "data").close()
    back_up_directory(tmp_path / "data", backup)
    backup.chmod(0o444)
    place.chmod(0o555)
    before = _state(place)
    open_to_all = public / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    work = """
import os, sys
from pathlib import Path
from leasehold.store.checking import check
from leasehold.store.restoring import restore
if os.geteuid() == 0:
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
assert not os.access(sys.argv[1], os.W_OK)
check(Path(sys.argv[1]))
restore(Path(sys.argv[1]), Path(sys.argv[2]))
"""
    program = [sys.executable, "-c", work, *map(str, (backup, open_to_all / "restored", NOBODY))]
    said = subprocess.run(  # noqa: S603  our own program
        program, capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 0, said.stderr
    assert _state(place) == before
