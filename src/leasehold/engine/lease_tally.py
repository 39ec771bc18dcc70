"""How often leases were granted, renewed and ended: what a server shows of itself."""

from typing import Final

from leasehold.core.histogram import Histogram
from leasehold.errors import EndReason

LATENESS_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
"""How long after its deadline a lease ended; etcd looks every half second."""


class LeaseTally:
    """The leases of one store since it was opened."""

    __slots__ = ("granted", "lateness_s", "renewed", "revoked")

    def __init__(self) -> None:
        self.granted = 0
        self.renewed = 0
        self.revoked = 0
        self.lateness_s = Histogram(LATENESS_BOUNDS_S)
        """Of those that expired: how long after their deadlines."""

    @property
    def expired(self) -> int:
        """How many have expired."""
        return self.lateness_s.count

    def ended(self, reason: EndReason, late_s: float) -> None:
        """Count an end."""
        if reason is EndReason.EXPIRED:
            self.lateness_s.observe(late_s)
        else:
            self.revoked += 1
