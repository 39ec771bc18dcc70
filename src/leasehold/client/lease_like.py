"""Leases as calls take them: one that is held here, or the number of any."""

from typing import TypeAlias

from leasehold.client.held_lease import HeldLease

LeaseLike: TypeAlias = HeldLease | int | None
"""A lease, its id, or None for none."""


def lease_id(lease: LeaseLike) -> int:
    """Give the number of a lease, 0 for none; refuse one that is known to be lost."""
    if isinstance(lease, HeldLease):
        lease.check()
        return lease.id
    if lease is None:
        return 0
    if isinstance(lease, bool) or not isinstance(lease, int):
        raise TypeError(f"lease must be a lease, its id, or None for none; not {lease!r}")
    return lease
