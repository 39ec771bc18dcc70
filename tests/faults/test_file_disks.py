"""Replica stores on disks that become full or are unmounted: file systems in memory."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import leasehold
from leasehold.client.client import Client
from leasehold.errors import TooFewReplicas
from leasehold.files.writer import FileWriter
from tests.support.asynchronous import asynchronous

SMALL_KIB: Final = 256
LARGE_KIB: Final = 2_048
RECORD: Final = 32 * 1024
"""Bytes of each flush."""
MAX_FLUSHES: Final = 4 * LARGE_KIB * 1024 // RECORD
"""More than fit into all disks."""


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """One small disk and two larger ones. Mounting needs root."""
    mounted: list[Path] = []
    try:
        for number, size_kib in enumerate((SMALL_KIB, LARGE_KIB, LARGE_KIB)):
            path = tmp_path / f"disk{number}"
            path.mkdir()
            options = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(path)]
            try:
                done = subprocess.run(options, capture_output=True, text=True, check=False)  # noqa: S603
            except FileNotFoundError:
                pytest.skip("needs the command mount")
            if done.returncode:
                pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
            mounted.append(path)
        yield mounted
    finally:
        for path in filter(Path.is_mount, mounted):
            unmount(path)


def unmount(path: Path) -> None:
    """Unmount a disk."""
    subprocess.run(["umount", str(path)], check=True)  # noqa: S603, S607


@asynccontextmanager
async def client_with(stores: list[Path]) -> AsyncIterator[Client]:
    """Open a client with an engine in this process, and stores."""
    async with leasehold.open("memory:") as client:
        await client.files.configure(add=[str(path / "store") for path in stores])
        yield client


def record(number: int) -> bytes:
    """Return the bytes of a flush."""
    return f"{number:08}".encode() * (RECORD // 8)


async def fill(file: FileWriter, first: int = 0) -> tuple[int, TooFewReplicas]:
    """Flush records until that fails; return how many were acknowledged, and the error."""
    for number in range(first, MAX_FLUSHES):
        await file.write(record(number))
        try:
            await file.flush()
        except TooFewReplicas as error:
            return number, error
    raise AssertionError("the disks are not full")


async def content(client: Client, path: str) -> bytes:
    """Return the bytes of a file."""
    async with client.files.open(path) as file:
        return await file.read()


def free_bytes(path: Path) -> int:
    """Return the free space of a disk."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


@asynchronous
async def test_a_flush_goes_on_without_a_full_disk(disks: list[Path]) -> None:
    small, *_ = disks
    async with client_with(disks) as client, client.files.open("log", "xb") as file:
        count = 3 * SMALL_KIB * 1024 // RECORD
        for number in range(count):
            await file.write(record(number))
            await file.flush()
        assert free_bytes(small) < RECORD
        expected = b"".join(map(record, range(count)))
        assert await content(client, "log") == expected
        assert "No space left" in client.files.failed_stores()[str(small / "store")]


@asynchronous
async def test_full_disks_are_an_error_and_the_same_writer_goes_on_when_there_is_space(
    disks: list[Path],
) -> None:
    async with client_with(disks) as client:
        ballast = [path / "ballast" for path in disks]
        for path in ballast:
            path.write_bytes(bytes(SMALL_KIB * 512))
        async with client.files.open("log", "xb") as file:
            count, error = await fill(file)
            assert "No space left on device" in str(error)
            assert any(f"store {path}/store: " in str(error) for path in disks[1:])
            flushed = b"".join(map(record, range(count)))
            assert file.flushed == len(flushed)
            assert await content(client, "log") == flushed
            with pytest.raises(TooFewReplicas):
                await file.flush()
            assert await content(client, "log") == flushed
            for path in ballast:
                path.unlink()
            await file.flush()  # the record that was kept
            flushed += record(count)
            assert await content(client, "log") == flushed
            more, _ = await fill(file, count + 1)
            flushed = b"".join(map(record, range(more)))
            await file.abort()
        assert await content(client, "log") == flushed


@asynchronous
async def test_a_flush_goes_on_without_an_unmounted_disk_and_writes_nothing_below_it(
    disks: list[Path],
) -> None:
    gone, *_ = disks
    async with client_with(disks) as client:
        async with client.files.open("log", "xb") as file:
            await file.write(record(0))
            await file.flush()
            unmount(gone)
            await file.write(record(1))
            await file.flush()
        assert list(gone.iterdir()) == []
        assert await content(client, "log") == record(0) + record(1)
        assert "is its disk mounted" in client.files.failed_stores()[str(gone / "store")]
