"""`leasehold files` with mistakes, lost files and interrupted copies: what is printed and left."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import leasehold.sync
from leasehold.errors import FileDamaged
from leasehold.files.file_keys import record_key
from leasehold.files.state import CHUNK_BYTES
from tests.support.client_command import VARIABLE, Command
from tests.support.scripts import until
from tests.support.serve_command import command, environment

FAILURE, USAGE_ERROR, NOT_THERE, LOST, DENIED = 1, 2, 3, 6, 7


@pytest.fixture(scope="module")
def files(on_ours: Command, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """`leasehold` with a server that has replica stores."""
    stores = [str(tmp_path_factory.mktemp("store")) for _ in range(2)]
    on_ours.ok("files", "stores", "--add", stores[0], "--add", stores[1])
    return on_ours


@pytest.fixture
def client(files: Command) -> Iterator[leasehold.sync.Client]:
    """Another client, in a keyspace whose files are deleted after the test."""
    with leasehold.sync.connect(files.endpoint, name="other") as client:
        yield client
        for each in list(client.files.list()):
            client.files.delete(each.path, recursive=True)


@contextmanager
def copying(files: Command, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in a process of its own, with a pipe as input."""
    with subprocess.Popen(  # noqa: S603  our own command
        command("files", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({VARIABLE: files.endpoint}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def names(client: leasehold.sync.Client, path: str = "") -> list[str]:
    return [each.path for each in client.files.list(path)]


# A put is done as a whole, or not at all.


@pytest.mark.parametrize("option", [[], ["--overwrite"]])
def test_an_interrupted_put_leaves_no_file(
    files: Command, client: leasehold.sync.Client, option: list[str]
) -> None:
    files.ok("files", "mkdir", "d")
    if option:
        files.ok("files", "put", "-", "d/a", stdin=b"old")
    with copying(files, "put", "-", "d/a", *option) as process:
        send(process, b"new")
        until(lambda: any(each.size_bytes == 3 and each.is_open for each in client.files.list("d")))
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert not complaint
    assert names(client, "d") == (["d/a"] if option else [])
    if option:
        assert files.ok("files", "cat", "d/a").out == b"old"


def test_readers_see_the_old_file_until_a_put_is_complete(
    files: Command, client: leasehold.sync.Client
) -> None:
    files.ok("files", "put", "-", "d/a", stdin=b"old")
    with copying(files, "put", "-", "d/a", "--overwrite") as process:
        send(process, b"new")
        until(lambda: any(each.size_bytes == 3 and each.is_open for each in client.files.list("d")))
        assert files.ok("files", "cat", "d/a").out == b"old"
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, b"d/a has 3 bytes\n")
    assert files.ok("files", "cat", "d/a").out == b"new"
    assert names(client, "d") == ["d/a"]


def test_a_put_whose_path_is_created_meanwhile_is_refused(
    files: Command, client: leasehold.sync.Client
) -> None:
    with copying(files, "put", "-", "a") as process:
        send(process, b"late")
        until(lambda: bool(names(client)))
        with client.files.create("a") as file:
            file.write(b"first")
        _, complaint = process.communicate()
    assert process.returncode == FAILURE
    assert b"'a' exists already: use another path, or --overwrite" in complaint
    assert names(client) == ["a"]
    assert files.ok("files", "cat", "a").out == b"first"


def test_a_put_that_cannot_succeed_is_refused_before_the_input_is_read(
    files: Command, client: leasehold.sync.Client
) -> None:
    files.ok("files", "mkdir", "d")
    files.ok("files", "put", "-", "a", stdin=b"1")
    for path, text in (("a", "exists already"), ("d", "is a directory"), ("a/b", "is a file")):
        with copying(files, "put", "-", path) as process:
            assert process.wait() == FAILURE  # and its input is still open
            assert process.stderr is not None
            assert text in process.stderr.read().decode()
    assert "is a directory" in files.fails(
        FAILURE, "files", "put", "-", "d", "--overwrite", stdin=b"1"
    )
    assert sorted(names(client)) == ["a", "d"]


def test_a_put_with_overwrite_replaces_a_file_that_is_open(
    files: Command, client: leasehold.sync.Client
) -> None:
    file = client.files.create("a")
    file.write(b"old")
    files.ok("files", "put", "-", "a", "--overwrite", stdin=b"new")
    with pytest.raises(leasehold.FileNotFound):
        file.flush()
    assert files.ok("files", "cat", "a").out == b"new"


# Files that are lost, open or damaged.


@pytest.mark.parametrize("how", ["delete", "replace", "recover"])
def test_a_writer_that_loses_its_file_has_the_exit_code_of_lost_things(
    files: Command, client: leasehold.sync.Client, how: str
) -> None:
    with copying(files, "append", "-", "a") as process:
        send(process, b"line\n")
        until(lambda: [each.size_bytes for each in client.files.list()] == [5])
        if how == "delete":
            client.files.delete("a")
        elif how == "replace":
            client.files.create("a", overwrite=True).close()
        else:
            assert client.files.recover("a")
        send(process, b"more\n")
        _, complaint = process.communicate()
    assert process.returncode == LOST
    text = "was taken over" if how == "recover" else "was deleted or replaced"
    assert text in complaint.decode()


def test_the_refusal_of_an_open_file_tells_how_to_go_on(
    files: Command, client: leasehold.sync.Client
) -> None:
    with client.files.create("a b"):
        complaint = files.fails(DENIED, "files", "append", "-", "a b", stdin=b"x")
    assert "already open for writing by other-" in complaint
    assert "soft limit" in complaint
    assert "`leasehold files recover 'a b'`" in complaint


def test_a_damaged_file_names_the_stores(files: Command, client: leasehold.sync.Client) -> None:
    files.ok("files", "put", "-", "a", stdin=b"bytes")
    (id_,) = [each.id for each in client.files.list()]
    stores = files.ok("files", "stores", "--json").json["stores"]
    for each in stores:
        for path in Path(each["url"]).rglob(f"{id_}-*"):
            path.write_bytes(b"BYTES")
    complaint = files.fails(FAILURE, "files", "cat", "a")
    assert "checksum" in complaint
    said = files("files", "fsck", "a", "--deep")
    assert f"block 0 in store {stores[0]['url']}: " in said.text
    for each in stores:
        assert complaint.count(f"store {each['url']}: ") == 1


def test_a_damaged_key_is_no_mistake_of_the_command_line(
    files: Command, client: leasehold.sync.Client
) -> None:
    files.ok("files", "put", "-", "d/a", stdin=b"bytes")
    client.kv.put(record_key(client.files.stat("d/a").id), b"\xff")
    for name in ("cat", "recover", "rm"):
        assert "'d/a': the record" in files.fails(FAILURE, "files", name, "d/a")
    assert "'d/a': the record" in files.fails(FAILURE, "files", "ls", "d")
    files.ok("files", "rm", "-r", "d")


def test_the_bytes_before_a_damaged_part_are_printed(
    files: Command, client: leasehold.sync.Client
) -> None:
    data = bytes(range(251)) * (3 * CHUNK_BYTES // 251)
    damaged = 5 * CHUNK_BYTES // 2
    files.ok("files", "put", "-", "a", stdin=data)
    (id_,) = [each.id for each in client.files.list()]
    for each in files.ok("files", "stores", "--json").json["stores"]:
        for path in Path(each["url"]).rglob(f"{id_}-*"):
            stored = bytearray(path.read_bytes())
            stored[damaged] ^= 1
            path.write_bytes(stored)
    said = files("files", "cat", "a")
    assert said.code == FAILURE
    assert said.out == data[: 2 * CHUNK_BYTES]
    with client.files.open("a") as file:
        with pytest.raises(FileDamaged):
            file.read()
        assert file.tell() == 0
        assert file.read1(10) == data[:10]
        assert file.read(len(said.out) - 10) == data[10 : len(said.out)]
        with pytest.raises(FileDamaged):
            file.read1()
        file.seek(0, 2)
        assert file.read1() == b""


def test_an_interrupted_append_tells_how_much_is_stored(
    files: Command, client: leasehold.sync.Client
) -> None:
    with copying(files, "append", "-", "a") as process:
        send(process, b"line\n")
        until(lambda: [each.size_bytes for each in client.files.list()] == [5])
        client.files.rename("a", "b")
        send(process, b"more\n")
        until(lambda: [each.size_bytes for each in client.files.list()] == [10])
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert complaint == b"leasehold: interrupted: b has 10 bytes\n"
    assert client.files.open("b").read() == b"line\nmore\n"


def test_a_file_that_cannot_be_recovered_is_explained(
    files: Command, client: leasehold.sync.Client
) -> None:
    with copying(files, "append", "-", "a") as process:
        send(process, b"line\n")
        until(lambda: [each.size_bytes for each in client.files.list()] == [5])
        (id_,) = [each.id for each in client.files.list()]
        for each in files.ok("files", "stores", "--json").json["stores"]:
            for path in Path(each["url"]).rglob(f"{id_}-*"):
                path.write_bytes(b"LINE\n")
        help_text = " ".join(files.ok("files", "recover", "--help").text.split())
        assert "with 0 the recovery is tried once" in help_text
        said = files("files", "recover", "a", "--wait", "0", "--json")
        assert said.code == DENIED
        assert said.json == {"path": "a", "is_closed": False, "size_bytes": 5}
        assert "no replica has the flushed data: store " in said.complaint
        assert "'a' is locked: no replica" in files("files", "repair").text
        said = files("files", "recover", "a", "--accept-loss", "--json")
        assert said.json["lost_bytes"] == 5


def test_the_open_files_below_a_missing_path_are_not_listed(
    files: Command, client: leasehold.sync.Client
) -> None:
    with client.files.create("d/a"):
        assert len(files.ok("files", "open", "d").lines) == 2
        assert "'missing': no such file" in files.fails(NOT_THERE, "files", "open", "missing")


# Mistakes.


def test_mistakes_are_explained(
    files: Command, client: leasehold.sync.Client, tmp_path: Path
) -> None:
    files.ok("files", "put", "-", "a", stdin=b"1")
    files.ok("files", "mkdir", "d")
    assert "write d/a" in files.fails(FAILURE, "files", "mv", "a", "d")
    complaint = files.fails(FAILURE, "files", "put", "/proc/self/mem", "b")  # opens, cannot be read
    assert "/proc/self/mem: Input/output error" in complaint
    assert names(client) == ["a", "d"]
    assert "file must not be empty" in files.fails(USAGE_ERROR, "files", "put", "", "a")
    for arguments in (("rm", "/"), ("mv", "/", "x"), ("put", "-", "/")):
        assert "must not be the root" in files.fails(USAGE_ERROR, "files", *arguments)
    complaint = files.fails(NOT_THERE, "files", "mv", "a", "missing/a")
    assert "'missing'" in complaint
    assert "leasehold files mkdir" in complaint
    for name in ("cat", "recover"):
        assert "'d': is a directory" in files.fails(FAILURE, "files", name, "d")
    said = files.ok("files", "recover", "a", "--wait", "0").text
    assert said == "a was closed already: nothing was changed, it has 1 bytes\n"
    files.ok("files", "mv", "a", "d/a")
    assert "'d/a' is in it already" in files.fails(FAILURE, "files", "mv", "d/a", "d")
    complaint = files.fails(USAGE_ERROR, "files", "cat", "d/a", "--json")
    assert "unknown option --json" in complaint
    urls = [each["url"] for each in files.ok("files", "stores", "--json").json["stores"]]
    removals = [argument for url in urls for argument in ("--remove", url)]
    assert "add another one first" in files.fails(USAGE_ERROR, "files", "stores", *removals)
    new = str(tmp_path / "new")
    both = ("--add", new, "--claim", str(tmp_path / "other"))
    assert "not configured" in files.fails(USAGE_ERROR, "files", "stores", *both)
    assert not Path(new).exists()
    complaint = files.fails(USAGE_ERROR, "files", "stores", "--add", "nonexist://")
    assert "store 'nonexist://' needs a path after nonexist://" in complaint
    assert "comma" in files.fails(USAGE_ERROR, "files", "stores", "--add", f"{new},{new}2")
    assert files.ok("files", "collect").text.endswith(" to be deleted later\n")
    assert files.ok("files", "collect", "--json").json["objects"] == 0


def test_a_local_file_may_have_any_name(
    files: Command, client: leasehold.sync.Client, tmp_path: Path
) -> None:
    local = tmp_path / os.fsdecode(b"a\xff")
    local.write_bytes(b"1")
    files.ok("files", "put", str(local), "a")
    files.ok("files", "append", str(local), "a")
    assert client.files.open("a").read() == b"11"
    complaint = files.fails(FAILURE, "files", "put", f"{local}b", "b")
    assert "No such file" in complaint


def test_a_copy_to_a_directory_is_refused_with_the_path_of_a_file(
    files: Command, client: leasehold.sync.Client, tmp_path: Path
) -> None:
    local = tmp_path / "today.txt"
    local.write_bytes(b"1")
    client.files.make_directory("d")
    for command_name in ("put", "append"):
        complaint = files.fails(FAILURE, "files", command_name, str(local), "d/")
        advice = "is a directory: write the path of a file, such as d/today.txt"
        assert complaint == f"leasehold: 'd/': {advice}"
        assert "such as d/NAME" in files.fails(FAILURE, "files", command_name, "-", "d", stdin=b"")
    assert names(client, "d") == []


def test_more_needed_replicas_than_stores_are_warned_about(files: Command) -> None:
    said = files("files", "stores", "--replicas", "5", "--min-replicas", "4")
    files.ok("files", "stores", "--replicas", "3", "--min-replicas", "0")
    assert said.code == 0
    warning = "warning: no file can be written: a flush needs 4 stores, and there are 2: "
    assert said.complaint.startswith(warning)


def test_output_that_is_not_read_ends_cat_quietly(
    files: Command, client: leasehold.sync.Client
) -> None:
    files.ok("files", "put", "-", "a", stdin=b"line\n" * 1_000_000)
    with copying(files, "cat", "a") as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"line\n"
        process.stdout.close()
        assert process.wait() == FAILURE
        assert process.stderr is not None
        assert process.stderr.read() == b""
