"""A lease manager with all that its checks do, for unit tests."""

from collections.abc import Callable
from typing import Final

from leasehold.files.lease_manager import LeaseManager
from leasehold.files.state import HARD_LIMIT_S

LATE: Final = HARD_LIMIT_S + 1.0
"""A time at which leases of time 0 are past the hard limit."""


class Bench:
    """A manager with its messages, and the releases that a check makes."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.infos: list[str] = []
        self.manager: LeaseManager[str] = LeaseManager(
            on_error=self.errors.append, on_info=self.infos.append
        )
        self.bad: set[str] = set()
        self.released: list[tuple[str, str]] = []
        self.cost_s = 0.0
        self.spent_s = 100.0

    def release(self, holder: str, file: str) -> None:
        self.released.append((holder, file))
        self.spent_s += self.cost_s
        if file in self.bad:
            raise OSError(f"{file} is bad")

    def check(self, now: float, release: Callable[[str, str], object] | None = None) -> bool:
        return self.manager.check(now, release or self.release, elapsed=lambda: self.spent_s)

    def take_released(self) -> list[tuple[str, str]]:
        released, self.released = self.released, []
        return released

    def files_of(self, holder: str) -> list[str] | None:
        lease = self.manager.by_holder(holder)
        return None if lease is None else list(lease.files)

    def renewed_at(self, holder: str) -> float:
        lease = self.manager.by_holder(holder)
        assert lease is not None
        return lease.renewed_at
