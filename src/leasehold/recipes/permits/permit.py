"""`Permit`: what a subject may do with a resource, and how that is written down.

The value of its key is JSON: `{"rights": ["read"], "granted_by": "ops", "own_lease": true}`. What
is written otherwise gives no right to anybody, and neither does a key without a lease, which would
never end.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from leasehold.engine.values import KeyValue
from leasehold.recipes.permits.naming import check_name, read_names


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
    """The revision that has granted it."""

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


def written(rights: frozenset[str], granted_by: str, *, own_lease: bool) -> bytes:
    """Give the value of a permit's key."""
    value = {"rights": sorted(rights), "granted_by": granted_by, "own_lease": own_lease}
    return json.dumps(value, ensure_ascii=False).encode()


def read(pair: KeyValue) -> Permit | None:
    """Read a permit; None if what is there is none."""
    names = read_names(pair.key)
    if names is None or not pair.lease:
        return None
    try:
        match json.loads(pair.value):
            case {
                "rights": [*rights],
                "granted_by": str(granted_by),
                "own_lease": bool(own_lease),
            }:
                checked = check_rights(rights)
            case _:
                return None
    except (ValueError, TypeError, RecursionError):
        return None
    return Permit(*names, checked, pair.lease, granted_by, own_lease, pair.mod_revision)
