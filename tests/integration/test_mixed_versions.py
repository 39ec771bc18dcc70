"""Clients of an earlier version and of this one work together, by every recipe, on a real server.

The keys and values of recipes are a protocol between clients, which may be upgraded one by one. The
earlier version is taken from the history of the repository.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.testing import LocalServer

EARLIER = "94e7018"
"""The last commit before recipes were restructured."""

ROOT = Path(__file__).parents[2]
ACTOR = Path(__file__).with_name("mixed_version_client.py")
WAIT_S = 30.0
TIMES = 20


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources of the earlier version."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed, so the earlier version cannot be taken from it")
    archive = subprocess.run(  # noqa: S603  our own command
        [git, "archive", EARLIER, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"commit {EARLIER} is not in this checkout: {archive.stderr.decode().strip()}")
    path = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(path, filter="data")
    return path / "src"


class Process:
    """A client in another process."""

    def __init__(self, source: Path, endpoint: str, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(  # noqa: S603  our own command
            [sys.executable, str(ACTOR), endpoint, name],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self("where") == str(source / "leasehold")

    def __call__(self, *command: object) -> Any:
        """Have a command executed; return its result, or the name of its error."""
        self.begin(*command)
        return self.end()

    def begin(self, *command: object) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Wait for the answer to the last command."""
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        return answer.get("error") or answer["result"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(params=["earlier version first", "this version first"])
def pair(request: pytest.FixtureRequest, earlier: Path) -> Iterator[tuple[Process, Process]]:
    """Start a client of each version on one server."""
    sources = [earlier, Path(leasehold.__file__).parents[1]]
    if request.param == "this version first":
        sources.reverse()
    with LocalServer() as server:
        clients = [
            Process(source, server.endpoint, name)
            for source, name in zip(sources, ("first", "second"), strict=True)
        ]
        try:
            yield clients[0], clients[1]
        finally:
            for client in clients:
                client.close()


def test_a_lock_is_refused_handed_over_and_counted(pair: tuple[Process, Process]) -> None:
    first, second = pair
    before = first("acquire", "lock", "x", WAIT_S)
    assert second("acquire", "lock", "x", 0) == "LockDenied"
    first("release", "x")
    for _ in range(2):  # from the cache
        first("acquire", "lock", "x", 0)
        first("release", "x")
    after = second("acquire", "lock", "x", 0)  # it was idle: the first one gives it up
    assert after > before
    assert second("count", "x") == 4
    first.begin("acquire", "lock", "x", WAIT_S)
    second("release", "x")
    assert first.end() > after
    assert first("count", "x") == 5
    assert first("check", "x")


def test_a_reader_and_a_writer_exclude_each_other(pair: tuple[Process, Process]) -> None:
    first, second = pair
    first("acquire", "read", "x", WAIT_S)
    second("acquire", "read", "x", 0)
    second("release", "x")
    assert second("acquire", "write", "x", 0) == "LockDenied"
    second.begin("acquire", "write", "x", WAIT_S)
    first("release", "x")
    second.end()
    assert first("acquire", "read", "x", 0) == "LockDenied"
    first.begin("acquire", "read", "x", WAIT_S)
    second("release", "x")
    first.end()
    assert first("check", "x")


def test_a_semaphore_counts_the_holders_of_both(pair: tuple[Process, Process]) -> None:
    first, second = pair
    first("acquire", "semaphore1", "x", WAIT_S)
    assert second("acquire", "semaphore1", "x", 0) == "LockDenied"
    assert second("acquire", "semaphore2", "x", WAIT_S) == "ValueError"
    second.begin("acquire", "semaphore1", "x", WAIT_S)
    first("release", "x")
    second.end()
    assert second("check", "x")
    assert first("acquire", "semaphore1", "x", 0) == "LockDenied"


def test_a_barrier_opens_for_both(pair: tuple[Process, Process]) -> None:
    first, second = pair
    for opener, other in ((first, second), (second, first)):
        other.begin("wait_at", "x", 2, WAIT_S)
        token = opener("wait_at", "x", 2, WAIT_S)
        assert isinstance(token, int)
        assert other.end() == token


def test_an_election_has_one_leader(pair: tuple[Process, Process]) -> None:
    first, second = pair
    before = first("acquire", "election", "x", WAIT_S)
    assert second("leader", "x") == "first"
    assert second("acquire", "election", "x", 0) == "LockDenied"
    second.begin("acquire", "election", "x", WAIT_S)
    first("release", "x")
    assert second.end() > before
    assert first("leader", "x") == "second"


def test_a_permit_is_checked_and_revoked_by_the_other(pair: tuple[Process, Process]) -> None:
    first, second = pair
    first("grant", "anna", "reports", "read")
    assert second("may", "anna", "reports", "read") is True
    assert second("may", "anna", "reports", "write") is False
    assert second("revoke", "anna", "reports") is True
    assert first("may", "anna", "reports", "read") is False


@pytest.mark.parametrize("kind", ["lock", "write", "semaphore1", "election"])
def test_nothing_is_lost_under_contention(
    pair: tuple[Process, Process], kind: str, tmp_path: Path
) -> None:
    first, second = pair
    number = tmp_path / "number"
    number.write_text("0")
    for client in pair:
        client.begin("add_up", kind, "x", str(number), TIMES)
    assert first.end() is None
    assert second.end() is None
    assert number.read_text() == str(2 * TIMES)
