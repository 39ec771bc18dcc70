"""`leased://` files that fail: what was written is in the file once, or not at all."""

import gc
import gzip
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
import leasehold.sync
from leasehold.sync import fsspec_writers
from leasehold.sync.fsspec_files import LeasedFileSystem
from leasehold.testing import LocalServer

MIB = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def client(store: Path) -> Iterator[leasehold.sync.Client]:
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        client.files.configure(add=[str(store)])
        with client.files.create("first"):
            pass
        yield client


def break_store(store: Path) -> None:
    if store.exists():
        store.rename(store.with_name("away"))
    store.write_text("a file in place of the directory")


def mend_store(store: Path) -> None:
    store.unlink()
    away = store.with_name("away")
    if away.exists():
        away.rename(store)


def test_a_write_that_failed_is_not_written_twice_by_fsspec(
    client: leasehold.sync.Client, store: Path
) -> None:
    files = LeasedFileSystem(client=client)
    expected = b""
    break_store(store)
    file = files.open("x", "wb")
    with pytest.raises(leasehold.TooFewReplicas):  # noqa: PT012
        for number in range(100):
            data = bytes([number]) * (MIB // 2)
            expected += data
            file.write(data)
    mend_store(store)
    file.flush()  # "the bytes are kept, and a later call tries again"
    file.close()
    found = files.cat_file("x")
    assert len(found) == len(expected)
    assert found == expected


def test_an_exception_in_a_block_keeps_only_flushed_bytes_in_text_mode_too(
    client: leasehold.sync.Client,
) -> None:
    files = LeasedFileSystem(client=client)
    with pytest.raises(RuntimeError), files.open("x", "w") as file:  # noqa: PT012
        file.write("half of a table")
        raise RuntimeError
    assert files.cat_file("x") == b""


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zip"])
@pytest.mark.parametrize("mode", ["", "b"])
def test_a_compressed_file_is_complete_when_it_is_closed(
    client: leasehold.sync.Client, compression: str, mode: str
) -> None:
    files = LeasedFileSystem(client=client)
    data = "a line\n" * 100_000 if not mode else b"some bytes" * 100_000
    with files.open("x", f"w{mode}", compression=compression) as file:
        file.write(data)
    assert client.files.is_closed("x")
    with files.open("x", f"r{mode}", compression=compression) as file:
        assert file.read() == data


def test_a_compressed_file_is_recognized_by_its_name(client: leasehold.sync.Client) -> None:
    files = LeasedFileSystem(client=client)
    with files.open("x.gz", "wb", compression="infer") as file:
        file.write(b"data")
    assert gzip.decompress(files.cat_file("x.gz")) == b"data"


def test_an_exception_in_a_block_closes_a_compressed_file(client: leasehold.sync.Client) -> None:
    files = LeasedFileSystem(client=client)
    with pytest.raises(RuntimeError), files.open("x", "w", compression="gzip") as file:  # noqa: PT012
        file.write("half of a table")
        raise RuntimeError
    assert client.files.is_closed("x")
    assert files.cat_file("x") == b""


def test_a_compressed_file_that_cannot_be_written_is_closed(
    client: leasehold.sync.Client, store: Path
) -> None:
    files = LeasedFileSystem(client=client)
    break_store(store)
    file = files.open("x", "wb", compression="gzip")
    file.write(b"data")
    with pytest.raises(leasehold.TooFewReplicas):
        file.close()
    assert file.closed
    mend_store(store)
    assert client.files.recover("x")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of ZipFile
@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz", "zip"])
def test_a_file_that_is_forgotten_is_closed_at_its_flushed_length(
    client: leasehold.sync.Client,
    compression: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A compressor writes its end when it is collected, which must not wait for a flush."""
    files = LeasedFileSystem(client=client)
    passed_on: list[object] = []

    def write_and_forget() -> None:
        file = files.open("x", "wb", compression=compression)
        file.write(b"data")
        monkeypatch.setattr(fsspec_writers, "WRITE_BYTES", 1)
        monkeypatch.setattr(fsspec_writers.BufferedFileWriter, "_pass_on", passed_on.append)
        del file
        gc.collect()
        for _ in range(10_000):
            if client.files.is_closed("x"):
                return
        pytest.fail("the file stays open")

    with pytest.warns(ResourceWarning, match="the writer of 'x' was garbage-collected"):
        write_and_forget()
    assert not passed_on
    assert caplog.text.count("garbage-collected") == 1
    assert files.cat_file("x") == b""


@pytest.mark.filterwarnings("ignore:the writer of .* was garbage-collected:ResourceWarning")
@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz"])
@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_forgotten_file_keeps_only_flushed_bytes_and_is_reported(
    client: leasehold.sync.Client,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    compression: str | None,
) -> None:
    files = LeasedFileSystem(client=client)
    file = files.open("x", mode, compression=compression)
    data = random.Random(1).randbytes(MIB)  # a compressor keeps much of it
    file.write(data if "b" in mode else data.hex())
    before = client.files.stat("x").size_bytes
    del file
    gc.collect()
    assert client.files.stat("x").size_bytes == before == 0
    give_up_at = time.monotonic() + 10
    while not client.files.is_closed("x"):
        assert time.monotonic() < give_up_at
    assert files.cat_file("x") == b""
    assert caplog.text.count("the writer of 'x' was garbage-collected") == 1
