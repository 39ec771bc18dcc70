"""What is left of leases that are over: their reasons, for a while."""

from collections.abc import Hashable
from typing import Final

from leasehold.errors import EndReason

REMEMBERED_ENDS: Final = 1024
"""How many ended leases are remembered, by cookie and reason only, to answer stragglers."""


class RememberedEnds:
    """The reasons of the last `REMEMBERED_ENDS` ends, by cookie."""

    __slots__ = ("_at", "_reasons", "_ring")

    def __init__(self) -> None:
        self._reasons: dict[Hashable, EndReason] = {}
        self._ring: list[Hashable] = [None] * REMEMBERED_ENDS
        self._at = 0

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, cookie: Hashable, reason: EndReason) -> None:
        """Remember an end, and forget the oldest. A cookie that ended twice is forgotten early."""
        self._reasons.pop(self._ring[self._at], None)
        self._ring[self._at] = cookie
        self._at = (self._at + 1) % REMEMBERED_ENDS
        self._reasons[cookie] = reason

    def reason(self, cookie: Hashable) -> EndReason:
        """Say why a lease is over, if that is still known."""
        return self._reasons.get(cookie, EndReason.UNKNOWN)
