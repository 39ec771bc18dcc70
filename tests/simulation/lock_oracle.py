"""Who sees all guards at once, in true time, and the server's memory beside them.

- Of two guards for one lock at most one can be relied on at any time, and one that cannot never can
  again.
- Whose guard can be relied on has its key at the server, and nobody's is before it.
- Each acquisition has a token of its own, higher than those before; whoever is refused by the
  resource cannot rely on its guard.
- No update is lost.

A server that was restored from a backup knows nothing of who holds what: there these promises hold
for the guards of one history. But for tokens: they go on rising. Of one whose disk has gone back to
an earlier state, which looks the same to whoever has seen no more than that, nothing can be said.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from leasehold.fencing.token import Token
from leasehold.locks.lock_queue import LockQueue
from leasehold.testing import Host, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import KeyspaceServer
from tests.simulation.lock_resource import Resource
from tests.simulation.oracle import Violation

LOOK_S: Final = 0.1


@dataclass(eq=False)
class Held:
    """A guard, and whose it is."""

    lock: str
    guard: Any
    engine: FarKeyspace
    incarnation: int
    history: int
    """Which of the server's histories its owner knows."""
    token: Token
    is_over: bool = False
    """Whether it was seen that it cannot be relied on."""
    is_released: bool = False

    @property
    def host(self) -> Host:
        """Where its owner is."""
        return self.engine.host

    @property
    def passes(self) -> bool:
        """Whether its owner can rely on it now."""
        is_there = not self.host.down and self.host.incarnation == self.incarnation
        return is_there and not self.is_released and bool(self.guard.is_held)

    def __str__(self) -> str:
        return f"{self.token} of {self.host.name}"


@dataclass
class LockOracle:
    """Watches all guards."""

    sim: Simulation
    server: KeyspaceServer
    resource: Resource
    live: dict[str, list[Held]] = field(default_factory=dict)
    tokens: dict[str, set[Token]] = field(default_factory=dict)
    highest: dict[str, dict[int, Token]] = field(default_factory=dict)
    grants: Counter[str] = field(default_factory=Counter)
    has_gone_back: bool = False
    """Whether the server's disk has gone back to an earlier state."""
    knows_owners: bool = True
    """Whether nobody but their owners deletes keys."""
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.resource.on_lost_update = lambda what: self.fail(f"an update is lost: {what}")
        self.resource.on_refused = self._refused
        self._look_again()

    def fail(self, why: str) -> None:
        """Say it where nobody takes it for something else."""
        self.violations.append(why)
        self.sim.record(f"VIOLATION {why}")

        def say() -> None:
            raise Violation(why)

        self.sim.after(0.0, say)

    def granted(self, lock: str, guard: Any, engine: FarKeyspace) -> Held:
        """See an acquisition, at the moment when its owner gets it."""
        token: Token = guard.token
        host, history = engine.host, self.server.histories[engine.cluster_id]
        held = Held(lock, guard, engine, host.incarnation, history, token)
        self.sim.record(f"has {lock} with {token}", host.name)
        self.grants[lock] += 1
        known = self.tokens.setdefault(lock, set())
        if token in known and not self.has_gone_back:
            self.fail(f"{lock} was acquired twice with {token}")
        known.add(token)
        if held.passes and not self.has_gone_back:
            self._rises(held)
        self.live.setdefault(lock, []).append(held)
        self.look()
        return held

    def _rises(self, held: Held) -> None:
        highest = self.highest.setdefault(held.lock, {})
        for history, before in highest.items():
            if history <= held.history and held.token < before:
                self.fail(f"{held.lock} was acquired with {held.token} after {before}")
        highest[held.history] = max(held.token, highest.get(held.history, held.token))

    def released(self, held: Held) -> None:
        """See that an owner is about to release."""
        self.look()
        held.is_released = True
        self.live[held.lock].remove(held)
        self.sim.record(f"releases {held.lock} with {held.token}", held.host.name)

    def look(self) -> None:
        """Look at all guards now."""
        owners: dict[str, int] | None = None
        for lock, entries in self.live.items():
            passing = []
            for held in entries:
                if not held.passes:
                    held.is_over = True
                elif held.engine.history.lost is not None:
                    self.fail(f"{lock}: {held} can be relied on, and its keyspace is gone")
                elif held.is_over:
                    self.fail(f"{lock}: {held} could not be relied on, and now it can")
                else:
                    passing.append(held)
            if self.has_gone_back:
                continue
            for history in {held.history for held in passing}:
                these = [held for held in passing if held.history == history]
                if len(these) > 1:
                    self.fail(f"{lock} is held twice: by {these[0]} and {these[1]}")
            current = [held for held in passing if held.history == self.server.history]
            if current and self.knows_owners and not self.server.host.down:
                owners = self._owners() if owners is None else owners
                for held in current:
                    if owners.get(lock) != int(held.token):
                        self.fail(f"{lock}: {held} can be relied on; the server has {owners}")
            self.live[lock] = [each for each in entries if not each.host.down]

    def _owners(self) -> dict[str, int]:
        """Say which key is first in the line of each lock, by the server's memory."""
        found: dict[str, int] = {}
        pairs = self.server.pairs()
        for lock in self.live:
            queue = LockQueue(lock.encode())
            revisions = [pair.create_revision for key, pair in pairs.items() if queue.counts(key)]
            if revisions:
                found[lock] = min(revisions)
        return found

    def _look_again(self) -> None:
        self.look()
        self.sim.after(LOOK_S, self._look_again)

    def _refused(self, lock: str, token: Token, highest: Token) -> None:
        for held in self.live.get(lock, ()):
            if held.token == token and held.history == self.server.history and held.passes:
                self.fail(f"{lock}: {token} is refused after {highest}, and could be relied on")
