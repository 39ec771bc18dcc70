"""Checks on what an engine is given: before anything happens, and with what would be right."""

import math
from typing import Final

from leasehold.core.keyspace import FROM_KEY
from leasehold.core.ops import Compare, Delete, Put, Range, Relation, SortBy, Step, Target, Txn
from leasehold.core.txn import check_key
from leasehold.engine.values import Limits

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
    """Check what a key is to be set to."""
    key_of(put.key)
    if put.value is not None and type(put.value) is not bytes:
        kind = type(put.value).__name__
        raise TypeError(f"a value must be bytes, or None to keep it; not {kind}")
    if put.lease is not None:
        check_lease(put.lease)


def check_lease(lease: int) -> None:
    """Check the id of a lease."""
    if type(lease) is not int:
        raise TypeError(f"the id of a lease must be an int, not {type(lease).__name__}")
    if not _LEAST <= lease <= -_LEAST - 1:
        raise ValueError(f"the id of a lease has 64 bits and a sign; {lease} has not")


def check_txn(txn: Txn) -> None:
    """Check the types in a transaction; `core.txn.check` does the rest."""
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
    Target(compare.target), Relation(compare.relation)  # a ValueError, if they are none
    wanted = bytes if compare.target == Target.VALUE else int
    if not isinstance(compare.operand, wanted):
        kind = type(compare.operand).__name__
        raise TypeError(f"the operand of {compare.target!r} must be {wanted.__name__}, not {kind}")


def check_size(octets: int, limits: Limits) -> None:
    """Refuse what is too large for one call."""
    if octets > limits.request_bytes:
        raise ValueError(
            f"{octets:,} bytes in one call; at most {limits.request_bytes:,} are taken"
        )


def size_of(step: Step) -> int:
    """Sum up the keys and values of a step."""
    if isinstance(step, Txn):
        return sum(map(size_of, (*step.success, *step.failure)))
    more = step.value if isinstance(step, Put) else step.end
    return len(step.key) + len(more or b"")


def check_query(query: Range) -> Range:
    """Check a range."""
    key_of(query.key, query.end)
    for name in _NUMBERS:
        check_revision(getattr(query, name), name)
    SortBy(query.sort_by)  # a ValueError, if it is none
    return query


def check_revision(number: int, name: str = "revision") -> None:
    """Check a revision, or another number that is not negative."""
    if type(number) is not int:
        raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if number < 0:
        raise ValueError(f"{name} must not be negative, and is {number}")


def check_watch(key: bytes, end: bytes, start: int) -> None:
    """Check what is to be watched: a range that nothing can be in would never tell anything."""
    key_of(key, end)
    if end and end != FROM_KEY and end <= key:
        raise ValueError(f"end must be after key, or FROM_KEY: {end!r} is not after {key!r}")
    if type(start) is not int:
        raise TypeError(f"start must be an int, not {type(start).__name__}")
    if start < 0:
        raise ValueError(f"start must be a revision, or 0 for now; not {start}")


def ttl_of(ttl: float, limits: Limits) -> float:
    """Check a term, and round it up to what there is."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl must be a number of seconds, not {type(ttl).__name__}")
    if not 0 < ttl <= limits.max_ttl:
        raise ValueError(
            f"ttl must be more than 0 and at most {limits.max_ttl:.0f} seconds; not {ttl}"
        )
    units = math.ceil(round(ttl / limits.ttl_unit, 6))
    return max(limits.min_ttl, round(units * limits.ttl_unit, 6))
