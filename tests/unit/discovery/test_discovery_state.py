"""The rules of discovery, in virtual time: calls, waits, covers and events."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest

from leasehold.discovery.announced import (
    CALL_GAP_S,
    MAX_REGISTRARS,
    MAX_SERVERS,
    Announcement,
    Registrar,
)
from leasehold.discovery.searches import Call
from leasehold.discovery.state import (
    ALL_GROUPS,
    LOCATOR_WAITS_S,
    MAX_CALLS,
    NO_GROUPS,
    RESERVED_CALLS,
    DiscoveryState,
)

TTL_S: Final = 120.0
HERE: Final = "leasehold://here:1"
ALIAS: Final = "leasehold://alias:1"


class World:
    """Registrars by endpoint, and a client's discovery. Calls are answered immediately."""

    def __init__(self, *, groups: frozenset[str] | None = NO_GROUPS, locators: str = "") -> None:
        self.now = 1000.0
        self.state: DiscoveryState[str] = DiscoveryState()
        self.at: dict[str, Registrar] = {}
        """What answers at an endpoint; nothing answers at others."""
        self.calls: list[tuple[float, tuple[str, ...]]] = []
        self.events: list[str] = []
        self.state.set_groups(groups, self.now)
        self.want(*locators.split())

    def want(self, *locators: str) -> None:
        self.state.set_locators({each: each for each in locators}, self.now)
        self.settle()

    def want_groups(self, groups: frozenset[str] | None) -> None:
        self.state.set_groups(groups, self.now)
        self.settle()

    def serve(self, name: str, *endpoints: str, groups: str = "a", number: int = 1) -> Registrar:
        registrar = Registrar(name, frozenset(groups.split()), number, endpoints)
        self.at.update(dict.fromkeys(endpoints, registrar))
        return registrar

    def announce(
        self, name: str, endpoint: str, number: int = 1, ttl_s: float = TTL_S, server: str = ""
    ) -> None:
        heard = Announcement(server or endpoint, name, (endpoint,), number, ttl_s)
        self.state.announced(heard, self.now)
        self.settle()

    def goodbye(self, server: str) -> None:
        self.state.withdrawn(server, self.now)
        self.settle()

    def discard(self, name: str) -> None:
        self.state.discard(name, self.now)
        self.settle()

    def settle(self, answer: Callable[[Call], None] | None = None) -> None:
        while calls := self.state.due(self.now):
            for call in calls:
                self.calls.append((self.now, call.endpoints))
                (answer or self.answer)(call)
        for event in self.state.take_events():
            names = ",".join(each.id for each in event.registrars)
            self.events.append(f"{event.kind.value} {names}")

    def answer(self, call: Call) -> None:
        found = [self.at[each] for each in call.endpoints if each in self.at]
        if found:
            self.state.answered(call, found[0], self.now)
        else:
            self.state.failed(call, self.now)

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.state.next_at <= until:
            self.now = max(self.now, self.state.next_at)
            self.settle()
        self.now = until

    def heard(self) -> list[str]:
        events, self.events = self.events, []
        return events

    def waits(self) -> list[float]:
        times = [at for at, _ in self.calls]
        return [later - earlier for earlier, later in pairwise(times)]

    def endpoints(self, name: str) -> tuple[str, ...]:
        return next(each.endpoints for each in self.state.registrars if each.id == name)

    @property
    def found(self) -> list[str]:
        return [each.id for each in self.state.registrars]


GROUP_A: Final = frozenset({"a"})


def found_by_group() -> World:
    world = World(groups=GROUP_A)
    world.serve("R", "e1")
    world.announce("R", "e1")
    assert world.heard() == ["discovered R"]
    return world


def found_both_ways() -> World:
    world = World(groups=GROUP_A, locators=HERE)
    world.serve("R", "e1", HERE)
    world.pass_time(5.0)
    world.announce("R", "e1")
    assert world.heard() == ["discovered R"]
    return world


# Locators.


def test_a_locator_is_called_after_5_10_20_30_s_1_2_4_8_15_min_and_then_every_15_min() -> None:
    world = World(locators=HERE)
    world.pass_time(2 * 3600.0)
    minutes = [60.0 * each for each in (1, 2, 4, 8, 15, 15, 15, 15, 15, 15)]
    assert world.waits()[:14] == [5.0, 10.0, 20.0, 30.0, *minutes]
    assert not world.heard()


def test_a_locator_is_called_until_a_registrar_answers() -> None:
    world = World(locators=HERE)
    world.pass_time(6.0)
    world.serve("R", HERE)
    world.pass_time(3600.0)
    assert world.heard() == ["discovered R"]
    assert len(world.calls) == 3
    assert world.state.locators == {HERE: "R"}


def test_a_locator_that_is_not_wanted_any_more_is_not_called() -> None:
    world = World(locators=HERE)
    world.want()
    world.pass_time(3600.0)
    assert len(world.calls) == 1


def test_an_answer_at_a_locator_that_is_not_wanted_any_more_is_ignored() -> None:
    world = World()
    world.state.set_locators({HERE: HERE}, world.now)
    (call,) = world.state.due(world.now)
    world.state.set_locators({}, world.now)
    world.state.answered(call, Registrar("R"), world.now)
    assert world.found == []


def test_two_spellings_of_one_registrar_are_one_registrar() -> None:
    world = World()
    world.serve("R", HERE, ALIAS)
    world.want(HERE, ALIAS)
    assert world.heard() == ["discovered R"]
    assert world.found == ["R"]
    assert world.state.locators == {HERE: "R", ALIAS: "R"}


def test_a_registrar_goes_with_its_last_locator() -> None:
    world = World()
    world.serve("R", HERE, ALIAS)
    world.want(HERE, ALIAS)
    world.want(ALIAS)
    assert world.heard() == ["discovered R"]
    world.want()
    assert world.heard() == ["discarded R"]


def test_a_registrar_that_is_found_by_locator_only_is_never_lost() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE)
    world.pass_time(5.0)
    del world.at[HERE]
    world.pass_time(86_400.0)
    assert world.heard() == ["discovered R"]


def test_a_locator_that_is_set_again_keeps_its_registrar() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE)
    world.pass_time(5.0)
    calls = len(world.calls)
    world.want(HERE)
    assert len(world.calls) == calls
    assert world.found == ["R"]


# Groups.


def test_an_announced_registrar_is_found_when_it_has_answered() -> None:
    world = World(groups=GROUP_A)
    world.state.announced(Announcement("s", "R", ("e1",), 1, TTL_S), world.now)
    (call,) = world.state.due(world.now)
    assert (call.endpoints, call.registrar) == (("e1",), "R")
    assert world.found == []
    world.state.answered(call, Registrar("R", GROUP_A, 1, ("e1",)), world.now)
    assert world.found == ["R"]


def test_a_registrar_that_names_another_id_is_not_found() -> None:
    world = World(groups=ALL_GROUPS)
    world.serve("OTHER", "e1")
    world.announce("R", "e1")
    assert world.found == []
    world.serve("R", "e1")
    world.pass_time(5.0)
    assert world.heard() == ["discovered R"]


def test_an_announced_registrar_that_does_not_answer_is_called_again_while_it_is_heard() -> None:
    world = World(groups=GROUP_A)
    world.announce("R", "e1")
    world.pass_time(20.0)
    world.announce("R", "e1")  # no call: one is due later
    world.pass_time(3600.0)
    assert world.waits() == [5.0, 10.0, 20.0, 30.0, 60.0]


def test_a_registrar_of_other_groups_is_not_found() -> None:
    world = World(groups=GROUP_A)
    world.serve("R", "e1", groups="b")
    world.announce("R", "e1")
    world.announce("R", "e1")
    assert world.found == []
    assert len(world.calls) == 1  # its groups are known


def test_all_groups_finds_registrars_of_no_group_too() -> None:
    world = World(groups=ALL_GROUPS)
    world.serve("R", "e1", groups="")
    world.announce("R", "e1")
    assert world.heard() == ["discovered R"]


def test_no_groups_calls_no_registrar_that_is_heard() -> None:
    world = World(groups=NO_GROUPS)
    world.serve("R", "e1")
    world.announce("R", "e1")
    assert world.calls == []


def test_groups_that_are_wanted_later_find_what_was_heard_before() -> None:
    world = World(groups=frozenset({"b"}))
    world.serve("R", "e1")
    world.announce("R", "e1")
    world.want_groups(GROUP_A)
    assert world.heard() == ["discovered R"]


def test_a_registrar_goes_with_its_last_group() -> None:
    world = World(groups=frozenset({"a", "b"}))
    world.serve("R", "e1", groups="a b")
    world.announce("R", "e1")
    world.want_groups(GROUP_A)
    assert world.heard() == ["discovered R"]
    world.want_groups(NO_GROUPS)
    assert world.heard() == ["discarded R"]


@pytest.mark.parametrize("dropped", ["group", "locator"])
def test_of_a_registrar_that_is_found_both_ways_dropping_one_sends_nothing(dropped: str) -> None:
    world = found_both_ways()
    if dropped == "group":
        world.want_groups(NO_GROUPS)
        assert world.heard() == []
        world.want()
    else:
        world.want()
        assert world.heard() == []
        world.want_groups(NO_GROUPS)
    assert world.heard() == ["discarded R"]


# Changes of groups.


def test_a_changed_number_of_the_groups_is_asked_about_and_reported() -> None:
    world = found_by_group()
    world.serve("R", "e1", groups="a b", number=2)
    world.announce("R", "e1", number=2)
    assert world.heard() == ["changed R"]
    assert world.state.registrars[0].groups == {"a", "b"}
    world.announce("R", "e1", number=2)
    assert world.heard() == []
    assert len(world.calls) == 2


def test_a_registrar_that_left_the_groups_is_discarded() -> None:
    world = found_by_group()
    world.serve("R", "e1", groups="b", number=2)
    world.announce("R", "e1", number=2)
    assert world.heard() == ["discarded R"]


def test_a_registrar_that_left_the_groups_stays_while_a_locator_covers_it() -> None:
    world = found_both_ways()
    world.serve("R", "e1", HERE, groups="b", number=2)
    world.announce("R", "e1", number=2)
    assert world.heard() == []
    world.want()
    assert world.heard() == ["discarded R"]


def test_a_registrar_that_enters_a_wanted_group_is_discovered() -> None:
    world = World(groups=GROUP_A)
    world.serve("R", "e1", groups="b")
    world.announce("R", "e1")
    world.serve("R", "e1", groups="a", number=2)
    world.announce("R", "e1", number=2)
    assert world.heard() == ["discovered R"]


def test_changed_groups_of_a_registrar_that_is_found_by_locator_only_are_not_reported() -> None:
    world = World(groups=frozenset({"z"}), locators=HERE)
    world.serve("R", "e1", HERE)
    world.pass_time(5.0)
    world.announce("R", "e1")
    world.serve("R", "e1", HERE, groups="b", number=2)
    world.announce("R", "e1", number=2)
    assert world.heard() == ["discovered R"]
    assert world.state.registrars[0].groups == {"b"}


def test_a_server_that_still_announces_the_former_number_is_asked_about_once() -> None:
    world = found_by_group()
    world.serve("R", "e1", "e2", groups="a b", number=2)
    world.announce("R", "e1", number=2)
    for _ in range(5):
        world.announce("R", "e2", number=1)
    assert len(world.calls) == 3
    assert world.heard() == ["changed R"]


def test_a_registrar_whose_groups_change_during_a_call_is_asked_again() -> None:
    world = World(groups=GROUP_A)
    world.state.announced(Announcement("s", "R", ("e1",), 1, TTL_S), world.now)
    (early,) = world.state.due(world.now)
    world.serve("R", "e1", groups="a b", number=2)
    world.state.announced(Announcement("s", "R", ("e1",), 2, TTL_S), world.now)
    assert world.state.due(world.now) == []  # one call at a time
    world.state.answered(early, Registrar("R", GROUP_A, 1), world.now)
    world.pass_time(CALL_GAP_S)
    assert world.heard() == ["discovered R", "changed R"]
    assert len(world.calls) == 1


# Silence.


def test_a_silent_registrar_that_answers_is_kept() -> None:
    world = found_by_group()
    world.pass_time(20 * TTL_S)
    assert world.heard() == []
    assert len(world.calls) > 10


def test_a_silent_registrar_that_does_not_answer_is_discarded_within_twice_the_ttl() -> None:
    world = found_by_group()
    world.pass_time(10.0)
    del world.at["e1"]
    world.pass_time(TTL_S - 11.0)
    assert world.heard() == []
    world.pass_time(TTL_S + 11.0)
    assert world.heard() == ["discarded R"]


@pytest.mark.parametrize("silent_for_s", [0.5, 130.0, 700.0, 5000.0])
def test_a_registrar_that_was_silent_before_it_died_is_discarded_within_the_ttl(
    silent_for_s: float,
) -> None:
    world = found_by_group()
    world.goodbye("e1")
    world.pass_time(silent_for_s)
    del world.at["e1"]
    world.pass_time(TTL_S)
    assert world.heard() == ["discarded R"]


def test_the_groups_that_a_silent_registrar_answers_count_like_an_announced_change() -> None:
    world = found_by_group()
    world.serve("R", "e1", groups="a b", number=2)
    world.pass_time(TTL_S)
    assert world.heard() == ["changed R"]
    world.serve("R", "e1", groups="b", number=3)
    world.pass_time(TTL_S)
    assert world.heard() == ["discarded R"]
    assert world.state.next_at == float("inf")  # it is not called any more


def test_a_silent_registrar_that_is_heard_again_is_not_called() -> None:
    world = found_by_group()
    world.goodbye("e1")
    world.announce("R", "e1")
    calls = len(world.calls)
    world.pass_time(TTL_S - 1.0)
    assert len(world.calls) == calls


def test_a_lost_registrar_resumes_the_search_at_its_locators_immediately() -> None:
    world = found_both_ways()
    world.at.clear()
    world.calls.clear()
    world.goodbye("e1")
    assert world.heard() == ["discarded R"]
    assert [endpoints for _, endpoints in world.calls] == [("e1", HERE), (HERE,)]
    world.pass_time(LOCATOR_WAITS_S[0])
    assert len(world.calls) == 3
    world.serve("R", "e1", HERE)
    world.pass_time(LOCATOR_WAITS_S[1])
    assert world.heard() == ["discovered R"]


def test_a_lost_registrar_is_found_again_when_it_is_heard() -> None:
    world = found_by_group()
    world.at.clear()
    world.goodbye("e1")
    world.serve("R", "e1")
    world.pass_time(1.0)
    world.announce("R", "e1")
    assert world.heard() == ["discarded R", "discovered R"]


def test_the_goodbye_of_one_server_removes_only_its_endpoint() -> None:
    world = found_by_group()
    world.serve("R", "e1", "e2", "e3")
    world.announce("R", "e2", number=2)
    assert world.endpoints("R") == ("e1", "e2", "e3")
    calls = len(world.calls)
    del world.at["e1"]
    world.goodbye("e1")
    assert world.endpoints("R") == ("e2", "e3")
    assert len(world.calls) == calls
    world.pass_time(10.0)
    assert world.endpoints("R") == ("e2", "e3")
    world.at.clear()
    world.goodbye("e2")
    assert world.heard() == ["discarded R"]


def test_the_goodbye_of_an_unknown_server_is_ignored() -> None:
    world = found_by_group()
    world.goodbye("stranger")
    assert world.found == ["R"]


def test_a_server_that_announces_another_registrar_has_left_the_former_one() -> None:
    world = found_by_group()
    world.at.clear()
    world.serve("S", "e1")
    world.announce("S", "e1")
    assert world.found == ["S"]


def test_a_registrar_that_is_heard_and_not_wanted_is_forgotten_when_it_is_silent() -> None:
    world = World(groups=frozenset({"b"}))
    world.serve("R", "e1")
    world.announce("R", "e1")
    world.pass_time(TTL_S)
    assert world.state.next_at == float("inf")


# Discards.


def test_after_a_discard_the_locator_goes_on_at_the_20_s_step() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE)
    world.pass_time(5.0)
    world.at.clear()
    world.calls.clear()
    world.calls.append((world.now, ()))
    world.discard("R")
    world.pass_time(300.0)
    assert world.waits() == [20.0, 30.0, 60.0, 120.0]
    assert world.heard() == ["discovered R", "discarded R"]


def test_a_discarded_registrar_is_taken_by_group_after_a_call_and_10_s() -> None:
    world = found_by_group()
    world.discard("R")
    for _ in range(9):
        world.pass_time(1.0)
        world.announce("R", "e1")
    assert world.heard() == ["discarded R"]
    assert len(world.calls) == 1
    world.pass_time(1.0)
    assert world.heard() == ["discovered R"]


def test_a_discarded_registrar_that_does_not_answer_is_not_taken() -> None:
    world = found_by_group()
    world.at.clear()
    world.discard("R")
    world.pass_time(100.0)
    assert world.found == []


def test_a_registrar_that_is_discarded_again_within_a_minute_waits_twice_as_long() -> None:
    world = found_by_group()
    waits = []
    for _ in range(10):
        world.discard("R")
        began = world.now
        while not world.found:
            world.pass_time(1.0)
            world.announce("R", "e1")
        waits.append(world.now - began)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 900.0, 900.0, 900.0]


def test_a_registrar_that_is_discarded_after_more_than_a_minute_waits_10_s() -> None:
    world = found_by_group()
    for _ in range(3):
        world.discard("R")
        world.pass_time(9.0)
        world.announce("R", "e1")
        world.pass_time(1.0)
        assert world.found == ["R"]
        world.pass_time(61.0)


def test_the_wait_of_a_locator_doubles_too() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE)
    world.pass_time(5.0)
    waits = []
    for _ in range(7):
        began = world.now
        world.discard("R")
        while not world.found:
            world.pass_time(1.0)
        waits.append(world.now - began)
    assert waits == [20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 900.0]


def test_another_locator_does_not_shorten_the_wait() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE, ALIAS)
    world.pass_time(5.0)
    world.discard("R")
    world.want(HERE, ALIAS)
    world.pass_time(19.0)
    assert world.found == []
    world.pass_time(1.0)
    assert world.found == ["R"]


def test_a_call_from_before_the_discard_does_not_bring_a_registrar_back() -> None:
    world = found_by_group()
    world.state.announced(Announcement("e1", "R", ("e1",), 2, TTL_S), world.now)
    (call,) = world.state.due(world.now)
    world.discard("R")
    world.state.answered(call, Registrar("R", GROUP_A, 2), world.now)
    assert world.found == []


def test_a_discard_of_a_stranger_is_ignored() -> None:
    world = found_by_group()
    world.discard("stranger")
    assert world.heard() == []


# Events and limits.


def test_events_of_one_kind_that_happen_together_are_one_event() -> None:
    world = World(groups=GROUP_A)
    for name in ("R", "S"):
        world.serve(name, name)
        world.announce(name, name)
    world.heard()
    world.want_groups(NO_GROUPS)
    assert world.heard() == ["discarded R,S"]


def test_announcements_beyond_the_limits_are_ignored() -> None:
    world = World(groups=NO_GROUPS)
    for number in range(MAX_REGISTRARS + 5):
        world.announce(f"R{number}", f"e{number}")
    for number in range(MAX_SERVERS + 5):
        world.announce("R0", f"f{number}")
    world.want_groups(ALL_GROUPS)
    assert len(world.calls) == MAX_REGISTRARS
    assert world.state.next_at < float("inf")


def test_a_ttl_is_clamped() -> None:
    world = World(groups=GROUP_A)
    world.serve("R", "e1")
    world.announce("R", "e1", ttl_s=0.0)
    assert world.state.next_at == world.now + 1.0


# Checks, for the discovery service.


def test_a_check_calls_a_registrar_that_is_found_at_its_time_and_until_it_answers() -> None:
    world = found_both_ways()
    world.state.check_at("R", world.now + 10.0, world.now)
    world.calls.clear()
    world.pass_time(9.0)
    assert world.calls == []
    del world.at[HERE], world.at["e1"]
    world.pass_time(2.0)
    assert {each for _, each in world.calls} == {(HERE,), ("e1", HERE)}
    world.serve("R", HERE, "e1")
    asked_at = world.now
    world.pass_time(10.0)
    found = world.state.found("R")
    assert found is not None
    assert found.answered_at > asked_at
    assert world.heard() == []


def test_a_check_of_a_silent_registrar_counts_if_it_is_announced_meanwhile() -> None:
    world = found_by_group()
    world.pass_time(TTL_S + 1.5)  # it is silent now, and has answered
    world.state.check_at("R", world.now, world.now)
    (call,) = world.state.due(world.now)
    world.state.announced(Announcement("e1", "R", ("e1",), 1, TTL_S), world.now)
    world.state.answered(call, world.at["e1"], world.now)
    found = world.state.found("R")
    assert found is not None
    assert found.answered_at == world.now


def test_an_adopted_registrar_is_called_even_if_it_was_announced_before() -> None:
    world = World(groups=frozenset({"other"}))
    registrar = world.serve("R", "e1")
    world.announce("R", "e1")
    world.calls.clear()
    world.state.adopt(registrar, world.now)
    world.want_groups(GROUP_A)
    assert world.calls == [(world.now, ("e1",))]
    found = world.state.found("R")
    assert found is not None
    assert found.answered_at == world.now


def test_an_adopted_registrar_that_does_not_answer_is_lost() -> None:
    world = World(groups=GROUP_A)
    world.state.adopt(Registrar("R", GROUP_A, 1, ("e1",)), world.now)
    world.settle()
    assert world.found == []
    assert world.heard() == ["discarded R"]


# A host at a locator that uses the id of another registrar.


def test_an_answer_at_another_locator_does_not_describe_a_registrar_again() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE, groups="a")
    world.pass_time(5.0)
    world.at["false"] = Registrar("R", frozenset({"evil"}), 9, ("false",))
    world.want(HERE, "false")
    (found,) = world.state.registrars
    assert (found.groups, found.endpoints) == (frozenset({"a"}), (HERE,))
    world.want("false")  # the search that has described it is gone
    world.state.check_at("R", world.now, world.now)
    world.settle()
    (found,) = world.state.registrars
    assert found.endpoints == ("false",)


def test_an_answer_at_a_locator_does_not_change_a_registrar_that_was_announced() -> None:
    world = found_by_group()
    world.at["false"] = Registrar("R", frozenset({"evil"}), 9, ("false",))
    world.want("false")
    assert world.heard() == []
    (found,) = world.state.registrars
    assert (found.groups, found.endpoints) == (frozenset({"a"}), ("e1",))


def test_an_announced_registrar_describes_itself_in_place_of_a_locator() -> None:
    world = World(groups=GROUP_A)
    world.at["false"] = Registrar("R", frozenset({"a"}), 9, ("false",))
    world.want("false")
    world.serve("R", "e1")
    world.announce("R", "e1")
    (found,) = world.state.registrars
    assert found.endpoints == ("e1",)


# Locators that hang.


def test_locators_that_hang_do_not_hold_back_first_calls_for_ever() -> None:
    world = World()
    hanging = [f"h{number}" for number in range(2 * MAX_CALLS)]
    pending: list[Call] = []
    world.state.set_locators({each: each for each in hanging}, world.now)
    for _ in range(3):  # all have failed, and are due again
        while calls := world.state.due(world.now):
            pending += calls
            for call in calls:
                world.state.failed(call, world.now)
        world.now += 60.0
    world.state.set_locators({each: each for each in [*hanging, HERE]}, world.now)
    assert (HERE,) in [call.endpoints for call in world.state.due(world.now)]


def test_calls_are_kept_for_registrars_that_were_announced() -> None:
    world = World(groups=GROUP_A)
    names = [f"h{number}" for number in range(2 * MAX_CALLS)]
    world.state.set_locators({each: each for each in names}, world.now)
    assert len(world.state.due(world.now)) == MAX_CALLS - RESERVED_CALLS
    heard = Announcement("e1", "R", ("e1",), 1, TTL_S)
    world.state.announced(heard, world.now)
    assert [call.endpoints for call in world.state.due(world.now)] == [("e1",)]


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_call_before_the_time_of_a_check_does_not_replace_it(has_failed: bool) -> None:
    world = found_by_group()
    check_at = world.now + 10.0
    world.state.check_at("R", check_at, world.now)
    world.state.withdrawn("e1", world.now)
    (call,) = world.state.due(world.now)
    world.state.announced(Announcement("e1", "R", ("e1",), 1, TTL_S), world.now)
    if has_failed:
        world.state.failed(call, world.now)
    else:
        world.state.answered(call, world.at["e1"], world.now)
    world.pass_time(11.0)
    found = world.state.found("R")
    assert found is not None
    assert found.answered_at == check_at


def test_a_late_answer_does_not_undo_a_later_change_of_groups() -> None:
    world = found_by_group()
    earlier = world.at["e1"]
    world.state.set_locators({HERE: HERE}, world.now)
    (late,) = world.state.due(world.now)
    world.serve("R", "e1", groups="a b", number=2)
    world.announce("R", "e1", number=2)
    world.state.answered(late, earlier, world.now)
    (found,) = world.state.registrars
    assert found.groups == {"a", "b"}
    assert world.state.locators == {HERE: "R"}


def test_a_registrar_whose_number_of_groups_starts_over_is_believed() -> None:
    world = found_by_group()
    world.serve("R", "e1", groups="a b", number=7)
    world.announce("R", "e1", number=7)
    world.pass_time(10.0)
    world.serve("R", "e1", groups="a c", number=1)
    world.announce("R", "e1", number=1)
    world.pass_time(10.0)
    assert world.state.registrars[0].groups == {"a", "c"}


def test_a_check_of_a_locator_goes_on_with_the_waits_after_its_own() -> None:
    world = World(locators=HERE)
    world.serve("R", HERE)
    world.pass_time(5.0)
    world.at.clear()
    world.calls.clear()
    world.state.check_at("R", world.now + 20.0, world.now)
    world.pass_time(300.0)
    assert world.waits() == [30.0, 60.0, 120.0]
