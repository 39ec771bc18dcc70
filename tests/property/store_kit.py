"""What the machines of the store and of the engine share: operations, small limits, a kept journal.

The limits are made so small that with a handful of keys everything is long: ranges are scanned in
slices, old values come from disk, batches are folded in parts, watches fall behind.
"""

import sys
from collections.abc import Callable, Generator
from random import Random
from typing import Any, ClassVar, Final, Protocol, TypeVar

import apsw
import pytest
from hypothesis import strategies as st

from leasehold.clock import Clock
from leasehold.engine import embedded
from leasehold.engine.values import (
    DeleteResult,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
)
from leasehold.errors import EndReason, LeaseholdError
from leasehold.journal.journal import Journal
from leasehold.journal.journal_rows import ReplayTarget
from leasehold.keyspace.keyspace import FROM_KEY, Item
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Deleted,
    Found,
    Outcome,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
    Txn,
)
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.store import Store
from leasehold.wire import kv_pb2
from tests.property import naive_store
from tests.property.naive_store import (
    DeleteDone,
    NaiveStore,
    Pair,
    PutDone,
    RangeDone,
    Refused,
    TxnDone,
)

T = TypeVar("T")

NAMES: Final = [b"a", b"a/b", b"a/c", b"b", b"c", b"\0", b"\xff\xff"]
LEASES: Final = [1, 2, 3, -4]
LATE_S: Final = 0.02
"""How long after a deadline a lease may still be there."""

EPS_S: Final = 1e-6

SMALL: Final = {
    "LONG": 3,
    "SLICE": 2,
    "SLICE_S": 0.0,
    "MAX_REVISIONS": 2,
    "MIN_DROPPED": 3,
    "CHANGES_PER_STEP": 2,
    "ROWS_PER_READ": 2,
    "MAX_QUEUED": 4,
    "REVISIONS_IN_TURN": 1,
    "MAX_HISTORY_BYTES": 100,
    "MAX_CHUNKS": 2,
    "MAX_KEYS_LOOKED_AT": 3,
    "MAX_KEYS": naive_store.MAX_KEYS,
    "RENEWALS_PER_SLICE": 2,
    "CHECKPOINTS_PER_SLICE": 1,
    "WAKES_PER_TURN": 1,
}


PACKAGES: Final = tuple(
    f"leasehold.{name}." for name in ("basics", "keyspace", "leases", "journal", "store", "engine")
)


def make_limits_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits wherever they were imported to."""
    assert embedded.__name__ in sys.modules, "all of it is imported"
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGES):
            for limit in SMALL.keys() & vars(module).keys():
                monkeypatch.setattr(module, limit, SMALL[limit])
                found.add(limit)
    assert found == SMALL.keys(), "some limit has another name now"


# Operations.

names = st.sampled_from(NAMES)
values = st.sampled_from([b"", b"x", b"y" * 40])
lease_ids = st.sampled_from(LEASES)
given_leases = st.sampled_from([0, 0, 1, 1, 2, 2, 3, -4])
revisions = st.integers(0, 30)
back = st.integers(0, 12)
"""How far back from the current revision."""

ends = st.one_of(
    st.just(b""), st.just(b""), st.just(FROM_KEY), st.sampled_from([b"a0", b"b0", b"c", b"\xff"])
)
ranges = st.one_of(
    st.tuples(names, ends),
    st.just((b"a", b"b")),
    st.just((b"\0", FROM_KEY)),
)

puts = st.builds(Put, names, values, given_leases)
keeping_puts = st.one_of(
    st.builds(Put, names, st.none(), given_leases),
    st.builds(Put, names, values, st.none()),
    st.builds(Put, names, st.none(), st.none()),
)
deletes = ranges.map(lambda each: Delete(*each, prev_kv=True))
bounds = st.sampled_from([0, 0, 0, 2, 4, 6, 9, 15])


def _query(ends: tuple[bytes, bytes], limit: int, sorts_page: bool, **options: Any) -> Range:
    query = Range(*ends, limit=limit, **options)
    query.sorts_page = (
        sorts_page and limit > 0 and query.sort_by != SortBy.KEY and not query.is_filtered
    )
    return query


queries = st.builds(
    _query,
    ranges,
    st.sampled_from([0, 0, 1, 2, 5]),
    st.booleans(),
    revision=revisions | st.just(0),
    sort_by=st.sampled_from(SortBy),
    descending=st.booleans(),
    count_only=st.sampled_from([False, False, False, True]),
    min_mod_revision=bounds,
    max_mod_revision=bounds,
    min_create_revision=bounds,
    max_create_revision=bounds,
)
plain_queries = st.builds(lambda ends: Range(*ends), ranges)

number_compares = st.builds(
    lambda ends, target, relation, operand: Compare(ends[0], target, relation, operand, ends[1]),
    ranges,
    st.sampled_from([target for target in Target if target != Target.VALUE]),
    st.sampled_from(Relation),
    st.sampled_from([0, 0, 1, 2, 3, 5, 8, -5]),
)
value_compares = st.builds(
    lambda ends, relation, operand: Compare(ends[0], Target.VALUE, relation, operand, ends[1]),
    ranges,
    st.sampled_from(Relation),
    values,
)
compares = st.lists(number_compares | value_compares, max_size=2)
leaves: st.SearchStrategy[Step] = st.one_of(
    puts, puts, keeping_puts, deletes, plain_queries, queries
)


def _txns(
    leaves: st.SearchStrategy[Any], inner: st.SearchStrategy[Any], size: int
) -> st.SearchStrategy[Txn]:
    steps: st.SearchStrategy[list[Any]] = st.lists(
        leaves | inner, min_size=1, max_size=size, unique_by=lambda s: getattr(s, "key", id(s))
    )
    return st.builds(Txn, compares, steps, steps)


def _among(*chosen: bytes) -> st.SearchStrategy[Step]:
    """Steps on these keys alone."""
    keys = st.sampled_from(chosen)
    return st.one_of(
        st.builds(Put, keys, values, given_leases),
        st.builds(Put, keys, values, st.none()),
        st.builds(Put, keys, st.none(), given_leases),
        st.builds(Delete, keys, prev_kv=st.just(True)),
        plain_queries,
        queries,
    )


_any = _txns(leaves, _txns(leaves, leaves, 2), 4)
_inner = _txns(_among(b"a/c", b"c"), _among(b"b"), 2) | _txns(_among(b"c"), _among(b"a/c"), 2)
_orderly = _txns(_among(b"a", b"a/b", b"\xff\xff"), _inner, 3)


@st.composite
def any_txns(draw: st.DrawFn) -> Txn:
    """Most of these put a key twice, or put and delete it."""
    return draw(_any)


@st.composite
def orderly_txns(draw: st.DrawFn) -> Txn:
    """Most of these can be done."""
    return draw(_orderly)


txns = orderly_txns() | any_txns()
wide_txns = st.builds(
    lambda lease, value: Txn(
        (), [Put(name, value, lease) for name in NAMES[: naive_store.MAX_OPERATIONS]]
    ),
    given_leases,
    values,
)
"""Many keys at once, so that leases and ranges are long more often."""

_writes: st.SearchStrategy[Put | Delete | Txn] = st.one_of(
    puts, puts, orderly_txns(), keeping_puts, wide_txns, any_txns(), deletes
)


@st.composite
def writes(draw: st.DrawFn) -> Put | Delete | Txn:
    """Anything that may change keys. (A function, because its own name is enough in a report.)"""
    return draw(_writes)


def fit(op: Step, model: NaiveStore) -> None:
    """Have an operation be about what there is, mostly: live leases, keys, the recent past."""
    match op:
        case Txn():
            for step in (*op.success, *op.failure):
                fit(step, model)
        case Range():
            if op.revision:
                op.revision = max(0, model.revision + 2 - op.revision)
        case Put():
            live = sorted(model.leases)
            if op.lease in {1, 2, 3} and live:
                op.lease = live[op.lease % len(live)]


# Results, as the naive store gives them.


def pair_of(item: Item) -> Pair:
    """Read an item."""
    pair = kv_pb2.KeyValue.FromString(item[0])
    assert item[1:] == (
        pair.create_revision,
        pair.mod_revision,
        pair.version,
        pair.lease,
        pair.key,
    )
    return Pair(
        pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.version, pair.lease
    )


def pair_or_none(item: Item | None) -> Pair | None:
    """Read an item, if there is one."""
    return None if item is None else pair_of(item)


def done_of(result: Any) -> Any:
    """Give the result of a store as the naive store gives it."""
    match result:
        case Outcome(succeeded, results, revision):
            return TxnDone(revision, succeeded, [done_of(each) for each in results])
        case Deleted(revision, previous):
            return DeleteDone(revision, [pair_of(item) for item in previous])
        case Found(items, total, more, revision):
            return RangeDone(revision, [pair_of(item) for item in items], total, more)
        case (int(revision), previous):
            return PutDone(revision, pair_or_none(previous))
    return result


def shown(result: Any) -> Any:
    """Give the result of an engine as the naive store gives it."""
    match result:
        case TxnResult(revision, succeeded, results):
            return TxnDone(revision, succeeded, [shown(each) for each in results])
        case DeleteResult(revision, deleted, previous):
            assert deleted == len(previous)
            return DeleteDone(revision, [plain(pair) for pair in previous])
        case RangeResult(revision, pairs, total, more):
            return RangeDone(revision, [plain(pair) for pair in pairs], total, more)
        case PutResult(revision, previous):
            return PutDone(revision, None if previous is None else plain(previous))
    return result


def plain(pair: KeyValue) -> Pair:
    """Read a pair."""
    return Pair(
        pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.version, pair.lease
    )


# The disk.


class KeptJournal(Journal):
    """A journal in memory that begins with what is left of another one: an image of its file."""

    def __init__(self, image: bytes | None, replay: ReplayTarget) -> None:
        self._image = image
        super().__init__(None, replay=replay)

    def _configure(self, connection: apsw.Connection) -> None:
        if self._image is None:
            super()._configure(connection)
        else:
            connection.deserialize("main", self._image)

    def image(self) -> bytes:
        """What is on disk now."""
        return self._open_connection().serialize("main")


# Looking over a store's shoulder.


class Spy(Protocol):
    """Learns when leases end in memory, as only the store knows."""

    def lease_ended(self, lease: int) -> None:
        """A lease is over, and nobody will find it any more."""
        ...

    def keys_gone(self, lease: int) -> None:
        """Its keys are gone too, at one revision."""
        ...

    def lease_promised(self, lease: int, promised_s: float) -> None:
        """It is about to be written down how long a lease runs at least after a restart."""
        ...


class SpiedStore(Store):
    """A store that tells a spy, and chooses the same ids each time.

    Which leases there are decides what a machine can do next. If chance had its say in the order of
    their ids, the same choices would not lead to the same place, which hypothesis does not forgive.
    """

    spy: Spy
    chance: ClassVar[Random] = Random(0)
    """To begin anew with each machine, and to go on when its store is started again."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(clock, **options)
        self.leases._spare_ids = [self.chance.getrandbits(63) for _ in range(256)]

    def _lease_ended(self, record: LeaseRecord, reason: EndReason) -> None:
        self.spy.lease_ended(record.id)
        super()._lease_ended(record, reason)
        if not self.is_ending(record.id):
            self.spy.keys_gone(record.id)

    def next_end_steps(self) -> Generator[Any, Any, None]:
        """Tell when the keys of a large lease are gone."""
        lease = self.ends[0].id
        yield from super().next_end_steps()
        self.spy.keys_gone(lease)

    def _lease_promised(self, record: LeaseRecord) -> None:
        self.spy.lease_promised(record.id, record.promised_s)
        super()._lease_promised(record)


def check_refused(error: LeaseholdError, naive: Callable[[], object]) -> None:
    """Check that something was refused that the naive store refuses too, for the same reason."""
    with pytest.raises(Refused) as refused:
        naive()
    assert isinstance(error, refused.value.kinds)


def run_all(steps: Generator[Any, Any, T], load: Callable[[Any], list[Item]]) -> T:
    """Do all steps of something at once."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(load(wanted) if wanted else [])
    except StopIteration as done:
        result: T = done.value
        return result
