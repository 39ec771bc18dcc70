"""`Permit`: the rights of a subject on a resource, and how they are stored.

The keys are `leasehold/permits/<subject>/<resource>`, both percent-encoded as in URLs. Every byte
of the UTF-8 form is written as `%2F` unless it is an ASCII letter or digit or one of `_.-~`; a
slash and a percent sign are encoded, too. So no name contains a slash, and no name reaches into
another.

The value of its key is JSON: `{"rights": ["read"], "granted_by": "ops", "own_lease": true,
"ends_at_ms": 1924992000000}`. A value of any other form gives no right, and neither does a key
without a lease, which would never end.

`ends_at_ms` is the wall-clock end of a permit that was granted with a TTL, in milliseconds since
the Unix epoch. A lease may last longer than that: its server does not count the time of a stall,
and counts a new term after a crash. That is safe for exclusion but not for a right, so a permit is
over at its end, whatever the lease does. A permit under a given lease has no such end, nor do
permits written by earlier releases.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue

PREFIX: Final = b"leasehold/permits/"
END: Final = prefix_end(PREFIX)

CALLS: Final = b"leasehold/permit-calls/"
"""Prefix of keys that exist while a call is under way that must not take effect once given up."""

MAX_NAME_BYTES: Final = 4_096
"""Limit on the UTF-8 form of a subject, a resource, a right or `granted_by`, as for lock names. In
a key the escaped name is up to three times as long, and still fits into a request."""

SKEW_ALLOWANCE_S: Final = 1.0
"""How long after its wall-clock end a permit is still honoured: the clocks of its grantor and of
the client that checks it may differ. Machines that run NTP differ by less; etcd warns of members
whose clocks differ by more."""


class Names(NamedTuple):
    """Subject and resource of a permit."""

    subject: str
    resource: str

    @property
    def key(self) -> bytes:
        """The key of the permit."""
        return prefix_of(self.subject) + _escaped(self.resource)


def names_of(subject: str, resource: str) -> Names:
    """Check the names given by a caller."""
    check_name(subject, "subject")
    check_name(resource, "resource")
    return Names(subject, resource)


def prefix_of(subject: str) -> bytes:
    """Return the prefix of the keys of all permits of a subject, which no other keys have."""
    return PREFIX + _escaped(subject) + b"/"


def _escaped(name: str) -> bytes:
    return quote(name, safe="").encode()


def check_name(name: str, what: str) -> str:
    """Return a name that can be used in a permit.

    Raises `TypeError` unless it is a str, and `ValueError` if it is empty, too long, or cannot be
    encoded.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {name!r}")
    if not name:
        raise ValueError(f"{what} must not be empty: give it a name, such as 'anna'")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} must be text that can be encoded as UTF-8, not {name!r}"
        ) from None
    if size > MAX_NAME_BYTES:
        raise ValueError(f"{what} must have at most {MAX_NAME_BYTES} bytes, got {size}")
    return name


def read_names(key: bytes) -> Names | None:
    """Read the names from a key; None if it was not written by this module."""
    try:
        parts = key.removeprefix(PREFIX).decode("ascii").split("/")
        subject, resource = (unquote(each, errors="strict") for each in parts)
    except ValueError:  # other characters, or another number of parts
        return None
    names = Names(subject, resource)
    return names if subject and resource and names.key == key else None


@dataclass(frozen=True, slots=True)
class Permit:
    """Rights of a subject on a resource, until a lease ends. As it was read: it may be over now."""

    subject: str
    """The subject that has it."""
    resource: str
    """The resource it is for."""
    rights: frozenset[str]
    """The granted rights."""
    lease: int
    """The lease that it ends with. `client.keep(permit.lease)` keeps it alive."""
    granted_by: str
    """The name that its grantor has given."""
    own_lease: bool
    """Whether the lease was granted for it; if so it is revoked when it is not needed any more."""
    revision: int
    """The revision of its last change: by a grant, or by an extension of its end."""
    ends_at: datetime | None = None
    """Its wall-clock end, if it was granted with a TTL; `client.keep` moves it."""

    @property
    def names(self) -> Names:
        """Subject and resource."""
        return Names(self.subject, self.resource)

    def allows(self, right: str) -> bool:
        """Return whether this right is one of them."""
        return right in self.rights


def check_rights(rights: Iterable[str]) -> frozenset[str]:
    """Check a set of names; a str is refused, though it can be iterated over."""
    if isinstance(rights, str | bytes) or not isinstance(rights, Iterable):
        raise TypeError(f"rights must be a collection of names, such as {{'read'}}; not {rights!r}")
    checked = frozenset(check_name(right, "a right") for right in rights)
    if not checked:
        raise ValueError("rights must not be empty: name one, or revoke the permit")
    return checked


def end_after(now_s: float, ttl_s: float) -> datetime:
    """Return the wall-clock end of a permit for a TTL from now on, in whole milliseconds."""
    return _datetime_of(int((now_s + ttl_s) * 1000))


def _datetime_of(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def honoured_until_s(permit: Permit) -> float | None:
    """Return the wall-clock time until which a permit may be honoured; None if it has no end."""
    return None if permit.ends_at is None else permit.ends_at.timestamp() + SKEW_ALLOWANCE_S


def is_over(permit: Permit, now_s: float) -> bool:
    """Return whether the wall-clock end of a permit has passed, clock skew allowed for."""
    until_s = honoured_until_s(permit)
    return until_s is not None and now_s >= until_s


def written(permit: Permit) -> bytes:
    """Return the value of a permit's key."""
    value: dict[str, Any] = {
        "rights": sorted(permit.rights),
        "granted_by": permit.granted_by,
        "own_lease": permit.own_lease,
    }
    if permit.ends_at is not None:
        value["ends_at_ms"] = round(permit.ends_at.timestamp() * 1000)
    return json.dumps(value, ensure_ascii=False).encode()


def read(pair: KeyValue) -> Permit | None:
    """Decode a permit; None if the value is not a permit."""
    names = read_names(pair.key)
    if names is None or not pair.lease:
        return None
    try:
        match value := json.loads(pair.value):
            case {
                "rights": [*rights],
                "granted_by": str(granted_by),
                "own_lease": bool(own_lease),
            }:
                checked = check_rights(rights)
                ends_at = _read_end(value)
            case _:
                return None
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
    return Permit(*names, checked, pair.lease, granted_by, own_lease, pair.mod_revision, ends_at)


def _read_end(value: dict[str, object]) -> datetime | None:
    """Read the wall-clock end; an end that is not a number makes the value invalid."""
    if "ends_at_ms" not in value:
        return None
    ends_at_ms = value["ends_at_ms"]
    if not isinstance(ends_at_ms, int) or isinstance(ends_at_ms, bool):
        raise TypeError(f"ends_at_ms must be an int, not {ends_at_ms!r}")
    return _datetime_of(ends_at_ms)
