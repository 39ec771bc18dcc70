"""Defects that a review of the renewal service has shown, each with the scene that shows it."""

import asyncio
from collections.abc import Iterator

import pytest

from leasehold.basics.durations import ANY, FOREVER
from leasehold.errors import CallRefused, ConnectionLost, UnknownLease
from leasehold.renewal.member_renewals import EARLY_S, TakeOverTiming
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.service import RenewalLimits
from tests.support.renewal_stage import FAILURE, Stage

LARGE = 15_000
"""Bytes of a reference that is almost too large."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


def large(stage: Stage, number: int) -> LeaseReference:
    """A lease with a long cookie."""
    name = f"{number:05d}" + "x" * LARGE
    stage.place.lease(name)
    return LeaseReference("landlord", name, endpoints=("landlord:1",))


def test_no_member_is_renewed_after_the_stored_end_while_a_renewal_is_not_answered(
    stage: Stage,
) -> None:
    set_id = stage.create(60.0)
    stage.place.most_s = 8.0  # it is renewed every 4 to 5 s
    stage.add(set_id, stage.place.lease("a", 8.0), remaining=8.0)
    stage.pass_time(59.0 - stage.now)

    async def renew() -> None:
        stage.faulty.is_cut_off = True
        with pytest.raises((ConnectionLost, UnknownLease)):
            await stage.service.records.renew(set_id, 7200.0)
        stage.faulty.is_cut_off = False

    stage.run(renew)
    stage.pass_time(30.0)
    assert 55.0 < max(stage.place.times("a")) <= 60.1


def test_members_stay_if_a_renewal_of_the_set_is_stored_late(stage: Stage) -> None:
    set_id = stage.create(60.0)
    stage.add(set_id, stage.place.lease("a", 30.0))
    stage.pass_time(58.0)
    stage.faulty.delay_s = 2.0  # for each of several calls: it is stored after the former end
    stage.run(stage.service.records.renew, set_id, 600.0)
    stage.faulty.delay_s = 0.0
    stage.pass_time(100.0)
    assert stage.members(set_id) == ["a"]
    assert stage.place.is_alive("a")


def test_calls_after_a_cancelled_call_see_what_it_has_stored(stage: Stage) -> None:
    set_id = stage.create()
    reference = stage.place.lease("a")

    async def scene() -> object:
        stage.faulty.delay_s = 2.0
        add = stage.service.renew_for(set_id, reference.encode(), 30.0, 30.0, FOREVER, FOREVER)
        adding = asyncio.ensure_future(add)
        await asyncio.sleep(1.5)  # it is executed, and the answer is under way
        adding.cancel()
        await asyncio.sleep(0)
        return await stage.service.remove(set_id, reference.encode())

    removed = stage.run(scene)
    stage.faulty.delay_s = 0.0
    stage.pass_time(100.0)
    assert removed is not None
    assert stage.members(set_id) == []


def test_a_lease_that_fails_while_it_is_removed_is_removed_without_an_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    reference = stage.place.lease("a", 30.0)
    stage.add(set_id, reference)
    stage.pass_time(17.0)
    stage.place.errors["a"] = UnknownLease("a")
    stage.faulty.delay_s = 3.0  # the renewal at 18 s fails meanwhile
    assert stage.run(stage.service.remove, set_id, reference.encode()) is not None
    stage.faulty.delay_s = 0.0
    stage.pass_time(30.0)
    assert stage.inbox.events("l") == []


def test_ends_of_large_references_are_stored(stage: Stage) -> None:
    set_id, other = stage.create(), stage.create()
    for number in range(120):
        stage.add(set_id, large(stage, number))
    stage.add(other, stage.place.lease("small"))
    before = dict(stage.stored(set_id, b"/m/"))
    stage.pass_time(300.0)
    after = stage.stored(set_id, b"/m/")
    assert len(after) == 120
    assert all(after[suffix] != before[suffix] for suffix in before)


def test_failures_of_large_references_are_stored() -> None:
    with Stage(limits=RenewalLimits(handback_bytes=1024 * 1024)) as stage:
        set_id = stage.create()
        stage.listen(set_id, FAILURE, "l", b"h" * 1024 * 1024)
        for number in range(60):
            stage.add(set_id, large(stage, number))
        stage.place.error = CallRefused("no")
        stage.pass_time(100.0)
        assert stage.members(set_id) == []
        assert stage.inbox.numbers("l") == list(range(1, 61))


def test_the_limit_of_a_reference_is_that_of_the_settings() -> None:
    with Stage(limits=RenewalLimits(reference_bytes=2048)) as stage:
        set_id = stage.create()
        with pytest.raises(ValueError, match="at most 2,048 bytes"):
            stage.add(set_id, large(stage, 1))


def test_spellings_of_one_endpoint_share_a_connection(stage: Stage) -> None:
    spellings = [("h:1",), ("h:1", "h:1"), ("H:1",), ("h:1", "H.:1", "h:1")]
    keys = {
        stage.grantors.connection_key(LeaseReference("landlord", "a", endpoints=each))
        for each in spellings
    }
    assert len(keys) == 1


def test_long_errors_are_shortened(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = ConnectionLost("x" * 1_000_000 + "\ud800")
    stage.pass_time(100.0)
    assert len(stage.service.find(set_id).last_error) <= 1_000
    assert stage.members(set_id) == []


@pytest.mark.parametrize("down_s", [12.0])
@pytest.mark.parametrize("term_s", [30.0, 60.0, 120.0, 600.0])
def test_no_lease_of_half_a_minute_or_more_lapses_in_a_take_over_at_any_moment(
    down_s: float, term_s: float
) -> None:
    for moment in range(10):
        with Stage() as stage:
            stage.place.most_s = term_s
            set_id = stage.create()
            stage.add(set_id, stage.place.lease("a", term_s), remaining=term_s)
            stage.pass_time(term_s + moment * term_s / 10)
            stage.crash(down_s)
            stage.pass_time(2 * term_s)
            assert stage.place.is_alive("a"), f"killed at {moment} tenths of a term"


def test_a_lease_is_renewed_early_and_may_share_a_call_before() -> None:
    for term_s in (10.0, 30.0, 60.0, 300.0, 86_400.0):
        when = TakeOverTiming().renew(0.0, 0.0, term_s, term_s)
        assert term_s - when.due_at >= min(EARLY_S, 0.4 * term_s) - 1e-9
        assert when.batchable_at < when.due_at


def test_a_set_of_many_members_is_loaded_in_steps(stage: Stage) -> None:
    set_id = stage.create()
    for number in range(1_200):
        stage.add(set_id, stage.place.lease(f"n{number}", 300.0), remaining=300.0, renew=ANY)
    stage.crash()
    stage.pass_time(1.0)
    assert len(stage.service.renewals) == 1_200
    assert all(stage.place.times(f"n{number}") for number in (0, 600, 1_199))
