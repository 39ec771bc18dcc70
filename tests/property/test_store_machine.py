"""`Store` against a naive model: keys, leases, commits, crashes and forgetting, in virtual time.

The machine is everybody else: it commits, does long operations a step at a time, reads in slices,
trims and folds, and loses power in between. What survives is what a journal has, nothing else.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.errors import LeaseholdError, UnknownLease
from leasehold.keyspace import transaction_rules as txn_rules
from leasehold.keyspace.keyspace import FROM_KEY, Change, Item
from leasehold.keyspace.operations import Compact, Delete, Grant, Put, Range, Revoke, Txn
from leasehold.keyspace.ranges import Wanted, scan
from leasehold.store.lease_record import UNRENEWED
from leasehold.store.undurable_changes import Batch
from leasehold.testing import Simulation
from leasehold.wire.codec import varint
from tests.property import naive_store
from tests.property.naive_store import NaiveStore, Pair, RangeDone, Refused, is_in
from tests.property.store_kit import (
    EPS_S,
    LATE_S,
    LEASES,
    NAMES,
    KeptJournal,
    SpiedStore,
    back,
    check_refused,
    deletes,
    done_of,
    fit,
    keeping_puts,
    lease_ids,
    make_limits_small,
    pair_of,
    pair_or_none,
    puts,
    queries,
    run_all,
    txns,
    wide_txns,
    writes,
)
from tests.property.support import effort

EVERYTHING = (b"\0", FROM_KEY)

terms = st.sampled_from([10.0, 400.0, 3.0, 1000.0, 2.0])


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


class Follower:
    """Watches a range, and keeps what it is told."""

    next_revision = 0
    has_room = True
    wants_previous = True

    def __init__(self, key: bytes, end: bytes, first: int) -> None:
        self.key = key
        self.end = end
        self.first = first
        self.told: list[tuple[int, list[tuple[bytes, Pair | None]]]] = []
        self.positions: list[int] = []

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        revision = changes[0].revision
        assert all(change.revision == revision for change in changes)
        events = [(change.key, pair_or_none(change.item)) for change in changes]
        self.told.append((revision, events))
        self.positions.append(position)
        return True

    def settle(self) -> None:
        raise AssertionError("it was never behind")

    def joined(self, revision: int, position: int) -> None:
        raise AssertionError("it was never behind")

    def cancelled(self, compacted: int) -> None:
        raise AssertionError("it was never behind")

    def failed(self, error: LeaseholdError) -> None:
        raise AssertionError("it was never behind")


@dataclass
class Long:
    """An operation in steps; or without one the keys of a lease that is over."""

    op: Delete | Txn | None
    steps: Generator[Wanted, list[Item], Any]
    alive: set[int]
    """Leases that there were at some time since it began."""
    wanted: Wanted | None = None


@dataclass
class Scan:
    """A range that is being read."""

    steps: Generator[Wanted, list[Item], Any]
    revision: int
    expected: RangeDone
    wanted: Wanted | None = field(default=None)


class StoreMachine(RuleBasedStateMachine):
    """One store, its journal (what survives), and the models of memory and of disk."""

    def __init__(self) -> None:
        super().__init__()
        SpiedStore.chance.seed(0)
        self.sim = Simulation(3)
        self.host = self.sim.host("server")
        self.image: bytes | None = None
        self.model = NaiveStore()
        self.on_disk = NaiveStore()
        self.granted = 0

    def teardown(self) -> None:
        with closing(self.sim):
            if hasattr(self, "store"):
                self.read_everything()
                self.crash(whole=True)
                self.read_everything()

    @initialize(ttl_s=terms, ops=st.lists(puts, min_size=6, max_size=12))
    def begin(self, ttl_s: float, ops: list[Put | Delete | Txn]) -> None:
        self.open()
        for lease in LEASES[:3]:
            self.grant(lease, ttl_s)
        self.write(ops)
        self.commit()

    def open(self) -> None:
        self.store = SpiedStore(clock=self.host.clock)
        self.store.spy = self
        self.journal = KeptJournal(self.image, self.store.replay)
        self.host.call(self.store.start)
        self.model = self.on_disk.copy()
        self.now = self.host.clock.monotonic
        self.deadlines: dict[int, float] = {}
        """When leases end whose term has begun."""
        self.check_restored_leases()
        self.under_way: tuple[Batch, NaiveStore] | None = None
        self.long: Long | None = None
        self.scans: list[Scan] = []
        self.forgetting: Iterator[None] | None = None
        self.revoking: int | None = None
        self.forgotten = -1
        self.committed_at: list[int] = []
        self.store.on_durable = self.committed_at.append
        self.pending = 0
        self.store.on_pending = self.note_pending
        first = self.model.revision + 1
        ranges = (EVERYTHING, (b"a", b"b"), (b"a", b""), (b"b", b"\xff"))
        self.followers = [Follower(*each, first) for each in ranges]
        for follower in self.followers:
            self.store.watchers.join(follower)

    def check_restored_leases(self) -> None:
        table = self.store.leases.table
        assert len(table) == len(self.model.leases)
        for lease, known in self.model.leases.items():
            leased = table.find(lease)
            assert leased is not None
            assert abs(leased.deadline - table.clock.now - known.promised_s) < EPS_S
            assert leased.term_s == leased.resource.ttl_s == known.ttl_s
            assert leased.resource.promised_s == UNRENEWED, "its first renewal is recorded"
            self.deadlines[lease] = self.now() + known.promised_s

    def note_pending(self) -> None:
        self.pending += 1

    @property
    def is_idle(self) -> bool:
        return not self.store.is_busy

    # Changes.

    @precondition(lambda self: self.is_idle)
    @rule(ops=st.lists(puts, min_size=2, max_size=6))
    def put(self, ops: list[Put | Delete | Txn]) -> None:
        self.write(ops)

    @precondition(lambda self: self.is_idle)
    @rule(ops=st.lists(writes(), min_size=2, max_size=6))
    def write(self, ops: list[Put | Delete | Txn]) -> None:
        """Do some operations, up to one that is long."""
        for op in ops:
            fit(op, self.model)
            if self.store.is_busy or (isinstance(op, Txn) and not self.may_be(op)):
                return
            self.enter()
            if isinstance(op, Delete | Txn) and self.store.is_long(op):
                self.long = Long(op, self.store.steps(op), set(self.model.leases))
                self.step(1)
                return
            self.apply(op)

    @precondition(lambda self: self.is_idle)
    @rule(op=keeping_puts | wide_txns | txns | deletes)
    def write_once(self, op: Put | Delete | Txn) -> None:
        self.write([op])

    @precondition(lambda self: self.is_idle)
    @rule(op=deletes)
    def delete_at_once(self, op: Delete) -> None:
        """Apply an operation that may be long, as if it were not."""
        self.enter()
        self.apply(op)

    def may_be(self, txn: Txn) -> bool:
        """Check a transaction as such, before it comes to anything."""
        try:
            naive_store.check(txn)
        except Refused as refused:
            with pytest.raises(refused.kinds):
                txn_rules.check(txn, naive_store.MAX_OPERATIONS)
            return False
        txn_rules.check(txn, naive_store.MAX_OPERATIONS)
        return True

    def apply(self, op: Put | Delete | Txn) -> None:
        apply: Any = self.store.apply
        try:
            result, position = self.host.call(apply, op)
        except LeaseholdError as error:
            check_refused(error, lambda: self.model.draft(op))
            return
        assert position == self.store.position
        assert done_of(result) == self.model.apply(op)

    def enter(self) -> None:
        self.host.call(self.store.leases.enter)

    @precondition(lambda self: self.long is not None)
    @rule(count=st.sampled_from([1, 1, 2, 3, 99]))
    def step(self, count: int) -> None:
        """Do some steps of a long operation."""
        assert self.long is not None
        long = self.long
        for _ in range(count):
            try:
                if long.wanted is None:
                    long.wanted = self.host.call(next, long.steps)
                else:
                    long.wanted = self.host.call(long.steps.send, self.load(long.wanted))
            except StopIteration as done:
                self.finish(long, done.value)
                return
            except LeaseholdError as error:
                self.long = None
                self.check_long_refused(error, long)
                return

    def check_long_refused(self, error: LeaseholdError, long: Long) -> None:
        op = long.op
        assert op is not None
        check_refused(error, lambda: self.model.draft(op))

    def finish(self, long: Long, value: Any) -> None:
        self.long = None
        if long.op is not None:
            result, position = value
            assert position == self.store.position
            assert done_of(result) == self.model.adopt(self.model.draft(long.op, long.alive))
        assert self.store.is_busy == bool(self.store.ends)

    @precondition(lambda self: self.long is None and self.store.ends)
    @rule()
    def end_a_large_lease(self) -> None:
        self.long = Long(None, self.store.next_end_steps(), set())

    def load(self, wanted: Wanted) -> list[Item]:
        recent = {each: self.store.recent.find(*each) for each in wanted}
        here = [item for item in recent.values() if item is not None]
        missing = [each for each, item in recent.items() if item is None]
        return here + self.journal.values(missing)

    # Leases.

    @rule(lease=lease_ids | st.just(0), ttl_s=terms)
    def grant(self, lease: int, ttl_s: float) -> None:
        self.granted += 1
        op = Grant(lease, ttl_s + self.granted / 128)  # no two leases end at the same instant
        self.enter()
        try:
            (granted, encoded), position = self.host.call(self.store.apply, op)
        except LeaseholdError as error:
            check_refused(error, lambda: self.model.grant(op, lease, self.granted))
            return
        assert position > self.store.durable
        assert granted == lease or not lease
        assert encoded == varint(granted)
        self.model.grant(op, granted, self.granted)
        if self.long is not None:
            self.long.alive.add(granted)

    @rule(lease=lease_ids, what=st.sampled_from(["renew", "revoke", "checkpoint"]))
    def renew_or_revoke(self, lease: int, what: str) -> None:
        if what == "renew":
            self.renew(lease)
        elif what == "checkpoint":
            self.checkpoint(1)
        elif self.is_idle:
            self.revoke(lease)

    def revoke(self, lease: int) -> None:
        self.revoking = lease
        self.enter()
        try:
            revision, _ = self.host.call(self.store.apply, Revoke(lease))
        except UnknownLease:
            assert lease not in self.model.leases
            return
        finally:
            self.revoking = None
        assert lease not in self.model.leases
        assert revision == self.model.revision

    def renew(self, lease: int) -> None:
        self.enter()
        try:
            self.host.call(self.store.leases.renew, lease)
        except UnknownLease:
            assert lease not in self.model.leases
            return
        known = self.model.leases[lease]
        assert known.promised_s == known.ttl_s, "a restart would cut the term short"
        if lease in self.deadlines:  # else its term has yet to begin
            self.deadlines[lease] = self.now() + known.ttl_s

    def checkpoint(self, budget: int) -> None:
        self.enter()
        rounds = 0
        while self.host.call(self.store.leases.checkpoint, budget):
            rounds += 1
            assert rounds <= self.granted, "it goes round and round"

    @rule(seconds=st.sampled_from([0.3, 1.5, 4.0, 130.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.sim.run_for(seconds + LATE_S)
        late = [lease for lease, at in self.deadlines.items() if at <= self.now() - LATE_S]
        assert not late, "these should have ended"

    def lease_ended(self, lease: int) -> None:
        deadline = self.deadlines.pop(lease, None)
        if lease != self.revoking:
            assert deadline is not None, "its term has not begun"
            assert deadline <= self.now() + EPS_S, "ended before its deadline"
        self.model.end(lease)

    def keys_gone(self, lease: int) -> None:
        self.model.end_keys(lease)

    def lease_promised(self, lease: int, promised_s: float) -> None:
        known = self.model.leases[lease]
        left_s = self.deadlines.get(lease, self.now() + known.ttl_s) - self.now()
        assert left_s - EPS_S <= promised_s <= known.ttl_s
        self.model.promise(lease, promised_s)

    # Reads.

    @precondition(lambda self: self.is_idle)
    @rule(query=queries)
    def read(self, query: Range) -> None:
        fit(query, self.model)
        self.enter()
        try:
            read = self.host.call(self.store.read, query)
        except LeaseholdError as error:
            check_refused(error, lambda: self.model.look(query))
            return
        expected = self.model.look(query)
        if read is None:
            revision = expected.revision
            steps = scan(self.store.keyspace, query, revision)
            self.store.pins[revision] += 1
            self.scans.append(Scan(steps, revision, expected))
            return
        found, position = read
        assert done_of(found) == expected._replace(revision=found.revision)
        shown_at = self.on_disk if position == 0 else self.model
        states = shown_at.states[found.revision]
        assert done_of(found) == naive_store.look(states, query, found.revision)

    @precondition(lambda self: self.scans)
    @rule(pick=st.integers(0, 3), count=st.sampled_from([1, 2, 99]))
    def go_on_reading(self, pick: int, count: int) -> None:
        scanning = self.scans[pick % len(self.scans)]
        for _ in range(count):
            try:
                if scanning.wanted is None:
                    scanning.wanted = next(scanning.steps)
                else:
                    scanning.wanted = scanning.steps.send(self.load(scanning.wanted))
            except StopIteration as done:
                self.end_reading(scanning, done.value)
                return

    def end_reading(self, scanning: Scan, found: Any) -> None:
        assert done_of(found) == scanning.expected
        self.scans.remove(scanning)
        self.store.pins[scanning.revision] -= 1
        if not self.store.pins[scanning.revision]:
            del self.store.pins[scanning.revision]

    @rule()
    def read_everything(self) -> None:
        """Read at all revisions, from memory and disk, whatever is under way."""
        for revision in range(max(1, self.model.compacted), self.model.revision + 1):
            steps = scan(self.store.keyspace, Range(*EVERYTHING), revision)
            found = run_all(steps, self.load)
            assert done_of(found).pairs == [
                pair for _, pair in sorted(self.model.states[revision].items())
            ]

    # Forgetting.

    @precondition(lambda self: self.is_idle)
    @rule(ago=back, written=st.booleans(), count=st.integers(0, 12), crashes=st.booleans())
    def compact(self, ago: int, written: bool, count: int, crashes: bool) -> None:
        """Compact, begin to forget, and perhaps come to no end with it."""
        self.compact_before(ago)
        if written:
            self.commit()
        self.forget(count)
        if crashes:
            self.crash(whole=written)

    def compact_before(self, ago: int) -> None:
        op = Compact(self.model.revision + 1 - ago)
        try:
            now, position = self.host.call(self.store.apply, op)
        except LeaseholdError as error:
            check_refused(error, lambda: self.model.compact(op))
            return
        assert position > self.store.durable
        assert now == self.model.compact(op)

    @rule(count=st.sampled_from([1, 2, 5, 99]))
    def forget(self, count: int) -> None:
        """Make space, a bit at a time, as far as nobody reads there."""
        for _ in range(count):
            if self.forgetting is None:
                until = min([self.store.durable_compacted, *self.store.pins])
                if until <= self.forgotten:
                    return
                self.forgetting = self.forget_until(until)
            if next(self.forgetting, self) is self:
                self.forgetting = None

    def forget_until(self, until: int) -> Iterator[None]:
        for name in self.store.keyspace.past_names():
            self.store.keyspace.trim(name, until)
            yield
        while self.journal.fold(until):
            yield
        self.forgotten = until

    # The disk.

    @rule()
    def commit(self) -> None:
        """Bring everything to disk."""
        if self.under_way is not None:
            self.end_commit()
        self.begin_commit()
        if self.under_way is not None:
            self.end_commit()

    @rule()
    def commit_a_bit(self) -> None:
        """Begin to bring something to disk, or end it."""
        if self.under_way is None:
            self.begin_commit()
        else:
            self.end_commit()

    def begin_commit(self) -> None:
        batch = self.store.take_batch()
        if batch is not None:
            assert self.pending, "nobody was told that there is something to be committed"
            assert batch.last_revision == self.model.revision
            self.under_way = batch, self.model.as_written()
            self.pending = 0

    def end_commit(self) -> None:
        assert self.under_way is not None
        _, written = self.under_way
        begun = {lease: known.birth for lease, known in self.on_disk.leases.items()}
        self.append()
        self.host.call(self.store.committed)
        for lease, known in written.leases.items():
            there = self.model.leases.get(lease)
            if there and there.birth == known.birth != begun.get(lease):
                assert lease not in self.deadlines, "its term began before its grant was on disk"
                self.deadlines[lease] = self.now() + known.ttl_s
        assert self.committed_at[-1] == self.store.durable

    def append(self) -> None:
        assert self.under_way is not None
        batch, self.on_disk = self.under_way
        self.under_way = None
        changes = b"".join(batch.changes)
        self.journal.append(batch.first_revision, batch.last_revision, changes)

    @rule(luck=st.integers(0, 5), whole=st.booleans())
    def power_may_go(self, luck: int, whole: bool) -> None:
        if luck == 1:
            self.crash(whole=whole)

    def crash(self, *, whole: bool) -> None:
        """Lose what is in memory; the batch under way may have reached the disk or not."""
        self.host.call(self.store.leases.close)
        if whole and self.under_way is not None:
            self.append()
        self.image = self.journal.image()
        self.journal.close()
        self.open()

    # What always holds.

    @invariant()
    def memory_is_as_it_must_be(self) -> None:
        if not hasattr(self, "store"):
            return
        keyspace = self.store.keyspace
        assert self.store.revision == self.model.revision
        assert keyspace.compacted == self.model.compacted
        for lease in self.model.leases:
            leased = self.store.leases.table.find(lease)
            assert leased is not None
            assert leased.pending == (lease not in self.deadlines)
        if self.long is not None and self.long.wanted is not None:
            return
        items = keyspace.range(*EVERYTHING)
        assert {item[5]: pair_of(item) for item in items} == self.model.keys
        assert list(keyspace.names(*EVERYTHING)) == sorted(self.model.keys)
        assert keyspace.encoded_bytes == sum(len(item[0]) for item in items)
        assert keyspace.marks == sum(map(len, keyspace._past.values()))
        for lease in self.model.leases:
            record = self.store.leases.current(lease)
            assert record.keys == self.model.keys_of(lease)
            assert record.key_bytes == sum(map(len, record.keys))

    @invariant()
    def the_past_is_as_it_was(self) -> None:
        """Also while an operation changes it in steps, and while it is being trimmed."""
        if not hasattr(self, "store"):
            return
        keyspace = self.store.keyspace
        for revision in range(max(1, self.model.compacted), self.model.revision + 1):
            for name in NAMES:
                found, expected = keyspace.at(name, revision), self.model.states[revision].get(name)
                if isinstance(found, tuple):
                    assert pair_of(found) == expected
                else:
                    assert found == (expected.modified if expected else None)
            all_names = list(keyspace.all_names(*EVERYTHING))
            assert {*self.model.states[revision]} <= {*all_names}
            assert all_names == sorted(set(all_names))

    @invariant()
    def watchers_have_seen_it_all(self) -> None:
        if not hasattr(self, "store"):
            return
        for follower in self.followers:
            expected = []
            for revision in range(follower.first, self.model.revision + 1):
                events = self.model.told(follower.key, follower.end, revision)
                if events:
                    expected.append((revision, [(event.key, event.pair) for event in events]))
            assert follower.told == expected
            assert follower.positions == sorted(follower.positions)

    @invariant()
    def what_is_not_on_disk_is_in_memory(self) -> None:
        if hasattr(self, "store"):
            recent = self.store.recent
            assert recent.first <= self.store.durable_revision + 1
            for revision in range(recent.first, self.model.revision + 1):
                changes = recent.at(revision)
                assert changes is not None
                told = [(change.key, pair_or_none(change.item)) for change in changes]
                events = self.model.events[revision]
                assert told == [(event.key, event.pair) for event in events]

    @invariant()
    def what_is_called_durable_is_on_disk(self) -> None:
        if not hasattr(self, "store"):
            return
        store, model, on_disk = self.store, self.model, self.on_disk
        assert store.durable_revision == on_disk.revision
        assert store.durable_compacted == on_disk.compacted
        for revision in range(1, model.revision + 1):
            assert (store.position_of(revision) == 0) == (revision <= on_disk.revision)
        for start, end in ((b"a", b"b"), (b"a/c", FROM_KEY), *((name, b"") for name in NAMES)):
            if store.is_range_durable(start, end):
                inside = [name for name in NAMES if is_in(start, end, name)]
                assert all(model.keys.get(name) == on_disk.keys.get(name) for name in inside)
        for lease in LEASES:
            if not store.lease_position(lease):
                assert not self.differs_on_disk(lease)
                if not store.keys_position(lease):
                    assert model.keys_of(lease) == on_disk.keys_of(lease)

    def differs_on_disk(self, lease: int) -> bool:
        if self.store.is_ending(lease):
            return False  # nobody is told of it before its keys are gone
        here, there = self.model.leases.get(lease), self.on_disk.leases.get(lease)
        return (here and here.birth) != (there and there.birth)


SETTINGS = effort(300, steps=60)
StoreMachine.TestCase.settings = SETTINGS
TestStore = StoreMachine.TestCase
