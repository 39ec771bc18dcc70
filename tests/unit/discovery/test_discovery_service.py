"""The rules of the discovery service, over a simulated network of registrars."""

from collections.abc import Iterator

import pytest

from leasehold.basics.durations import ANY, FOREVER
from leasehold.basics.endpoint_list import EndpointList
from leasehold.discovery.interest_limits import DiscoveryLimits
from leasehold.discovery.locators import InterestChange, Locator
from leasehold.discovery.state import DISCARDED_GROUP_S, DISCARDED_LOCATOR_S
from leasehold.errors import (
    NoSuchObject,
    PermissionDenied,
    TooBusy,
    UnknownLease,
    UnsupportedOperation,
)
from tests.support.discovery_stage import DiscoveryStage
from tests.support.registrar_network import TTL_S

ADD, SET, REMOVE = InterestChange.ADD, InterestChange.SET, InterestChange.REMOVE
R_LOCATOR, R_ALIAS = "leasehold://r", "leasehold://r-alias"
LOST_S = TTL_S + 10.0
"""Longer than it takes to lose a registrar that is silent and refuses calls."""


@pytest.fixture
def stage() -> Iterator[DiscoveryStage]:
    with DiscoveryStage() as stage:
        yield stage


# Registering.


def test_every_call_makes_a_new_registration(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    one, other = stage.register("a", name="one"), stage.register("a", name="other")
    assert one != other
    assert stage.told("one") == stage.told("other") == ["1 discovered R"]


def test_no_groups_find_nothing_until_groups_are_set(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("")
    assert stage.told() == []
    stage.groups(registration, SET, "a")
    assert stage.told() == ["1 discovered R"]


def test_all_groups_find_registrars_of_every_group_and_of_none(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a")
    stage.network.add("S", "")
    stage.network.add("T", "public")
    registration = stage.register(None)
    stage.pass_time()
    assert stage.registrars(registration) == ["R", "S", "T"]


def test_the_public_group_has_the_empty_name(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a")
    stage.network.add("T", "public")
    registration = stage.register("public")
    stage.pass_time()
    assert stage.registrars(registration) == ["T"]


def test_a_registration_is_granted_any_term_the_longest_or_the_requested_one(
    stage: DiscoveryStage,
) -> None:
    granted = [stage.register_leased("a", ttl=ttl)[1] for ttl in (ANY, FOREVER, 60.0)]
    assert granted == [3600.0, 7200.0, 60.0]


@pytest.mark.parametrize("ttl", [0.0, -1.0])
def test_a_duration_of_zero_or_less_is_refused(stage: DiscoveryStage, ttl: float) -> None:
    with pytest.raises(ValueError, match="duration"):
        stage.register("a", ttl=ttl)
    assert stage.stored() == {}


def test_limits_are_refused_before_anything_is_stored() -> None:
    limits = DiscoveryLimits(
        registrations=2,
        handback_bytes=3,
        groups=2,
        locators=2,
        locators_allowed=EndpointList(["r:2379", "r-alias:2379", "s:2379"]),
    )
    with DiscoveryStage(limits=limits) as stage:
        with pytest.raises(ValueError, match="handback must have at most 3 bytes"):
            stage.register("a", handback=b"1234")
        with pytest.raises(ValueError, match="there must be at most 2 groups"):
            stage.register("a b c", handback=b"")
        with pytest.raises(PermissionDenied, match="--discover-at"):
            stage.register("", ["leasehold://elsewhere"], handback=b"")
        assert stage.stored() == {}
        registration = stage.register("a", [R_LOCATOR], handback=b"")
        with pytest.raises(TooBusy, match="1 locators; at most 2 are allowed"):
            stage.locators(registration, ADD, [R_ALIAS, "leasehold://s"])
        with pytest.raises(PermissionDenied):
            stage.locators(registration, SET, ["leasehold://elsewhere"])
        with pytest.raises(ValueError, match="there must be at most 2 groups"):
            stage.groups(registration, ADD, "b c")
        assert stage.live(registration).interests.groups == frozenset({"a"})
        assert stage.live(registration).interests.locators == (Locator("r"),)
        stage.register("", [R_LOCATOR], handback=b"")  # it is one locator of both
        with pytest.raises(TooBusy, match="2 objects, the maximum"):
            stage.register("", handback=b"")


# The end.


def test_after_the_end_of_its_lease_every_call_answers_no_such_object(
    stage: DiscoveryStage,
) -> None:
    registration = stage.register("a", ttl=30.0)
    stage.pass_time(29.0)
    assert stage.registrars(registration) == []
    stage.pass_time(1.1)
    with pytest.raises(NoSuchObject):
        stage.live(registration)
    with pytest.raises(NoSuchObject):
        stage.groups(registration, ADD, "b")
    with pytest.raises(NoSuchObject):
        stage.locators(registration, ADD, [R_LOCATOR])
    with pytest.raises(NoSuchObject):
        stage.discard(registration, "R")
    with pytest.raises(UnknownLease):
        stage.run(stage.service.records.renew, registration, 10.0)
    with pytest.raises(UnknownLease):
        stage.run(stage.service.records.cancel, registration)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_discovery_and_events_stop_together_with_the_lease(
    stage: DiscoveryStage,
    is_cancelled: bool,
) -> None:
    registration = stage.register("a", [R_LOCATOR], ttl=30.0)
    stage.pass_time()
    if is_cancelled:
        stage.run(stage.service.records.cancel, registration)
    else:
        stage.pass_time(30.0)
    stage.network.add("R")
    stage.network.calls.clear()
    stage.pass_time(600.0)
    assert stage.told() == []
    assert stage.network.calls == []
    assert stage.stored() == {}


def test_a_renewed_registration_lives_on(stage: DiscoveryStage) -> None:
    registration = stage.register("a", ttl=30.0)
    for _ in range(5):
        stage.pass_time(20.0)
        assert stage.run(stage.service.records.renew, registration, 30.0) == 30.0
    stage.network.add("R")
    assert stage.told() == ["1 discovered R"]


def test_an_id_that_was_never_given_answers_no_such_object(stage: DiscoveryStage) -> None:
    for unknown in ("0" * 32, "", "x"):
        with pytest.raises(NoSuchObject):
            stage.live(unknown)


# Discovered.


def test_discovered_is_sent_once_for_each_registrar_and_registration(
    stage: DiscoveryStage,
) -> None:
    registration = stage.register("a b", [R_LOCATOR, R_ALIAS])
    stage.network.add("R", "a b")
    stage.pass_time(60.0)  # it is found at its locators, too
    for _ in range(3):
        stage.network.announce("R")
        stage.pass_time(TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_a_registrar_at_equal_locators_and_at_two_spellings_is_one_registrar(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", announces=False)
    locators = [R_LOCATOR, "leasehold://R:2379", "leaseholds://r", R_ALIAS]
    stage.network.at["https://r:2379"] = "R"
    registration = stage.register("", locators)
    assert stage.told() == ["1 discovered R"]
    found = stage.live(registration).interests.locators
    assert list(map(str, found)) == ["leaseholds://r:2379", "leasehold://r-alias:2379"]
    stage.locators(registration, REMOVE, ["leasehold://R"])
    assert stage.news() == ["discovered R"]
    stage.locators(registration, REMOVE, [R_ALIAS])
    assert stage.news() == ["discarded R"]


def test_new_interest_in_a_group_that_is_found_elsewhere_makes_an_event_immediately(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    stage.register("a", name="earlier")
    late = stage.register("b")
    stage.pass_time(10.0)
    calls = len(stage.network.calls)
    stage.groups(late, ADD, "a")
    assert stage.registrars(late) == ["R"], "when the call returns"
    assert stage.told(wait_s=0.1) == ["1 discovered R"]
    assert len(stage.network.calls) == calls
    stage.register("a", name="later")
    assert stage.told("later", wait_s=0.1) == ["1 discovered R"]
    assert stage.told("earlier") == ["1 discovered R"]


def test_new_interest_in_a_locator_that_is_found_elsewhere_makes_an_event_immediately(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", announces=False)
    stage.register("", [R_LOCATOR], name="earlier")
    late = stage.register("")
    stage.pass_time()
    calls = len(stage.network.calls)
    stage.locators(late, ADD, ["leasehold://R:2379"])
    assert stage.registrars(late) == ["R"]
    assert stage.told(wait_s=0.1) == ["1 discovered R"]
    assert len(stage.network.calls) == calls


@pytest.mark.parametrize("first", ["group", "locator"])
def test_new_interest_in_a_registrar_that_it_has_makes_no_event(
    stage: DiscoveryStage, first: str
) -> None:
    stage.network.add("R", "a")
    stage.register("a", [R_LOCATOR], name="earlier")
    is_group = first == "group"
    registration = stage.register("a" if is_group else "", [] if is_group else [R_LOCATOR])
    assert stage.told() == ["1 discovered R"]
    if is_group:
        stage.locators(registration, ADD, [R_LOCATOR])
    else:
        stage.groups(registration, ADD, "a")
    stage.pass_time(TTL_S)
    assert stage.told() == ["1 discovered R"]


def test_a_registrar_that_announces_a_further_group_is_discovered_by_those_that_want_it(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    stage.register("a", name="a")
    stage.register("b", name="b")
    stage.register("a b", name="both")
    stage.register("c", name="c")
    stage.pass_time()
    stage.network.join("R", "a b")
    assert stage.told("b") == ["1 discovered R"]
    assert stage.told("a") == stage.told("both") == ["1 discovered R"]
    assert stage.told("c") == []


def test_a_registrar_that_nobody_wanted_is_discovered_once_it_joins_a_wanted_group(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "z")
    stage.register("a")
    assert stage.told() == []
    stage.network.join("R", "z a")
    assert stage.told() == ["1 discovered R"]


def test_several_registrars_that_are_found_together_travel_in_one_event(
    stage: DiscoveryStage,
) -> None:
    for name in "RST":
        stage.network.add(name)
    stage.register("a", name="earlier")
    stage.pass_time()
    stage.register("a")
    assert stage.told() == ["1 discovered R S T"]


def test_registrars_have_their_groups_endpoints_and_cluster(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a b")
    registration = stage.register("a")
    stage.pass_time()
    (found,) = stage.described(registration)
    described = stage.network["R"].describe()
    assert found == described
    assert (found.groups, found.endpoints) == (described.groups, described.endpoints)
    assert (found.cluster, found.groups_number) == (described.cluster, 1)
    stage.network.join("R", "a c")
    stage.pass_time()
    assert stage.described(registration)[0].groups == {"a", "c"}


# Changing interests.


@pytest.mark.parametrize("change", [ADD, REMOVE])
def test_groups_cannot_be_added_to_or_removed_from_all_groups(
    stage: DiscoveryStage, change: InterestChange
) -> None:
    registration = stage.register(None)
    with pytest.raises(UnsupportedOperation):
        stage.groups(registration, change, "a")
    with pytest.raises(TypeError):
        stage.groups(registration, change, None)
    assert stage.live(registration).interests.groups is None


@pytest.mark.parametrize(
    ("change", "groups"), [(ADD, ""), (REMOVE, ""), (REMOVE, "unknown"), (ADD, "a"), (SET, "a")]
)
def test_empty_unknown_or_equal_groups_change_and_write_nothing(
    stage: DiscoveryStage, change: InterestChange, groups: str
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    writes = stage.faulty.calls.count("txn")
    stage.groups(registration, change, groups)
    stage.pass_time()
    assert stage.live(registration).interests.groups == frozenset({"a"})
    assert stage.faulty.calls.count("txn") == writes
    assert stage.told() == ["1 discovered R"]


@pytest.mark.parametrize(
    ("change", "locators"),
    [
        (ADD, []),
        (REMOVE, []),
        (REMOVE, ["leasehold://unknown"]),
        (ADD, ["leasehold://R:2379"]),
        (SET, ["leasehold://R:2379"]),
    ],
)
def test_empty_unknown_or_equal_locators_change_and_write_nothing(
    stage: DiscoveryStage, change: InterestChange, locators: list[str]
) -> None:
    stage.network.add("R", announces=False)
    registration = stage.register("", [R_LOCATOR])
    stage.pass_time()
    writes = stage.faulty.calls.count("txn")
    stage.locators(registration, change, locators)
    stage.pass_time()
    assert stage.live(registration).interests.locators == (Locator("r"),)
    assert stage.faulty.calls.count("txn") == writes
    assert stage.told() == ["1 discovered R"]


def test_groups_that_are_set_to_empty_halt_discovery_and_set_to_none_discover_all(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    registration = stage.register("a")
    assert stage.news() == ["discovered R"]
    stage.groups(registration, SET, "")
    assert stage.registrars(registration) == []
    assert stage.news() == ["discarded R"]
    stage.network.calls.clear()
    stage.network.add("S", "b")
    stage.network.join("R", "a b")
    stage.pass_time(2 * TTL_S)
    assert stage.network.calls == []
    stage.groups(registration, SET, None)
    stage.pass_time()
    assert stage.registrars(registration) == ["R", "S"]
    assert sorted(" ".join(stage.news()).replace("discovered", "").split()) == ["R", "S"]


def test_locators_that_are_set_to_empty_halt_their_discovery(stage: DiscoveryStage) -> None:
    registration = stage.register("", [R_LOCATOR])
    stage.pass_time()
    stage.locators(registration, SET, [])
    stage.network.calls.clear()
    stage.network.add("R", announces=False)
    stage.pass_time(600.0)
    assert stage.network.calls == []
    assert stage.told() == []


def test_a_locator_is_called_until_a_registrar_answers(stage: DiscoveryStage) -> None:
    stage.register("", [R_LOCATOR])
    stage.pass_time(36.0)
    stage.network.add("R", announces=False)
    calls = len(stage.network.calls)
    assert 4 <= calls <= 6, "after waits of 5, 10 and 20 s, shortened by up to a fifth"
    assert stage.told(wait_s=30.0) == ["1 discovered R"]
    stage.pass_time(600.0)
    assert len(stage.network.calls) == calls + 1


def test_a_registrar_that_appears_while_an_interest_is_stored_is_discovered(
    stage: DiscoveryStage,
) -> None:
    registration = stage.register("")
    stage.register("a", name="other")
    stage.pass_time()
    stage.faulty.delay_s = 0.2
    change = stage.host.start(stage.service.change_groups, registration, ADD, ["a"])
    stage.pass_time(0.05)
    stage.network.add("R", "a")
    stage.pass_time(10.0)
    assert change.done()
    assert stage.told("other") == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]
    assert stage.told() == ["1 discovered R"]


# The table of discarded events: the client called `discard`.


def test_of_a_discard_only_the_registration_that_called_hears(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    other = stage.register("a", name="other")
    stage.pass_time()
    stage.discard(registration, "R")
    assert stage.registrars(registration) == []
    assert stage.registrars(other) == ["R"]
    assert stage.told() == ["1 discovered R", "2 discarded R"]
    stage.pass_time(600.0)
    assert stage.told("other") == ["1 discovered R"]


def test_a_discard_of_a_registrar_that_is_not_found_is_ignored(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.discard(registration, "stranger")
    stage.discard(registration, "R")
    stage.discard(registration, "R")
    assert stage.told() == ["1 discovered R", "2 discarded R"]


@pytest.mark.parametrize(
    ("groups", "locators", "wait_s"),
    [("a", [], DISCARDED_GROUP_S), ("", [R_LOCATOR], DISCARDED_LOCATOR_S)],
    ids=["by group", "by locator"],
)
def test_after_a_discard_it_is_rediscovered_by_a_call_after_the_wait(
    stage: DiscoveryStage, groups: str, locators: list[str], wait_s: float
) -> None:
    stage.network.add("R")
    registration = stage.register(groups, locators)
    stage.register(groups, locators, name="other")
    stage.pass_time()
    stage.network.calls.clear()
    begun = stage.sim.now
    stage.discard(registration, "R")
    stage.pass_time(wait_s - 0.5)
    assert stage.network.calls_to("R") == []
    assert stage.registrars(registration) == []
    assert stage.told(wait_s=1.0)[2:] == ["3 discovered R"]
    (called,) = stage.network.calls_to("R")
    assert called == pytest.approx(begun + wait_s, abs=0.1)
    assert stage.told("other") == ["1 discovered R"]


def test_a_discarded_registrar_that_does_not_answer_is_rediscovered_when_it_does(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.discard(registration, "R")
    stage.network["R"].is_hanging = True
    stage.pass_time(45.0)
    assert stage.registrars(registration) == []
    stage.network["R"].is_hanging = False
    stage.pass_time(60.0)
    assert stage.told() == ["1 discovered R", "2 discarded R", "3 discovered R"]


def test_of_the_rediscovery_hear_those_that_discarded_it_and_those_registered_in_between(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    one, two = stage.register("a", name="one"), stage.register("a", name="two")
    stage.register("a", name="keeps it")
    stage.pass_time()
    stage.discard(one, "R")
    stage.discard(two, "R")
    stage.pass_time(5.0)
    late = stage.register("a", name="late")
    unconcerned = stage.register("b", name="unconcerned")
    stage.pass_time(3.5)
    assert stage.registrars(late) == []
    for name in ("one", "two"):
        assert stage.told(name, wait_s=2.0)[2:] == ["3 discovered R"]
    assert stage.told("late") == ["1 discovered R"]
    assert stage.told("keeps it") == ["1 discovered R"]
    assert stage.registrars(unconcerned) == []


def test_one_discarded_again_within_a_minute_of_its_return_waits_twice_as_long(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    for wait_s in (10.0, 20.0, 40.0):
        stage.discard(registration, "R")
        stage.pass_time(wait_s - 0.5)
        assert stage.registrars(registration) == []
        stage.pass_time(1.0)
        assert stage.registrars(registration) == ["R"]
    stage.pass_time(61.0)
    stage.discard(registration, "R")
    stage.pass_time(10.5)
    assert stage.registrars(registration) == ["R"]


def test_interest_that_is_withdrawn_and_renewed_does_not_end_the_wait(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.discard(registration, "R")
    stage.groups(registration, SET, "")
    stage.groups(registration, SET, "a")
    stage.pass_time(5.0)
    assert stage.registrars(registration) == []
    stage.pass_time(6.0)
    assert stage.registrars(registration) == ["R"]


# Interest withdrawn.


def test_of_withdrawn_groups_hears_that_registration(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a b")
    registration = stage.register("a b")
    stage.register("a", name="other")
    stage.pass_time()
    stage.groups(registration, REMOVE, "b")
    assert stage.news() == ["discovered R"]
    stage.groups(registration, REMOVE, "a")
    assert stage.registrars(registration) == []
    assert stage.news() == ["discarded R"]
    assert stage.told("other") == ["1 discovered R"]


def test_of_replaced_groups_hears_that_registration_in_two_events(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a")
    stage.network.add("S", "b")
    stage.register("b", name="other")
    registration = stage.register("a")
    stage.pass_time()
    stage.groups(registration, SET, "b")
    assert stage.told() == ["1 discovered R", "2 discarded R", "3 discovered S"]
    assert stage.registrars(registration) == ["S"]


@pytest.mark.parametrize("withdrawn", ["groups", "locators"])
def test_of_withdrawn_interest_nobody_hears_if_another_interest_covers_the_registrar(
    stage: DiscoveryStage, withdrawn: str
) -> None:
    stage.network.add("R", "a")
    registration = stage.register("a", [R_LOCATOR])
    stage.pass_time()
    if withdrawn == "groups":
        stage.groups(registration, SET, "")
    else:
        stage.locators(registration, SET, [])
    stage.pass_time(2 * TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_of_withdrawn_locators_hears_that_registration(stage: DiscoveryStage) -> None:
    stage.network.add("R", announces=False)
    registration = stage.register("", [R_LOCATOR, R_ALIAS])
    stage.register("", [R_LOCATOR], name="other")
    stage.pass_time()
    stage.locators(registration, REMOVE, [R_LOCATOR])
    assert stage.news() == ["discovered R"]
    stage.locators(registration, SET, ["leasehold://elsewhere"])
    assert stage.news() == ["discarded R"]
    assert stage.told("other") == ["1 discovered R"]


# The registrar left the groups.


@pytest.mark.parametrize("groups", ["b", ""])
def test_of_a_registrar_that_left_the_groups_hear_those_interested_by_group(
    stage: DiscoveryStage, groups: str
) -> None:
    stage.network.add("R", "a b")
    by_group = stage.register("a", name="by group")
    by_locator = stage.register("", [R_LOCATOR], name="by locator")
    both = stage.register("a", [R_LOCATOR], name="both")
    everything = stage.register(None, name="all")
    stage.pass_time()
    stage.network.join("R", groups)
    assert stage.told("by group") == ["1 discovered R", "2 discarded R"]
    stage.pass_time(2 * TTL_S)
    for name in ("by locator", "both", "all"):
        assert stage.told(name) == ["1 discovered R"]
    assert stage.registrars(by_group) == []
    for registration in (by_locator, both, everything):
        assert stage.registrars(registration) == ["R"]


def test_a_registrar_that_left_all_wanted_groups_is_kept_where_a_locator_covers_it(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    registration = stage.register("a", [R_LOCATOR])
    stage.pass_time()
    stage.network.join("R", "b")
    stage.pass_time(2 * TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_a_registrar_that_leaves_the_groups_while_its_discovery_is_stored_is_discarded(
    stage: DiscoveryStage,
) -> None:
    registration = stage.register("a")
    stage.register(None, name="all")  # so that it is still found by group
    stage.pass_time()
    stage.faulty.delay_s = 0.2
    stage.network.add("R", "a")
    stage.pass_time(0.1)
    stage.network.join("R", "b")
    stage.pass_time(5.0)
    assert stage.told() == ["1 discovered R", "2 discarded R"]
    assert stage.registrars(registration) == []


def test_a_registrar_that_left_and_joins_again_is_discovered_again(stage: DiscoveryStage) -> None:
    stage.network.add("R", "a")
    stage.register("a")
    stage.pass_time()
    stage.network.join("R", "b")
    stage.pass_time()
    stage.network.join("R", "a b")
    assert stage.told(wait_s=5.0) == ["1 discovered R", "2 discarded R", "3 discovered R"]


# Announcements stopped, and it is unreachable.


def test_of_a_lost_registrar_hear_those_interested_by_group_within_twice_the_ttl(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a", name="by group")
    by_locator = stage.register("", [R_LOCATOR], name="by locator")
    stage.register("a", [R_LOCATOR], name="both")
    stage.pass_time(TTL_S / 2 - 1.0)
    stage.network.kill("R")
    stage.pass_time(LOST_S)
    for name in ("by group", "both"):
        assert stage.told(name) == ["1 discovered R", "2 discarded R"]
        assert stage.inbox.times(name)[-1] <= 2 * TTL_S
    stage.pass_time(600.0)
    assert stage.told("by locator") == ["1 discovered R"]
    assert stage.registrars(by_locator) == ["R"], "its client calls discard"


def test_a_silent_registrar_that_answers_a_call_is_kept(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.network.silence("R")
    stage.pass_time(20 * TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]
    stage.network.kill("R")
    assert stage.told(wait_s=2 * TTL_S) == ["1 discovered R", "2 discarded R"]


def test_an_unreachable_registrar_that_is_still_announced_is_kept(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.network["R"].is_hanging = True
    stage.pass_time(20 * TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_a_registrar_that_says_goodbye_and_is_gone_is_discarded_immediately(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a")
    stage.pass_time()
    stage.network.stop("R")
    assert stage.told() == ["1 discovered R", "2 discarded R"]


def test_a_registrar_that_says_goodbye_and_still_answers_is_kept_until_it_does_not(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a")
    stage.pass_time()
    stage.network.say_goodbye("R")
    stage.network.silence("R")
    assert stage.told() == ["1 discovered R"]
    stage.network.kill("R")
    assert stage.told(wait_s=10.0) == ["1 discovered R", "2 discarded R"]


def test_one_that_also_has_its_locator_resumes_locator_discovery_immediately(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a", [R_LOCATOR])
    stage.pass_time()
    stage.network.stop("R")
    begun = stage.sim.now
    assert stage.told() == ["1 discovered R", "2 discarded R"]
    assert len(stage.network.calls_to("R", since=begun)) == 2, "the check, and the locator"
    stage.network["R"].is_up = True  # and it is not announced
    stage.pass_time(10.0)
    assert stage.told() == ["1 discovered R", "2 discarded R", "3 discovered R"]


def test_a_lost_registrar_that_returns_is_discovered_again(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    stage.register("a")
    stage.pass_time()
    for _ in range(3):
        stage.network.cut("R")
        stage.pass_time(2 * TTL_S)
        stage.network.restore("R")
        stage.pass_time(10.0)
    kinds = [each.split()[1] for each in stage.told()]
    assert kinds == ["discovered", "discarded"] * 3 + ["discovered"]


# Locators that another registrar has taken.


def test_a_registrar_goes_when_another_one_answers_at_its_locator(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    stage.network.add("S", announces=False)
    registration = stage.register("", [R_LOCATOR])
    stage.register("a", [R_LOCATOR], name="other")
    stage.pass_time()
    stage.network.stop("R")  # for the other registration it is lost, so the locator is called
    stage.network.replace("r:2379", "S")
    stage.pass_time(10.0)
    assert stage.registrars(registration) == ["S"]
    assert stage.told() == ["1 discovered R", "2 discarded R", "3 discovered S"]


# The server.


def test_closing_the_service_stops_calls_and_events_and_keeps_the_registrations(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a", [R_LOCATOR])
    stage.pass_time()
    keys = stage.stored()
    stage.run(stage.close)
    stage.network.calls.clear()
    stage.network.add("S")
    stage.network.kill("R")
    stage.pass_time(600.0)
    assert stage.told() == ["1 discovered R"]
    assert stage.network.calls == []
    assert set(keys) >= set(stage.stored())


def test_what_is_known_of_a_registrar_is_removed_with_the_last_registration_that_has_it(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.network.add("S")
    one, two = stage.register("a", name="one"), stage.register("a", name="two")
    stage.pass_time()
    assert stage.known() == {"R", "S"}
    stage.network.stop("S")
    stage.pass_time()
    assert stage.known() == {"R"}
    stage.groups(one, SET, "")
    stage.pass_time()
    assert stage.known() == {"R"}
    stage.run(stage.service.records.cancel, two)
    stage.pass_time()
    assert stage.known() == set()


def test_registrars_are_counted_once_for_all_registrations(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    stage.network.add("S")
    stage.register("a", name="one")
    stage.register("a", name="two")
    stage.pass_time()
    assert stage.service.registrars == 2
