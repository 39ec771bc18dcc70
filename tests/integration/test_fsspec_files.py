"""`leased://` URLs: single-writer files through fsspec."""

import errno
import importlib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pandas as pd
import pytest

import leasehold.sync
from leasehold import FileAlreadyOpen, FileDamaged
from leasehold.files.file_keys import record_key
from leasehold.sync.fsspec_files import LeasedFileSystem
from leasehold.sync.fsspec_writers import WRITE_BYTES
from leasehold.testing import LocalServer

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    fsspec.register_implementation("leased", LeasedFileSystem, clobber=True)
    stores = [str(tmp_path_factory.mktemp("store")) for _ in range(2)]
    with LocalServer() as server:
        with leasehold.sync.connect(server.endpoint) as client:
            client.files.configure(add=stores)
        yield server


@pytest.fixture
def files(server: LocalServer) -> Iterator[LeasedFileSystem]:
    with leasehold.sync.connect(server.endpoint) as client:
        files = LeasedFileSystem(client=client)
        yield files
        for name in files.ls("", detail=False):
            files.rm(name, recursive=True)


def test_the_protocol_is_registered_by_the_package() -> None:
    entries = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["fsspec.specs"]
    module, _, name = entries["leased"].partition(":")
    assert getattr(importlib.import_module(module), name) is LeasedFileSystem


def test_a_url_names_the_server_and_the_file(server: LocalServer, files: LeasedFileSystem) -> None:
    url = f"leased://{server.endpoint}/tables/a.csv"
    with fsspec.open(url, "w") as file:
        file.write("a,b\n1,2\n")
    with fsspec.open(url, "r") as file:
        assert file.read().splitlines() == ["a,b", "1,2"]
    assert files.cat_file("tables/a.csv") == b"a,b\n1,2\n"
    by_url, path = fsspec.url_to_fs(url)
    assert (path, by_url.unstrip_protocol(path)) == ("tables/a.csv", url)


def test_a_damaged_file_is_not_a_missing_one(files: LeasedFileSystem) -> None:
    files.pipe_file("d/a", b"bytes")
    info = files.client.files.stat("d/a")
    files.client.kv.put(record_key(info.id), b"\xff")
    for call in (files.exists, files.isdir, files.info):
        with pytest.raises(FileDamaged, match="'d/a'"):
            call("d/a")


def test_file_systems_with_one_address_share_a_client(server: LocalServer) -> None:
    first = LeasedFileSystem(server.endpoint)
    assert LeasedFileSystem(server.endpoint).client is first.client
    assert LeasedFileSystem(client=first.client) is not LeasedFileSystem(client=first.client)
    with pytest.raises(ValueError, match="both given"):
        LeasedFileSystem(server.endpoint, client=first.client)


def test_a_forked_child_has_a_client_of_its_own(server: LocalServer) -> None:
    parent = LeasedFileSystem(server.endpoint)
    parent.pipe_file("of-parent", b"x")
    pid = os.fork()
    if not pid:  # pragma: no cover  in another process
        status = 1
        try:
            if parent.cat_file("of-parent") == b"x":
                parent.client.close()
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    parent.rm("of-parent")


def test_modes_are_those_of_files(files: LeasedFileSystem) -> None:
    with files.open("d/a", "xb") as file:
        file.write(b"one")
        assert file.tell() == 3
        with pytest.raises(FileAlreadyOpen):
            files.open("d/a", "wb")
    with pytest.raises(FileExistsError):
        files.open("d/a", "xb")
    with files.open("d/a", "ab") as file:
        file.write(b" two")
    assert files.cat_file("d/a") == b"one two"
    with files.open("d/a", "wb") as file:
        file.write(b"three")
    assert files.cat_file("d/a") == b"three"
    with pytest.raises(FileNotFoundError):
        files.open("missing")
    with pytest.raises(ValueError, match="mode must be"):
        files.open("d/a", "r+b")
    with files.transaction, pytest.raises(NotImplementedError):
        files.open("d/b", "wb")


def test_a_flush_is_visible_and_an_exception_drops_the_rest(files: LeasedFileSystem) -> None:
    def write() -> None:
        with files.open("a", "wb") as file:
            file.write(b"kept")
            file.flush()
            assert files.cat_file("a") == b"kept"
            file.write(b" lost")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write()
    assert files.cat_file("a") == b"kept"


def test_large_files_are_read_in_parts(files: LeasedFileSystem) -> None:
    data = os.urandom(2 * WRITE_BYTES + 17)
    with files.open("a", "wb") as file:
        for first in range(0, len(data), 10_000):
            file.write(data[first : first + 10_000])
    with files.open("a") as file:
        assert (file.size, file.read(5)) == (len(data), data[:5])
        assert file.seek(-7, 2) == len(data) - 7
        assert file.read() == data[-7:]
    assert files.cat_file("a", 3, 10) == data[3:10]
    assert files.cat_file("a", -10) == data[-10:]
    assert files.cat_file("a", 10, 3) == b""


def test_directories_are_made_listed_moved_and_deleted(files: LeasedFileSystem) -> None:
    files.makedirs("d/e")
    with pytest.raises(FileExistsError):
        files.mkdir("d")
    files.makedirs("d/e", exist_ok=True)
    files.pipe_file("d/a", b"abc")
    assert files.ls("d", detail=False) == ["d/a", "d/e"]
    assert files.ls("d/a", detail=False) == ["d/a"]
    info = files.info("d/a")
    assert (info["name"], info["size"], info["type"], info["state"]) == (
        "d/a",
        3,
        "file",
        "closed",
    )
    assert files.created("d/a") <= files.modified("d/a")
    assert files.isdir("d")
    assert not files.exists("d/a/b")
    assert not files.exists("d//a")
    assert not files.isfile("d//a")
    assert not files.isdir("d//a")
    assert files.find("") == ["d/a"]
    files.mv("d", "f", recursive=True)
    assert not files.exists("d")
    files.copy("f/a", "f/b")
    with pytest.raises(FileExistsError):
        files.mv("f/a", "f/b")
    files.mv("f/a", "f/b", overwrite=True)
    assert files.cat_file("f/b") == b"abc"
    with pytest.raises(OSError, match="not empty") as refused:
        files.rm("f")
    assert refused.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        files.rmdir("f/b")
    files.rmdir("f/e")
    files.rm("f", recursive=True)
    with pytest.raises(FileNotFoundError):
        files.rm("f")
    with pytest.raises(FileNotFoundError):
        files.ls("f")


def test_recursive_deletes_may_name_a_directory_and_what_is_below_it(
    files: LeasedFileSystem,
) -> None:
    for path in ("d/**", ["d", "d/e"]):
        files.pipe({"d/e/f": b"1", "d/g": b"1"})
        files.rm(path, recursive=True)
        assert not files.find("d")


def test_a_limited_depth_does_not_delete_what_is_below_it(files: LeasedFileSystem) -> None:
    files.pipe({"d/e/f": b"1", "d/g": b"1"})
    with pytest.raises(OSError, match="not empty"):
        files.rm("d", recursive=True, maxdepth=1)
    assert files.find("d") == ["d/e/f"]


def test_pandas_reads_and_writes_tables(server: LocalServer) -> None:
    url = f"leased://{server.endpoint}/tables/prices.csv"
    pd.DataFrame({"price": [1.5, 2.0]}).to_csv(url, index=False)
    assert list(pd.read_csv(url)["price"]) == [1.5, 2.0]
