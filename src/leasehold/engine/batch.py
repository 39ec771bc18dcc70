"""A batch: the changes that go to disk together, in one row of the journal."""

from typing import Final

from leasehold.core.keyspace import covers
from leasehold.core.table import LeasedResource
from leasehold.engine.lease_record import LeaseRecord

MAX_KEYS_LOOKED_AT: Final = 1000
"""A range waits for the disk rather than be compared with more changed keys than this."""

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Changes that may wait for the disk; beyond it a store is full, and takes no more."""


class Batch:
    """Changes in the order in which they were made, and whom they concern."""

    __slots__ = (
        "changes",
        "compacted",
        "first_revision",
        "granted",
        "keys",
        "last_revision",
        "leases",
        "number",
        "octets",
        "rekeyed",
    )

    def __init__(self, number: int, first_revision: int) -> None:
        self.number = number
        """Batches are numbered from 1 in each run of a store: these numbers are its positions."""
        self.first_revision = first_revision
        self.last_revision = first_revision - 1
        self.compacted = 0
        self.octets = 0
        """How long the changes are together."""
        self.changes: list[bytes] = []
        self.keys: set[bytes] = set()
        self.leases: set[int] = set()
        """Leases that began or ended."""
        self.rekeyed: set[int] = set()
        """Leases that gained or lost a key."""
        self.granted: list[LeasedResource[LeaseRecord]] = []
        """Leases whose terms begin when the batch is on disk."""

    def touches(self, key: bytes, end: bytes) -> bool:
        """Say whether a key in this range was changed, or may have been."""
        if not end:
            return key in self.keys
        return len(self.keys) > MAX_KEYS_LOOKED_AT or any(
            covers(key, end, name) for name in self.keys
        )
