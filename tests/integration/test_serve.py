"""The command `leasehold serve`, as a person meets it: messages, exit codes, signals."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold import __version__
from leasehold.cli.serve import address

WITHIN_S = 30.0


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "leasehold", *map(str, arguments)]


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603  our own command
        command(*arguments), capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


@contextmanager
def serving(directory: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A server on a free port, and the port, which its first line says."""
    process = subprocess.Popen(  # noqa: S603
        command("serve", "--data-dir", directory, "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            greeting = process.stdout.readline()
            found = re.fullmatch(
                rf"leasehold serves etcd v3 on 127\.0\.0\.1:(\d+), from {re.escape(str(directory))}"
                r" \(one disk, no replicas\)\n",
                greeting,
            )
            assert found, greeting
            yield process, int(found[1])
        finally:
            process.kill()


def test_help_names_the_options_and_an_example() -> None:
    said = run("serve", "--help")
    assert said.returncode == 0
    for expected in ("--data-dir", "--listen", "leasehold serve --data-dir", "etcdctl"):
        assert expected in said.stdout


def test_the_version_is_told() -> None:
    assert run("--version").stdout == f"leasehold {__version__}\n"


def test_no_command_is_an_error_that_names_the_commands() -> None:
    said = run()
    assert said.returncode == 2
    assert "serve" in said.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:2379", ("127.0.0.1", 2379)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("127.8.8.8:1", ("127.8.8.8", 1)),
    ],
)
def test_an_address_is_read(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":", "2379", "127.0.0.1", "127.0.0.1:", ":2379", "127.0.0.1:x", "127.0.0.1:65536",
     "127.0.0.1:-1", "0.0.0.0:2379", "example.org:2379", "[::]:2379"],
)  # fmt: skip
def test_a_bad_address_is_refused_with_what_would_be_right(text: str, tmp_path: Path) -> None:
    said = run("serve", f"--listen={text}", "--data-dir", tmp_path / "data")
    assert said.returncode == 2
    assert "127.0.0.1" in said.stderr.splitlines()[-1]
    assert not (tmp_path / "data").exists()


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("serve", "--listen", f"127.0.0.1:{port}", "--data-dir", tmp_path / "data")
    assert said.returncode == 1
    assert said.stderr == (
        f"leasehold: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )


def test_a_taken_directory_is_one_clear_line_that_names_who_has_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _):
        said = run("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path)
        assert said.returncode == 1
        assert said.stderr.count("\n") == 1
        assert str(process.pid) in said.stderr
        assert str(tmp_path) in said.stderr


def test_a_file_for_a_directory_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    said = run("serve", "--listen", "127.0.0.1:0", "--data-dir", file)
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert str(file) in said.stderr
    assert file.read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_leaves_a_clean_journal(number: int, tmp_path: Path) -> None:
    with serving(tmp_path) as (process, port):
        idle = socket.create_connection(("127.0.0.1", port))  # somebody who says nothing
        process.send_signal(number)
        _, errors = process.communicate(timeout=WITHIN_S)
        idle.close()
    assert process.returncode == 0
    assert errors == ""
    assert {file.name for file in tmp_path.iterdir()} == {"LOCK", "leasehold.db"}


def test_health_is_answered_on_the_same_port(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
        for _ in range(2):
            connection.request("GET", "/health")
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read()) == {"health": "true", "reason": ""}
        connection.request("GET", "/nothing")
        assert connection.getresponse().status == 404
        connection.close()
