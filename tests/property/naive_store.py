"""A keyspace with leases as the spec page tells it, and nothing more: a full copy of each revision.

No index, no marks, no batches, no slices: what a range finds is found by looking at every key, and
what was is looked up in the copy of then. Operations are those of `keyspace.operations`; their
results come as plain tuples, so that those of a store and of an engine can be compared with them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from leasehold.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.keyspace.operations import (
    Compact,
    Compare,
    Delete,
    Grant,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
    Txn,
)

MAX_KEYS = 6
"""Keys that one lease may have, in these tests."""

MAX_OPERATIONS = 5
"""Operations that a transaction may have, in these tests."""


class Pair(NamedTuple):
    """A key at some revision."""

    key: bytes
    value: bytes
    created: int
    modified: int
    version: int
    lease: int


Keys = Mapping[bytes, Pair]


class NaiveEvent(NamedTuple):
    """What a revision did to a key, and what the key was before that revision."""

    key: bytes
    pair: Pair | None
    previous: Pair | None


class NaiveLease(NamedTuple):
    """A lease, but for its deadline."""

    ttl_s: float
    birth: int
    """Which grant made it: an id may be used again."""
    promised_s: float
    """How long it has to run at least after a restart."""


class Refused(Exception):
    """Nothing was done, for one of these reasons."""

    def __init__(self, *kinds: type[LeaseholdError]) -> None:
        super().__init__(*kinds)
        self.kinds = kinds


class PutDone(NamedTuple):
    """What a put gives."""

    revision: int
    previous: Pair | None


class DeleteDone(NamedTuple):
    """What a delete gives."""

    revision: int
    previous: list[Pair]


class RangeDone(NamedTuple):
    """What a range gives."""

    revision: int
    pairs: list[Pair]
    total: int
    more: bool


class TxnDone(NamedTuple):
    """What a transaction gives."""

    revision: int
    succeeded: bool
    results: list[Any]


def is_in(key: bytes, end: bytes, name: bytes) -> bool:
    """Say whether a range has a key in it."""
    if end == b"":
        return name == key
    return name >= key and (end == b"\0" or name < end)


def within(keys: Keys, key: bytes, end: bytes) -> list[Pair]:
    """Give the keys of a range in order."""
    return [keys[name] for name in sorted(keys) if is_in(key, end, name)]


def look(keys: Keys, query: Range, revision: int) -> RangeDone:
    """Give what a range finds among some keys."""
    inside = within(keys, query.key, query.end)
    if query.count_only:
        return RangeDone(revision, [], len(inside), more=False)
    found = [pair for pair in inside if _passes(query, pair)]
    if query.sorts_page:
        found = found[: query.limit + 1]
    columns = {
        SortBy.KEY: "key",
        SortBy.VERSION: "version",
        SortBy.CREATE_REVISION: "created",
        SortBy.MOD_REVISION: "modified",
        SortBy.VALUE: "value",
    }
    found.sort(key=lambda pair: getattr(pair, columns[query.sort_by]), reverse=query.descending)
    more = query.limit != 0 and len(found) > query.limit
    return RangeDone(revision, found[: query.limit or None], len(inside), more)


def _passes(query: Range, pair: Pair) -> bool:
    no_end = 1 << 62
    return query.min_mod_revision <= pair.modified <= (
        query.max_mod_revision or no_end
    ) and query.min_create_revision <= pair.created <= (query.max_create_revision or no_end)


def _holds(compare: Compare, keys: Keys) -> bool:
    inside: list[Pair | None] = [*within(keys, compare.key, compare.end)]
    return all(_compares(compare, pair) for pair in inside or [None])


def _compares(compare: Compare, pair: Pair | None) -> bool:
    found: Any
    if compare.target == Target.VALUE:
        if pair is None:
            return False
        found = pair.value
    else:
        column = {
            Target.VERSION: "version",
            Target.CREATE_REVISION: "created",
            Target.MOD_REVISION: "modified",
            Target.LEASE: "lease",
        }[compare.target]
        found = 0 if pair is None else getattr(pair, column)
    operand: Any = compare.operand
    return bool(
        {
            Relation.EQUAL: found == operand,
            Relation.GREATER: found > operand,
            Relation.LESS: found < operand,
            Relation.NOT_EQUAL: found != operand,
        }[compare.relation]
    )


def _is_new(pair: Pair | None) -> bool:
    """Say whether an event creates a key; then there is nothing before, as etcd has it."""
    return pair is not None and pair.version == 1


# What a transaction may look like.


def check(txn: Txn, room: int = MAX_OPERATIONS) -> None:
    """Refuse what is refused whatever is there."""
    reasons: list[type[LeaseholdError]] = []
    reasons += [] if _fits(txn, room) else [TooManyOperations]
    reasons += [DuplicateKey] if any(map(_clashes, (txn.success, txn.failure))) else []
    if reasons:
        raise Refused(*reasons)


def _fits(txn: Txn, room: int) -> bool:
    size = max(len(txn.compares), len(txn.success), len(txn.failure))
    inner = [step for step in (*txn.success, *txn.failure) if isinstance(step, Txn)]
    return size <= room and all(_fits(step, room - size) for step in inner)


class _Write(NamedTuple):
    """A put or a delete, and the way to it: its place in each list of steps, from outside in."""

    step: Put | Delete
    way: tuple[int, ...]


def _paths(steps: Sequence[Step], way: tuple[int, ...] = ()) -> list[list[_Write]]:
    """Give all sequences of writes that a branch may come to, whatever its conditions say."""
    paths: list[list[_Write]] = [[]]
    for place, step in enumerate(steps):
        here = (*way, place)
        if isinstance(step, Txn):
            ends = [*_paths(step.success, here), *_paths(step.failure, here)]
            paths = [[*path, *end] for path in paths for end in ends]
        elif isinstance(step, Put | Delete):
            paths = [[*path, _Write(step, here)] for path in paths]
    return paths


def _clashes(steps: Sequence[Step]) -> bool:
    """Say whether a branch may put a key twice, or put and delete it."""
    return any(_clash(one, two) for path in _paths(steps) for one, two in combinations(path, 2))


def _clash(one: _Write, two: _Write) -> bool:
    """Say whether two writes must not happen together, the one before the other.

    Two cases are let through, as etcd does: a put in one nested transaction and a delete in a later
    one, and a delete of all keys from one on. Then what comes later counts.
    """
    for write in (one, two):
        if isinstance(write.step, Delete) and write.step.end == b"\0":
            return False
    if isinstance(one.step, Put) and isinstance(two.step, Put):
        return one.step.key == two.step.key
    if isinstance(one.step, Delete):
        return isinstance(two.step, Put) and is_in(one.step.key, one.step.end, two.step.key)
    assert isinstance(two.step, Delete)
    apart = next(n for n, (a, b) in enumerate(zip(one.way, two.way, strict=False)) if a != b)
    are_nested = apart + 1 < min(len(one.way), len(two.way))
    return not are_nested and is_in(two.step.key, two.step.end, one.step.key)


@dataclass
class Draft:
    """What an operation comes to, before it is done."""

    revision: int
    """That of its changes, if there are any."""
    keys: dict[bytes, Pair]
    changes: list[tuple[bytes, Pair | None]] = field(default_factory=list)
    result: Any = None

    @property
    def shown(self) -> int:
        """The revision that what was done so far has led to."""
        return self.revision if self.changes else self.revision - 1

    def put(self, op: Put) -> PutDone:
        """Set a key, or refuse to keep what is not there any more."""
        before = self.keys.get(op.key)
        pair = Pair(op.key, op.value or b"", self.revision, self.revision, 1, op.lease or 0)
        if before is not None:
            pair = pair._replace(
                value=before.value if op.value is None else op.value,
                created=before.created,
                version=before.version + 1,
                lease=before.lease if op.lease is None else op.lease,
            )
        elif op.value is None or op.lease is None:
            raise Refused(UnknownKey)
        self.keys[op.key] = pair
        self.changes.append((op.key, pair))
        return PutDone(self.revision, before)

    def delete(self, key: bytes, end: bytes) -> DeleteDone:
        """Delete a key or a range."""
        gone = within(self.keys, key, end)
        for pair in gone:
            del self.keys[pair.key]
            self.changes.append((pair.key, None))
        return DeleteDone(self.shown, gone)


@dataclass
class NaiveStore:
    """What must be there."""

    revision: int = 1
    compacted: int = -1
    states: dict[int, dict[bytes, Pair]] = field(default_factory=lambda: {1: {}})
    """All keys, at each revision that there ever was."""
    events: dict[int, list[NaiveEvent]] = field(default_factory=dict)
    leases: dict[int, NaiveLease] = field(default_factory=dict)
    ending: dict[int, NaiveLease] = field(default_factory=dict)
    """Leases that are over, and whose keys have yet to go."""

    @property
    def keys(self) -> dict[bytes, Pair]:
        """The keys now."""
        return self.states[self.revision]

    def copy(self) -> "NaiveStore":
        """Copy everything that may change."""
        return replace(
            self,
            states=dict(self.states),
            events=dict(self.events),
            leases=dict(self.leases),
            ending=dict(self.ending),
        )

    def as_written(self) -> "NaiveStore":
        """What is left if everything goes on from what was written down: ends count when done."""
        copy = self.copy()
        copy.leases = {**self.ending, **self.leases}
        copy.ending = {}
        return copy

    def keys_of(self, lease: int) -> set[bytes]:
        """The keys that end with a lease."""
        return {name for name, pair in self.keys.items() if pair.lease == lease}

    # What it is asked to do.

    def draft(self, op: Put | Delete | Txn, alive: set[int] | None = None) -> Draft:
        """Say what an operation comes to, or refuse it; these leases count as there."""
        draft = Draft(self.revision + 1, dict(self.keys))
        there = self.leases.keys() if alive is None else alive
        match op:
            case Put():
                self._check_put(op, set(there))
                draft.result = draft.put(op)
            case Delete():
                draft.result = draft.delete(op.key, op.end)
            case Txn():
                self._check_steps([*self._taken(op)], set(there))
                draft.result = self._run(op, draft)
        return draft

    def adopt(self, draft: Draft) -> Any:
        """Do what was drafted."""
        if draft.changes:
            before = self.keys
            self.revision = draft.revision
            self.states[self.revision] = draft.keys
            self.events[self.revision] = [
                NaiveEvent(key, pair, None if _is_new(pair) else before.get(key))
                for key, pair in draft.changes
            ]
        return draft.result

    def apply(self, op: Put | Delete | Txn) -> Any:
        """Do an operation, or refuse it."""
        return self.adopt(self.draft(op))

    def _check_put(self, op: Put, alive: set[int]) -> None:
        if op.lease and op.lease not in alive:
            raise Refused(UnknownLease)
        if op.lease and len(self.keys_of(op.lease) | {op.key}) > MAX_KEYS:
            raise Refused(LeaseFull)
        if (op.value is None or op.lease is None) and op.key not in self.keys:
            raise Refused(UnknownKey)

    def _taken(self, txn: Txn) -> Iterator[Put | Delete | Range]:
        """Give the steps of the branches that are taken."""
        for step in txn.success if self._succeeds(txn) else txn.failure:
            if isinstance(step, Txn):
                yield from self._taken(step)
            else:
                yield step

    def _succeeds(self, txn: Txn) -> bool:
        return all(_holds(compare, self.keys) for compare in txn.compares)

    def _check_steps(self, steps: list[Put | Delete | Range], alive: set[int]) -> None:
        """Refuse a transaction if one of its steps is; which reason is told is left open."""
        reasons: list[type[LeaseholdError]] = []
        for step in steps:
            if isinstance(step, Put) and None in {step.value, step.lease}:
                reasons += [] if step.key in self.keys else [UnknownKey]
        for step in steps:
            try:
                if isinstance(step, Put):
                    self._check_put(step, alive)
                elif isinstance(step, Range):
                    self.check_revision(step.revision)
            except Refused as refused:
                reasons += refused.kinds
        for lease in alive:
            more = {step.key for step in steps if isinstance(step, Put) and step.lease == lease}
            if len(self.keys_of(lease) | more) > MAX_KEYS and more:
                reasons.append(LeaseFull)
        if reasons:
            raise Refused(*reasons)

    def _run(self, txn: Txn, draft: Draft) -> TxnDone:
        """Do what a transaction does; all conditions look at the keys as they are before it."""
        succeeded = self._succeeds(txn)
        results: list[Any] = []
        for step in txn.success if succeeded else txn.failure:
            match step:
                case Put():
                    results.append(draft.put(step))
                case Delete():
                    results.append(draft.delete(step.key, step.end))
                case Range(revision=0):
                    results.append(look(draft.keys, step, draft.shown))
                case Range():
                    results.append(look(self.states[step.revision], step, draft.shown))
                case Txn():
                    results.append(self._run(step, draft))
        return TxnDone(draft.shown, succeeded, results)

    def check_revision(self, revision: int) -> None:
        """Refuse to read at a revision that is forgotten, or has yet to come."""
        if revision > self.revision:
            raise Refused(FutureRevision)
        if 0 < revision < self.compacted:
            raise Refused(Compacted)

    def look(self, query: Range) -> RangeDone:
        """Read a range."""
        self.check_revision(query.revision)
        revision = query.revision or self.revision
        return look(self.states[revision], query, revision)

    def compact(self, op: Compact) -> int:
        """Forget what is before a revision."""
        if op.revision > self.revision:
            raise Refused(FutureRevision)
        if op.revision <= self.compacted:
            raise Refused(Compacted)
        self.compacted = op.revision
        return self.revision

    # Leases.

    def grant(self, op: Grant, lease: int, birth: int) -> None:
        """Begin a lease."""
        if lease in self.leases or lease in self.ending:
            raise Refused(LeaseExists)
        self.leases[lease] = NaiveLease(op.ttl_s, birth, op.ttl_s)

    def promise(self, lease: int, promised_s: float) -> None:
        """Write down how long a lease runs at least after a restart."""
        self.leases[lease] = self.leases[lease]._replace(promised_s=promised_s)

    def end(self, lease: int) -> None:
        """End a lease; its keys have yet to go."""
        self.ending[lease] = self.leases.pop(lease)

    def end_keys(self, lease: int) -> None:
        """Let the keys of a lease go that is over."""
        del self.ending[lease]
        draft = Draft(self.revision + 1, dict(self.keys))
        for name in sorted(self.keys_of(lease)):
            draft.delete(name, b"")
        self.adopt(draft)

    # Watches.

    def told(
        self, key: bytes, end: bytes, revision: int, *, puts: bool = True, deletes: bool = True
    ) -> list[NaiveEvent]:
        """What a revision did to the keys of a range."""
        return [
            event
            for event in self.events.get(revision, [])
            if is_in(key, end, event.key) and (deletes if event.pair is None else puts)
        ]
