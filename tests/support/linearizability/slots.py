"""The part of the order that revisions tell. See `search` for the reasons."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic

from tests.support.linearizability.entries import Entry, S
from tests.support.linearizability.models import UNBOUNDED


class Slots(Generic[S]):
    """The slots between the writes with known revisions: before the first, ..., after the last."""

    def __init__(self, calls: Sequence[Entry[S]]) -> None:
        self._calls = calls
        known = [(each.candidate.revision, each) for each in calls if each.candidate is not None]
        writes = sorted(
            ((revision, call) for revision, call in known if revision and call.is_write),
            key=lambda each: each[0],
        )
        for slot, (_, call) in enumerate(writes):
            call.slot = slot
        self._revisions = [revision for revision, _ in writes]
        self._written = 0
        """So many of these writes have a place: the slot we are in."""
        self._reads_due = [0] * (len(writes) + 1)
        self._first_due = [0] * (len(writes) + 1)
        """Those of them that saw the write before the slot."""
        for revision, call in known:
            if revision is not None and not call.is_write:
                call.slot = bisect_right(self._revisions, revision)
                self._count_read(call, 1)

    def admit(self, call: Entry[S]) -> bool:
        """Return whether the order that is known allows this call now."""
        if call.slot is None:
            return not call.is_write or self.admit_unknown_writes()
        if call.slot != self._written:
            return False
        return not (call.is_write and self._reads_due[call.slot])

    def admit_unknown_writes(self) -> bool:
        """Return whether a write without a known revision may come now."""
        return not self._first_due[self._written]

    @property
    def most(self) -> int:
        """The highest revision that an unknown write can have now."""
        if self._written == len(self._revisions):
            return UNBOUNDED
        return self._revisions[self._written] - 1

    def place(self, call: Entry[S]) -> None:
        """Count a call that got a place."""
        if call.slot is not None:
            self._count(call, 1)

    def take_back(self, call: Entry[S]) -> None:
        """Count it no more."""
        if call.slot is not None:
            self._count(call, -1)

    def due_after(self, placed: Sequence[Entry[S]]) -> list[Entry[S]]:
        """Return the calls that must come next if these have a place; a write only if no read must.

        This looks through all calls, and is for the end of a search.
        """
        slot = sum(call.slot is not None and call.is_write for call in placed)
        due = [call for call in self._calls if call.slot == slot and call not in placed]
        return [call for call in due if not call.is_write] or due

    def _count(self, call: Entry[S], by: int) -> None:
        if call.is_write:
            self._written += by
        else:
            self._count_read(call, -by)

    def _count_read(self, call: Entry[S], by: int) -> None:
        assert call.slot is not None
        assert call.candidate is not None
        self._reads_due[call.slot] += by
        if call.slot and call.candidate.saw == self._revisions[call.slot - 1]:
            self._first_due[call.slot] += by
