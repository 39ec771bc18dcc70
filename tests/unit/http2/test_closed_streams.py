"""Which streams of the past a frame may still be for."""

import pytest

from leasehold.http2.stream import MAX_ENDED_HERE, MAX_GAPS, ClosedStreams


@pytest.fixture
def closed() -> ClosedStreams:
    return ClosedStreams()


def test_what_we_ended_is_known_until_the_peer_ends_it_too(closed: ClosedStreams) -> None:
    assert not closed.ended_here(1)
    closed.end_here(1)
    assert closed.ended_here(1)
    closed.end_there(1)
    assert not closed.ended_here(1)


def test_the_peer_may_end_what_we_never_ended(closed: ClosedStreams) -> None:
    closed.end_there(1)
    assert not closed.ended_here(1)


def test_of_too_many_that_we_ended_the_oldest_are_forgotten_first(closed: ClosedStreams) -> None:
    numbers = range(1, 2 * MAX_ENDED_HERE + 21, 2)
    for number in numbers:
        closed.end_here(number)
    assert len(closed._ended_here) == MAX_ENDED_HERE
    assert [number for number in numbers if not closed.ended_here(number)] == list(numbers[:10])


def test_numbers_that_were_left_out_are_known_and_their_neighbours_are_not(
    closed: ClosedStreams,
) -> None:
    closed.skip(range(3, 9, 2))
    assert [number for number in range(12) if closed.was_skipped(number)] == [3, 5, 7]


def test_a_large_gap_costs_no_more_than_a_small_one(closed: ClosedStreams) -> None:
    closed.skip(range(1, 2**31 - 1, 2))
    assert closed.was_skipped(2**30 + 1)
    assert not closed.was_skipped(2**30)
    assert len(closed._gaps) == 1


def test_gaps_are_bounded_and_the_oldest_are_forgotten_first(closed: ClosedStreams) -> None:
    for index in range(MAX_GAPS + 5):
        closed.skip(range(10 * index + 1, 10 * index + 5, 2))
    assert len(closed._gaps) == MAX_GAPS
    assert not closed.was_skipped(1)
    assert closed.was_skipped(10 * (MAX_GAPS + 4) + 1)


def test_how_far_numbers_were_skipped_is_added_up_for_ever(closed: ClosedStreams) -> None:
    for index in range(2 * MAX_GAPS):
        closed.skip(range(10 * index + 1, 10 * index + 5, 2))
    assert closed.skipped == 2 * MAX_GAPS * 4
