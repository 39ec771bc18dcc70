"""`leasehold files`, against a real server: output, exit codes, and the progress line."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import leasehold.sync
from tests.support.client_command import VARIABLE, Command
from tests.support.scripts import until
from tests.support.serve_command import command, environment
from tests.support.terminal import on_terminal

FAILURE, USAGE_ERROR, NOT_THERE, LOST, DENIED = 1, 2, 3, 6, 7


@pytest.fixture(scope="module")
def files(on_ours: Command, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """`leasehold` with a server that has replica stores."""
    stores = [str(tmp_path_factory.mktemp("store")) for _ in range(2)]
    on_ours.ok("files", "stores", "--add", stores[0], "--add", stores[1])
    return on_ours


@contextmanager
def client_of(on: Command) -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.connect(on.endpoint, name="other") as client:
        yield client


def test_files_are_put_appended_listed_and_printed(files: Command, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"one\n")
    assert files.ok("files", "put", str(local), "tree/a").text == "tree/a has 4 bytes\n"
    files.ok("files", "append", "-", "tree/a", stdin=b"two\n")
    assert files.ok("files", "cat", "tree/a").out == b"one\ntwo\n"
    said = files.ok("files", "append", "-", "tree/b", "--json", stdin=b"\0\xff")
    assert said.json == {"path": "tree/b", "size_bytes": 2}
    assert files.ok("files", "cat", "tree/b").out == b"\0\xff"
    files.ok("files", "mkdir", "tree/sub", "tree/sub2")
    assert files.ok("files", "ls", "tree").lines == ["a", "b", "sub/", "sub2/"]
    heads, first, *_ = files.ok("files", "ls", "-l", "tree").lines
    assert heads.split() == ["STATE", "SIZE", "MODIFIED", "HOLDER", "NAME"]
    assert first.split()[:3] == ["closed", "8", "bytes"]
    assert first.endswith("a")
    (found,) = files.ok("files", "ls", "tree/a", "--json").json["files"]
    assert (found["path"], found["size_bytes"], found["state"]) == ("tree/a", 8, "closed")
    assert files.ok("files", "rm", "-r", "tree", "--json").json == {"deleted": ["tree"]}
    assert files.ok("files", "ls").text == ""


def test_existing_files_are_replaced_only_on_request(files: Command) -> None:
    files.ok("files", "put", "-", "dir/a", stdin=b"1")
    assert "exists already" in files.fails(FAILURE, "files", "put", "-", "dir/a", stdin=b"2")
    files.ok("files", "put", "-", "dir/a", "--overwrite", stdin=b"2")
    files.ok("files", "mv", "dir/a", "dir/b")
    files.ok("files", "put", "-", "dir/a", stdin=b"3")
    assert "--overwrite" in files.fails(FAILURE, "files", "mv", "dir/a", "dir/b")
    files.ok("files", "mv", "dir/a", "dir/b", "--overwrite")
    assert files.ok("files", "cat", "dir/b").out == b"3"
    assert "use -r" in files.fails(FAILURE, "files", "rm", "dir")
    files.ok("files", "rm", "-r", "dir")


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "missing"),
        ("ls", "missing"),
        ("rm", "missing"),
        ("mv", "missing", "x"),
        ("recover", "missing"),
    ],
)
def test_a_missing_file_has_the_exit_code_of_missing_things(
    files: Command, arguments: tuple[str, ...]
) -> None:
    assert "'missing': no such file" in files.fails(NOT_THERE, "files", *arguments)


def test_bad_arguments_are_refused(files: Command) -> None:
    assert "'..'" in files.fails(USAGE_ERROR, "files", "cat", "a/../b")
    stores = ("files", "stores")
    complaint = files.fails(USAGE_ERROR, *stores, "--add", "here")
    assert "store 'here' must be an absolute path, or a URL" in complaint
    complaint = files.fails(USAGE_ERROR, *stores, "--min-replicas", "9")
    assert "--min-replicas must be from 0 (a majority) to --replicas, got 9 and 3" in complaint
    complaint = files.fails(USAGE_ERROR, *stores, "--soft-limit", "2h")
    assert "--soft-limit must be at least 0.001 s and at most --hard-limit" in complaint
    complaint = files.fails(USAGE_ERROR, *stores, "--remove", "/nowhere")
    assert "store /nowhere is not configured" in complaint
    assert "No such file" in files.fails(FAILURE, "files", "put", "/no/such/file", "a")


def test_a_file_of_another_writer_is_refused_and_recovered(files: Command) -> None:
    with client_of(files) as client:
        file = client.files.open("held/a", "xb")
        file.write(b"flushed")
        file.flush()
        complaint = files.fails(DENIED, "files", "append", "-", "held/a", stdin=b"x")
        assert "already open for writing by other-" in complaint
        heads, row = files.ok("files", "open", "held").lines
        assert heads.split() == ["PATH", "RENEWED", "HOLDER"]
        assert row.startswith("held/a ")
        (holder,) = files.ok("files", "holders", "--json").json["holders"]
        assert holder["files"] == 1
        assert holder["holder"].startswith("other-")
        assert "other-" in files.ok("files", "holders").text
        files.ok("files", "mkdir", "elsewhere")
        assert files.ok("files", "open", "elsewhere", "--json").json == {"files": []}
        files.ok("files", "rm", "elsewhere")
        assert files.ok("files", "recover", "held/a").text == "held/a is closed with 7 bytes\n"
        file.write(b" more")
        with pytest.raises(leasehold.LeaseExpired):
            file.flush()
        file.abort()
    assert files.ok("files", "cat", "held/a").out == b"flushed"
    files.ok("files", "rm", "-r", "held")


def test_the_configuration_is_shown_and_changed(files: Command, tmp_path: Path) -> None:
    before = files.ok("files", "stores", "--json").json
    store = str(tmp_path / "third")
    changed = files.ok(
        *("files", "stores", "--add", store, "--soft-limit", "30s", "--hard-limit", "10m"),
        *("--keep", "0", "--replicas", "2", "--min-replicas", "1", "--json"),
    ).json
    assert (changed["soft_limit_s"], changed["hard_limit_s"], changed["keep_s"]) == (30, 600, 0)
    assert (changed["replicas"], changed["min_replicas"]) == (2, 1)
    assert store in [each["url"] for each in changed["stores"]]
    shown = files.ok("files", "stores").lines
    assert "soft limit    30s" in shown
    assert shown[-1].split(maxsplit=2)[1:] == [store, "usable"]
    assert files.ok("files", "stores", "--claim", store, "--json").json == changed
    assert "not configured" in files.fails(USAGE_ERROR, "files", "stores", "--claim", "/nowhere")
    removing = files.ok("files", "stores", "--remove", store)
    assert removing.lines[-1].split(maxsplit=2)[1:] == [store, "being removed"]
    assert "copies the blocks first" in removing.err
    dropped = files.ok(
        *("files", "stores", "--drop", store, "--soft-limit", "1m", "--hard-limit", "20m")
    )
    assert "do not drop another store" in dropped.err
    files.ok("files", "stores", "--keep", "1h", "--replicas", "3", "--min-replicas", "0")
    assert files.ok("files", "stores", "--json").json == before


def test_a_store_that_cannot_be_used_from_here_is_added_with_a_warning(
    files: Command, tmp_path: Path
) -> None:
    regular, foreign = tmp_path / "file", tmp_path / "foreign"
    regular.write_bytes(b"")
    (foreign / "00").mkdir(parents=True)
    (foreign / "00" / "owner").write_bytes(b"another")
    reasons = {
        str(regular): "Not a directory",
        "/proc/x": "the directory cannot be created (No such file or directory)",
        str(foreign): "it belongs to another keyspace (another): use another directory; if that "
        f"keyspace no longer uses it, run `leasehold files stores --claim {foreign}`, after "
        "which its data will be deleted",
    }
    before = files.ok("files", "stores", "--json").json
    added = files.ok("files", "stores", "--json", *(f"--add={url}" for url in reasons))
    assert added.err.splitlines() == [
        f"warning: store {url} cannot be used from here: {why}" for url, why in reasons.items()
    ]
    reasons["/proc/x"] = "the directory does not exist: is its disk mounted?"
    assert [(each["url"], each["error"]) for each in added.json["stores"]] == [
        *((each["url"], None) for each in before["stores"]),
        *reasons.items(),
    ]
    shown = files.ok("files", "stores").lines[-len(reasons) :]
    for line, (url, why) in zip(shown, reasons.items(), strict=True):
        assert line.split(maxsplit=2)[1:] == [url, f"cannot be used from here: {why}"]
    claimed = files.ok("files", "stores", "--claim", str(foreign))
    assert claimed.err.startswith(f"note: store {foreign} belongs to this keyspace now")
    assert files.ok("files", "stores", "--add", str(foreign)).err == ""
    files.ok("files", "stores", *(f"--drop={url}" for url in reasons))
    assert files.ok("files", "stores", "--json").json == before


def test_a_store_that_fails_while_a_file_is_written_is_named(
    files: Command, tmp_path: Path
) -> None:
    local, third = tmp_path / "local", tmp_path / "third"
    local.write_bytes(b"bytes")
    files.ok("files", "stores", "--add", str(third))
    third.rename(tmp_path / "away")
    for how, has in (("put", 5), ("append", 10)):
        written = files.ok("files", how, str(local), "few/a", "--json")
        assert written.json["size_bytes"] == has
        assert written.err == (
            f"warning: store {third} has failed, and may have no replica: the directory does not "
            "exist: is its disk mounted?\n"
        )
    (tmp_path / "away").rename(third)
    assert files.ok("files", "append", str(local), "few/a").err == ""
    files.ok("files", "rm", "-r", "few")
    files.ok("files", "stores", "--drop", str(third))


def test_control_characters_in_names_do_not_reach_a_terminal(files: Command) -> None:
    name = "evil\x1b[2J\nname"
    files.ok("files", "mkdir", f"names/{name}")
    for option in ([], ["-l"]):
        said = files.ok("files", "ls", *option, "names")
        assert b"\x1b" not in said.out
        assert r"evil\x1b[2J\nname/" in said.text
    (found,) = files.ok("files", "ls", "names", "--json").json["files"]
    assert found["path"] == f"names/{name}"
    with client_of(files) as client, client.files.open(f"names/{name}/a", "xb"):
        assert b"\x1b" not in files.ok("files", "open", "names").out
        complaint = files.fails(DENIED, "files", "append", "-", f"names/{name}/a", stdin=b"x")
        assert "\x1b" not in complaint
    files.ok("files", "rm", "-r", "names")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_input_that_pauses_is_flushed_and_a_signal_closes_the_file(
    files: Command, number: signal.Signals
) -> None:
    with (
        subprocess.Popen(  # noqa: S603  our own command
            command("files", "append", "-", "paused"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment({VARIABLE: files.endpoint}),
        ) as process,
        client_of(files) as client,
    ):
        assert process.stdin is not None
        process.stdin.write(b"line\n")
        process.stdin.flush()
        until(lambda: _sizes(client).get("paused") == 5)
        process.send_signal(number)  # while it reads
        assert process.wait() == 128 + number
        assert client.files.is_closed("paused")
        client.files.delete("paused")


def test_input_that_does_not_pause_is_flushed(files: Command) -> None:
    with (
        subprocess.Popen(  # noqa: S603  our own command
            command("files", "append", "-", "steady"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment({VARIABLE: files.endpoint}),
        ) as process,
        client_of(files) as client,
    ):
        assert process.stdin is not None
        source = process.stdin

        def is_flushed() -> bool:
            source.write(b"line\n")
            source.flush()
            return _sizes(client).get("steady", 0) > 0

        until(is_flushed)
        process.terminate()
        process.wait()
        client.files.delete("steady")


def test_a_file_is_followed_until_a_signal_or_its_end(files: Command) -> None:
    with client_of(files) as client, client.files.open("followed", "ab") as file:
        file.write(b"first\n")
        file.flush()
        with following(files, "followed") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            file.write(b"second\n")
            file.flush()
            assert process.stdout.readline() == b"second\n"
            process.terminate()
            assert process.wait() == 0
        with following(files, "followed") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            client.files.delete("followed")
            assert process.wait() == NOT_THERE
        file.abort()


@contextmanager
def following(on: Command, path: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(  # noqa: S603  our own command
        command("files", "cat", "--follow", path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment({VARIABLE: on.endpoint}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _sizes(client: leasehold.sync.Client) -> dict[str, int]:
    return {each.path: each.size_bytes for each in client.files.list()}


def test_a_copy_that_takes_long_has_a_progress_line(files: Command, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    variables = environment({VARIABLE: files.endpoint})
    with on_terminal(command("files", "put", str(fifo), "slow"), variables) as terminal:
        with fifo.open("wb", buffering=0) as source:

            def is_drawn() -> bool:
                source.write(b"x" * 1000)
                return "put  " in terminal.drawn

            terminal.wait_for(is_drawn)
        assert terminal.wait_for_end() == 0
    assert "\x1b[K" in terminal.drawn
    files.ok("files", "rm", "slow")


def test_fsck_finds_a_missing_replica_and_repair_replaces_it(files: Command) -> None:
    files.ok("files", "put", "-", "checked/a", stdin=b"bytes")
    assert files.ok("files", "fsck", "checked").text.startswith("1 file, ")
    clean = files.ok("files", "fsck", "checked", "--deep", "--json").json
    assert (clean["kind"], clean["summary"]["problems"]) == ("summary", 0)
    (id_,) = [each["id"] for each in files.ok("files", "ls", "checked", "--json").json["files"]]
    stores = files.ok("files", "stores", "--json").json["stores"]
    (stored, *_) = [path for each in stores for path in Path(each["url"]).rglob(f"{id_}-*")]
    stored.unlink()
    said = files("files", "fsck", "checked")
    assert said.code == FAILURE
    assert said.lines[0].startswith("missing replica    checked/a block 0 in store ")
    assert "0 problems" not in said.lines[-1]
    assert "1 replica added" in files.ok("files", "repair", "checked").text
    assert files.ok("files", "repair", "--verify", "checked", "--json").json["copied"] == 0
    files.ok("files", "fsck", "--deep", "checked")
    assert files.ok("files", "cat", "checked/a").out == b"bytes"
    files.ok("files", "rm", "-r", "checked")
