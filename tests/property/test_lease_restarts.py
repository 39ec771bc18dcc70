"""Leases over random sequences of clean stops, failed stops, crashes and starts, in virtual time.

Two invariants, whatever the sequence. No lease ends before the end that its holder was told. And a
lease that is no longer renewed ends after at most one further term of lease time, but for what each
crash may lose of the time that had passed. Seeded bugs show that the test would notice.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import pytest

from leasehold.errors import DamagedJournal, EndReason, LeaseExists, UnknownLease
from leasehold.journal import journal, journal_rows, remaining_terms
from leasehold.journal.journal import Journal
from leasehold.keyspace.operations import Compact, Grant, Put
from leasehold.store import housekeeping
from leasehold.store.housekeeping import AutoCompaction, Housekeeping
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.replay import Replay
from leasehold.store.store import Store
from leasehold.store.store_leases import StoreLeases
from leasehold.testing import Simulation, seeds
from leasehold.testing.simulation_errors import SimulationError
from tests.property.store_kit import KeptJournal

LEASES = (1, 2, 3, 4)
TERMS_S = (4.0, 10.0, 30.0)
STEPS = 60
SEEDS = 40
LATE_S = 0.5
"""How late a lease may end, and how much lease time a restart may lose beside what is noted."""


class Committer:
    """Does chores when asked to, without a thread."""

    def __init__(self, kept: Journal) -> None:
        self._journal = kept

    def do(
        self, chore: Callable[[Journal], Any], *, is_ours: bool = False
    ) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(chore(self._journal))
        return done


@dataclass
class Known:
    """What is known of a lease outside the server."""

    ttl_s: float
    told_until: float = 0.0
    """The end that its holder was told, in real time."""
    served_s: float = 0.0
    """Lease time of finished runs since it was last renewed."""
    renewed_at: float = 0.0
    """When it was last renewed in this run, in lease time."""
    ended_at: float | None = None
    """When it ended in this run, in lease time; that may not be on disk."""
    crashes: int = 0
    is_durable: bool = False


class World:
    """A server that stops, crashes and starts, and the holders of its leases."""

    def __init__(self, sim: Simulation, seed: int) -> None:
        self.sim = sim
        self.chance = Random(seed)
        self.host = sim.host("server")
        self.real = self.host.clock.monotonic
        self.image: bytes | None = None
        self.leases: dict[int, Known] = {}
        self.unanswered: list[tuple[int, float]] = []
        self.start()

    # The server.

    def start(self) -> None:
        self.host.call(self._start)

    def _start(self) -> None:
        self.store = Store(clock=self.host.clock)
        self.journal = KeptJournal(self.image, self.store.replay)
        self.image = self.journal.image()
        self.store.complete()
        self.store.leases._on_ended = self.ended
        self.store.start()
        committer: Any = Committer(self.journal)
        self.housekeeping = Housekeeping(
            self.store, lambda: committer, self.load, AutoCompaction(age=None, revisions=None)
        )
        self.housekeeping.start()

    async def load(self, wanted: Any) -> Any:
        raise AssertionError(f"nothing is long here: {wanted}")

    @property
    def lease_time(self) -> float:
        return self.store.leases.table.clock.now

    def commit(self) -> None:
        """Bring everything to disk, and answer it."""
        self.host.call(self._commit)

    def _commit(self) -> None:
        while (batch := self.store.take_batch()) is not None:
            changes = b"".join(batch.changes)
            self.journal.append(batch.first_revision, batch.last_revision, changes)
            self.store.committed()
        for lease, sent_at in self.unanswered:
            self.answer(lease, sent_at)
        self.unanswered.clear()
        present = {leased.cookie for leased in self.store.leases.table}
        self.leases = {lease: self.leases[lease] for lease in self.leases if lease in present}

    def answer(self, lease: int, sent_at: float) -> None:
        known = self.leases.get(lease)
        if known is not None:
            known.told_until = max(known.told_until, sent_at + known.ttl_s)
            if not known.is_durable:  # a term begins when its grant is on disk
                known.is_durable, known.renewed_at = True, self.lease_time

    def end_run(self, *, is_crash: bool) -> None:
        """Keep nothing but what is on disk."""
        self.host.call(self._end_run)
        self.unanswered.clear()
        for lease, known in list(self.leases.items()):
            if not known.is_durable:
                del self.leases[lease]
            until = self.lease_time if known.ended_at is None else known.ended_at
            known.served_s += until - known.renewed_at
            known.ended_at = None
            known.crashes += is_crash
        self.sim.run_for(self.chance.choice([0.0, 1.0, 20.0]))
        self.start()
        for known in self.leases.values():
            known.renewed_at = self.lease_time

    def _end_run(self) -> None:
        self.image = self.journal.image()
        for task in self.housekeeping._tasks.values():
            task.cancel()
        self.store.leases.close()

    # What happens.

    def step(self) -> None:
        happens = self.chance.choices(
            [
                self.grant,
                self.renew,
                self.advance,
                self.stop,
                self.crash,
                self.compact,
                self.commit,
            ],
            [3, 8, 8, 3, 3, 2, 3],
        )[0]
        self.host.call(self.store.leases.enter)
        happens()
        self.check()

    def grant(self) -> None:
        lease, ttl_s = self.chance.choice(LEASES), self.chance.choice(TERMS_S)
        try:
            self.host.call(self.store.apply, Grant(lease, ttl_s))
        except LeaseExists:
            return
        self.leases[lease] = Known(ttl_s, renewed_at=self.lease_time)
        self.unanswered.append((lease, self.real()))
        self.maybe_commit()

    def renew(self) -> None:
        lease = self.chance.choice(LEASES[:3])  # the last one is always abandoned
        try:
            self.host.call(self.store.leases.renew, lease)
        except UnknownLease:
            return
        known = self.leases[lease]
        known.served_s, known.crashes, known.renewed_at = 0.0, 0, self.lease_time
        if self.store.lease_position(lease) > self.store.durable:
            self.unanswered.append((lease, self.real()))
            self.maybe_commit()
        else:
            self.answer(lease, self.real())

    def maybe_commit(self) -> None:
        if self.chance.random() < 0.8:
            self.commit()

    def advance(self) -> None:
        self.sim.run_for(self.chance.choice([0.2, 1.5, 3.0, 8.0]))
        self.maybe_commit()

    def compact(self) -> None:
        """Fold what is on disk."""
        self.host.call(self.store.apply, Put(b"key", b"value"))
        self.host.call(self.store.apply, Compact(self.store.revision))
        self.commit()
        self.host.call(self.housekeeping.forget)
        self.sim.run_for(0.01)

    def crash(self) -> None:
        self.end_run(is_crash=True)
        if self.chance.random() < 0.2:  # once more, before anything was served
            self.end_run(is_crash=True)

    def stop(self) -> None:
        """Stop cleanly, or fail after some of the writes."""
        self.commit()
        self.host.call(self.store.leases.close)
        try:
            listing = self.store.leases.remaining()
            while True:
                next(listing)
        except StopIteration as done:
            writes = self.journal.note_remaining(*done.value)
        fails = self.chance.random() < 0.3
        for _ in islice(writes, self.chance.randrange(3)) if fails else writes:
            continue
        self.end_run(is_crash=fails)

    # What must hold.

    def ended(self, record: LeaseRecord, reason: EndReason) -> None:
        known = self.leases[record.id]
        known.ended_at = self.lease_time
        assert self.real() >= known.told_until - 1e-6, "ended before the end that was told"
        self.store._lease_ended(record, reason)

    def check(self) -> None:
        present = {leased.cookie for leased in self.store.leases.table}
        for lease, known in self.leases.items():
            if lease in present:
                served_s = known.served_s + self.lease_time - known.renewed_at
                lost_s = housekeeping.AGE_NOTED_S + LATE_S
                assert served_s <= 2 * known.ttl_s + known.crashes * lost_s + LATE_S, (
                    "an abandoned lease got more than one further term"
                )
            else:
                assert self.real() >= known.told_until - 1e-6, "gone before its end"


def run(seed: int) -> None:
    with Simulation(seed) as sim:
        world = World(sim, seed)
        for _ in range(STEPS):
            world.step()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remaining_terms, "PART_LEASES", 1)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_no_lease_ends_early_and_no_abandoned_lease_gets_more_than_one_further_term(
    seed: int,
) -> None:
    run(seed)


# Seeded bugs.


def _keep_the_mark(patch: pytest.MonkeyPatch) -> None:
    """The start leaves the clean mark where it is, and takes a mark of any run."""
    read = remaining_terms.read_remaining
    patch.setattr(remaining_terms, "PART_LEASES", len(LEASES))
    patch.setattr(journal, "begin_list", lambda *_: None)

    def read_any(found: Any, _: int) -> Any:
        term = remaining_terms._HEADER.unpack(found[remaining_terms.NAME])[2] if found else 0
        return read(found, term)

    patch.setattr(journal_rows, "read_remaining", read_any)


def _record_no_first_renewal(patch: pytest.MonkeyPatch) -> None:
    """Renewals after a crash touch memory only."""
    whole = StoreLeases.restore

    def restore(self: StoreLeases, records: Any, left_s: Any, unrenewed: Any) -> None:
        whole(self, records, left_s, ())
        self.unrenewed = len(unrenewed)

    patch.setattr(StoreLeases, "restore", restore)


def _note_no_age(patch: pytest.MonkeyPatch) -> None:
    """After a crash it is not noted that time passes."""
    patch.setattr(Journal, "note_elapsed", lambda *_, **__: None)


def _forget_the_list_at_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    """A clean stop makes every lease one that was renewed."""
    whole = Replay._unrenewed

    def unrenewed(self: Replay) -> Any:
        is_clean = self._remaining is not None and self._remaining.header.is_clean
        return [] if is_clean else whole(self)

    patch.setattr(Replay, "_unrenewed", unrenewed)


def _fold_renewals_away(patch: pytest.MonkeyPatch) -> None:
    """Folding loses which leases were renewed since the list was written."""
    patch.setattr(remaining_terms, "renewed_notes", lambda *_: ())


def _mark_first(patch: pytest.MonkeyPatch) -> None:
    """A clean stop writes its mark before the list is complete."""

    def note_remaining(self: Journal, entries: Any, unrenewed: int) -> Iterator[None]:
        term, batches = self.identity.term, self._batches
        header = remaining_terms.Header(True, term, batches, len(entries), unrenewed)
        self._note_in_list(remaining_terms.NAME, header.pack())
        for name, value in remaining_terms.parts(entries, is_clean=True):
            self._note_in_list(name, value)
            yield

    patch.setattr(Journal, "note_remaining", note_remaining)


def _full_terms_after_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    """The list of a clean stop is not looked at."""
    patch.setattr(journal_rows, "read_remaining", lambda *_: None)


@pytest.mark.parametrize(
    "bug",
    [
        _keep_the_mark,
        _record_no_first_renewal,
        _note_no_age,
        _forget_the_list_at_a_clean_stop,
        _fold_renewals_away,
        _mark_first,
        _full_terms_after_a_clean_stop,
    ],
)
def test_a_seeded_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    for seed in range(10 * SEEDS):
        try:
            run(seed)
        except (AssertionError, SimulationError, DamagedJournal):
            return
    pytest.fail(f"{bug.__doc__} Nobody noticed.")
