"""Single-writer files for blocking code."""

import gc
import os
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import leasehold.sync
from leasehold import (
    Closed,
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    Forked,
    LeaseExpired,
)
from leasehold.errors import FileDamaged
from leasehold.files.state import CHUNK_BYTES
from leasehold.sync import open_file
from leasehold.sync.iterators import MAX_FETCHED
from leasehold.sync.loop_thread import LoopThread
from tests.support.interrupts import Interruption


@pytest.fixture
def client(tmp_path: Path) -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:", name="us") as client:
        client.files.configure(add=[str(tmp_path / "a"), str(tmp_path / "b")])
        yield client


def test_a_file_is_written_flushed_and_read_in_blocks(client: leasehold.sync.Client) -> None:
    with client.files.open("logs/a", "xb") as file:
        assert file.write(b"one\n") == 4
        file.flush()
        file.write(b"two\n")
        assert (file.path, file.flushed, file.tell(), file.closed) == ("logs/a", 4, 8, False)
        with client.files.open("logs/a") as reader:
            assert (reader.size, reader.read()) == (4, b"one\n")
            file.flush()
            assert reader.refresh() == 8
            assert reader.seek(-4, 2) == 4
            assert (reader.read(3), reader.tell()) == (b"two", 7)
        assert reader.closed
        with pytest.raises(Closed):
            reader.read()
    assert file.closed
    assert client.files.stat("logs/a").size_bytes == 8


def test_a_block_that_raises_keeps_the_flushed_bytes_only(client: leasehold.sync.Client) -> None:
    def write() -> None:
        with client.files.open("a", "xb") as file:
            file.write(b"kept")
            file.flush()
            file.write(b" lost")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write()
    assert client.files.is_closed("a")
    assert client.files.open("a").read() == b"kept"


def test_lines_are_read_together(
    client: leasehold.sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    run = LoopThread.run

    def counted(thread: LoopThread, work: Any, **options: Any) -> Any:
        calls.append(work)
        return run(thread, work, **options)

    lines = [b"%d\n" % number for number in range(20_000)]
    with client.files.create("a") as file:
        file.write(b"".join(lines))
    with client.files.open("a") as reader:
        assert reader.readline() == lines[0]
        monkeypatch.setattr(LoopThread, "run", counted)
        assert list(reader) == lines[1:]
        assert len(calls) == 2, "the lines, and the end"


LINES = st.lists(st.sampled_from([b"\n", b"a\n", b"b\r\n", b"0123456789\n", b"\r"]), max_size=12)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["next", "readline", "tell", "readlines"])),
    st.tuples(st.sampled_from(["read", "some_lines", "readlines"]), st.integers(1, 15)),
    st.tuples(st.just("seek"), st.integers(0, 40)),
    st.tuples(st.just("seek"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("seek"), st.integers(0, 5), st.integers(1, 2)),
)


def _apply(file: Any, name: str, *arguments: int) -> object:
    match name:
        case "next":
            return next(iter(file), None)
        case "some_lines":
            return list(islice(file, *arguments))
    return getattr(file, name)(*arguments)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # one client for all
@given(LINES, st.sampled_from([1, 8, 256 * 1024]), st.lists(OPERATIONS, max_size=12))
def test_lines_and_other_reads_alternate_as_in_files_of_python(
    client: leasehold.sync.Client,
    lines: list[bytes],
    batch_bytes: int,
    operations: list[tuple[Any, ...]],
) -> None:
    data = b"".join(lines)
    with client.files.open("a", "wb") as file:
        file.write(data)
    expected = BytesIO(data)
    with client.files.open("a") as reader, patch.object(open_file, "LINES_BYTES", batch_bytes):
        for operation in operations:
            assert _apply(reader, *operation) == _apply(expected, *operation), operation
            assert reader.tell() == expected.tell(), operation


def test_an_iteration_that_was_left_goes_on(client: leasehold.sync.Client) -> None:
    with client.files.open("a", "xb") as file:
        file.write(b"header\none\ntwo\nthree\nfour")
        file.flush()
        reader = client.files.open("a")
        for line in reader:
            assert line == b"header\n"
            break
        assert reader.readline() == b"one\n"
        lines = iter(reader)
        assert next(lines) == b"two\n"
        assert next(reader) == b"three\n"
        file.write(b"ty\nfive\n")
        file.flush()
        reader.refresh()
        assert list(lines) == [b"fourty\n", b"five\n"]
    reader.seek(0)
    assert next(reader) == b"header\n"
    reader.close()
    with pytest.raises(Closed):
        next(reader)


def test_lines_of_a_closed_reader_are_refused_at_its_end(client: leasehold.sync.Client) -> None:
    client.files.create("a").close()
    with client.files.open("a") as reader:
        assert list(reader) == []
    with pytest.raises(Closed):
        list(reader)


def test_the_lines_before_a_damaged_part_are_read(
    client: leasehold.sync.Client, tmp_path: Path
) -> None:
    lines = [b"%06d\n" % number for number in range(2 * CHUNK_BYTES // 7)]
    with client.files.create("a") as file:
        file.write(b"".join(lines))
    for path in (each for store in "ab" for each in (tmp_path / store).rglob("*")):
        if path.is_file() and path.stat().st_size > CHUNK_BYTES:
            with path.open("r+b") as replica:
                replica.seek(CHUNK_BYTES)
                replica.write(b"damaged")
    found: list[bytes] = []
    with client.files.open("a") as reader:
        with pytest.raises(FileDamaged):
            found.extend(reader)
        assert found == lines[: CHUNK_BYTES // 7]
        assert reader.tell() == CHUNK_BYTES // 7 * 7
        with pytest.raises(FileDamaged):
            next(reader)


def test_each_way_of_opening_gives_a_blocking_writer(client: leasehold.sync.Client) -> None:
    files = client.files
    with files.create("a") as file:
        file.write(b"1")
        with pytest.raises(FileAlreadyOpen, match="this client"):
            files.open("a", "ab")
    with files.append("a") as file:
        file.write(b"2")
    with files.open("a", "ab") as file:
        file.write(b"3")
    assert files.open("a").read() == b"123"
    with files.open("a", "wb") as file:
        file.write(b"4")
    assert files.open("a", "rb").read() == b"4"
    with pytest.raises(FileExists):
        files.open("a", "xb")
    with pytest.raises(FileNotFound):
        files.append("missing")
    with pytest.raises(ValueError, match="mode must be"):
        files.open("a", "r")  # type: ignore[call-overload]


def test_a_writer_that_was_recovered_has_lost_its_file(client: leasehold.sync.Client) -> None:
    file = client.files.open("a", "xb")
    file.write(b"flushed")
    file.flush()
    assert [each.path for each in client.files.open_files()] == ["a"]
    assert [each.files for each in client.files.holders()] == [1]
    assert client.files.recover("a")
    file.write(b" more")
    with pytest.raises(LeaseExpired):
        file.flush()
    file.abort()
    assert client.files.open("a").read() == b"flushed"
    assert list(client.files.open_files()) == []


def test_a_listing_has_all_entries_in_order(client: leasehold.sync.Client) -> None:
    names = [f"d/{number:03}" for number in range(2 * MAX_FETCHED + 1)]
    for name in names:
        client.files.make_directory(name)
    assert [each.path for each in client.files.list("d")] == names
    part = client.files.list("d")
    assert next(part).path == names[0]
    part.close()  # before its end
    client.files.rename("d/000", "e")
    client.files.delete("d", recursive=True)
    assert [each.path for each in client.files.list()] == ["e"]
    with pytest.raises(FileNotFound):
        next(client.files.list("d"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_an_interrupted_block_gives_its_file_up(client: leasehold.sync.Client) -> None:
    def write() -> None:
        with client.files.open("a", "ab") as file:
            file.write(b"x")

    number = 1
    while Interruption(number)(write):
        _wait_until_closed(client, "a")
        number += 7  # instructions: each of them would take long
    assert client.files.open("a").read().endswith(b"x")


def test_a_forgotten_writer_gives_its_file_up(client: leasehold.sync.Client) -> None:
    def open_and_forget() -> None:
        client.files.open("a", "ab")
        _wait_until_closed(client, "a")

    with pytest.warns(ResourceWarning, match="the writer of 'a' was garbage-collected"):
        open_and_forget()


@pytest.mark.filterwarnings("ignore:the writer of .* was garbage-collected:ResourceWarning")
def test_a_writer_that_is_forgotten_in_a_cycle_is_reported_once(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    cycle: list[object] = [client.files.open("a", "ab")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    _wait_until_closed(client, "a")
    with client.files.open("a", "ab") as file:
        file.write(b"data")
    assert client.files.open("a").read() == b"data"
    reports = [each for each in caplog.records if "was garbage-collected" in each.getMessage()]
    assert len(reports) == 1


def _wait_until_closed(client: leasehold.sync.Client, path: str) -> None:
    """Open a file at its end: it is given up within a moment."""
    for _ in range(10_000):
        try:
            client.files.open(path, "ab").close()
        except FileAlreadyOpen:
            continue
        return
    pytest.fail(f"{path!r} stays open")


def test_a_forked_child_cannot_use_the_files_of_its_parent(
    client: leasehold.sync.Client,
) -> None:
    file = client.files.open("a", "xb")
    file.write(b"x")
    pid = os.fork()
    if not pid:  # pragma: no cover  in another process
        status = 1
        try:
            file.close()  # without an effect on the file
            client.files.stat("a")
        except Forked:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    file.close()
    assert client.files.open("a").read() == b"x"


def test_closing_the_client_keeps_the_flushed_bytes_of_open_files(tmp_path: Path) -> None:
    with leasehold.sync.open(tmp_path / "data") as client:
        client.files.configure(add=[str(tmp_path / "store")])
        file = client.files.open("a", "xb")
        file.write(b"flushed")
        file.flush()
        file.write(b" lost")
    with leasehold.sync.open(tmp_path / "data") as client:
        assert client.files.is_closed("a")
        assert client.files.open("a").read() == b"flushed"
