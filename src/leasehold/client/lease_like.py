"""Leases as calls take them: one that is held here, or the number of any."""

from typing import Protocol, TypeAlias, runtime_checkable

from leasehold.engine.values import LeaseInfo


@runtime_checkable
class Held(Protocol):
    """A lease that is held in this process: of the client, or of `leasehold.sync`."""

    @property
    def id(self) -> int:
        """Its number at the engine."""
        ...

    def check(self) -> None:
        """Raise unless it can be relied on now."""
        ...


LeaseLike: TypeAlias = Held | LeaseInfo | int | None
"""A lease, what an engine tells of one, its id, or None for none."""


def lease_id(lease: LeaseLike) -> int:
    """Give the number of a lease, 0 for none; refuse one that is known to be lost."""
    if lease is None:
        return 0
    if isinstance(lease, int) and not isinstance(lease, bool):
        return lease
    if isinstance(lease, LeaseInfo):
        return lease.id
    if isinstance(lease, Held):
        lease.check()
        return lease.id
    raise TypeError(f"lease must be a lease, its id, or None for none; not {lease!r}")
