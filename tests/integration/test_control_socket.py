"""The control socket: who may ask, what may be asked, and that nobody is in anybody's way."""

import asyncio
import json
import logging
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leasehold.engine.embedded import EmbeddedEngine, open_engine
from leasehold.errors import StorageError
from leasehold.store import backup as backup_module
from leasehold.store import control_socket
from leasehold.store.backup_file import draft_path
from leasehold.store.checking import check
from leasehold.store.control_socket import (
    CONTROL_NAME,
    MAX_CLIENTS,
    MAX_LINE_BYTES,
    ask_for_backup,
)

WITHIN_S = 120.0


def with_engine(directory: Path, work: Callable[[EmbeddedEngine], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(WITHIN_S), open_engine(directory) as engine:
            for number in range(30):
                await engine.put(b"%d" % number, b"x" * 4000)
            return await work(engine)

    return asyncio.run(run())


@pytest.fixture
def in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a page copied at a time."""
    monkeypatch.setattr(backup_module, "SLICE_S", 0.0)
    monkeypatch.setattr(backup_module, "PAGES_PER_STEP", 1)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.001)


@asynccontextmanager
async def connected(
    directory: Path,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(directory / CONTROL_NAME)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask(directory: Path, line: bytes) -> list[dict[str, Any]]:
    """Send something, and give all answers."""
    async with connected(directory) as (reader, writer):
        writer.write(line)
        said = []
        try:
            while answer := await reader.readline():
                said.append(json.loads(answer))
        except ConnectionResetError:  # not all was read that was sent
            pass
        return said


def request(target: Path | str, **more: Any) -> bytes:
    return json.dumps({"do": "backup", "to": str(target), **more}).encode() + b"\n"


# What is done


def test_a_backup_is_made_and_progress_is_told(tmp_path: Path) -> None:
    async def work(_: EmbeddedEngine) -> None:
        *progress, last = await ask(tmp_path / "data", request(tmp_path / "b"))
        found = check(tmp_path / "b")
        assert last == {"done": {"revision": found.revision, "bytes": found.size_bytes}}
        assert all(0 <= each["pages"] <= each["of"] for each in progress)
        (refused,) = (await ask(tmp_path / "data", request(tmp_path / "b")))[-1:]
        assert "already exists" in refused["error"]
        assert "done" in (await ask(tmp_path / "data", request(tmp_path / "b", force=True)))[-1]

    with_engine(tmp_path / "data", work)


def test_the_other_side_gives_what_was_made(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    async def work(_: EmbeddedEngine) -> None:
        made = await asyncio.to_thread(
            ask_for_backup, tmp_path / "data", tmp_path / "b", lambda *how: told.append(how)
        )
        assert made == (tmp_path / "b", 31, (tmp_path / "b").stat().st_size)
        with pytest.raises(StorageError, match="already exists"):
            await asyncio.to_thread(ask_for_backup, tmp_path / "data", tmp_path / "b")

    with_engine(tmp_path / "data", work)
    assert told[-1][0] <= told[-1][1]


def test_a_relative_target_is_one_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(_: EmbeddedEngine) -> None:
        await asyncio.to_thread(ask_for_backup, Path("data"), Path("b"))

    with_engine(tmp_path / "data", work)
    check(tmp_path / "b")


# The socket


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_engine(tmp_path: Path) -> None:
    async def work(_: EmbeddedEngine) -> None:
        mode = (tmp_path / CONTROL_NAME).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600

    for _ in range(2):
        with_engine(tmp_path, work)
        assert not (tmp_path / CONTROL_NAME).exists()


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / CONTROL_NAME))

    async def work(_: EmbeddedEngine) -> None:
        assert "error" in (await ask(tmp_path, b"\n"))[-1]

    with_engine(tmp_path, work)


def test_what_is_no_socket_is_left_alone_and_the_engine_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / CONTROL_NAME).write_text("mine")

    async def work(engine: EmbeddedEngine) -> None:
        with pytest.raises(
            StorageError, match="in use by a process that does not accept backup requests"
        ):
            ask_for_backup(tmp_path / "data", tmp_path / "b")
        await engine.backup(tmp_path / "c")

    with caplog.at_level(logging.WARNING):
        with_engine(tmp_path / "data", work)
    assert "backups cannot be requested from this process" in caplog.text
    assert (tmp_path / "data" / CONTROL_NAME).read_text() == "mine"


def test_the_path_of_the_directory_may_be_long(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120) / ("y" * 120)

    async def work(_: EmbeddedEngine) -> None:
        await asyncio.to_thread(ask_for_backup, directory, tmp_path / "b")

    with_engine(directory, work)
    check(tmp_path / "b")
    assert not (directory / CONTROL_NAME).exists()


def test_in_memory_there_is_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def work() -> None:
        async with open_engine("memory:"):
            assert _names(tmp_path) == []

    asyncio.run(work())


def test_a_child_does_not_keep_the_socket_open(tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        listener = engine._runtime._control._socket
        assert listener is not None
        number = listener.fileno()
        child = os.fork()
        if not child:
            try:
                os.fstat(number)
            except OSError:
                os._exit(0)
            os._exit(1)
        assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
        await asyncio.to_thread(ask_for_backup, tmp_path / "data", tmp_path / "b")

    with_engine(tmp_path / "data", work)


# Misuse


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\n", "not a line of JSON; send"),
        (b"garbage\n", "not a line of JSON"),
        (b"\xff\xfe\x00\n", "not a line of JSON"),
        (b"[" * 10_000 + b"\n", "not a line of JSON"),
        (b"{}\n", "the only request is a backup"),
        (b"[1]\n", "the only request is a backup"),
        (b'{"do": "format"}\n', "the only request is a backup"),
        (b'{"do": "backup"}\n', "`to` must be an absolute path, got None"),
        (b'{"do": "backup", "to": 7}\n', "`to` must be an absolute path, got 7"),
        (b'{"do": "backup", "to": "b.db"}\n', "`to` must be an absolute path, got 'b.db'"),
        (b'{"do": "backup", "to": ""}\n', "`to` must be an absolute path"),
        (b'{"do": "backup", "to": "/b", "force": 1}\n', "`force` must be true or false"),
        (b'{"do": "backup", "to": "/b\\u0000"}\n', "embedded null byte"),
        (b'{"do": "backup", "to": "/no/where"}\n', "there is no directory"),
        (b"x" * (MAX_LINE_BYTES + 1000), f"longer than {MAX_LINE_BYTES} bytes"),
    ],
)
def test_misuse_is_answered_with_what_would_be_right(
    line: bytes, text: str, tmp_path: Path
) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        said = await ask(tmp_path / "data", line)
        assert text in said[-1]["error"]
        await engine.put(b"after", b"1")

    with_engine(tmp_path / "data", work)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_client_that_says_nothing_is_told_so_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "IDLE_S", 0.05)

    async def work(_: EmbeddedEngine) -> None:
        for half in (b"", b'{"do": '):
            (said,) = await ask(tmp_path / "data", half)
            assert said == {"error": "no request within 0.05 s"}

    with_engine(tmp_path / "data", work)


def test_only_so_many_clients_are_served_at_a_time(tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        clients = [
            await asyncio.open_unix_connection(tmp_path / "data" / CONTROL_NAME)
            for _ in range(MAX_CLIENTS)
        ]
        await until(lambda: len(engine._runtime._control._clients) == MAX_CLIENTS)
        for _ in range(20):
            (said,) = await ask(tmp_path / "data", b"")
            assert said == {"error": f"{MAX_CLIENTS} clients are being served; try again later"}
        clients[0][1].close()
        await until(lambda: len(engine._runtime._control._clients) < MAX_CLIENTS)
        assert "done" in (await ask(tmp_path / "data", request(tmp_path / "b")))[-1]
        for _, writer in clients[1:]:
            writer.close()

    with_engine(tmp_path / "data", work)


@pytest.mark.usefixtures("in_small_slices")
@pytest.mark.parametrize("how", ["goes", "says more"])
def test_a_client_that_goes_away_has_its_backup_given_up(how: str, tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        async with connected(tmp_path / "data") as (_, writer):
            writer.write(request(tmp_path / "b"))
            await until(lambda: _length(draft_path(tmp_path / "b")) > 0)
            if how == "says more":
                writer.write(b"more")
                await until(lambda: not draft_path(tmp_path / "b").exists())
        await until(lambda: not draft_path(tmp_path / "b").exists())
        await engine.put(b"after", b"1")

    _slow(tmp_path)
    with_engine(tmp_path / "data", work)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.usefixtures("in_small_slices")
def test_a_client_that_does_not_listen_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "PROGRESS_S", 0.0)

    async def work(_: EmbeddedEngine) -> None:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            deaf.connect(str(tmp_path / "data" / CONTROL_NAME))
            deaf.sendall(request(tmp_path / "b"))
            await until((tmp_path / "b").exists)
        check(tmp_path / "b")

    with_engine(tmp_path / "data", work)


@pytest.mark.usefixtures("in_small_slices")
def test_closing_the_engine_gives_up_what_was_asked_for(tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        async with connected(tmp_path / "data") as (reader, writer):
            writer.write(request(tmp_path / "b"))
            await until(lambda: _length(draft_path(tmp_path / "b")) > 0)
            await engine.close()
            while line := await reader.readline():
                assert "done" not in json.loads(line)

    _slow(tmp_path)
    with_engine(tmp_path / "data", work)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def _slow(tmp_path: Path) -> None:
    """Make so much data that a backup in small slices takes its time."""

    async def fill(engine: EmbeddedEngine) -> None:
        for number in range(8):
            await engine.put(b"large %d" % number, bytes(1_000_000))

    with_engine(tmp_path / "data", fill)


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# The other side


def test_a_process_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "ANSWER_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / CONTROL_NAME))
        silent.listen()
        with pytest.raises(StorageError, match=r"did not confirm the backup \(timed out"):
            ask_for_backup(tmp_path, tmp_path / "b")


def test_a_directory_that_nobody_listens_in_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"does not accept backup requests .*No such file.* try again in a mom"
    ):
        ask_for_backup(tmp_path, tmp_path / "b")
