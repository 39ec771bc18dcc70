"""Gray and Cheriton's workload over our locks, in virtual time: hours of it in seconds.

Each client has a lock for what it has in its cache, and reads it while it holds that lock; so while
the lock is cached too, a read sends nothing. A writer holds the locks of all caches that have the
datum, as it needs the leave of all. A term of t seconds is a session of t seconds, and a lock that
is given up after as long without use; with no term at all, locks are not cached.

Clients are the shipped ones, on simulated hosts; the server is the shipped engine on another. The
simulation is the one that tests use. Every message is counted: calls and their answers, and what
goes over streams of watches, either way. What it takes to open a stream is not.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from benchmarks.locks.model import USUAL, Workload
from leasehold.client.client import Client
from leasehold.locks.lock import Lock
from leasehold.sessions.client_session import SESSION_TTL_S
from leasehold.testing import Connection, Faults, Host, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import KeyspaceServer

LINK: Final = Faults(delay=(USUAL.propagation_s, USUAL.propagation_s))
WARM_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a run."""

    seconds: float
    messages: int
    reads: int
    writes: int


@dataclass(slots=True)
class _Tally:
    """What has happened so far."""

    reads: int = 0
    writes: int = 0
    streamed: int = 0
    """Messages on streams."""
    engines: list[FarKeyspace] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All of them; a call has an answer."""
        return self.streamed + 2 * sum(each.messages for each in self.engines)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count the messages on streams in the block."""
        send = Connection.send

        def counted(connection: Connection, message: Any) -> None:
            self.streamed += 1
            send(connection, message)

        with patch.object(Connection, "send", counted):
            yield


def simulate(load: Workload, term_s: float, seconds: float, seed: int = 0) -> Done:
    """Run the workload for a virtual time."""
    tally = _Tally()
    with tally.listening(), Simulation(seed) as sim:
        network = sim.network(LINK)
        server = KeyspaceServer(sim, network, sim.host("server"))
        names = [f"data/{number}" for number in range(load.clients)]
        tasks = []
        for number in range(load.clients):
            host = sim.host(f"client{number}")
            dice = random.Random(f"{seed}/{number}")
            one = _Client(host, server, load, term_s, names, number, dice, tally)
            tasks.append(host.start(one.run))
        sim.run_for(WARM_UP_S)
        before, reads, writes = tally.messages, tally.reads, tally.writes
        sim.run_for(seconds)
        sent = tally.messages - before
        done = Done(seconds, sent, tally.reads - reads, tally.writes - writes)
        for task in tasks:
            if task.done():
                task.result()
    return done


@dataclass(slots=True)
class _Client:
    """Reads and writes, each at random times of its own."""

    host: Host
    server: KeyspaceServer
    load: Workload
    term_s: float
    names: list[str]
    number: int
    dice: random.Random
    tally: _Tally

    async def run(self) -> None:
        engine = FarKeyspace(self.server, self.host)
        self.tally.engines.append(engine)
        await engine.start()
        ttl_s = self.term_s or SESSION_TTL_S
        client = Client(engine, clock=self.host.clock, session_ttl=ttl_s)
        async with client, asyncio.TaskGroup() as group:
            group.create_task(self._again(self.load.reads_per_s, self._read, client))
            group.create_task(self._again(self.load.writes_per_s, self._write, client))

    async def _again(
        self, rate: float, do: Callable[[Client], Coroutine[Any, Any, None]], client: Client
    ) -> None:
        """Begin it at the times of a Poisson process, whether or not the one before is done."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.dice.expovariate(rate))
                group.create_task(do(client))

    def _lock(self, client: Client, name: str) -> Lock:
        if not self.term_s:
            return client.lock(name, cache=False)
        return client.lock(name, idle_timeout=self.term_s)

    async def _read(self, client: Client) -> None:
        async with self._lock(client, self.names[self.number]):
            self.tally.reads += 1

    async def _write(self, client: Client) -> None:
        """Get the approval of all caches that have it, always in the same order."""
        first = self.number - self.number % self.load.sharing
        async with AsyncExitStack() as stack:
            for name in self.names[first : first + self.load.sharing]:
                await stack.enter_async_context(self._lock(client, name))
            self.tally.writes += 1
