"""Leases on a server, in whichever way it has: etcd's services, or ours."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from leasehold.engine.values import LeaseInfo, Renewed


class RemoteLeases(ABC):
    """Grants, renewals and the rest, as `Engine` has them; arguments were checked."""

    @abstractmethod
    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Begin a lease."""

    @abstractmethod
    async def renew_all(self, leases: Sequence[int]) -> Renewed:
        """Renew leases, each for itself."""

    def has_answered_since(self, moment: float) -> bool:
        """Say whether a renewal was answered since then, by the loop's clock: it is only slow."""
        del moment
        return False  # a call for all of them has one answer

    @abstractmethod
    async def revoke(self, lease: int) -> int:
        """End a lease."""

    @abstractmethod
    async def time_to_live(self, lease: int, *, keys: bool) -> LeaseInfo:
        """Say how long a lease has to run."""

    @abstractmethod
    async def listed(self) -> Sequence[LeaseInfo]:
        """List the leases."""

    @abstractmethod
    async def close(self) -> None:
        """End what is under way."""


def by_end(leases: Iterable[LeaseInfo]) -> list[LeaseInfo]:
    """Put leases in order: those first that end first."""
    return sorted(leases, key=lambda info: info.remaining)
