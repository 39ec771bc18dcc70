"""`Permit`: what a subject may do with a resource, and how that is written down.

The value of its key is JSON: `{"rights": ["read"], "granted_by": "ops", "own_lease": true,
"ends_at_ms": 1924992000000}`. A value of any other form gives no right, and neither does a key
without a lease, which would never end.

`ends_at_ms` is the wall-clock end of a permit that was granted with a TTL, in milliseconds since
the Unix epoch. A lease may last longer than that: its server does not count the time of a stall,
and counts a new term after a crash. That is safe for exclusion but not for a right, so a permit is
over at its end, whatever the lease does. A permit under a given lease has no such end, and those
that were written by earlier releases have none either.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from leasehold.engine.values import KeyValue
from leasehold.recipes.permits.naming import Names, check_name, read_names

SKEW_ALLOWANCE_S: Final = 1.0
"""How long after its wall-clock end a permit is still honoured: the clocks of its grantor and of
the client that checks it may differ. Machines that run NTP differ by less; etcd warns of members
whose clocks differ by more."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Rights of a subject on a resource, until a lease ends. As it was read: it may be over now."""

    subject: str
    """Who has it."""
    resource: str
    """What it is for."""
    rights: frozenset[str]
    """What may be done."""
    lease: int
    """The lease that it ends with. `client.keep(permit.lease)` keeps it alive."""
    granted_by: str
    """Who has granted it, as they say."""
    own_lease: bool
    """Whether the lease was begun for it; if so it is ended when it is of no more use."""
    revision: int
    """The revision of its last change: by a grant, or by an extension of its end."""
    ends_at: datetime | None = None
    """Its wall-clock end, if it was granted with a TTL; `client.keep` moves it."""

    @property
    def names(self) -> Names:
        """Subject and resource."""
        return Names(self.subject, self.resource)

    def allows(self, right: str) -> bool:
        """Say whether this right is one of them."""
        return right in self.rights


def check_rights(rights: Iterable[str]) -> frozenset[str]:
    """Refuse what is no set of names; a text is none, though it can be iterated over."""
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
    """Read a permit; None if what is there is none."""
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
