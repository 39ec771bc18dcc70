"""`Store` against a naive model: keys, leases, watches, commits and crashes, in virtual time."""

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.core.keyspace import FROM_KEY, Change
from leasehold.core.ops import Grant, Put, Revoke
from leasehold.engine.journal import Row
from leasehold.engine.store import Store
from leasehold.errors import LeaseExists, UnknownKey, UnknownLease
from leasehold.testing import Simulation
from leasehold.wire.encode import varint
from leasehold.wire.kv_pb2 import KeyValue
from tests.property.support import effort

NAMES: Final = [b"a", b"a/b", b"a/c", b"b", b"\0", b"\xff\xff"]
LATE_S: Final = 0.02
"""How long after a deadline a lease may still be there."""

names = st.sampled_from(NAMES)
values = st.sampled_from([b"", b"x", b"y" * 200])
picks = st.integers(0, 5)


@dataclass
class NaiveKey:
    """A key as anybody would write it down."""

    value: bytes
    created: int
    modified: int
    version: int
    lease: int


@dataclass
class NaiveStore:
    """What must be there, by the plainest means."""

    revision: int = 1
    keys: dict[bytes, NaiveKey] = field(default_factory=dict)
    ttls: dict[int, float] = field(default_factory=dict)
    births: dict[int, int] = field(default_factory=dict)
    """Which grant made a lease: an id may be used again."""

    def copy(self) -> "NaiveStore":
        keys = {name: NaiveKey(**vars(key)) for name, key in self.keys.items()}
        return NaiveStore(self.revision, keys, dict(self.ttls), dict(self.births))

    def put(self, name: bytes, value: bytes, lease: int) -> None:
        self.revision += 1
        before = self.keys.get(name)
        created = before.created if before else self.revision
        version = before.version + 1 if before else 1
        self.keys[name] = NaiveKey(value, created, self.revision, version, lease)

    def end(self, lease: int) -> None:
        del self.ttls[lease], self.births[lease]
        mine = self.keys_of(lease)
        for name in mine:
            del self.keys[name]
        self.revision += bool(mine)

    def keys_of(self, lease: int) -> set[bytes]:
        return {name for name, key in self.keys.items() if key.lease == lease}


class Follower:
    """Watches everything, and keeps a copy of the keyspace from events alone."""

    key = b"\0"
    range_end = FROM_KEY

    def __init__(self, start: dict[bytes, bytes]) -> None:
        self.copy = start
        self.revisions: list[int] = []
        self.positions: list[int] = []

    def notify(self, changes: Any, position: int) -> None:
        self.revisions.append(changes[0].revision)
        self.positions.append(position)
        for change in changes:
            self._follow(change)

    def _follow(self, change: Change) -> None:
        before = self.copy.pop(change.key, None)
        assert before == (change.previous[0] if change.previous else None)
        if change.item is not None:
            self.copy[change.key] = change.item[0]


class StoreMachine(RuleBasedStateMachine):
    """One store, its journal (what survives), and the models of memory and of disk."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Simulation(3)
        self.host = self.sim.host("server")
        self.rows: list[Row] = []
        self.model = NaiveStore()
        self.on_disk = NaiveStore()
        self.under_way: NaiveStore | None = None
        self.granted = 0
        self.deadlines: dict[int, float] = {}
        """When leases end whose term has begun."""

    def teardown(self) -> None:
        self.sim.close()

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = Store(clock=self.host.clock)
        for row in self.rows:
            self.store.restore(row)
        self.host.call(self.store.start)
        self.model = self.on_disk.copy()
        now = self.host.clock.monotonic()
        self.deadlines = {lease: now + ttl for lease, ttl in self.model.ttls.items()}
        self.committed_at: list[int] = []
        self.store.on_durable = self.committed_at.append
        self.pending = 0
        self.store.on_pending = self.note_pending
        items = {name: item[0] for name in NAMES if (item := self.store.keyspace.get(name))}
        self.follower = Follower(items)
        self.store.watchers.add(self.follower)

    def note_pending(self) -> None:
        self.pending += 1

    def apply(self, op: Any) -> Any:
        def enter_and_apply() -> Any:
            self.store.leases.enter()
            return self.store.apply(op)

        result, position = self.host.call(enter_and_apply)
        assert position > self.store.durable
        assert self.pending or self.under_way is not None
        return result

    def lease(self, pick: int) -> int:
        """Some lease that there is, or was, or never was."""
        return pick + 1

    @rule(name=names, value=values, pick=picks | st.none())
    def put(self, name: bytes, value: bytes, pick: int | None) -> None:
        lease = self.lease(pick) if pick is not None else 0
        try:
            revision, previous = self.apply(Put(name, value, lease))
        except UnknownLease:
            assert lease not in self.model.ttls
            return
        before = self.model.keys.get(name)
        assert (previous is None) == (before is None)
        self.model.put(name, value, lease)
        assert revision == self.model.revision

    @rule(name=names, value=values, keeps_value=st.booleans())
    def put_keeping(self, name: bytes, value: bytes, keeps_value: bool) -> None:
        before = self.model.keys.get(name)
        op = Put(name, None, 0) if keeps_value else Put(name, value, None)
        try:
            self.apply(op)
        except UnknownKey:
            assert before is None
            return
        assert before is not None
        kept = (before.value, 0) if keeps_value else (value, before.lease)
        self.model.put(name, *kept)

    @rule(pick=picks | st.none(), ttl_s=st.sampled_from([2.0, 3.0, 10.0, 1000.0]))
    def grant(self, pick: int | None, ttl_s: float) -> None:
        self.granted += 1
        ttl_s += self.granted / 128  # no two leases end at the same instant
        lease = self.lease(pick) if pick is not None else 0
        try:
            granted, encoded = self.apply(Grant(lease, ttl_s))
        except LeaseExists:
            assert lease in self.model.ttls
            return
        assert granted == lease or not lease
        assert encoded == varint(granted)
        assert granted not in self.model.ttls
        self.model.ttls[granted] = ttl_s
        self.model.births[granted] = self.granted

    @rule(pick=picks)
    def revoke(self, pick: int) -> None:
        lease = self.lease(pick)
        try:
            self.apply(Revoke(lease))
        except UnknownLease:
            assert lease not in self.model.ttls
            return
        self.model.end(lease)
        self.deadlines.pop(lease, None)

    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        lease = self.lease(pick)
        position = self.store.lease_position(lease)
        assert position or not self.differs_on_disk(lease)
        try:
            self.host.call(self.store.leases.renew, lease)
        except UnknownLease:
            assert lease not in self.model.ttls
            return
        if lease in self.deadlines:  # else its term has yet to begin
            self.deadlines[lease] = self.host.clock.monotonic() + self.model.ttls[lease]

    def differs_on_disk(self, lease: int) -> bool:
        return self.model.births.get(lease) != self.on_disk.births.get(lease)

    @rule(seconds=st.sampled_from([0.3, 1.5, 4.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.sim.run_for(seconds + LATE_S)
        now = self.host.clock.monotonic()
        for lease, deadline in sorted(self.deadlines.items(), key=lambda pair: pair[1]):
            if deadline <= now - LATE_S or lease not in self.store.leases.table:
                assert deadline <= now, "ended before its deadline"
                self.model.end(lease)
                del self.deadlines[lease]

    @precondition(lambda self: self.under_way is None)
    @rule()
    def begin_commit(self) -> None:
        batch = self.store.take_batch()
        if batch is not None:
            assert batch.last_revision == self.model.revision
            changes = b"".join(batch.changes)
            self.row = Row(batch.first_revision, batch.last_revision, changes)
            self.under_way = self.model.copy()
            self.pending = 0

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def end_commit(self) -> None:
        assert self.under_way is not None
        granted = self.under_way.births.items() - self.on_disk.births.items()
        self.rows.append(self.row)
        self.on_disk, self.under_way = self.under_way, None
        self.host.call(self.store.committed)
        now = self.host.clock.monotonic()
        for lease, _ in granted & self.model.births.items():
            assert lease not in self.deadlines, "its term began before its grant was on disk"
            self.deadlines[lease] = now + self.model.ttls[lease]
        assert self.committed_at[-1] == self.store.durable

    @rule(whole=st.booleans())
    def crash(self, whole: bool) -> None:
        """Lose what is in memory; the batch under way may have reached the disk or not."""
        self.host.call(self.store.leases.close)
        if whole and self.under_way is not None:
            self.rows.append(self.row)
            self.on_disk = self.under_way
        self.under_way = None
        self.open()

    @invariant()
    def memory_is_as_it_must_be(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.revision == self.model.revision
        found = {
            pair.key: NaiveKey(
                pair.value, pair.create_revision, pair.mod_revision, pair.version, pair.lease
            )
            for pair in (KeyValue.FromString(i[0]) for i in self.store.keyspace.range(b"\0", b"\0"))
        }
        assert found == self.model.keys
        assert list(self.store.keyspace.names(b"\0", FROM_KEY)) == sorted(found)
        for lease in self.model.ttls:
            leased = self.store.leases.table.find(lease)
            assert leased is not None
            assert leased.resource.keys == self.model.keys_of(lease)
            assert leased.pending == (lease not in self.deadlines)

    @invariant()
    def a_watcher_has_seen_it_all(self) -> None:
        if hasattr(self, "store"):
            items = self.store.keyspace.range(b"\0", FROM_KEY)
            assert sorted(self.follower.copy.values()) == sorted(item[0] for item in items)
            assert self.follower.revisions == sorted(set(self.follower.revisions))
            assert self.follower.positions == sorted(self.follower.positions)

    @invariant()
    def what_is_called_durable_is_on_disk(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.durable_revision == self.on_disk.revision
        for name in NAMES:
            if self.store.is_durable(name):
                assert self.model.keys.get(name) == self.on_disk.keys.get(name)
        for start, end in ((b"a", b"b"), (b"a/c", FROM_KEY)):
            if self.store.is_range_durable(start, end):
                inside = [n for n in NAMES if n >= start and (end == FROM_KEY or n < end)]
                assert all(self.model.keys.get(n) == self.on_disk.keys.get(n) for n in inside)
        for lease in range(1, 7):
            if not self.store.lease_position(lease):
                assert not self.differs_on_disk(lease)
                if not self.store.keys_position(lease):
                    assert self.model.keys_of(lease) == self.on_disk.keys_of(lease)


TestStore = StoreMachine.TestCase
TestStore.settings = effort(60, steps=60)
