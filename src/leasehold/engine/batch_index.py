"""Which batch has which revision: in memory, because an index on disk would be written each time.

Sixteen bytes for each batch that changed a key.
"""

from array import array
from bisect import bisect_right


class BatchIndex:
    """The batches that have revisions, in order."""

    __slots__ = ("_first_revisions", "_ids")

    def __init__(self) -> None:
        self._first_revisions = array("q")
        self._ids = array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, batch_id: int, first_revision: int, last_revision: int) -> None:
        """Take the next batch."""
        if first_revision <= last_revision:
            self._first_revisions.append(first_revision)
            self._ids.append(batch_id)

    def find(self, revision: int) -> int | None:
        """Give the id of the batch that has a revision, or would have it if it were there."""
        place = bisect_right(self._first_revisions, revision)
        return self._ids[place - 1] if place else None

    def folded(self, batch_id: int) -> None:
        """Forget the batches up to this one, but for the last of them."""
        gone = max(0, bisect_right(self._ids, batch_id) - 1)
        del self._first_revisions[:gone], self._ids[:gone]
