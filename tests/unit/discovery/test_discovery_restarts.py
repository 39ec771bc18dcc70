"""Registrations of the discovery service over crashes, restarts and writes without an answer."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from leasehold.discovery.locators import InterestChange
from leasehold.discovery.state import DISCARDED_GROUP_S
from leasehold.errors import ConnectionLost, LeaseholdError, NoSpace, NoSuchObject
from tests.support.discovery_stage import DiscoveryStage, check_stream, ignore_errors
from tests.support.faulty_engine import LOSSES, Fault
from tests.support.registrar_network import TTL_S

ADD, SET, REMOVE = InterestChange.ADD, InterestChange.SET, InterestChange.REMOVE
R_LOCATOR = "leasehold://r"
losses = pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name)


@pytest.fixture
def stage() -> Iterator[DiscoveryStage]:
    with DiscoveryStage() as stage:
        yield stage


# What is restored.


def test_a_registration_survives_a_crash_with_everything_that_it_has(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    stage.network.add("S", "b", announces=False)
    registration = stage.register("a c", ["leasehold://s"], handback=b"mine")
    everything = stage.register(None, name="all")
    stage.pass_time()
    before = stage.live(registration)
    stage.crash(1.0)
    after = stage.live(registration)
    assert after is not before
    assert after.interests.groups == frozenset({"a", "c"})
    assert list(map(str, after.interests.locators)) == ["leasehold://s:2379"]
    assert after.interests.found == before.interests.found
    assert after.listener == before.listener
    assert stage.live(everything).interests.groups is None
    stage.pass_time(2 * TTL_S)
    assert stage.told() == ["1 discovered S", "2 discovered R"]
    assert stage.told("all") == ["1 discovered R"]
    assert stage.registrars(registration) == ["R", "S"]
    assert {event.handback for event in stage.inbox.events("l")} == {b"mine"}


def test_registrations_that_ended_while_the_service_was_down_are_gone(
    stage: DiscoveryStage,
) -> None:
    ended, alive = stage.register("a", ttl=30.0), stage.register("a", name="alive")
    stage.crash(31.0)
    stage.network.add("R")
    assert stage.told() == []
    assert stage.told("alive") == ["1 discovered R"]
    with pytest.raises(NoSuchObject):
        stage.live(ended)
    stage.pass_time(10.0)
    assert not any(ended.encode() in key for key in stage.stored())
    assert stage.registrars(alive) == ["R"]


@pytest.mark.parametrize("down_s", [0.0, 5.0, 3 * TTL_S])
def test_after_a_restart_no_registrar_is_announced_twice(
    stage: DiscoveryStage, down_s: float
) -> None:
    stage.network.add("R", "a")
    stage.network.add("S", "b")
    registration = stage.register("a", ["leasehold://s"])
    stage.pass_time()
    for _ in range(3):
        stage.crash(down_s)
        stage.pass_time(30.0)
    assert stage.told() == ["1 discovered S", "2 discovered R"]
    assert stage.registrars(registration) == ["R", "S"]


def test_a_registrar_that_is_silent_at_the_restart_and_answers_is_kept(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.network.silence("R")
    stage.crash()
    stage.pass_time(2 * TTL_S)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_a_registrar_that_vanished_meanwhile_gives_a_discarded_event(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    both = stage.register("a", [R_LOCATOR], name="both")
    by_group = stage.register("a")
    by_locator = stage.register("", [R_LOCATOR], name="by locator")
    stage.pass_time()
    stage.kill()
    stage.network.kill("R")
    stage.host.restart()
    stage._start()
    assert stage.told() == stage.told("both") == ["1 discovered R", "2 discarded R"]
    assert stage.told("by locator") == ["1 discovered R"]
    assert stage.registrars(by_locator) == ["R"]
    assert stage.registrars(both) == stage.registrars(by_group) == []


def test_a_registrar_that_left_the_groups_meanwhile_gives_a_discarded_event(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", "a")
    stage.register("a")
    stage.register("b", name="b")
    stage.pass_time()
    stage.kill()
    stage.network.join("R", "b")
    stage.host.restart()
    stage._start()
    assert stage.told() == ["1 discovered R", "2 discarded R"]
    assert stage.told("b") == ["1 discovered R"]


def test_a_registrar_whose_locator_another_has_taken_meanwhile_is_discarded(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R", announces=False)
    stage.network.add("S", announces=False)
    registration = stage.register("", [R_LOCATOR])
    stage.pass_time()
    stage.network.replace("r:2379", "S")
    stage.crash()
    assert stage.told() == ["1 discovered R", "2 discarded R", "3 discovered S"]
    assert stage.registrars(registration) == ["S"]


def test_a_registrar_that_appeared_meanwhile_is_discovered(stage: DiscoveryStage) -> None:
    stage.register("a")
    stage.kill()
    stage.network.add("R")
    stage.host.restart()
    stage._start()
    assert stage.told() == ["1 discovered R"]


def test_an_unreachable_registrar_that_is_announced_after_a_restart_is_discovered_again(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    stage.register("a")
    stage.pass_time()
    stage.network.cut("R")
    stage.crash()
    stage.pass_time(10.0)
    stage.network.restore("R")
    assert stage.told(wait_s=10.0) == ["1 discovered R", "2 discarded R", "3 discovered R"]


def test_the_wait_after_a_discard_counts_by_the_wall_clock_over_a_restart(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    stage.discard(registration, "R")
    stage.pass_time(1.0)
    stage.crash(3.0)
    stage.pass_time(DISCARDED_GROUP_S - 4.5)
    assert stage.registrars(registration) == []
    stage.pass_time(1.0)
    assert stage.registrars(registration) == ["R"]
    stage.crash()
    stage.discard(registration, "R")  # soon after its return, so it waits twice as long
    stage.crash()
    stage.pass_time(2 * DISCARDED_GROUP_S - 1.0)
    assert stage.registrars(registration) == []
    stage.pass_time(2.0)
    assert stage.registrars(registration) == ["R"]
    assert check_stream(stage.inbox.events("l")).last == 5


@pytest.mark.parametrize("answer_s", [0.0, 0.1])
def test_a_registrar_that_was_found_before_the_restart_is_found_for_new_registrations(
    stage: DiscoveryStage, answer_s: float
) -> None:
    """Its announcement may arrive before it answers the call that follows the restart."""
    stage.network.add("R")
    stage.register("a")
    stage.pass_time()
    stage.network.answer_s = answer_s
    stage.crash()
    stage.register("a", name="early")
    stage.pass_time()
    stage.register("a", name="late")
    assert stage.told("early") == stage.told("late") == ["1 discovered R"]
    assert stage.told() == ["1 discovered R"]


def test_a_registration_in_a_key_that_cannot_be_decoded_does_not_stop_the_others(
    stage: DiscoveryStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.network.add("R")
    bad, good = stage.register("a"), stage.register("a", name="good")
    stage.pass_time()
    (key,) = (key for key in stage.stored() if bad.encode() in key and key.endswith(b"/s"))
    stage.run(stage.engine.put, key, b"\xff")
    stage.crash()
    stage.network.add("S")
    assert stage.told("good") == ["1 discovered R", "2 discovered S"]
    assert stage.registrars(good) == ["R", "S"]
    assert "cannot be loaded" in caplog.text


# Undelivered events.


def test_undelivered_events_are_delivered_after_a_restart_with_their_numbers(
    stage: DiscoveryStage,
) -> None:
    stage.inbox.errors["l"] = ConnectionLost("unreachable")
    stage.register("a", handback=b"mine")
    stage.network.add("R")
    stage.pass_time()
    stage.network.add("S")
    stage.pass_time()
    stage.crash(5.0)
    del stage.inbox.errors["l"]
    assert stage.told() == ["1 discovered R", "2 discovered S"]
    assert {event.handback for event in stage.inbox.events("l")} == {b"mine"}
    stage.network.add("T")
    assert stage.told() == ["1 discovered R", "2 discovered S", "3 discovered T"]


def test_delivered_events_are_not_delivered_again_after_a_restart(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    assert not stage.stored_registration(registration).undelivered
    stage.crash()
    assert stage.told() == ["1 discovered R"]


def test_an_event_that_was_delivered_right_before_a_crash_comes_again_with_its_number(
    stage: DiscoveryStage,
) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.sim.run_until(lambda: stage.inbox.events("l"), within=1.0)
    assert stage.stored_registration(registration).undelivered
    stage.crash()
    stage.network.add("S")
    assert stage.told() == ["1 discovered R", "1 discovered R", "2 discovered S"]


# Writes that are lost, unanswered or refused.


def steps(stage: DiscoveryStage) -> dict[str, Callable[[str], None]]:
    """The calls on a registration, each of which writes."""
    return {
        "add groups": lambda each: stage.groups(each, ADD, "b"),
        "remove groups": lambda each: stage.groups(each, REMOVE, "a"),
        "add locators": lambda each: stage.locators(each, ADD, ["leasehold://t"]),
        "discard": lambda each: stage.discard(each, "R"),
    }


EXPECTED = {
    "add groups": ["R", "S"],
    "remove groups": [],
    "add locators": ["R", "T"],
    "discard": [],
}


@losses
@pytest.mark.parametrize("step", sorted(EXPECTED))
def test_a_call_without_an_answer_was_executed_or_never_will_be(
    stage: DiscoveryStage, step: str, fault: Fault
) -> None:
    stage.network.add("R", "a")
    stage.network.add("S", "b")
    stage.network.add("T", "", announces=False)
    registration = stage.register("a")
    stage.pass_time()
    stage.faulty.trouble_with("txn", 1, fault)
    with pytest.raises(ConnectionLost):
        steps(stage)[step](registration)
    stage.pass_time(5.0)
    is_executed = fault in (Fault.ANSWER_LOST, Fault.EXHAUSTED)
    expected = EXPECTED[step] if is_executed else ["R"]
    assert stage.registrars(registration) == expected
    stream = check_stream(stage.inbox.events("l"))
    assert stream.registrars == set(expected)
    stage.crash()
    stage.pass_time(3.0)
    assert stage.registrars(registration) == expected
    assert check_stream(stage.inbox.events("l")).registrars == set(expected)


@losses
def test_an_event_whose_write_had_no_answer_is_sent_once_with_its_number(
    stage: DiscoveryStage, fault: Fault
) -> None:
    one, two = stage.register("a", name="one"), stage.register("a", name="two")
    stage.pass_time()
    for number in (1, 2, 3):
        stage.faulty.trouble_with("txn", number, fault)
    stage.network.add("R")
    stage.pass_time(60.0)
    for name, registration in (("one", one), ("two", two)):
        assert stage.told(name) == ["1 discovered R"]
        assert stage.registrars(registration) == ["R"]
        assert not stage.stored_registration(registration).undelivered


@losses
def test_a_delivery_whose_write_had_no_answer_may_be_repeated_with_its_number(
    stage: DiscoveryStage, fault: Fault
) -> None:
    registration = stage.register("a")
    stage.network.add("R")
    stage.sim.run_until(lambda: stage.inbox.events("l"), within=1.0)
    stage.faulty.trouble_with("txn", 1, fault)
    stage.pass_time(20.0)
    stage.network.add("S")
    stage.pass_time(20.0)
    stream = check_stream(stage.inbox.events("l"))
    assert stream.last == 2
    assert stream.registrars == {"R", "S"}
    assert not stage.stored_registration(registration).undelivered


def test_a_refused_write_is_repeated_until_there_is_room(stage: DiscoveryStage) -> None:
    registration = stage.register("a")
    stage.pass_time()
    for number in range(1, 6):
        stage.faulty.trouble_with("txn", number, NoSpace(2, 1))
    stage.network.add("R")
    stage.pass_time(0.2)
    assert stage.registrars(registration) == []
    assert stage.inbox.events("l") == []
    stage.pass_time(60.0)
    assert stage.told() == ["1 discovered R"]
    assert stage.registrars(registration) == ["R"]


def test_a_refused_call_changes_nothing(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    registration = stage.register("a")
    stage.pass_time()
    for call in steps(stage).values():
        stage.faulty.trouble_with("txn", 1, NoSpace(2, 1))
        with pytest.raises(NoSpace):
            call(registration)
        assert stage.registrars(registration) == ["R"]
        assert stage.live(registration).interests.groups == frozenset({"a"})
    assert stage.told() == ["1 discovered R"]


def test_a_registration_whose_write_had_no_answer_is_removed(stage: DiscoveryStage) -> None:
    stage.network.add("R")
    stage.register("a", name="first")
    stage.pass_time()
    for fault in LOSSES:
        stage.faulty.trouble_with("txn", 1, fault)
        with pytest.raises(LeaseholdError):
            stage.register("a")
    stage.pass_time(60.0)
    assert stage.told() == []
    assert len(stage.stored()) == 2


# Crashes at every step.


def _crash_at(stage: DiscoveryStage, turn: int, act: Callable[[], None]) -> bool:
    """Kill the server at a turn of `act`, and start it again; return False if it was over."""
    begun, original = stage.sim.turns, stage.sim.run_until
    was_killed = False

    def run_until(done: Callable[[], object], *, within: float) -> None:
        nonlocal was_killed
        original(lambda: done() or stage.sim.turns - begun >= turn, within=within)
        if not done():
            was_killed = True
            raise TimeoutError("the server was killed")

    stage.sim.run_until = run_until  # type: ignore[method-assign,assignment]
    try:
        ignore_errors(act)
    finally:
        stage.sim.run_until = original  # type: ignore[method-assign]
    if not was_killed:
        return False
    stage.kill()
    stage.host.restart()
    stage._start()
    return True


def _wait(stage: DiscoveryStage, condition: Callable[[], bool]) -> None:
    stage.sim.run_until(condition, within=600.0)


def _find(stage: DiscoveryStage, registration: str) -> None:
    stage.network.add("S", "a")
    _wait(stage, lambda: "S" in stage.registrars(registration))
    _wait(stage, lambda: not stage.stored_registration(registration).undelivered)


def _lose(stage: DiscoveryStage, registration: str) -> None:
    stage.network.stop("R")
    _wait(stage, lambda: "R" not in stage.registrars(registration))
    _wait(stage, lambda: not stage.stored_registration(registration).undelivered)


def _withdraw(stage: DiscoveryStage, registration: str) -> None:
    stage.groups(registration, SET, "b")
    _wait(stage, lambda: not stage.stored_registration(registration).undelivered)


def _discard(stage: DiscoveryStage, registration: str) -> None:
    stage.discard(registration, "R")
    _wait(stage, lambda: not stage.stored_registration(registration).undelivered)


@pytest.mark.parametrize(
    ("act", "outcomes", "events"),
    [
        (_find, [{"R", "S"}], [2]),
        (_lose, [set()], [2]),
        (_withdraw, [{"R"}, {"T"}], [1, 3]),
        (_discard, [{"R"}], [1, 3]),
    ],
    ids=["a registrar appears", "a registrar vanishes", "interest changes", "discard"],
)
def test_a_crash_at_any_step_loses_nothing_and_repeats_nothing(
    act: Callable[[DiscoveryStage, str], None], outcomes: list[set[str]], events: list[int]
) -> None:
    """In the end the set is right, and the numbers have no gap; nothing is discarded wrongly."""
    turn, killed = 0, 0
    while True:
        turn += 1
        with DiscoveryStage() as stage:
            stage.network.add("R", "a")
            stage.network.add("T", "b")
            registration = stage.register("a")
            stage.register("b", name="other")
            stage.pass_time()
            if not _crash_at(stage, turn, partial(act, stage, registration)):
                break
            killed += 1
            stage.pass_time(25.0)
            found = set(stage.registrars(registration))
            assert found in outcomes, f"turn {turn}"
            stream = check_stream(stage.inbox.events("l"))
            assert stream.registrars == found, f"turn {turn}"
            assert stream.last in events, f"turn {turn}: {stage.told()}"
            assert stage.told("other") == ["1 discovered T"]
    assert killed > 5


def test_a_crash_at_any_step_of_a_restart_loses_nothing_and_repeats_nothing() -> None:
    turn, killed = 0, 0
    while True:
        turn += 3
        with DiscoveryStage() as stage:
            stage.network.add("R", "a")
            stage.network.add("S", "a")
            registration = stage.register("a")
            stage.pass_time()
            stage.kill()
            stage.network.kill("S")
            stage.host.restart()

            def start(stage: DiscoveryStage = stage, registration: str = registration) -> None:
                stage._start()
                _wait(stage, lambda: stage.registrars(registration) == ["R"])
                _wait(stage, lambda: not stage.stored_registration(registration).undelivered)

            if not _crash_at(stage, turn, start):
                break
            killed += 1
            stage.pass_time(25.0)
            assert stage.registrars(registration) == ["R"]
            stream = check_stream(stage.inbox.events("l"))
            assert stream.registrars == {"R"}
            assert stage.told()[-1].endswith("discarded S")
    assert killed > 5
