"""A store on a real journal, committed when a test requests it, in virtual time."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from leasehold.errors import UnknownLease
from leasehold.journal.journal import Journal
from leasehold.store.store import Store
from leasehold.testing import Simulation

T = TypeVar("T")


class DurableStore:
    """The store of one simulated host. `crash` and `open` as often as you like."""

    def __init__(self, sim: Simulation, directory: Path) -> None:
        self.sim = sim
        self.host = sim.host("server")
        self._directory = directory
        self.open()

    def open(self) -> None:
        """Start on what is on disk."""
        self.read()
        self.serve()

    def read(self) -> None:
        """Read what is on disk, as a server does: on its event loop."""
        self.host.call(self._read)

    def _read(self) -> None:
        self.store = Store(clock=self.host.clock)
        self.journal = Journal(self._directory, replay=self.store.replay)
        self.store.complete()

    def serve(self) -> None:
        """Serve what was read."""
        self.host.call(self.store.start)

    def note_age(self) -> None:
        """Note how much lease time has passed since the start."""
        self.journal.note_elapsed(self.store.leases.table.clock.now)

    def commit(self) -> None:
        """Bring everything to disk that was applied."""
        while (batch := self.host.call(self.store.take_batch)) is not None:
            changes = b"".join(batch.changes)
            self.journal.append(batch.first_revision, batch.last_revision, changes)
            self.host.call(self.store.committed)

    def crash(self, serves_after_s: float = 0.0) -> None:
        """Lose what was not committed, and start again."""
        self.close()
        self.read()
        self.sim.run_for(serves_after_s)
        self.serve()

    def close(self) -> None:
        """Stop serving, and lose what was not committed."""
        self.host.call(self.store.leases.close)
        self.journal.close()  # which writes nothing of the store

    def stop(self, steps: int | None = None) -> None:
        """Stop cleanly; with `steps`, fail after this many writes of the rest."""
        self.do(bool)
        self.commit()
        self.host.call(self.store.leases.close)
        try:
            listing = self.store.leases.remaining()
            while True:
                next(listing)
        except StopIteration as done:
            writes = self.journal.note_remaining(*done.value)
        for _ in writes if steps is None else islice(writes, steps):
            continue
        self.journal.close()

    def do(self, function: Callable[..., T], *args: Any) -> T:
        """Call something as if it came from the event loop."""

        def enter_and_call() -> T:
            self.store.leases.enter()
            return function(*args)

        return self.host.call(enter_and_call)

    def renew(self, lease: int) -> int:
        """Renew a lease; return the position that the answer has to wait for, 0 for none."""
        self.do(self.store.leases.renew, lease)
        position = self.store.lease_position(lease)
        return position if position > self.store.durable else 0

    def checkpoint(self) -> None:
        """Checkpoint all leases whose time it is."""
        while self.do(self.store.leases.checkpoint, 10):
            continue

    def lives(self, lease: int) -> bool:
        """Return whether the lease exists."""
        try:
            self.do(self.store.leases.current, lease)
        except UnknownLease:
            return False
        return True
