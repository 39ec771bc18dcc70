"""The window of recent changes: what is dropped from it, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.keyspace import recent_changes
from leasehold.keyspace.keyspace import Change
from leasehold.keyspace.recent_changes import Recent

FIRST = 5


@given(
    data=st.lists(st.integers(0, 10), max_size=30),
    max_bytes=st.integers(0, 60),
    durable=st.integers(0, FIRST + 31),
)
def test_the_oldest_are_dropped_until_it_is_small_enough_but_none_that_is_not_on_disk(
    data: list[int], max_bytes: int, durable: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (
            ("MAX_REVISIONS", 8),
            ("MAX_BYTES", max_bytes),
            ("MIN_DROPPED", 3),
            ("MAX_DROPPED", 20),
        ):
            patched.setattr(recent_changes, name, value)
        window = Recent(FIRST)
        for number, size in enumerate(data):
            window.add((Change(b"k", FIRST + number, None, None),), size)
        window.drop(durable)
        dropped = window.first - FIRST
        droppable = min(20, len(data), max(0, durable + 1 - FIRST))
        least = min(droppable, max(3, len(data) - 8))
        assert least <= dropped <= droppable
        assert dropped in (least, droppable) or sum(data[dropped - 1 :]) > max_bytes
        assert dropped == droppable or sum(data[dropped:]) <= max_bytes
        assert window.is_over == (len(window) > 8 or sum(data[dropped:]) > max_bytes)
        kept = [window.at(revision) for revision in range(window.first, FIRST + len(data))]
        found = [changes[0].revision for changes in kept if changes is not None]
        assert found == list(range(window.first, FIRST + len(data)))
        assert window.at(window.first - 1) is None
