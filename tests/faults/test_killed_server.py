"""A real server, killed at random moments under load, again and again, on one directory.

What a client was told holds after the next start: a put is there, or one that was sent later; a
lease lives unless its end was asked for; what was read was not undone; and no revision comes twice.
In the end, there is an order of all calls that explains every answer.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from tests.faults.crash_ledger import Ledger
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, SERVER, ServerProcess

KILLS = int(os.environ.get("LEASEHOLD_KILLS", "12"))
KILLS_OF_A_BUG = 60  # at most: the first that shows the bug ends the test
SEED = int(os.environ.get("LEASEHOLD_SEED", "3"))
WRITERS = 6
HOLDERS = 3
READERS = 1
MOST_ANSWERS_TO_A_KILL = 400
LONGEST_DELAY_S = 0.02
LONGEST_START_S = 1.5
KILLED_WHILE_STARTING = 0.2
TTL_S = 3600
DEADLINE_S = 60.0

Program = Sequence[str | Path]


@dataclass
class Key:
    """What was sent to a key, and the last that is known to be there."""

    name: bytes
    sent: list[bytes] = field(default_factory=list)
    known: int = -1
    """Which of the values; everything before it is history."""
    revision: int = 0

    def learn(self, value: bytes, revision: int) -> None:
        """Take it that this value is there at this revision."""
        which = self.sent.index(value)
        if which >= self.known:
            self.known, self.revision = which, revision


@dataclass
class Lease:
    """What is known about a lease, and about the key under it."""

    number: int
    is_granted: bool = False
    has_key: bool = False
    end_was_asked_for: bool = False
    has_ended: bool = False

    @property
    def key(self) -> bytes:
        """The key under it."""
        return b"lease/%d" % self.number


class Knowledge:
    """All that the clients were told, which no restart may take back."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.keys = [Key(b"key/%d" % number) for number in range(WRITERS)]
        self.leases: dict[int, Lease] = {}
        self.revision = 0
        self.term = 0
        self.ids: tuple[int, int] | None = None
        self.answers = 0
        self._news = threading.Condition()

    def heard(self, revision: int) -> None:
        """Count an answer, and remember the revision in it."""
        with self._news:
            self.revision = max(self.revision, revision)
            self.answers += 1
            self._news.notify_all()

    def wait_for_answers(self, count: int) -> None:
        """Wait until so many answers have come in all."""
        with self._news:
            assert self._news.wait_for(lambda: self.answers >= count, DEADLINE_S), "no answers"


class Life:
    """One life of the server, with its clients."""

    def __init__(self, knowledge: Knowledge, endpoint: str, rng: random.Random) -> None:
        self._knowledge = knowledge
        self._endpoint = endpoint
        self._rng = rng
        self._is_ending = threading.Event()
        self._numbers = itertools.count(len(knowledge.leases) + 1)

    def run(self, server: ServerProcess) -> None:
        """Load the server, and kill it in the middle of that."""
        knowledge = self._knowledge
        users = [
            *[self._writer(key) for key in knowledge.keys],
            *[self._holder] * HOLDERS,
            *[self._reader] * READERS,
        ]
        until = knowledge.answers + self._rng.randrange(MOST_ANSWERS_TO_A_KILL)
        with EtcdCalls(self._endpoint) as calls, ThreadPoolExecutor(len(users)) as pool:
            working = [pool.submit(self._until_killed, user, calls) for user in users]
            try:
                knowledge.wait_for_answers(until)
                time.sleep(self._rng.uniform(0.0, LONGEST_DELAY_S))  # the moment of the fault
            finally:
                self._is_ending.set()
                server.kill()
        for each in working:
            each.result()

    def _until_killed(self, use: Callable[[EtcdCalls], None], calls: EtcdCalls) -> None:
        with pytest.raises(grpc.RpcError) as error:
            _use_for_ever(use, calls)
        assert self._is_ending.is_set(), error.value
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE, error.value

    def _writer(self, key: Key) -> Callable[[EtcdCalls], None]:
        knowledge = self._knowledge

        def write(calls: EtcdCalls) -> None:
            value = b"%d" % len(key.sent)
            key.sent.append(value)
            revision = knowledge.ledger.put("writer", calls, key.name, value)
            key.learn(value, revision)
            knowledge.heard(revision)

        return write

    def _holder(self, calls: EtcdCalls) -> None:
        lease = Lease(next(self._numbers))
        knowledge, ledger = self._knowledge, self._knowledge.ledger
        knowledge.leases[lease.number] = lease
        knowledge.heard(ledger.grant("holder", calls, lease.number, TTL_S))
        lease.is_granted = True
        knowledge.heard(ledger.put("holder", calls, lease.key, b"held", lease.number))
        lease.has_key = True
        if lease.number % 3:
            lease.end_was_asked_for = True
            knowledge.heard(ledger.revoke("holder", calls, lease.number, [lease.key]))
            lease.has_ended = True

    def _reader(self, calls: EtcdCalls) -> None:
        for key in self._knowledge.keys:
            found = self._knowledge.ledger.get("reader", calls, key.name)
            if found.value is not None:
                key.learn(found.value, found.mod_revision or 0)
            self._knowledge.heard(found.revision or 0)


def _use_for_ever(use: Callable[[EtcdCalls], None], calls: EtcdCalls) -> None:
    while True:
        use(calls)


def _check(knowledge: Knowledge, calls: EtcdCalls, leases: list[Lease]) -> None:
    header = calls.range(b"nothing").header
    assert header.revision >= knowledge.revision, "the revision went back"
    assert header.raft_term > knowledge.term, "the term did not grow"
    assert knowledge.ids in {None, (header.cluster_id, header.member_id)}
    knowledge.term, knowledge.ids = header.raft_term, (header.cluster_id, header.member_id)
    for key in knowledge.keys:
        _check_key(key, knowledge.ledger, calls)
    for lease in leases:
        _check_lease(lease, knowledge.ledger, calls)


def _check_key(key: Key, ledger: Ledger, calls: EtcdCalls) -> None:
    found = ledger.get("judge", calls, key.name)
    if found.value is None:
        assert key.known < 0, f"{key.name!r} is lost"
        return
    assert found.mod_revision is not None
    which = key.sent.index(found.value)
    assert which >= key.known, f"{key.name!r} went back from {key.known} to {which}"
    if which == key.known:
        assert found.mod_revision == key.revision
    else:
        assert found.mod_revision > key.revision
    key.learn(found.value, found.mod_revision)


def _check_lease(lease: Lease, ledger: Ledger, calls: EtcdCalls) -> None:
    lives = ledger.time_to_live("judge", calls, lease.number).TTL >= 0
    found = ledger.get("judge", calls, lease.key).value is not None
    if lease.has_ended:
        assert not lives, f"lease {lease.number} was revoked and is back"
    if lease.is_granted and not lease.end_was_asked_for:
        assert lives, f"lease {lease.number} is lost"
    if not lives:
        assert not found, f"lease {lease.number} has gone without its key"
    elif lease.has_key:
        assert found, f"lease {lease.number} has lost its key"
    # What is so now has been told to us, by this very answer.
    lease.is_granted, lease.has_key = lives, found
    lease.has_ended = lease.end_was_asked_for = not lives


def _kill_while_starting(directory: Path, rng: random.Random, program: Program) -> None:
    with ServerProcess(directory, program):
        time.sleep(rng.uniform(0.0, LONGEST_START_S))  # the moment of the fault


def _kill_again_and_again(directory: Path, kills: int, program: Program = SERVER) -> None:
    rng = random.Random(SEED)
    knowledge = Knowledge()
    changed: list[Lease] = []
    for _ in range(kills):
        if rng.random() < KILLED_WHILE_STARTING:
            _kill_while_starting(directory, rng, program)
            continue
        known = len(knowledge.leases)
        with ServerProcess(directory, program).wait_until_ready() as server:
            with EtcdCalls(server.endpoint) as calls:
                _check(knowledge, calls, changed)
            Life(knowledge, server.endpoint, rng).run(server)
        changed = list(knowledge.leases.values())[known:]
    with (
        ServerProcess(directory, program).wait_until_ready() as server,
        EtcdCalls(server.endpoint) as calls,
    ):
        _check(knowledge, calls, list(knowledge.leases.values()))
        knowledge.ledger.check()
        assert server.terminate() == 0
    assert all(key.known >= 0 for key in knowledge.keys), "nothing was tested"


def test_nothing_acknowledged_is_lost_whenever_the_server_is_killed(tmp_path: Path) -> None:
    _kill_again_and_again(tmp_path, KILLS)


def test_a_server_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"went back|is lost|is back|lost its key"):
        _kill_again_and_again(tmp_path, KILLS_OF_A_BUG, (FAULTY_SERVER, "batch-too-late"))
