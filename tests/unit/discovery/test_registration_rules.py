"""The rules of one registration of the discovery service: covers, events and waits. Pure."""

from typing import Final

import pytest

from leasehold.basics.durations import NEVER
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discard_waits import (
    AGAIN_S,
    MAX_DISCARDED,
    MAX_WAIT_S,
    Discarded,
    DiscardWaits,
)
from leasehold.discovery.registration import Cover, ReachableRegistrar, RegistrationState
from leasehold.discovery.state import (
    ALL_GROUPS,
    DISCARDED_GROUP_S,
    DISCARDED_LOCATOR_S,
    NO_GROUPS,
    UNANSWERED,
    EventKind,
)

HERE: Final = "leasehold://here:1"
ALIAS: Final = "leasehold://alias:1"
NOW: Final = 1000.0
A: Final = frozenset({"a"})
FOUND, GONE = EventKind.DISCOVERED, EventKind.DISCARDED


def reach(
    *locators: str, groups: str = "a", by_group: bool = False, answered_at: float = NOW
) -> ReachableRegistrar[str]:
    """R, as the service finds it."""
    registrar = Registrar("R", frozenset(groups.split()))
    return ReachableRegistrar(registrar, by_group, frozenset(locators), answered_at)


def by_group(
    groups: str = "a", *locators: str, answered_at: float = NOW
) -> ReachableRegistrar[str]:
    """R, which is announced and in groups."""
    return reach(*locators, groups=groups, by_group=True, answered_at=answered_at)


class Registration:
    """A registration, and what it is told about R."""

    def __init__(self, groups: frozenset[str] | None = NO_GROUPS, *locators: str) -> None:
        self.state: RegistrationState[str] = RegistrationState(groups, locators)
        self.service_waits = DiscardWaits()

    def see(
        self, reached: ReachableRegistrar[str] | None, *taken: str, now: float = NOW
    ) -> EventKind | None:
        return self.state.examine("R", reached, taken, self.service_waits, now)

    @property
    def has(self) -> bool:
        return "R" in self.state.found


def having(
    reached: ReachableRegistrar[str], groups: frozenset[str] | None = NO_GROUPS, *locators: str
) -> Registration:
    """A registration that has R."""
    registration = Registration(groups, *locators)
    assert registration.see(reached) is FOUND
    return registration


# Discovered.


def test_a_registrar_of_a_wanted_group_is_discovered_once() -> None:
    registration = Registration(A)
    assert registration.see(by_group("a b")) is FOUND
    assert registration.see(by_group("a b")) is None
    assert registration.state.found == {"R": Cover(by_group=True, locators=frozenset())}


def test_a_registrar_of_no_wanted_group_is_not_discovered() -> None:
    registration = Registration(A)
    assert registration.see(by_group("b")) is None
    assert not registration.has


def test_a_registrar_that_was_not_announced_is_not_discovered_by_group() -> None:
    assert Registration(A).see(reach(HERE, groups="a")) is None


def test_no_groups_want_nothing_and_all_groups_also_registrars_of_no_group() -> None:
    assert Registration(NO_GROUPS).see(by_group("a")) is None
    assert Registration(ALL_GROUPS).see(by_group("")) is FOUND


def test_the_public_group_is_a_group_and_not_all_groups() -> None:
    registration = Registration(frozenset({""}))
    assert registration.see(by_group("a")) is None
    in_public = Registrar("R", frozenset({""}))
    public: ReachableRegistrar[str] = ReachableRegistrar(in_public, True, frozenset(), NOW)
    assert registration.see(public) is FOUND


def test_a_registrar_at_a_wanted_locator_is_discovered_once() -> None:
    registration = Registration(NO_GROUPS, HERE)
    assert registration.see(reach(ALIAS)) is None
    assert registration.see(reach(HERE, ALIAS)) is FOUND
    assert registration.see(reach(HERE)) is None


def test_a_registrar_that_is_found_in_a_further_way_makes_no_event() -> None:
    registration = having(reach(HERE), A, HERE, ALIAS)
    assert registration.see(by_group("a", HERE, ALIAS)) is None
    cover = registration.state.found["R"]
    assert cover == Cover(by_group=True, locators=frozenset({HERE, ALIAS}))


def test_a_registrar_that_has_not_answered_in_this_process_is_not_discovered() -> None:
    registration = Registration(A)
    assert registration.see(by_group(answered_at=UNANSWERED)) is None
    assert registration.see(by_group()) is FOUND


def test_a_registrar_that_joins_a_wanted_group_is_discovered() -> None:
    registration = Registration(A)
    assert registration.see(by_group("b")) is None
    assert registration.see(by_group("b a")) is FOUND


# Discarded because an interest was withdrawn.


def test_a_registrar_whose_last_group_is_not_wanted_any_more_is_discarded() -> None:
    registration = having(by_group("a b"), frozenset({"a", "b"}))
    registration.state.groups = A
    assert registration.see(by_group("a b")) is None
    registration.state.groups = frozenset({"c"})
    assert registration.see(by_group("a b")) is GONE
    assert not registration.has


def test_a_registrar_whose_last_locator_is_not_wanted_any_more_is_discarded() -> None:
    registration = having(reach(HERE, ALIAS), NO_GROUPS, HERE, ALIAS)
    registration.state.locators = (ALIAS,)
    assert registration.see(reach(HERE, ALIAS)) is None
    registration.state.locators = ()
    assert registration.see(reach(HERE, ALIAS)) is GONE


@pytest.mark.parametrize("kept", ["group", "locator"])
def test_a_registrar_that_another_interest_still_covers_is_kept(kept: str) -> None:
    registration = having(by_group("a", HERE), A, HERE)
    if kept == "group":
        registration.state.locators = ()
    else:
        registration.state.groups = NO_GROUPS
    assert registration.see(by_group("a", HERE)) is None
    assert registration.has


# Discarded because it left the groups.


def test_a_registrar_that_left_the_groups_is_discarded() -> None:
    registration = having(by_group("a"), A)
    assert registration.see(by_group("b")) is GONE


@pytest.mark.parametrize("others", [True, False], ids=["wanted by others", "wanted by nobody"])
def test_a_registrar_that_left_the_groups_is_kept_if_a_locator_covers_it(others: bool) -> None:
    registration = having(by_group("a", HERE), A, HERE)
    assert registration.see(reach(HERE, groups="b", by_group=others)) is None
    assert registration.state.found["R"] == Cover(by_group=False, locators=frozenset({HERE}))


# Discarded because it is lost.


@pytest.mark.parametrize("locators", [(), (HERE,)])
def test_a_lost_registrar_is_discarded_if_it_was_covered_by_group(
    locators: tuple[str, ...],
) -> None:
    registration = having(by_group("a", *locators), A, *locators)
    assert registration.see(None) is GONE
    assert not registration.has


def test_a_lost_registrar_that_answers_at_its_locator_already_is_discarded_and_discovered() -> None:
    registration = having(by_group("a", HERE), A, HERE)
    assert registration.see(reach(HERE)) is GONE
    assert registration.see(reach(HERE)) is FOUND


def test_a_registrar_that_is_covered_by_locator_only_is_never_lost() -> None:
    registration = having(reach(HERE), A, HERE)
    assert registration.see(None) is None
    assert registration.has
    assert registration.see(reach(HERE)) is None


def test_a_locator_covers_a_registrar_until_another_one_answers_there() -> None:
    registration = having(reach(HERE, ALIAS), NO_GROUPS, HERE, ALIAS)
    assert registration.see(None, HERE) is None
    assert registration.see(None, HERE, ALIAS) is GONE


# Discarded by the client.


def test_a_discarded_registrar_has_left_immediately() -> None:
    registration = having(by_group(), A)
    assert registration.state.discard("R", NOW)
    assert not registration.has


def test_discarding_a_registrar_that_it_does_not_have_changes_nothing() -> None:
    registration = having(by_group(), A)
    assert not registration.state.discard("stranger", NOW)
    assert registration.has
    assert registration.state.waits.discarded == {}


@pytest.mark.parametrize(
    ("reached", "wait_s"),
    [
        (by_group("a"), DISCARDED_GROUP_S),
        (reach(HERE), DISCARDED_LOCATOR_S),
        (by_group("a", HERE), DISCARDED_GROUP_S),
    ],
    ids=["by group", "by locator", "both ways"],
)
def test_after_a_discard_it_must_answer_a_call_that_was_made_after_the_wait(
    reached: ReachableRegistrar[str], wait_s: float
) -> None:
    def answered(at: float) -> ReachableRegistrar[str]:
        return ReachableRegistrar(reached.registrar, reached.by_group, reached.locators, at)

    registration = having(reached, A, HERE)
    registration.state.discard("R", NOW)
    assert registration.state.check_at("R", reached, registration.service_waits) == NOW + wait_s
    assert registration.see(answered(NOW), now=NOW + 1e6) is None
    assert registration.see(answered(NOW + wait_s - 0.001), now=NOW + 1e6) is None
    assert registration.see(answered(NOW + wait_s), now=NOW + 1e6) is FOUND


def test_a_registrar_that_another_registration_has_discarded_must_answer_after_that_wait() -> None:
    registration = Registration(A)
    registration.service_waits.discarded["R"] = Discarded(0, NOW)
    assert registration.see(by_group()) is None
    assert registration.see(by_group(answered_at=NOW + DISCARDED_GROUP_S)) is FOUND


def test_a_registration_that_has_a_registrar_does_not_hear_that_another_has_discarded_it() -> None:
    registration = having(by_group(), A)
    registration.service_waits.discarded["R"] = Discarded(0, NOW)
    assert registration.see(by_group()) is None
    assert registration.has


def test_a_registrar_that_is_not_wanted_is_never_checked() -> None:
    assert Registration(A).state.check_at("R", by_group("b"), DiscardWaits()) == NEVER


def test_a_change_on_a_copy_leaves_the_original_unchanged() -> None:
    registration = having(by_group(), A)
    registration.state.waits.returned["S"] = Discarded(0, NOW)
    copy = registration.state.copy()
    assert copy.discard("R", NOW)
    copy.waits.returned.clear()
    copy.groups = NO_GROUPS
    assert registration.has
    assert registration.state.waits.discarded == {}
    assert set(registration.state.waits.returned) == {"S"}
    assert registration.state.groups == A


# Waits.


def test_a_registrar_discarded_within_a_minute_of_its_return_waits_twice_as_long() -> None:
    waits, now = DiscardWaits(), NOW
    found = []
    for _ in range(9):
        waits.discard("R", now)
        found.append(waits.end("R", DISCARDED_GROUP_S) - now)
        now = waits.end("R", DISCARDED_GROUP_S)
        waits.found("R", now)
        now += AGAIN_S
    assert found == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, MAX_WAIT_S, MAX_WAIT_S]


def test_a_registrar_discarded_later_than_that_waits_for_the_first_time_again() -> None:
    waits = DiscardWaits()
    waits.discard("R", NOW)
    waits.found("R", NOW + 10)
    waits.discard("R", NOW + 10 + AGAIN_S + 0.001)
    assert waits.end("R", DISCARDED_GROUP_S) == NOW + 20 + AGAIN_S + 0.001


def test_a_registrar_that_was_not_discarded_does_not_wait() -> None:
    assert DiscardWaits().end("R", DISCARDED_GROUP_S) == float("-inf")


def test_waits_are_bounded_and_the_oldest_is_forgotten() -> None:
    waits = DiscardWaits()
    for number in range(MAX_DISCARDED + 1):
        waits.discard(f"R{number}", NOW)
    assert len(waits.discarded) == MAX_DISCARDED
    assert waits.end("R0", 10.0) == float("-inf")


def test_returns_are_forgotten_after_a_minute() -> None:
    waits = DiscardWaits()
    waits.discard("R", NOW)
    waits.found("R", NOW + 10)
    waits.found("S", NOW + 11 + AGAIN_S)
    assert waits.returned == {}
