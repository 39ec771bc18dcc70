"""Checks on the arguments of an engine, before anything happens."""

import math
from typing import Final, Protocol, TypeAlias, runtime_checkable

from leasehold.engine.values import LeaseInfo, Limits
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
    Txn,
)
from leasehold.keyspace.transaction_rules import check_key

_LEAST: Final = -(1 << 63)
_NUMBERS: Final = (
    "revision",
    "limit",
    "min_mod_revision",
    "max_mod_revision",
    "min_create_revision",
    "max_create_revision",
)


def key_of(key: bytes, end: bytes = b"") -> bytes:
    """Check a key, or the ends of a range."""
    if type(key) is bytes and type(end) is bytes and key:  # almost every call
        return key
    for name, each in (("key", key), ("end", end)):
        if type(each) is not bytes:
            raise TypeError(f"{name} must be bytes, not {type(each).__name__}")
    check_key(key)
    return key


def check_put(put: Put) -> None:
    """Check the arguments of a put."""
    key_of(put.key)
    if put.value is not None and type(put.value) is not bytes:
        kind = type(put.value).__name__
        raise TypeError(f"a value must be bytes, or None to keep it; not {kind}")
    if put.lease is not None:
        check_lease(put.lease)


def check_lease(lease: int) -> None:
    """Check the id of a lease."""
    if type(lease) is not int:
        raise TypeError(f"lease id must be an int, not {type(lease).__name__}")
    if not _LEAST <= lease <= -_LEAST - 1:
        raise ValueError(f"lease id must fit in a signed 64-bit integer, got {lease}")


def check_txn(txn: Txn) -> None:
    """Check the types in a transaction; `keyspace.transaction_rules.check` does the rest."""
    for compare in txn.compares:
        _check_compare(compare)
    for each in (*txn.success, *txn.failure):
        step: object = each
        if isinstance(step, Txn):
            check_txn(step)
        elif isinstance(step, Put):
            check_put(step)
        elif isinstance(step, Delete):
            key_of(step.key, step.end)
        elif isinstance(step, Range):
            check_query(step)
        else:
            kind = type(step).__name__
            raise TypeError(f"a step must be a Put, Delete, Range or Txn, not {kind}")


def _check_compare(compare: object) -> None:
    if not isinstance(compare, Compare):
        raise TypeError(f"a condition must be a Compare, not {type(compare).__name__}")
    key_of(compare.key, compare.end)
    Target(compare.target), Relation(compare.relation)  # raise ValueError for unknown numbers
    wanted = bytes if compare.target == Target.VALUE else int
    if not isinstance(compare.operand, wanted):
        kind = type(compare.operand).__name__
        raise TypeError(f"the operand of {compare.target!r} must be {wanted.__name__}, not {kind}")


def check_size(size_bytes: int, limits: Limits) -> None:
    """Refuse keys and values that are too large for one call."""
    if size_bytes > limits.request_bytes:
        raise ValueError(
            f"request must have at most {limits.request_bytes:,} bytes, got {size_bytes:,}"
        )


def size_of(step: Step) -> int:
    """Return the size of the keys and values of a step."""
    if isinstance(step, Txn):
        return sum(map(size_of, (*step.success, *step.failure)))
    more = step.value if isinstance(step, Put) else step.end
    return len(step.key) + len(more or b"")


def check_query(query: Range) -> Range:
    """Check a range."""
    key_of(query.key, query.end)
    for name in _NUMBERS:
        check_revision(getattr(query, name), name)
    SortBy(query.sort_by)  # raise ValueError for an unknown number
    return query


def check_revision(number: int, name: str = "revision") -> None:
    """Check a revision, or another number that must not be negative."""
    if type(number) is not int:
        raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")


def check_watch(key: bytes, end: bytes, start: int) -> None:
    """Check the range of a watch: an empty range would never have any event."""
    key_of(key, end)
    if end and end != FROM_KEY and end <= key:
        raise ValueError(f"end must be after key, or FROM_KEY: {end!r} is not after {key!r}")
    if type(start) is not int:
        raise TypeError(f"start must be an int, not {type(start).__name__}")
    if start < 0:
        raise ValueError(f"start must be a revision, or 0 for now; got {start}")


def ttl_of(ttl: float, limits: Limits) -> float:
    """Check a term, and round it up to a multiple of the engine's unit."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl must be a number of seconds, not {type(ttl).__name__}")
    if not 0 < ttl <= limits.max_ttl:
        raise ValueError(
            f"ttl must be more than 0 and at most {limits.max_ttl:.0f} seconds, got {ttl}"
        )
    units = math.ceil(round(ttl / limits.ttl_unit, 6))
    return max(limits.min_ttl, round(units * limits.ttl_unit, 6))


@runtime_checkable
class HeldLeaseLike(Protocol):
    """A lease that is held in this process: of the client, or of `leasehold.sync`."""

    @property
    def id(self) -> int:
        """Its id at the engine."""
        ...

    def check(self) -> None:
        """Raise unless it can be relied on now."""
        ...


LeaseLike: TypeAlias = HeldLeaseLike | LeaseInfo | int | None
"""A lease, the information of an engine about one, its id, or None for none."""


def lease_id(lease: LeaseLike) -> int:
    """Return the id of a lease, 0 for none; raise for one that is known to be lost."""
    if lease is None:
        return 0
    if isinstance(lease, int) and not isinstance(lease, bool):
        return lease
    if isinstance(lease, LeaseInfo):
        return lease.id
    if isinstance(lease, HeldLeaseLike):
        lease.check()
        return lease.id
    raise TypeError(f"lease must be a lease, its id, or None for none; got {lease!r}")
