"""A data directory that another process uses."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import leasehold
from leasehold.errors import DirectoryInUse
from leasehold.journal.data_dir import (
    LOCK_NAME,
    DataDirectory,
)
from tests.support.engine_fixtures import asynchronous

HOLDER = """
import sys
from pathlib import Path
from leasehold.journal.data_dir import DataDirectory
held = DataDirectory(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def _hold(directory: Path) -> "subprocess.Popen[str]":
    holder = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, "-c", HOLDER, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_refused_and_told_the_first(tmp_path: Path) -> None:
    with _hold(tmp_path) as holder:
        with pytest.raises(DirectoryInUse) as refused:
            DataDirectory(tmp_path)
        assert str(refused.value) == (
            f"{tmp_path} is in use by process {holder.pid}: "
            "stop that process first, or choose another directory"
        )
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        DataDirectory(tmp_path).close()  # the lock went with the process


def test_a_holder_that_has_not_yet_written_its_name_is_another_process(tmp_path: Path) -> None:
    with _hold(tmp_path) as holder:
        (tmp_path / LOCK_NAME).write_bytes(b"")
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            DataDirectory(tmp_path)
        holder.kill()


@asynchronous
async def test_a_directory_has_one_engine_at_a_time(tmp_path: Path) -> None:
    engine = await leasehold.open_engine(tmp_path)
    with pytest.raises(DirectoryInUse, match="is already open in this process"):
        await leasehold.open_engine(tmp_path)
    await engine.close()
    async with leasehold.open_engine(tmp_path):
        said = await asyncio.to_thread(_open_elsewhere, tmp_path)
    assert f"in use by process {os.getpid()}" in said


def _open_elsewhere(path: Path | str) -> str:
    opening = (
        "import asyncio, sys, leasehold; asyncio.run(leasehold.open_engine(sys.argv[1])._make())"
    )
    other = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", opening, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return other.stderr
