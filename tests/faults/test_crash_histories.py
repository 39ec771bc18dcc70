"""A real server under all kinds of load, killed at random moments, again and again.

Clients put, read, delete and swap shared keys, write pairs in transactions, hold leases, compact,
read the past, and watch. What they did and saw, through all lives of the server, is one history:
there is an order of all operations that explains every answer, no lease has ended before its term,
the past is what it was, and who follows the events has what is there.

The same load must find bugs that were built in: see `faulty_server`.
"""

import itertools
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.faults.crash_crowds import CrowdUser
from tests.faults.crash_keys import (
    EVERYTHING,
    PAIR,
    SHARED,
    SHARED_KEYS,
    Compactor,
    KeyUser,
    PairReader,
    PairWriter,
    PastReader,
)
from tests.faults.crash_leases import LEFT, Asker, Keeper, Leaver, Lister, Mover, Revoker
from tests.faults.crash_ledger import DEADLINE_S, Client, Ledger
from tests.faults.crash_watchers import Watcher, ends_of_leases, whole_pairs
from tests.faults.etcd_calls import EtcdCalls
from tests.faults.server_process import FAULTY_SERVER, SERVER, ServerProcess
from tests.support.linearizability import Restart

KILLS: Final = int(os.environ.get("LEASEHOLD_KILLS", "10"))
KILLS_OF_A_BUG: Final = 60
"""At most: the first that shows the bug ends the test. Most bugs show within five."""
SEED: Final = int(os.environ.get("LEASEHOLD_SEED", "3"))
MOST_ANSWERS_TO_A_KILL: Final = 400
LONGEST_DELAY_S: Final = 0.02
LONGEST_START_S: Final = 1.5
KILLED_WHILE_STARTING: Final = 0.15
LONG_LIFE: Final = 4
"""Each so many lives, one lasts until leases have ended by themselves."""
POLL_S: Final = 0.05

HISTORY_IS_WRONG: Final = "the revision went back|was given twice|no order of its operations"
LEASE_IS_WRONG: Final = "ended before its term|came back"
"""What the checkers of histories say."""

Program = Sequence[str | Path]


class World:
    """The clients, and what they know, for all lives of a server."""

    def __init__(self, rng: random.Random) -> None:
        self.ledger = ledger = Ledger()
        numbers = itertools.count(1)

        def rngs(name: str) -> tuple[str, Ledger, random.Random]:
            return name, ledger, random.Random(rng.random())

        self._past = PastReader(*rngs("past reader"))
        self._compactor = Compactor(*rngs("compactor"))
        self._crowds = CrowdUser("crowd user", ledger, numbers)
        self._pairs = PairReader(*rngs("pair reader"))
        self._leaver = Leaver(*rngs("leaver"), numbers)
        self._lister = Lister("lister", ledger)
        self.watchers = [
            Watcher("watcher of all", ledger, EVERYTHING),
            Watcher("watcher of keys", ledger, SHARED, previous=True),
            Watcher("watcher of pairs", ledger, PAIR, look_at=whole_pairs),
            Watcher("watcher of leases", ledger, LEFT, look_at=ends_of_leases),
        ]
        self.clients: list[Client] = [
            *(KeyUser(*rngs(f"user {number}")) for number in range(4)),
            *(PairWriter(*rngs(f"pair writer {number}")) for number in range(2)),
            *(Keeper(*rngs(f"keeper {number}"), numbers) for number in range(2)),
            *(Revoker(*rngs(f"revoker {number}"), numbers) for number in range(3)),
            Mover(*rngs("mover"), numbers),
            Asker(*rngs("asker")),
            self._compactor,
            self._past,
            self._pairs,
            self._leaver,
            self._lister,
            self._crowds,
            *self.watchers,
        ]

    def live(self, server: ServerProcess, rng: random.Random, *, ends: int) -> None:
        """Load a server, and kill it in the middle of that."""
        self.ledger.is_ending.clear()
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(self.clients)))
            connections = [
                stack.enter_context(EtcdCalls(server.endpoint)) for _ in range(len(self.clients))
            ]
            working = [
                pool.submit(self._until_killed, client, calls)
                for client, calls in zip(self.clients, connections, strict=True)
            ]
            try:
                self.ledger.wait_for_answers(rng.randrange(MOST_ANSWERS_TO_A_KILL), ends=ends)
                time.sleep(rng.uniform(0.0, LONGEST_DELAY_S))  # the moment of the fault
            finally:
                self.ledger.is_ending.set()
                server.kill()
            for each in working:
                each.result(DEADLINE_S)

    def _until_killed(self, client: Client, calls: EtcdCalls) -> None:
        try:
            with pytest.raises(grpc.RpcError) as error:
                _use_for_ever(client, calls)
            assert self.ledger.is_ending.is_set(), f"{client.name}: {error.value}"
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE, error.value
        except BaseException:
            self.ledger.give_up()
            raise

    def check(self, calls: EtcdCalls) -> None:
        """Look at everything that is there now, and check all that is known."""
        for key in SHARED_KEYS:
            self.ledger.get("judge", calls, key)
        self._pairs.use(calls)
        self._lister.use(calls)
        self.ledger.check()
        self._crowds.look(calls)
        self._past.look_again(calls)
        for watcher in self.watchers:
            watcher.catch_up(calls)

    def finish(self, calls: EtcdCalls) -> None:
        """Wait until all leases have ended that were left."""
        give_up_at = time.monotonic() + DEADLINE_S
        while self._leaver.left:
            assert time.monotonic() < give_up_at, f"never ended: {self._leaver.left}"
            for lease in list(self._leaver.left):
                self._leaver.look(calls, lease)
            time.sleep(POLL_S)

    def come_late(self, calls: EtcdCalls) -> None:
        """Watch what was compacted: one is told so, and goes on from a read."""
        self._compactor.compact(calls, self.watchers[0].revision)
        late = Watcher("late watcher", self.ledger, EVERYTHING, from_the_first=True)
        late.catch_up(calls)
        assert late.cancelled == 1


def _use_for_ever(client: Client, calls: EtcdCalls) -> None:
    while True:
        client.use(calls)


def _start(directory: Path, rng: random.Random, program: Program) -> ServerProcess:
    """Start a server, which may be killed while it starts."""
    while rng.random() < KILLED_WHILE_STARTING:
        with ServerProcess(directory, program):
            time.sleep(rng.uniform(0.0, LONGEST_START_S))  # the moment of the fault
    return ServerProcess(directory, program)


def _kill_again_and_again(directory: Path, kills: int, program: Program = SERVER) -> World:
    rng = random.Random(SEED)
    world = World(rng)
    died_at = time.monotonic()
    for life in range(kills + 1):
        with _start(directory, rng, program) as server:
            server.wait_until_ready()
            world.ledger.pauses.append(Restart(died_at, time.monotonic()))
            with EtcdCalls(server.endpoint) as calls:
                world.check(calls)
                if life == kills:
                    world.finish(calls)
                    world.check(calls)
                    world.come_late(calls)
                    assert server.terminate() == 0
                    break
            world.live(server, rng, ends=life % LONG_LIFE == LONG_LIFE - 1)
        died_at = time.monotonic()
    return world


def test_there_is_an_order_that_explains_every_answer_whenever_the_server_is_killed(
    tmp_path: Path,
) -> None:
    world = _kill_again_and_again(tmp_path, KILLS)
    assert all(watcher.resumed for watcher in world.watchers), "no watch went on"


BUGS: Final = {
    # A kill may lose no more than an operation on a lease, which has no revision.
    "answers-before-commit": f"{HISTORY_IS_WRONG}|{LEASE_IS_WRONG}",
    "reads-before-commit": HISTORY_IS_WRONG,
    "leases-before-commit": LEASE_IS_WRONG,
    "half-a-transaction": (
        f"half a transaction|half of a revision|the past changed|{HISTORY_IS_WRONG}"
    ),
    "events-before-commit": "undone|came back",  # also the end of a lease
    "watch-skips": "a gap",
    "lease-forgets-promise": "ended before its term",
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_server_with_a_bug_is_found_out(tmp_path: Path, bug: str) -> None:
    with pytest.raises(AssertionError, match=BUGS[bug]):
        _kill_again_and_again(tmp_path, KILLS_OF_A_BUG, (FAULTY_SERVER, bug))
