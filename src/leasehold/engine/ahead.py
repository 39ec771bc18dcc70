"""What memory has, and the disk has not yet: who may see what, and when.

Theory of operation. Memory runs ahead of the disk by two batches at most: one *under way* and one
*open*. Nobody may see what is not on disk. So whoever changes or reads something is told the
*position* that must be durable before it is shown: the number of the batch that has the change. (A
revision would not do: a grant must be on disk as well, and does not move the revision.) For what is
only read:

- keys and leases that neither batch has touched are as they were at `durable_revision`, and may be
  shown at once, at that revision;
- everything else is at `revision`, and may be shown when `position` is durable.

A position of 0 has always been durable.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection

from leasehold.engine.batch import MAX_BATCH_BYTES, Batch


class Ahead(ABC):
    """The two batches that are not on disk, and what they have touched."""

    def __init__(self, revision: int, compacted: int) -> None:
        self.durable = 0
        """The position up to which everything is on disk."""
        self.durable_revision = revision
        self.durable_compacted = compacted
        self._under_way: Batch | None = None
        self._open = Batch(1, revision + 1)

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision of what is in memory."""

    @property
    def position(self) -> int:
        """What must be durable before what is in memory now may be shown."""
        if self._open.changes:
            return self._open.number
        return self.durable if self._under_way is None else self._under_way.number

    def position_of(self, revision: int) -> int:
        """What must be durable before this revision may be shown."""
        if revision <= self.durable_revision:
            return 0
        if self._under_way is not None and revision <= self._under_way.last_revision:
            return self._under_way.number
        return self._open.number

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing further should be applied."""
        return self._open.octets >= MAX_BATCH_BYTES

    def is_durable(self, key: bytes) -> bool:
        """Say whether a key is, in memory, as it is on disk."""
        return key not in self._open.keys and (
            self._under_way is None or key not in self._under_way.keys
        )

    def is_range_durable(self, key: bytes, end: bytes) -> bool:
        """Say whether a range is, in memory, as it is on disk."""
        return not self._open.touches(key, end) and (
            self._under_way is None or not self._under_way.touches(key, end)
        )

    def lease_position(self, lease: int) -> int:
        """What must be durable before it may be told whether there is this lease."""
        if lease in self._open.leases:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.leases:
            return self._under_way.number
        return 0

    def leases_position(self, leases: Collection[int]) -> int:
        """What must be durable before it may be told whether there are these leases."""
        if self._open.leases and not self._open.leases.isdisjoint(leases):
            return self._open.number
        under_way = self._under_way
        if under_way is not None and not under_way.leases.isdisjoint(leases):
            return under_way.number
        return 0

    def listing_position(self, *, with_keys: bool) -> int:
        """What must be durable before it may be told which leases there are, and with which keys.

        Others than leases may be written meanwhile: a listing does not wait for those.
        """
        for batch in (self._open, self._under_way):
            if batch is not None and (batch.leases or (with_keys and batch.rekeyed)):
                return batch.number
        return 0

    def keys_position(self, lease: int) -> int:
        """What must be durable before it may be told which keys a lease has."""
        if lease in self._open.rekeyed:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.rekeyed:
            return self._under_way.number
        return 0
