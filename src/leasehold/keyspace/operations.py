"""The operations on a store. The type of each determines the type of its result.

`Put`, `Delete`, `Range` and `Txn` may be the steps of a transaction; `Grant`, `Revoke` and
`Compact` may not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from leasehold.keyspace.keyspace import Item

R = TypeVar("R")


class Op(Generic[R]):
    """An operation whose result is an `R`."""

    __slots__ = ()


@dataclass(slots=True)
class Put(Op[tuple[int, Item | None]]):
    """Set a key. The result is the revision, and the previous item.

    A value or lease of None keeps that of the key, which must exist then.
    """

    key: bytes
    value: bytes | None
    lease: int | None = 0
    prev_kv: bool = False
    """Whether the answer contains the previous item: it counts for the answer's size."""


class Deleted(NamedTuple):
    """The result of a delete."""

    revision: int
    previous: list[Item]
    """The deleted items, in order."""


@dataclass(slots=True)
class Delete(Op[Deleted]):
    """Delete a key, or all in `[key, end)`, or with `FROM_KEY` all from `key` on."""

    key: bytes
    end: bytes = b""
    prev_kv: bool = False
    """Whether the answer contains the deleted keys: they count for the answer's size."""


class SortBy(IntEnum):
    """The sort key of a range; the numbers are etcd's."""

    KEY = 0
    VERSION = 1
    CREATE_REVISION = 2
    MOD_REVISION = 3
    VALUE = 4


class Found(NamedTuple):
    """The result of a range."""

    items: list[Item]
    total: int
    """The number of keys in the range, including those filtered out or beyond the limit."""
    more: bool
    """Whether there are more keys beyond the limit."""
    revision: int
    """The revision at which all keys were read."""


@dataclass(slots=True)
class Range(Op[Found]):
    """Read a key, or a range of keys, now (revision 0) or at a revision.

    Filters come first, then the order, then the limit (0 for none). A bound of 0 is none.
    """

    key: bytes
    end: bytes = b""
    revision: int = 0
    limit: int = 0
    sort_by: SortBy = SortBy.KEY
    descending: bool = False
    count_only: bool = False
    sorts_page: bool = False
    """Whether the limit (and one more) comes before the order, as in etcd without an order."""
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0
    keys_only: bool = False
    """Whether the caller needs no values: results may come without them."""

    @property
    def is_filtered(self) -> bool:
        """Whether the filters may exclude some keys of the range."""
        return bool(
            self.min_mod_revision
            or self.max_mod_revision
            or self.min_create_revision
            or self.max_create_revision
        )

    def passes(self, item: Item) -> bool:
        """Return whether a key passes the filters."""
        _, created, modified, _, _, _ = item
        return (
            (not self.min_mod_revision or modified >= self.min_mod_revision)
            and (not self.max_mod_revision or modified <= self.max_mod_revision)
            and (not self.min_create_revision or created >= self.min_create_revision)
            and (not self.max_create_revision or created <= self.max_create_revision)
        )


class Target(IntEnum):
    """The property of a key that is compared; the numbers are etcd's."""

    VERSION = 0
    CREATE_REVISION = 1
    MOD_REVISION = 2
    VALUE = 3
    LEASE = 4


class Relation(IntEnum):
    """The comparison with the operand; the numbers are etcd's."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


@dataclass(slots=True)
class Compare:
    """A condition on a key, or on every key of a range.

    A key that does not exist has version, revisions and lease 0, and fails any comparison of
    values.
    """

    key: bytes
    target: Target
    relation: Relation
    operand: int | bytes
    end: bytes = b""

    def __bool__(self) -> bool:
        """Raise: in `and` and `if` a condition would be dropped silently."""
        raise TypeError("a condition has no truth value; pass it to a transaction")


class Outcome(NamedTuple):
    """The result of a transaction."""

    succeeded: bool
    """Whether all conditions held."""
    results: list[Any]
    """The results of the operations of the branch that was taken, in order."""
    revision: int


@dataclass(slots=True)
class Txn(Op[Outcome]):
    """Execute `success` if all conditions hold, else `failure`; everything at one revision."""

    compares: Sequence[Compare] = ()
    success: Sequence["Step"] = ()
    failure: Sequence["Step"] = ()


Step = Put | Delete | Range | Txn


@dataclass(slots=True)
class Grant(Op[tuple[int, bytes]]):
    """Grant a lease. The result is its id: the one given, or for 0 one that the store chose.

    The id comes as an int and as the bytes used in messages, which the store needs anyway.
    """

    lease: int
    ttl_s: float
    holder: str = ""
    """The name of the holder, for people, and to look leases up by."""


@dataclass(slots=True)
class Revoke(Op[int]):
    """End a lease, and delete its keys at one revision, which is the result."""

    lease: int


@dataclass(slots=True)
class Compact(Op[int]):
    """Compact the history before this revision. The result is the current revision."""

    revision: int
