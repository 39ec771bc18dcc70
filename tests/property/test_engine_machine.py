"""`EmbeddedEngine` against a naive model: many calls and watches at once, in virtual time.

Calls begin, go on for some turns of the event loop, and wait for the disk, all as the machine says;
so do commits, what is told of them, and whatever else needs the journal. The model learns from
inside (`HookedStore`) in which order things are done, and says what must come of them. What is
answered, and told to watches, must then be that, in order, and on disk. Every crash leaves what the
journal has, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.values import Events, LeaseInfo, Limits
from leasehold.errors import (
    Closed,
    Compacted,
    FutureRevision,
    LeaseholdError,
    UnknownLease,
)
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.keyspace.operations import Compact, Delete, Grant, Op, Put, Range, Revoke, Txn
from leasehold.store.housekeeping import AutoCompaction
from leasehold.testing import Simulation
from tests.property import naive_store
from tests.property.engine_kit import CALL, Call, HandCommitter, HookedStore, Watching, take_over
from tests.property.naive_store import NaiveStore, Refused
from tests.property.store_kit import (
    EPS_S,
    LATE_S,
    LEASES,
    SpiedStore,
    back,
    check_refused,
    deletes,
    done_of,
    fit,
    keeping_puts,
    lease_ids,
    plain,
    puts,
    queries,
    ranges,
    shown,
    txns,
    wide_txns,
    writes,
)
from tests.property.support import effort

MAX_ROUNDS: Final = 20_000
"""Nothing takes longer than this to settle."""

doings = st.lists(
    st.sampled_from(["turn", "work", "round", "turn", "commit", "turn", "release"]),
    min_size=1,
    max_size=10,
)
"""What may go on while calls wait; a round is one of housekeeping."""

halves = st.sampled_from([["round", "work", "turn"], ["commit", "release", "turn", "turn", "work"]])
"""What comes to nothing without the rest: forgetting before a compaction is on disk, or after."""

terms = st.sampled_from([10.0, 400.0, 3.0, 1000.0, 2.0])


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over(monkeypatch)


class EngineMachine(RuleBasedStateMachine):
    """One engine, and the models of its memory, of its disk, and of what may be known."""

    def __init__(self) -> None:
        super().__init__()
        SpiedStore.chance.seed(0)
        self.sim = Simulation(3)
        self.host = self.sim.host("server")
        self.image: bytes | None = None
        self.on_disk = NaiveStore()
        self.granted = 0
        self.compaction = AutoCompaction(None, None)

    def teardown(self) -> None:
        with closing(self.sim):
            if hasattr(self, "engine"):
                self.read_all_watches()
                self.read_everything()
                self.crash()
                self.read_everything()

    @initialize(
        revisions=st.sampled_from([None, None, 8]),
        ttl_s=terms,
        ops=st.lists(puts, min_size=6, max_size=12),
    )
    def begin(self, revisions: int | None, ttl_s: float, ops: list[Put]) -> None:
        self.compaction = AutoCompaction(None, revisions)
        self.open()
        for lease in LEASES[:3]:
            self.grant(lease, ttl_s)
        self.watch((b"\0", FROM_KEY), None, previous=True, filtered=(True, True))
        self.write(ops)
        self.settle()
        self.watch((b"a", b"b"), 1 - len(ops), previous=True, filtered=(True, True))

    def open(self) -> None:
        HookedStore.overseer = self
        self.now = self.host.clock.monotonic
        self.model = self.on_disk.copy()
        self.known = self.on_disk.copy()
        """What was said to be on disk: nobody may see anything else."""
        self.deadlines: dict[int, float] = {}
        self.revoking: int | None = None
        self.alive: set[int] = set()
        self.calls: list[Call] = []
        self.watches: list[Watching] = []
        self.engine = EmbeddedEngine(
            None,
            compaction=self.compaction,
            limits=Limits(txn_operations=naive_store.MAX_OPERATIONS),
            clock=self.host.clock,
        )
        self.store = self.engine._store
        leases = self.store.leases
        self.renew_lease, leases.renew = leases.renew, self.renewed  # type: ignore[method-assign]
        self.host.call(self.engine.start)
        committer: Any = self.engine._runtime._committer
        self.committer: HandCommitter = committer
        self.check_restored_leases()

    def check_restored_leases(self) -> None:
        table = self.store.leases.table
        assert len(table) == len(self.model.leases)
        for lease, known in self.model.leases.items():
            leased = table.find(lease)
            assert leased is not None
            assert abs(leased.deadline - table.clock.now - known.promised_s) < EPS_S
            assert leased.term_s == known.ttl_s
            self.deadlines[lease] = self.now() + known.promised_s

    # What is told from inside.

    def begins(self, op: Op[Any]) -> set[int]:
        self.revoking = op.lease if isinstance(op, Revoke) else None
        self.alive = set(self.model.leases)
        return self.alive

    def was_applied(
        self, call: Call | None, op: Op[Any], result: Any, position: int, alive: set[int] | None
    ) -> None:
        self.revoking = None
        expected: Any
        match op:
            case Put() | Delete() | Txn():
                expected = self.model.adopt(self.model.draft(op, alive))
                assert done_of(result) == expected
            case Compact():
                expected = self.model.compact(op)
                assert result == expected
            case Grant():
                self.granted += 1
                expected, _ = result
                self.model.grant(op, expected, self.granted)
                self.alive.add(expected)
            case Revoke():
                assert op.lease not in self.model.leases
                expected = None if self.store.is_busy else self.model.revision
            case _:
                raise AssertionError(op)
        if call is not None:
            assert not call.is_applied, "done twice"
            call.is_applied, call.expected, call.position = True, expected, position

    def was_refused(self, call: Call | None, op: Op[Any], error: LeaseholdError) -> None:
        self.revoking = None
        assert call is not None
        call.refusal = type(error)
        if not isinstance(op, Revoke):
            call.position = self.store.position
        check_refused(error, lambda: self.ask_naively(op))

    def ask_naively(self, op: Op[Any]) -> None:
        match op:
            case Put() | Delete() | Txn():
                self.model.draft(op)
            case Compact():
                self.model.compact(op)
            case Grant():
                self.model.grant(op, op.lease, 0)
            case Revoke() if op.lease not in self.model.leases:
                raise Refused(UnknownLease)

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

    def renewed(self, lease: int) -> Any:
        record = self.renew_lease(lease)
        known = self.model.leases[lease]
        assert known.promised_s == known.ttl_s, "a restart would cut the term short"
        if lease in self.deadlines:
            self.deadlines[lease] = self.now() + known.ttl_s
        return record

    # Calls.

    def start(self, name: str, op: Any, function: Callable[[], Awaitable[Any]]) -> Call:
        call = Call(name, op, self.known.revision, self.known.compacted, self.granted)

        async def run() -> Any:
            CALL.set(call)
            return await function()

        call.task = self.host.start(run)
        self.calls.append(call)
        self.note_leases()
        return call

    def note_leases(self) -> None:
        """Note which leases are known to be gone, for calls that are about one."""
        for call in self.calls:
            lease = self.known.leases.get(getattr(call.op, "lease", None) or 0)
            call.lease_was_gone |= lease is None or lease.birth > call.granted

    @rule(ops=st.lists(puts, min_size=2, max_size=6), turns=st.integers(0, 2))
    def put(self, ops: list[Put | Delete | Txn], turns: int) -> None:
        self.write(ops)
        self.turn(turns)

    @rule(ops=st.lists(writes(), min_size=2, max_size=6))
    def write(self, ops: list[Put | Delete | Txn]) -> None:
        for op in ops:
            fit(op, self.model)
            self.begin_write(op)

    @rule(op=keeping_puts | wide_txns | txns | deletes, turns=st.integers(0, 2))
    def write_once(self, op: Put | Delete | Txn, turns: int) -> None:
        self.write([op])
        self.turn(turns)

    def begin_write(self, op: Put | Delete | Txn) -> None:
        match op:
            case Put(key, value, lease):
                self.start("write", op, lambda: self.engine.put(key, value, lease=lease))
            case Delete(key, end):
                self.start("write", op, lambda: self.engine.delete(key, end, previous=True))
            case Txn(compares, success, failure):
                self.start("write", op, lambda: self.engine.txn(compares, success, failure))

    @rule(lease=lease_ids | st.just(0), ttl_s=terms)
    def grant(self, lease: int, ttl_s: float) -> None:
        self.granted += 1
        op = Grant(lease, round(ttl_s + self.granted / 125, 6))  # none end at the same instant
        self.start("grant", op, lambda: self.engine.grant(op.ttl_s, lease=lease))

    @rule(lease=lease_ids, what=st.sampled_from(["renew", "renew all", "revoke"]))
    def renew_or_revoke(self, lease: int, what: str) -> None:
        if what == "revoke":
            self.revoke(lease)
        else:
            self.renew(lease, several=what == "renew all")

    def revoke(self, lease: int) -> None:
        self.start("revoke", Revoke(lease), lambda: self.engine.revoke(lease))

    def renew(self, lease: int, *, several: bool) -> None:
        if several:
            self.start("renew_all", None, lambda: self.engine.renew_all([*LEASES, lease]))
        else:
            self.start("renew", Revoke(lease), lambda: self.engine.renew(lease))

    @rule(ago=back, wait=st.booleans())
    def compact(self, ago: int, wait: bool) -> None:
        op = Compact(max(0, self.model.revision + 1 - ago))
        self.start("compact", op, lambda: self.engine.compact(op.revision, wait=wait))

    @rule(ago=st.integers(2, 8), whats=doings | halves, reads=st.booleans(), crashes=st.booleans())
    def compact_and_go_on(self, ago: int, whats: list[str], reads: bool, crashes: bool) -> None:
        """Compact what somebody may be reading, and perhaps come to no end with it."""
        if reads:
            revision = max(1, self.model.compacted, self.model.revision - ago)
            self.begin_read(Range(b"\0", FROM_KEY, revision))
            self.turn(2)
        else:
            self.settle()
        self.compact(ago // 2, wait=False)
        self.go_on(["turn", *whats])
        if crashes:
            self.crash()

    @rule(query=queries, turns=st.integers(0, 2))
    def read(self, query: Range, turns: int) -> None:
        fit(query, self.model)
        self.begin_read(query)
        self.turn(turns)

    def begin_read(self, query: Range) -> None:
        query.sorts_page = query.keys_only = False  # which an engine does not offer
        options = {name: getattr(query, name) for name in Range.__slots__}
        del options["sorts_page"], options["keys_only"]
        key = options.pop("key")
        self.start("read", query, lambda: self.engine.range(key, **options))

    @rule()
    def read_everything(self) -> None:
        """Read at all revisions, and before them."""
        for revision in range(max(1, self.model.compacted - 1), self.model.revision + 1):
            self.begin_read(Range(b"\0", FROM_KEY, revision))
        self.settle()

    @rule(lease=lease_ids)
    def look_at_leases(self, lease: int) -> None:
        """What is said of leases while nothing else happens."""
        self.settle()
        leases = self.model.leases
        listed: list[LeaseInfo] = self.ask(self.engine.leases)
        assert {info.id: info.ttl for info in listed} == {
            lease: known.ttl_s for lease, known in leases.items()
        }
        assert [info.remaining for info in listed] == sorted(info.remaining for info in listed)
        if lease not in leases:
            with pytest.raises(UnknownLease):
                self.ask(lambda: self.engine.time_to_live(lease))
            return
        info = self.ask(lambda: self.engine.time_to_live(lease, keys=True))
        assert (info.id, info.ttl) == (lease, leases[lease].ttl_s)
        assert info.keys == tuple(sorted(self.model.keys_of(lease)))
        assert info.key_count == len(info.keys)
        for each in [*listed, info]:
            assert abs(each.remaining - (self.deadlines[each.id] - self.now())) < EPS_S

    def ask(self, function: Callable[[], Awaitable[Any]]) -> Any:
        call = self.start("ask", None, function)
        self.calls.remove(call)
        self.settle()
        return call.task.result()

    # What comes of calls.

    def look(self) -> None:
        """Look at everything that was answered or told."""
        for call in [call for call in self.calls if call.task.done()]:
            self.calls.remove(call)
            self.check_call(call)
        for watching in list(self.watches):
            if watching.task is not None and watching.task.done():
                task, watching.task = watching.task, None
                self.check_watch(watching, task)

    def check_call(self, call: Call) -> None:
        error = call.task.exception()
        if call.name == "revoke" and isinstance(error, UnknownLease):  # who renews is told at once
            assert call.lease_was_gone, "its end was told too early"
        if isinstance(error, LeaseholdError):
            self.check_refusal(call, error)
            return
        result = call.task.result()
        if call.name == "read":
            self.check_read(call, result)
        elif call.is_applied:
            assert self.store.durable >= call.position, "it was answered too early"
            result = result.id if call.name == "grant" else result
            assert shown(result) == call.expected or call.expected is None
        elif call.name == "renew_all":
            assert {*result.terms, *result.failures} == {*LEASES}

    def check_refusal(self, call: Call, error: LeaseholdError) -> None:
        assert not call.is_applied, "done, and refused"
        if call.refusal is not None:
            assert type(error) is call.refusal
            assert self.store.durable >= call.position, "it was refused too early"
            return
        match call.op:
            case Range(revision=revision):
                expected = Compacted if revision < self.model.compacted else FutureRevision
                assert type(error) is expected
                assert expected is Compacted or revision > call.durable_revision
            case Txn():
                check_refused(error, lambda: naive_store.check(call.op))
            case _:
                assert call.name == "renew"

    def check_read(self, call: Call, result: Any) -> None:
        query: Range = call.op
        revision = result.revision
        if query.revision:
            assert revision == query.revision >= call.compacted
        assert query.revision or revision >= call.durable_revision, "what was known is missing"
        assert revision <= self.known.revision, "it was shown too early"
        assert shown(result) == naive_store.look(self.known.states[revision], query, revision)

    # Watches.

    @rule(
        ends=ranges,
        start=st.integers(-12, 2) | st.none(),
        previous=st.booleans(),
        filtered=st.sampled_from([(True, True), (True, True), (True, False), (False, True)]),
    )
    def watch(
        self, ends: Any, start: int | None, previous: bool, filtered: tuple[bool, bool]
    ) -> None:
        key, end = ends
        if end not in {b"", FROM_KEY} and end <= key:
            return
        first = 0 if start is None else max(0, self.model.revision + start)
        with_puts, with_deletes = filtered
        watch = self.host.call(
            self.engine.watch,
            key,
            end,
            start=first,
            previous=previous,
            puts=with_puts,
            deletes=with_deletes,
        )
        told = first - 1 if first else self.model.revision
        self.watches.append(Watching(watch, key, end, told, previous, with_puts, with_deletes))

    @precondition(lambda self: self.watches)
    @rule(pick=st.integers(0, 5), turns=st.integers(0, 5))
    def read_watch(self, pick: int, turns: int) -> None:
        self.begin_reading(self.watches[pick % len(self.watches)])
        self.turn(turns)

    @rule()
    def read_all_watches(self) -> None:
        """Read what there is, with whatever it takes, so that no watch is behind in the end."""
        self.settle()
        ended = False
        while not ended:
            ended = True
            for watching in list(self.watches):
                before = watching.told
                self.begin_reading(watching)
                self.settle()
                ended &= watching.task is not None or watching not in self.watches
                assert watching.task is not None or watching.told >= before
        for watching in self.watches:
            assert self.next_of(watching) is None, "something was not told"
            watching.told = max(watching.told, self.model.revision)
            assert not watching.is_owed, "nothing was told of progress"
            watching.asked = 0

    def begin_reading(self, watching: Watching) -> None:
        if watching.task is None:
            watching.task = self.host.start(watching.watch.__anext__)

    @precondition(lambda self: self.watches)
    @rule(pick=st.integers(0, 5), what=st.sampled_from(["ask", "ask", "ask", "cancel"]))
    def ask_or_cancel(self, pick: int, what: str) -> None:
        watching = self.watches[pick % len(self.watches)]
        if what == "ask":
            self.host.call(watching.watch.request_progress)
            watching.asked += 1
            watching.is_owed = True
            self.begin_reading(watching)
            self.turn(3)
            return
        self.host.call(watching.watch.cancel)
        self.watches.remove(watching)
        if watching.task is None:
            self.begin_reading(watching)
        self.settle()
        assert watching.task is not None
        assert isinstance(watching.task.exception(), Closed)

    def next_of(self, watching: Watching) -> int | None:
        """The next revision that a watch has to be told of."""
        for revision in range(watching.told + 1, self.model.revision + 1):
            if self.events_of(watching, revision):
                return revision
        return None

    def events_of(self, watching: Watching, revision: int) -> list[naive_store.NaiveEvent]:
        return self.model.told(
            watching.key, watching.end, revision, puts=watching.puts, deletes=watching.deletes
        )

    def check_watch(self, watching: Watching, task: "asyncio.Task[Events]") -> None:
        error = task.exception()
        if error is not None:
            if not isinstance(error, Compacted):
                raise error
            assert watching.told + 1 < self.model.compacted, "it could have been told more"
            self.watches.remove(watching)
            return
        revision, events = task.result()
        assert revision <= self.known.revision, "it was told too early"
        if not events:
            assert watching.asked, "nobody asked"
            upcoming = self.next_of(watching)
            assert upcoming is None or upcoming > revision, "something was not told"
            watching.asked -= 1
            watching.is_owed = False
            watching.told = max(watching.told, revision)
            return
        assert revision == self.next_of(watching), "a gap, or told twice"
        watching.told = revision
        expected = self.events_of(watching, revision)
        told = [(event.key, event.pair and plain(event.pair)) for event in events]
        assert told == [(event.key, event.pair) for event in expected]
        for event, naive in zip(events, expected, strict=True):
            previous = event.previous and plain(event.previous)
            if watching.wants_previous and revision > self.model.compacted:
                assert previous == naive.previous
            else:
                assert previous in ({None, naive.previous} if watching.wants_previous else {None})

    # Time, turns, and the disk.

    @rule(whats=doings)
    def go_on(self, whats: list[str]) -> None:
        for what in whats:
            match what:
                case "turn":
                    self.turn(1)
                case "commit":
                    self.commit()
                case "release":
                    self.release()
                case "work" if self.committer.chores:
                    self.work()
                case "round":
                    self.wait(6.0, settled=False)

    def turn(self, count: int) -> None:
        """Let the event loop have some turns."""
        end = self.sim.turns + count
        has_work = self.host.loop.has_work
        self.sim.run_until(lambda: self.sim.turns >= end or not has_work(), within=0.0)
        self.look()

    def commit(self) -> None:
        """Write to disk; nobody is told yet, and may crash before."""
        if not self.committer.under_way and self.committer.commit():
            self.on_disk = self.model.as_written()

    def release(self) -> None:
        """Tell of what was written."""
        if self.committer.under_way:
            self.known = self.on_disk.copy()
            self.host.call(self.committer.release)
            for lease, known in self.known.leases.items():
                there = self.model.leases.get(lease)
                if there and there.birth == known.birth and lease not in self.deadlines:
                    self.deadlines[lease] = self.now() + known.ttl_s
            self.note_leases()

    def work(self) -> None:
        """Do what somebody wants of the journal."""
        self.host.call(self.committer.work)

    @rule()
    def settle(self) -> None:
        """Have everything done that is to be done."""
        for _ in range(MAX_ROUNDS):
            if self.host.loop.has_work():
                self.turn(1)
            elif self.committer.chores:
                self.work()
            elif self.committer.under_way:
                self.release()
            elif self.committer.is_pending:
                self.commit()
            else:
                break
        else:
            raise AssertionError("it does not settle")
        self.look()
        assert not self.calls, "some call is never answered"
        assert not self.store.is_busy

    @rule(seconds=st.sampled_from([0.3, 6.0, 1.5, 130.0, 20.0]), settled=st.booleans())
    def wait(self, seconds: float, settled: bool) -> None:
        if settled:
            self.settle()
        self.sim.run_for(seconds + LATE_S)
        late = [lease for lease, at in self.deadlines.items() if at <= self.now() - LATE_S]
        assert not late, "these should have ended"
        self.look()

    @rule(luck=st.sampled_from(["", "crash", "", "", "close", "", "crash", ""]))
    def may_end(self, luck: str) -> None:
        if luck == "crash":
            self.crash()
        elif luck == "close":
            self.close()

    def crash(self) -> None:
        """Lose everything but what was written, whether anybody was told of that or not."""
        self.image = self.committer.journal.image()  # type: ignore[attr-defined]
        self.host.restart()
        self.committer.journal.close()
        self.open()

    def close(self) -> None:
        """End in order: who waits is answered, and nothing is lost."""
        journal = self.committer.journal
        journal.close, close = lambda: None, journal.close  # type: ignore[method-assign]
        closing = self.host.start(self.engine.close)
        for _ in range(MAX_ROUNDS):
            if closing.done():
                break
            if self.host.loop.has_work():
                self.sim.run_until(lambda: not self.host.loop.has_work(), within=0.0)
            elif self.committer.chores:
                self.host.call(self.committer.work)
            elif self.committer.under_way:
                self.release()
            else:
                self.commit()
        closing.result()
        self.known = self.on_disk = self.model.as_written()
        self.note_leases()
        self.sim.run_until(lambda: not self.host.loop.has_work(), within=0.0)
        for call in self.calls:
            assert call.task.done(), "some call is never answered"
            if isinstance(call.task.exception(), Closed):
                assert not call.is_applied, "it was done, and not answered"
            else:
                self.check_call(call)
        self.calls.clear()
        for watching in list(self.watches):
            self.read_to_the_end(watching)
        self.image = journal.image()  # type: ignore[attr-defined]
        close()
        self.host.restart()
        self.open()

    def read_to_the_end(self, watching: Watching) -> None:
        """Read what a watch has yet to tell, after the end of the engine."""
        while watching in self.watches:
            self.begin_reading(watching)
            self.sim.run_until(lambda: not self.host.loop.has_work(), within=0.0)
            task, watching.task = watching.task, None
            assert task is not None
            if isinstance(task.exception(), Closed):
                return
            self.check_watch(watching, task)

    @invariant()
    def memory_is_as_it_must_be(self) -> None:
        if hasattr(self, "engine"):
            assert self.store.revision == self.model.revision
            assert self.store.keyspace.compacted == self.model.compacted
            assert self.engine._runtime.failure is None
            if not self.store.is_busy:
                items = self.store.keyspace.range(b"\0", FROM_KEY)
                assert [item[5] for item in items] == sorted(self.model.keys)


SETTINGS = effort(300, steps=50)
TestEngine = EngineMachine.TestCase
TestEngine.settings = SETTINGS
