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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from leasehold import Token
from tests.faults.lock_crowd import Crowd
from tests.faults.lock_judge import broken_rules, violations
from tests.faults.lock_resource import Operation, Resource
from tests.faults.lock_services import SERVICES, Fault, Service, check_nothing_is_left

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGSTOP and /proc")

ROUNDS: Final = int(os.environ.get("LEASEHOLD_LOCK_ROUNDS", "1"))
SEED: Final = int(os.environ.get("LEASEHOLD_SEED", "3"))
LOCKS: Final = ("jobs/first", "jobs/second", "jobs/second/third")
QUIET: Final = tuple(f"quiet/{each}" for each in range(10))


@pytest.fixture(params=SERVICES)
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
    assert [each for each in violations(log) if each.rule not in service.excused] == []


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
