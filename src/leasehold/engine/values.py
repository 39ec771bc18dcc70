"""The values of an engine's interface: pairs, results, events, limits.

Long results are sequences that make each object on access (`LazySequence`): the garbage collector
would repeatedly walk a million objects that live for a while, and everything would wait for
that. It does not walk plain tuples of bytes and numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, overload

from leasehold.basics.lease_ids import shown_lease
from leasehold.journal.records import value_of
from leasehold.keyspace.keyspace import Change, Item
from leasehold.keyspace.operations import Delete, Deleted, Found, Outcome, Put, Range, Step, Txn
from leasehold.keyspace.transaction_rules import MAX_OPERATIONS
from leasehold.store.store_leases import MAX_KEYS

T = TypeVar("T")


class LazySequence(Sequence[T], Generic[T]):
    """The sequence of the results of `make` for some plain values."""

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[Any], T], values: Sequence[Any]) -> None:
        self._make = make
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> "LazySequence[T]": ...

    def __getitem__(self, place: int | slice) -> "T | LazySequence[T]":
        if isinstance(place, slice):
            return LazySequence(self._make, self._values[place])
        return self._make(self._values[place])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as for lists

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"[{shown}{', ...' if len(self) > 3 else ''}]"


class KeyValue:
    """A key as it was at some revision. Its value is decoded on access."""

    __slots__ = ("_item",)

    def __init__(self, item: Item) -> None:
        self._item = item

    @property
    def key(self) -> bytes:
        """The key."""
        return self._item[5]

    @property
    def value(self) -> bytes:
        """The value."""
        return value_of(self._item)

    @property
    def name(self) -> str:
        """The key as text, in UTF-8."""
        return self.key.decode()

    @property
    def text(self) -> str:
        """The value as text, in UTF-8."""
        return self.value.decode()

    @property
    def create_revision(self) -> int:
        """The revision that created it: the fencing token of its creator."""
        return self._item[1]

    @property
    def mod_revision(self) -> int:
        """The revision that changed it last."""
        return self._item[2]

    @property
    def version(self) -> int:
        """How often it was set since it was created."""
        return self._item[3]

    @property
    def lease(self) -> int:
        """The lease that it is attached to; 0 for none."""
        return self._item[4]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyValue) and self._item == other._item

    def __hash__(self) -> int:
        return hash(self._item)

    def __repr__(self) -> str:
        lease = f", lease {shown_lease(self.lease)}" if self.lease else ""
        return (
            f"<KeyValue {self.key!r}: {self.value!r} (version {self.version}, created at "
            f"{self.create_revision}, changed at {self.mod_revision}{lease})>"
        )


def pair_or_none(item: Item | None) -> KeyValue | None:
    """Wrap the previous item of a key, if there was one."""
    return None if item is None else KeyValue(item)


class PutResult(NamedTuple):
    """The result of a put."""

    revision: int
    previous: KeyValue | None


class DeleteResult(NamedTuple):
    """The result of a delete."""

    revision: int
    deleted: int
    """The number of deleted keys."""
    previous: Sequence[KeyValue] = ()
    """The deleted keys in order, as they were; empty unless the call asked for them."""


class RangeResult(NamedTuple):
    """The result of a range."""

    revision: int
    """The revision at which all keys were read."""
    pairs: Sequence[KeyValue]
    total: int
    """The number of keys in the range, including those filtered out or beyond the limit."""
    more: bool
    """Whether there are more keys beyond the limit."""


class TxnResult(NamedTuple):
    """The result of a transaction."""

    revision: int
    succeeded: bool
    results: list[Any]
    """The result of each operation of the branch that was taken."""


class LeaseInfo(NamedTuple):
    """A lease, as reported by its engine."""

    id: int
    ttl: float
    """The length of a full term, in seconds."""
    remaining: float
    """How long it has to run, unless it is renewed."""
    keys: tuple[bytes, ...] | None
    """Its keys in order, if they were requested."""
    key_count: int


def by_end(leases: Iterable[LeaseInfo]) -> list[LeaseInfo]:
    """Return leases sorted by their ends."""
    return sorted(leases, key=lambda info: info.remaining)


class Renewed(NamedTuple):
    """The result of a number of renewals."""

    terms: Mapping[int, float]
    """The new terms in seconds, by lease."""
    failures: Mapping[int, Exception]
    """Why the others were not renewed."""


class Event(NamedTuple):
    """A change of a key."""

    key: bytes
    revision: int
    pair: KeyValue | None
    """The new pair; None if the key was deleted."""
    previous: KeyValue | None
    """The previous pair, if it was requested and is known."""

    @property
    def is_delete(self) -> bool:
        """Whether the key was deleted."""
        return self.pair is None


def event_of(change: Change) -> Event:
    """Return the event of a change."""
    return Event(change.key, change.revision, pair_or_none(change.item), None)


def event_with_previous(change: Change) -> Event:
    """Return the event of a change, with the previous pair."""
    return event_of(change)._replace(previous=pair_or_none(change.previous))


class Events(NamedTuple):
    """All changes of one revision to the keys of a watch; none, if it only reports progress."""

    revision: int
    """Everything up to this revision has been returned."""
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an engine."""

    min_ttl: float = 0.001
    """The shortest term, in seconds; shorter ones are raised to it."""
    max_ttl: float = 9_000_000_000.0
    ttl_unit: float = 0.001
    """Terms are rounded up to a multiple of this."""
    txn_operations: int = MAX_OPERATIONS
    request_bytes: int = 1536 * 1024
    """Keys and values of one call together."""
    keys_per_lease: int = MAX_KEYS


@dataclass(frozen=True, slots=True)
class Features:
    """The features of an engine beyond etcd: to be shown, never to be relied on."""

    names: frozenset[str] = field(default_factory=frozenset)

    def __contains__(self, name: str) -> bool:
        return name in self.names


EXACT_EXPIRY = "exact-expiry"
"""Leases end milliseconds after their deadline, and never because the engine stood still."""

RENEW_ALL = "renew-all"
"""Any number of leases is renewed by one call."""

LEASE_LISTING = "lease-listing"
"""Leases are listed with their terms and keys."""


def delete_result(delete: Delete, deleted: Deleted) -> DeleteResult:
    """Convert the result of a delete."""
    previous = LazySequence(KeyValue, deleted.previous) if delete.prev_kv else ()
    return DeleteResult(deleted.revision, len(deleted.previous), previous)


def range_result(found: Found) -> RangeResult:
    """Convert the result of a range."""
    return RangeResult(found.revision, LazySequence(KeyValue, found.items), found.total, found.more)


def txn_result(txn: Txn, outcome: Outcome) -> TxnResult:
    """Convert the result of a transaction."""
    steps = txn.success if outcome.succeeded else txn.failure
    results = [
        _step_result(step, result) for step, result in zip(steps, outcome.results, strict=True)
    ]
    return TxnResult(outcome.revision, outcome.succeeded, results)


def _step_result(step: Step, result: Any) -> PutResult | DeleteResult | RangeResult | TxnResult:
    match step:
        case Txn():
            return txn_result(step, result)
        case Delete():
            return delete_result(step, result)
        case Range():
            return range_result(result)
        case Put():
            revision, previous = result
            return PutResult(revision, pair_or_none(previous))
