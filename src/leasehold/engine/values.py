"""What an engine takes and gives: pairs, results, events, limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leasehold.core.keyspace import Change, Item
from leasehold.core.txn import MAX_OPERATIONS
from leasehold.engine.leases import MAX_KEYS
from leasehold.engine.records import value_of
from leasehold.lease_ids import shown_lease


class KeyValue:
    """A key as it was at some revision. Its value is unpacked when somebody asks for it."""

    __slots__ = ("_item",)

    def __init__(self, item: Item) -> None:
        self._item = item

    @property
    def key(self) -> bytes:
        """Its name."""
        return self._item[5]

    @property
    def value(self) -> bytes:
        """What it was set to."""
        return value_of(self._item)

    @property
    def name(self) -> str:
        """Its name as text, in UTF-8."""
        return self.key.decode()

    @property
    def text(self) -> str:
        """What it was set to as text, in UTF-8."""
        return self.value.decode()

    @property
    def create_revision(self) -> int:
        """The revision that created it: the fencing token of whoever did that."""
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
        """The lease that it ends with; 0 for none."""
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
    """Wrap what a key was before, if it was there."""
    return None if item is None else KeyValue(item)


class PutResult(NamedTuple):
    """What a put did."""

    revision: int
    previous: KeyValue | None


class DeleteResult(NamedTuple):
    """What a delete did."""

    revision: int
    previous: Sequence[KeyValue]
    """The keys that are gone, as they were, in order."""

    @property
    def deleted(self) -> int:
        """How many keys are gone."""
        return len(self.previous)


class RangeResult(NamedTuple):
    """What a range found."""

    revision: int
    """The revision that all of it was read at."""
    pairs: Sequence[KeyValue]
    total: int
    """How many keys are in the range, whatever was filtered out or cut off."""
    more: bool
    """Whether the limit has cut anything off."""


class TxnResult(NamedTuple):
    """What a transaction did."""

    revision: int
    succeeded: bool
    results: list[Any]
    """The result of each operation of the branch that was taken."""


class LeaseInfo(NamedTuple):
    """A lease, as its engine knows it."""

    id: int
    ttl: float
    """The length of a full term, in seconds."""
    remaining: float
    """How long it has to run, unless it is renewed."""
    keys: tuple[bytes, ...] | None
    """Its keys in order, if they were asked for."""
    key_count: int


class Renewed(NamedTuple):
    """What became of a number of renewals."""

    terms: Mapping[int, float]
    """The new terms in seconds, by lease."""
    failures: Mapping[int, Exception]
    """Why the others were not renewed."""


class Event(NamedTuple):
    """What happened to a key."""

    key: bytes
    revision: int
    pair: KeyValue | None
    """What it was set to; None if it was deleted."""
    previous: KeyValue | None
    """What it was before, if that was asked for and is known."""

    @property
    def is_delete(self) -> bool:
        """Whether the key is gone."""
        return self.pair is None


def event_of(change: Change) -> Event:
    """Make an event of a change."""
    return Event(change.key, change.revision, pair_or_none(change.item), None)


def event_with_previous(change: Change) -> Event:
    """Make an event of a change, with what was before."""
    return event_of(change)._replace(previous=pair_or_none(change.previous))


class Events(NamedTuple):
    """All that one revision did to the keys of a watch; nothing, if it only tells of progress."""

    revision: int
    """Everything up to this revision has been told."""
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can take."""

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
    """What an engine has beyond etcd: to be shown, never to be relied on."""

    names: frozenset[str] = field(default_factory=frozenset)

    def __contains__(self, name: str) -> bool:
        return name in self.names


EXACT_EXPIRY = "exact-expiry"
"""Leases end milliseconds after their deadline, and never because the engine stood still."""

RENEW_ALL = "renew-all"
"""Any number of leases is renewed by one call."""

LEASE_LISTING = "lease-listing"
"""Leases are listed with their terms and keys."""
