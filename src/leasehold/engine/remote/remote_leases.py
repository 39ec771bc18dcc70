"""Leases on a server, by etcd's services or by ours."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from leasehold.engine.values import LeaseInfo, Renewed


class RemoteLeases(ABC):
    """Grants, renewals and the rest, as `Engine` has them; arguments were checked."""

    @abstractmethod
    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Grant a lease."""

    @abstractmethod
    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases independently."""

    def has_answered_since(self, moment: float) -> bool:
        """Return whether a renewal was answered since then, by the loop's clock."""
        del moment
        return False  # a call for all of them has one answer

    @abstractmethod
    async def revoke(self, lease: int) -> int:
        """End a lease."""

    @abstractmethod
    async def time_to_live(self, lease: int, *, keys: bool) -> LeaseInfo:
        """Return how long a lease has to run."""

    @abstractmethod
    async def listed(self) -> Sequence[LeaseInfo]:
        """Return the leases."""

    @abstractmethod
    async def close(self) -> None:
        """Abort the calls under way."""


def by_end(leases: Iterable[LeaseInfo]) -> list[LeaseInfo]:
    """Return leases sorted by their ends."""
    return sorted(leases, key=lambda info: info.remaining)
