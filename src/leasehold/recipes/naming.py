"""Keys of locks: what they are called, which of them count, and what they say.

The layout is etcd's own: `<name>/<lease id in hexadecimal>`, so that `etcdctl lock` and Go's
`concurrency.Mutex` queue for the same lock. Only keys of exactly this form count: lock `a` does not
see those of lock `a/b`. Lease ids are signed, and Go's `%x` writes a negative one with a minus
sign: `<name>/-7a` counts as well.

The value of a key of ours says who put it there. The line goes by create revisions alone: what is
written here tells others something, and nobody's lock depends on it.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Self

from leasehold.client.texts import Octets, octets_of
from leasehold.core.ops import Range, SortBy
from leasehold.engine.values import KeyValue
from leasehold.lease_ids import shown_lease

SESSIONS: Final = b"leasehold/sessions/"
"""Where each session has its own key."""

MAX_NAME: Final = 4_096
"""Bytes of the name of a lock, or of another recipe: one transaction has it several times."""

MAX_WHO: Final = 200
"""Characters of what a client calls itself."""

MAX_NUMBER: Final = 2**63 - 1
"""The highest revision there can be, and the highest count that is believed."""

_RESERVED: Final = SESSIONS.rstrip(b"/")

LEASE_HEX: Final = rb"-?[1-9a-f][0-9a-f]{0,15}"
"""Pattern of a lease id in a key, as Go's `%x` writes it: lower case, no leading zeros. Sixteen
digits from `8` on are accepted, too: some clients print a negative id as an unsigned number."""

_CONTENDER: Final = re.compile(LEASE_HEX)


def hex_of(lease: int) -> bytes:
    """Format a lease id as it is written in keys."""
    return b"%x" % lease


def name_of(name: Octets) -> bytes:
    """Check the name of a lock, or of another recipe."""
    octets = octets_of(name, "name")
    if not octets:
        raise ValueError("name must have at least one character; it is empty")
    if len(octets) > MAX_NAME:
        raise ValueError(f"name must have {MAX_NAME} bytes at most, not {len(octets)}")
    if octets.startswith(_RESERVED) and prefix_of(octets).startswith(SESSIONS):
        raise ValueError(
            f"name must not be {text_of(_RESERVED)!r}, or begin with it and a slash: the keys of "
            f"sessions are there; {text_of(octets)!r} is"
        )
    return octets


def text_of(name: bytes) -> str:
    """Give a name as people read it."""
    return name.decode(errors="backslashreplace")


def prefix_of(name: bytes) -> bytes:
    """Give what the keys of a lock begin with."""
    return name + b"/"


def is_contender(prefix: bytes, key: bytes) -> bool:
    """Say whether a key counts in the line of a lock."""
    return key.startswith(prefix) and _CONTENDER.fullmatch(key, len(prefix)) is not None


def contender_span(prefix: bytes) -> tuple[bytes, bytes]:
    """Return key and end of the smallest range that has every key with a lease id after `prefix`.

    Other keys may be in it, such as those of lock `a/b` for lock `a`.
    """
    return prefix + b"-", prefix + b"g"


def line(
    name: bytes, *, limit: int, descending: bool = False, after: int = 0, before: int = 0
) -> Range:
    """Read the keys that may count for a lock, by their create revisions."""
    first, last = contender_span(prefix_of(name))
    return Range(
        first,
        last,
        limit=limit,
        sort_by=SortBy.CREATE_REVISION,
        descending=descending,
        min_create_revision=after + 1 if after else 0,
        max_create_revision=before - 1 if before else 0,
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """What the key of one of our clients says."""

    who: str
    count: int = 0
    """How often the lock was acquired, by its holder and by those it got it from."""
    tries: bool = False
    """Whether a definite no is waited for."""
    denies: int = 0
    """The create revision of the waiter who is told no."""

    def encode(self) -> bytes:
        """Write it."""
        said: dict[str, Any] = {"who": self.who}
        if self.count:
            said["count"] = self.count
        if self.tries:
            said["tries"] = True
        if self.denies:
            said["denies"] = self.denies
        return json.dumps(said, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self | None:
        """Read it; None if it is not one of ours."""
        try:
            said = json.loads(value)
            who, count = said["who"], said.get("count", 0)
            tries, denies = said.get("tries", False), said.get("denies", 0)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not isinstance(who, str) or not _is_number(count) or not _is_number(denies):
            return None
        who = who[:MAX_WHO]
        if not who.isprintable():
            who = ascii(who)[1:-1]  # what is told to people must not break their terminals
        return cls(who, count, tries is True, denies)


def _is_number(said: object) -> bool:
    """Say whether somebody may have counted that far."""
    return type(said) is int and 0 <= said <= MAX_NUMBER


def who_has(pair: KeyValue) -> str:
    """Say who has put a key there, for people."""
    claim = Claim.decode(pair.value)
    return claim.who if claim is not None else f"lease {shown_lease(pair.lease)}"
