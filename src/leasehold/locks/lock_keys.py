"""Keys of locks: their names, which of them count, and their values.

The layout is etcd's own: `<name>/<lease id in hexadecimal>`, so that `etcdctl lock` and Go's
`concurrency.Mutex` queue for the same lock. Only keys of exactly this form count: lock `a` does not
include those of lock `a/b`. Lease ids are signed, and Go's `%x` writes a negative one with a minus
sign: `<name>/-7a` counts as well.

The value of a key of ours names the client that put it. The queue is ordered by create revisions
alone: values only inform other clients, and no lock depends on them.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from leasehold.basics.lease_ids import shown_lease
from leasehold.engine.key import BytesOrText, to_bytes
from leasehold.engine.values import KeyValue
from leasehold.sessions.session import SESSIONS

MAX_NAME: Final = 4_096
"""Limit for the name of a lock or another recipe: one transaction contains it several times."""

MAX_WHO: Final = 200
"""Limit for the name of a client, in characters."""

MAX_NUMBER: Final = 2**63 - 1
"""The highest possible revision, and the highest count that is accepted."""

MAX_DIGITS: Final = 20
"""Limit for the length of a stored count."""

COUNTERS: Final = b"leasehold-count:"
"""Prefix of the counters of locks with `count=True`."""

_FIELDS: Final = frozenset({"who", "count", "tries", "denies", "asks"})
"""All that our clients write into the value of a lock's key."""

_RESERVED: Final = SESSIONS.rstrip(b"/")

LEASE_HEX: Final = rb"-?[1-9a-f][0-9a-f]{0,15}"
"""Pattern of a lease id in a key, as Go's `%x` writes it: lower case, no leading zeros. Sixteen
digits from `8` on are accepted, too: some clients print a negative id as an unsigned number."""


def name_of(name: BytesOrText) -> bytes:
    """Check the name of a lock, or of another recipe."""
    data = to_bytes(name, "name")
    if not data:
        raise ValueError("name must not be empty")
    if len(data) > MAX_NAME:
        raise ValueError(f"name must have at most {MAX_NAME} bytes, got {len(data)}")
    if data.startswith(_RESERVED) and prefix_of(data).startswith(SESSIONS):
        raise ValueError(
            f"name must not be {text_of(_RESERVED)!r} or begin with it and a slash, which is "
            f"reserved for sessions; got {text_of(data)!r}"
        )
    return data


def text_of(name: bytes) -> str:
    """Return a name as text for people."""
    return name.decode(errors="backslashreplace")


def prefix_of(name: bytes) -> bytes:
    """Return the prefix of the keys of a lock."""
    return name + b"/"


def contender_span(prefix: bytes) -> tuple[bytes, bytes]:
    """Return key and end of the smallest range with every key that has a lease id after `prefix`.

    Other keys may be in it, such as those of lock `a/b` for lock `a`.
    """
    return prefix + b"-", prefix + b"g"


def counter_key(name: bytes) -> bytes:
    """Return the key that has the number of acquisitions of a lock with `count=True`.

    It has no slash, so it is below no name: no client can take it for a key of a lock, whatever the
    names of its locks. The names below a prefix have keys below one prefix, too.
    """
    return COUNTERS + name.replace(b"%", b"%25").replace(b"/", b"%2F")


def counted_name(key: bytes) -> bytes:
    """Return the name of the lock that a counter belongs to."""
    return key.removeprefix(COUNTERS).replace(b"%2F", b"/").replace(b"%25", b"%")


def stored_count(pair: KeyValue | None) -> int:
    """Return the number in a counter; 0 without one, and for a value that is not one of ours."""
    is_number = pair is not None and pair.value.isdigit() and len(pair.value) < MAX_DIGITS
    return min(int(pair.value), MAX_NUMBER) if pair is not None and is_number else 0


@dataclass(frozen=True, slots=True)
class Claim:
    """The value of a key of one of our clients."""

    who: str
    count: int = 0
    """How often the lock was acquired, by its holder and by those it got it from."""
    tries: bool = False
    """Whether the client waits for a definite refusal."""
    denies: int = 0
    """The revision that the owner answers: that at which the refused waiter was created, or that of
    a request for the count."""
    asks: bool = False
    """Whether another client requests the count of the owner, see `lock_count.py`."""

    def encode(self) -> bytes:
        """Encode it."""
        fields: dict[str, Any] = {"who": self.who}
        if self.count:
            fields["count"] = self.count
        if self.tries:
            fields["tries"] = True
        if self.denies:
            fields["denies"] = self.denies
        if self.asks:
            fields["asks"] = True
        return encoded(fields)

    @classmethod
    def decode(cls, value: bytes) -> Self | None:
        """Decode it; None if the value is not one of ours."""
        try:
            fields = json.loads(value)
            who, count = fields["who"], fields.get("count", 0)
            tries, denies = fields.get("tries", False), fields.get("denies", 0)
            asks = fields.get("asks", False)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not isinstance(who, str) or not _is_number(count) or not _is_number(denies):
            return None
        who = who[:MAX_WHO]
        if not who.isprintable():
            who = ascii(who)[1:-1]  # text shown to people must not break their terminals
        return cls(who, count, tries is True, denies, asks is True)


def encoded(fields: dict[str, Any]) -> bytes:
    """Encode the fields of a value as our clients do."""
    return json.dumps(fields, separators=(",", ":")).encode()


def fields_of(value: bytes) -> dict[str, Any] | None:
    """Return the fields of a value as our clients write it for a lock; None if it is another one.

    A candidate of an election may have a value of this form, too.
    """
    if Claim.decode(value) is None:
        return None
    fields: dict[str, Any] = json.loads(value)
    return fields if fields.keys() <= _FIELDS and encoded(fields) == value else None


def _is_number(value: object) -> bool:
    """Return whether this is a valid count."""
    return type(value) is int and 0 <= value <= MAX_NUMBER


def who_has(pair: KeyValue) -> str:
    """Return the name of the client that has put a key, for people."""
    claim = Claim.decode(pair.value)
    return claim.who if claim is not None else f"lease {shown_lease(pair.lease)}"
