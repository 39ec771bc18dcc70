"""Limits in bytes: registrars with large descriptions must not make a registration unstorable."""

import asyncio

import pytest

from leasehold.discovery import interest_limits, known_registrars, live_registration
from leasehold.discovery.interest_limits import DiscoveryLimits
from leasehold.discovery.live_registration import Interests, StoredListener
from leasehold.discovery.locators import InterestChange, Locator
from leasehold.errors import ConnectionLost, TooBusy
from leasehold.events.state import EventTarget
from tests.support.discovery_stage import DiscoveryStage

UNREACHABLE = ConnectionLost("not reachable")
LARGE = " ".join(f"group-{number:03}-{'x' * 180}" for number in range(1_000))
"""Groups of a registrar, of about 200 kB."""


@pytest.fixture
def stage() -> DiscoveryStage:
    return DiscoveryStage()


def test_undelivered_events_are_bounded_in_bytes(stage: DiscoveryStage) -> None:
    with stage:
        stage.inbox.errors["l"] = UNREACHABLE
        registration = stage.register(None)
        for number in range(6):
            stage.network.add(f"R{number}", groups=LARGE)
            stage.pass_time()
        stored = stage.stored_registration(registration)
        size_bytes = sum(len(each.payload) for each in stored.undelivered)
        assert size_bytes <= live_registration.MAX_UNDELIVERED_BYTES
        assert (stored.number, stored.undelivered[-1].number) == (6, 6), "the last one is kept"
        assert len(stage.registrars(registration)) == 6


def test_new_events_that_do_not_fit_are_counted_only(stage: DiscoveryStage) -> None:
    with stage:
        for number in range(6):
            stage.network.add(f"R{number}", groups=LARGE)
        stage.register(None, name="earlier")
        stage.pass_time()
        stage.inbox.errors["l"] = UNREACHABLE
        registration = stage.register(None)  # it gets all of them together
        stage.pass_time()
        stored = stage.stored_registration(registration)
        assert stored.number == 6
        assert [each.number for each in stored.undelivered] == [5, 6]
        del stage.inbox.errors["l"]
        stage.pass_time(60.0)
        assert [each.partition(" ")[0] for each in stage.told()] == ["5", "6"], "a gap"
        stage.network.stop("R0")
        assert stage.told()[-1] == "7 discarded R0"


def test_the_last_event_is_kept_even_if_it_is_too_large(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_registration, "MAX_UNDELIVERED_BYTES", 1)
    with stage:
        stage.inbox.errors["l"] = UNREACHABLE
        registration = stage.register("a")
        for name in "RS":
            stage.network.add(name)
            stage.pass_time()
        stored = stage.stored_registration(registration)
        assert [each.number for each in stored.undelivered] == [2]


def test_one_large_registrar_does_not_hold_back_other_registrations(stage: DiscoveryStage) -> None:
    with stage:
        made = [stage.register(None, name=name) for name in "lmn"]
        other = stage.register("a", name="other")
        for number in range(10):
            stage.network.add(f"R{number}", groups=LARGE)
        stage.network.add("small", groups="a")
        assert stage.told("other") == ["1 discovered small"]
        assert [len(stage.registrars(each)) for each in made] == [11, 11, 11]
        assert stage.registrars(other) == ["small"]


def test_registrars_are_stored_in_bounded_transactions(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_registrars, "WRITE_BYTES", 1)
    with stage:
        stage.register("a")
        for name in "RST":
            stage.network.add(name)
        stage.pass_time()
        assert len(stage.stored(known_registrars.PREFIX)) == 3


def test_interests_that_leave_no_room_in_their_key_are_refused(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interest_limits, "MAX_INTERESTS_BYTES", 1_000)
    with stage:
        with pytest.raises(ValueError, match="groups, locators and handback must have at most"):
            stage.register("x" * 200 + " " + "y" * 200, handback=b"h" * 600)
        registration = stage.register("a", handback=b"h" * 600)
        with pytest.raises(ValueError, match="must have at most 1,000 bytes together, got"):
            stage.groups(registration, InterestChange.ADD, "z" * 256 + " " + "y" * 256)
        assert stage.live(registration).interests.groups == frozenset("a"), "nothing was changed"


# What all registrations want together.


def test_registrations_at_the_same_time_do_not_exceed_the_limit_of_locators() -> None:
    with DiscoveryStage(limits=DiscoveryLimits(locators=10)) as stage:

        async def register(first: int) -> str:
            locators = [Locator(f"h{number}") for number in range(first, first + 6)]
            listener = StoredListener(EventTarget("listener:1", "l"), b"")
            interests = Interests(frozenset(), tuple(locators))
            return (await stage.service.register(interests, listener, 3600.0))[0]

        async def both() -> list[str | BaseException]:
            return [*await asyncio.gather(register(0), register(100), return_exceptions=True)]

        made = stage.run(both)
        assert [type(each) for each in made] == [str, TooBusy]
        stage.register("", [f"leasehold://h{number}" for number in range(100, 104)])


def test_what_adds_nothing_is_not_refused_beyond_the_limits() -> None:
    with DiscoveryStage() as stage:
        one = stage.register("a", ["leasehold://r", "leasehold://s"])
        other = stage.register("b", ["leasehold://t"])
        stage.limits = DiscoveryLimits(locators=1, interests_bytes=1)
        stage.crash()
        with pytest.raises(TooBusy, match="locators; at most 1 are allowed"):
            stage.locators(other, InterestChange.SET, ["leasehold://u"])
        stage.locators(one, InterestChange.REMOVE, ["leasehold://r"])
        stage.locators(one, InterestChange.SET, ["leasehold://t"])  # the other one has it
        stage.groups(one, InterestChange.SET, "")
        with pytest.raises(TooBusy, match="bytes of groups, locators and handbacks; at most 1"):
            stage.register("a")


def test_what_was_refused_or_has_ended_does_not_count() -> None:
    limits = DiscoveryLimits(locators=1, registrations=1)
    with DiscoveryStage(limits=limits) as stage:
        registration = stage.register("a", ["leasehold://r"])
        with pytest.raises(TooBusy, match="1 objects, the maximum"):
            stage.register("a", ["leasehold://r"])
        stage.run(stage.service.records.cancel, registration)
        stage.register("a", ["leasehold://s"])


def test_a_registration_has_a_limited_number_of_locators(stage: DiscoveryStage) -> None:
    with stage, pytest.raises(ValueError, match="at most 100 locators, got 101"):
        stage.register("", [f"leasehold://h{number}" for number in range(101)])
