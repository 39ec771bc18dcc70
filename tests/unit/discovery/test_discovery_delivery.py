"""Delivery of events of the discovery service: numbers, retries, their ends, and gaps."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from leasehold.discovery import live_registration, registration_writer
from leasehold.discovery.announced import Registrar
from leasehold.discovery.live_registration import (
    MAX_EVENT_BYTES,
    MAX_EVENT_REGISTRARS,
    new_events,
)
from leasehold.discovery.locators import InterestChange
from leasehold.discovery.state import EventKind
from leasehold.errors import ConnectionLost, LeaseDenied, NoSuchObject, Status, UnknownLease
from leasehold.events.state import RETRIES_S
from leasehold.grpc.protocol import RpcError
from leasehold.wire import discovery_pb2 as pb
from tests.support.discovery_stage import DiscoveryStage, EventStream, check_stream

UNREACHABLE = ConnectionLost("the listener does not answer")
UNKNOWN = NoSuchObject("listeners", "l")


@pytest.fixture
def stage() -> Iterator[DiscoveryStage]:
    with DiscoveryStage() as stage:
        yield stage


# What an event has.


def test_an_event_has_the_registration_its_handback_and_a_number(stage: DiscoveryStage) -> None:
    one = stage.register("a", name="one", handback=b"\x00 1")
    other = stage.register("a", name="other", handback=b"")
    stage.network.add("R", "a b")
    stage.pass_time()
    (first,), (second,) = stage.inbox.events("one"), stage.inbox.events("other")
    assert (first.source, second.source) == (one, other)
    assert (first.handback, second.handback) == (b"\x00 1", b"")
    assert first.service == second.service == stage.service.records.grantor
    assert first.number == second.number == 1
    (found,) = pb.RegistrarsPayload.FromString(first.payload).registrars
    assert (found.id, list(found.groups)) == ("R", ["a", "b"])


def test_numbers_rise_by_one_with_each_event(stage: DiscoveryStage) -> None:
    stage.register("a")
    for name in "RSTU":
        stage.network.add(name)
        stage.pass_time()
    assert stage.inbox.numbers("l") == [1, 2, 3, 4]
    assert check_stream(stage.inbox.events("l")).registrars == set("RSTU")


def test_an_event_is_stored_before_it_is_sent(stage: DiscoveryStage) -> None:
    registration = stage.register("a")
    stage.network.add("R")
    stage.sim.run_until(lambda: stage.inbox.attempts, within=5.0)
    stored = stage.stored_registration(registration)
    assert stored.number == 1
    assert [each.number for each in stored.undelivered] == [1]
    assert list(stored.found_by_group) == ["R"]


def test_the_change_and_the_event_are_one_write_and_the_delivery_another(
    stage: DiscoveryStage,
) -> None:
    registration = stage.register("a")
    stage.network.add("R")
    stage.pass_time()
    writes = stage.faulty.calls.count("txn")
    stage.discard(registration, "R")
    assert stage.faulty.calls.count("txn") == writes + 1
    stored = stage.stored_registration(registration)
    assert (stored.number, len(stored.undelivered), list(stored.found)) == (2, 1, [])
    stage.pass_time()
    stored = stage.stored_registration(registration)
    assert (stored.number, list(stored.undelivered), list(stored.found)) == (2, [], [])


def test_up_to_sixty_registrations_share_a_transaction(stage: DiscoveryStage) -> None:
    assert registration_writer.WRITES_TOGETHER == 60
    for number in range(130):
        stage.register("a", name=f"l{number}")
    stage.pass_time()
    stage.inbox.errors = {f"l{number}": UNREACHABLE for number in range(130)}
    before = stage.faulty.calls.count("txn")
    stage.network.add("R")
    stage.pass_time(0.5)
    assert stage.faulty.calls.count("txn") - before == 1 + 3, (
        "what is known of it, and 60 + 60 + 10"
    )
    stage.inbox.errors.clear()
    stage.pass_time(2.0)
    assert all(stage.inbox.numbers(f"l{number}") == [1] for number in range(130))


def test_values_that_are_too_large_for_one_transaction_are_written_in_several(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_writer, "MAX_WRITE_BYTES", 1)
    for number in range(5):
        stage.register("a", name=f"l{number}")
    stage.network.add("R")
    stage.pass_time()
    assert all(stage.inbox.numbers(f"l{number}") == [1] for number in range(5))


def test_one_of_several_registrations_that_ends_meanwhile_does_not_stop_the_others(
    stage: DiscoveryStage,
) -> None:
    ends = stage.register("a", name="ends")
    stays = stage.register("a", name="stays")
    stage.pass_time()
    stage.network.add("R")
    stage.faulty.delay_s = 0.1
    stage.pass_time(0.05)
    cancelling = stage.host.start(stage.service.records.cancel, ends)
    stage.pass_time(5.0)
    assert cancelling.done()
    assert stage.registrars(stays) == ["R"]
    assert stage.told("stays") == ["1 discovered R"]


# How registrars are divided into events.


def test_events_are_never_of_both_kinds_and_have_at_least_one_registrar() -> None:
    for kind in (EventKind.DISCOVERED, EventKind.DISCARDED):
        assert new_events(kind, []) == []
        (event,) = new_events(kind, [Registrar("R"), Registrar("S")])
        payload = pb.RegistrarsPayload.FromString(event.payload or b"")
        assert payload.discarded is (kind is EventKind.DISCARDED)
        assert event.registrars == len(payload.registrars) == 2


def test_an_event_has_a_limited_number_of_registrars_and_of_bytes() -> None:
    many = [Registrar(f"R{number:04}") for number in range(2 * MAX_EVENT_REGISTRARS + 1)]
    sizes = [each.registrars for each in new_events(EventKind.DISCOVERED, many)]
    assert sizes == [MAX_EVENT_REGISTRARS, MAX_EVENT_REGISTRARS, 1]
    group = "g" * 250
    large = frozenset(f"{number}{group}" for number in range(100))
    events = new_events(EventKind.DISCARDED, [Registrar(f"R{each}", large) for each in range(5)])
    assert [each.registrars for each in events] == [2, 2, 1]
    assert all(each.size_bytes <= MAX_EVENT_BYTES for each in events)
    huge = frozenset(f"{number}{group}" for number in range(1000))
    events = new_events(EventKind.DISCARDED, [Registrar(f"R{each}", huge) for each in range(2)])
    assert [each.registrars for each in events] == [1, 1]


# Failing indefinitely.


def test_a_failed_delivery_is_retried_until_it_is_delivered(stage: DiscoveryStage) -> None:
    stage.inbox.errors["l"] = UNREACHABLE
    registration = stage.register("a")
    stage.network.add("R")
    stage.pass_time(20.0)
    tried = stage.inbox.tried("l")
    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert len(waits) >= 3
    assert all(0.9 * most <= wait <= most for most, wait in zip(RETRIES_S, waits, strict=False))
    assert "does not answer" in stage.live(registration).queue.last_error
    del stage.inbox.errors["l"]
    stage.pass_time(120.0)
    assert stage.told() == ["1 discovered R"]
    assert stage.live(registration).queue.last_error == ""


def test_a_failed_delivery_is_retried_for_longer_than_a_day(stage: DiscoveryStage) -> None:
    assert stage.live(stage.register("a")).queue.give_up_s == float("inf")


@pytest.mark.parametrize(
    "error",
    [UNREACHABLE, TimeoutError("late"), OSError("broken"), RpcError(Status.UNAVAILABLE, "later")],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_that_is_not_definite_keeps_the_registration(
    stage: DiscoveryStage, error: Exception
) -> None:
    stage.inbox.errors["l"] = error
    registration = stage.register("a")
    stage.network.add("R")
    stage.pass_time(10.0)
    assert stage.registrars(registration) == ["R"]


def test_retries_end_with_the_lease_and_undelivered_events_are_dropped(
    stage: DiscoveryStage,
) -> None:
    stage.inbox.errors["l"] = UNREACHABLE
    registration = stage.register("a", ttl=60.0)
    stage.network.add("R")
    stage.pass_time(61.0)
    tried = len(stage.inbox.tried("l"))
    assert tried > 3
    del stage.inbox.errors["l"]
    stage.pass_time(600.0)
    assert len(stage.inbox.tried("l")) == tried
    assert stage.told() == []
    with pytest.raises(NoSuchObject):
        stage.live(registration)
    assert stage.stored() == {}


def test_a_delivery_under_way_is_stopped_with_the_lease(stage: DiscoveryStage) -> None:
    stage.inbox.delays_s["l"] = 50.0
    stage.register("a", ttl=30.0)
    stage.network.add("R")
    stage.pass_time(120.0)
    assert len(stage.inbox.tried("l")) == 1
    assert stage.told() == []


def test_a_slow_listener_delays_only_its_own_events(stage: DiscoveryStage) -> None:
    stage.inbox.delays_s["slow"] = 50.0
    stage.register("a", name="slow")
    stage.register("a", name="quick")
    stage.network.add("R")
    assert stage.told("quick") == ["1 discovered R"]
    assert stage.told("slow", wait_s=60.0) == ["1 discovered R"]


def test_a_discovery_and_a_discard_that_are_both_undelivered_are_both_sent(
    stage: DiscoveryStage,
) -> None:
    stage.inbox.errors["l"] = UNREACHABLE
    registration = stage.register("a")
    stage.network.add("R")
    stage.pass_time()
    stage.discard(registration, "R")
    stage.pass_time(15.0)  # and it is rediscovered
    stage.crash()
    del stage.inbox.errors["l"]
    assert stage.told(wait_s=90.0) == ["1 discovered R", "2 discarded R", "3 discovered R"]


# Definite failures.


@pytest.mark.parametrize(
    "error",
    [UNKNOWN, LeaseDenied("refused"), RpcError(Status.NOT_FOUND, "unknown event")],
    ids=["unknown event", "refusal", "status"],
)
def test_unknown_event_or_a_definite_failure_cancels_the_lease_of_that_registration(
    stage: DiscoveryStage, error: Exception
) -> None:
    stage.inbox.errors["l"] = error
    registration = stage.register("a")
    other = stage.register("a", name="other")
    stage.network.add("R")
    stage.pass_time()
    with pytest.raises(NoSuchObject):
        stage.live(registration)
    with pytest.raises(UnknownLease):
        stage.run(stage.service.records.renew, registration, 60.0)
    assert len(stage.inbox.tried("l")) == 1
    stage.pass_time(10.0)
    assert not any(registration.encode() in key for key in stage.stored())
    stage.crash()
    stage.network.add("S")
    assert stage.told() == []
    assert stage.told("other") == ["1 discovered R", "2 discovered S"]
    assert stage.registrars(other) == ["R", "S"]


# Too many undelivered events: gaps.


def test_the_oldest_events_are_dropped_if_too_many_registrars_are_undelivered(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live_registration.MAX_UNDELIVERED == 1_000
    monkeypatch.setattr(live_registration, "MAX_UNDELIVERED", 3)
    stage.inbox.errors["l"] = UNREACHABLE
    registration = stage.register("a")
    for name in "RSTUV":
        stage.network.add(name)
        stage.pass_time(0.5)
    stored = stage.stored_registration(registration)
    assert (stored.number, [each.number for each in stored.undelivered]) == (5, [3, 4, 5])
    assert stage.service.dropped == 2
    del stage.inbox.errors["l"]
    stage.pass_time(60.0)
    assert stage.told() == ["3 discovered T", "4 discovered U", "5 discovered V"]
    assert stage.registrars(registration) == list("RSTUV"), "the set has all of them"


def test_after_a_gap_the_set_is_recovered_by_registrars(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_registration, "MAX_UNDELIVERED", 2)
    stream = EventStream(may_have_gaps=True)
    registration = stage.register("a")
    stage.network.add("R")
    stage.pass_time()
    stage.inbox.errors["l"] = UNREACHABLE
    for name in "STU":
        stage.network.add(name)
        stage.pass_time(0.5)
    stage.network.stop("R")
    stage.pass_time()
    stage.crash()
    del stage.inbox.errors["l"]
    stage.pass_time(60.0)
    for event in stage.inbox.events("l"):
        assert not stream.receive(event)
    assert (stream.gaps, stream.registrars) == (1, None)
    stream.resume(stage.registrars(registration))
    stage.network.add("V")
    stage.network.stop("S")
    stage.pass_time()
    for event in stage.inbox.events("l"):
        assert not stream.receive(event)
    assert stream.registrars == set(stage.registrars(registration)) == set("TUV")


def test_an_event_of_several_registrars_counts_as_many(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_registration, "MAX_UNDELIVERED", 4)
    for name in "RST":
        stage.network.add(name)
    stage.register("a", name="earlier")
    stage.pass_time()
    stage.inbox.errors["l"] = UNREACHABLE
    registration = stage.register("a")
    stage.pass_time()
    stage.groups(registration, InterestChange.SET, "")
    stored = stage.stored_registration(registration)
    assert [each.number for each in stored.undelivered] == [2]
    assert stage.service.dropped == 1


def test_events_of_a_call_under_way_are_not_dropped(
    stage: DiscoveryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_registration, "MAX_UNDELIVERED", 2)
    stage.inbox.delays_s["l"] = 5.0
    registration = stage.register("a")
    for name in "RSTU":
        stage.network.add(name)
        stage.pass_time(0.5)
    stage.pass_time(30.0)
    assert stage.told() == ["1 discovered R", "4 discovered U"]
    assert not stage.stored_registration(registration).undelivered
