"""Events of the registry: the right ones, in order, with the same numbers after a restart."""

from dataclasses import replace

import pytest

from leasehold.engine.interface import prefix_end
from leasehold.errors import ConnectionLost, LeaseDenied, NoSuchObject, UnknownLease
from leasehold.events.state import EventTarget
from leasehold.registry.event_registration import (
    EventRequest,
    ListenerRegistration,
    ReplayProgress,
    transitions_of,
)
from leasehold.registry.item_feed import IndexChange
from leasehold.registry.messages import item_key, item_of
from leasehold.registry.state import (
    ALL_TRANSITIONS,
    EVERYTHING,
    Health,
    ItemVersion,
    Template,
    Transition,
    add_attributes,
    set_attributes,
)
from leasehold.registry.storage import ItemStorage
from leasehold.wire import registry_pb2 as pb
from tests.support.registry_stage import (
    WEB,
    A,
    B,
    C,
    RegistryStage,
    about,
    item,
    web,
)

IN, OUT, STILL = "NOMATCH_MATCH", "MATCH_NOMATCH", "MATCH_MATCH"
LOST = ConnectionLost("the listener does not answer")
NORTH = Template(attributes=(about(area="north"),))


def test_registering_and_cancelling_are_events() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        version = stage.register(web(A))
        stage.register(item(B, "other"))
        stage.cancel(version)
        assert stage.told() == [(1, IN, A), (2, OUT, A)]


def test_expiry_is_an_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 10.0)
        stage.pass_time(20.0)
        assert stage.told() == [(1, IN, A), (2, OUT, A)]
        assert stage.inbox.times("l")[1] == pytest.approx(10.0, abs=0.5)


def test_registering_again_is_one_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A, "one"))
        stage.register(web(A, "two"))
        stage.register(web(A, "two"))
        assert stage.told() == [(1, IN, A), (2, STILL, A), (3, STILL, A)]


def test_attribute_changes_are_events_of_all_three_transitions() -> None:
    with RegistryStage() as stage:
        stage.listen("l", NORTH)
        version = stage.register(web(A))
        stage.change(version, lambda each: add_attributes(each, [about(area="north")]))
        stage.change(version, lambda each: add_attributes(each, [about(floor=1)]))
        stage.change(version, lambda each: set_attributes(each, [about(area="south")]))
        stage.change(version, lambda each: set_attributes(each, []))
        assert stage.told() == [(1, IN, A), (2, STILL, A), (3, OUT, A)]


def test_a_change_of_health_is_an_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        version = stage.register(web(A))
        stage.change(version, lambda each: replace(each, health=Health.FAILING))
        assert stage.told() == [(1, IN, A), (2, STILL, A)]


def test_only_the_transitions_that_were_asked_for_are_sent() -> None:
    with RegistryStage() as stage:
        for transition in Transition:
            stage.listen(transition.name or "", WEB, transition)
        version = stage.register(web(A, "one"))
        stage.change(version, lambda each: replace(each, endpoint="two"))
        stage.cancel(version)
        assert stage.told(IN) == [(1, IN, A)]
        assert stage.told(STILL) == [(1, STILL, A)]
        assert stage.told(OUT) == [(1, OUT, A)]


def test_an_event_carries_the_new_state_and_none_if_the_item_is_gone() -> None:
    with RegistryStage() as stage:
        stage.listen("l", NORTH)
        version = stage.register(web(A, area="north"))
        stage.change(version, lambda each: set_attributes(each, [about(area="south")]))
        stage.change(version, lambda each: set_attributes(each, [about(area="north")]))
        stage.cancel(version)
        stage.pass_time()
        states = [each.item for each in stage.payloads()]
        attributes = [item_of(pb.ServiceItem.FromString(each)).attributes for each in states[:3]]
        assert attributes == [
            (about(area="north"),),
            (about(area="south"),),
            (about(area="north"),),
        ]
        assert states[3] == b""
        assert all(each.revision for each in stage.payloads())


def test_a_renewal_is_no_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        version = stage.register(web(A))
        for term in (30.0, 40.0, 20.0):
            assert stage.renew(f"{A}.{version.registration}", term) == term
        assert stage.told() == [(1, IN, A)]


def test_items_of_before_are_no_events() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.listen("l", WEB)
        stage.register(web(B))
        assert stage.told() == [(1, IN, B)]


def test_all_items_of_a_lease_that_ends_are_events_in_one_revision() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        lease = stage.run(stage.engine.grant, 20.0).id
        for each in (C, A, B):
            stage.register(web(each), lease=lease)
        stage.run(stage.engine.revoke, lease)
        told = stage.told()
        assert [number for number, _, _ in told] == [1, 2, 3, 4, 5, 6]
        assert sorted(told[3:], key=lambda each: each[2]) == [
            (number, OUT, each) for number, _, each in sorted(told[3:], key=lambda one: one[2])
        ]
        assert len({each.revision for each in stage.payloads()[3:]}) == 1


def test_an_item_that_cannot_be_decoded_any_more_has_left() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A))
        stage.run(stage.engine.put, item_key(A), b"\xff\xff\xff")
        assert stage.told() == [(1, IN, A), (2, OUT, A)]


def test_the_handback_and_the_source_are_those_of_the_registration() -> None:
    with RegistryStage() as stage:
        registration = stage.listen("l", WEB)
        stage.register(web(A))
        stage.pass_time()
        (event,) = stage.inbox.events("l")
        assert (event.source, event.handback) == (registration, b"handback")
        assert event.service == stage.events.records.grantor


@pytest.mark.parametrize("transitions", [0, 8, 15, -1])
def test_transitions_must_be_a_non_empty_set(transitions: int) -> None:
    with pytest.raises(ValueError, match=f"must be a sum of 1, 2 and 4, got {transitions}"):
        transitions_of(transitions)


def test_a_handback_that_is_too_long_is_refused() -> None:
    with RegistryStage(max_handback_bytes=4) as stage:
        with pytest.raises(ValueError, match="at most 4 bytes, got 8"):
            stage.listen("l", WEB)
        assert not len(stage.events.records)


def test_a_registration_that_is_not_stored_leaves_nothing() -> None:
    with RegistryStage() as stage:
        stage.lookup()
        stage.faulty.trouble_with("grant", 1, LeaseDenied("no"))
        with pytest.raises(LeaseDenied):
            stage.listen("l", WEB)
        stage.register(web(A))
        assert stage.told() == []
        assert not stage.events._live


def test_changes_while_a_registration_is_stored_are_events() -> None:
    with RegistryStage() as stage:
        stage.lookup()
        stage.faulty.delay_s = 1.0
        request = EventRequest(WEB, ALL_TRANSITIONS, EventTarget("listener:1", "l"), b"")
        task = stage.host.start(lambda: stage.events.notify(request, 100.0))
        stage.pass_time(1.6)  # the revision was asked for; it is being stored
        assert not task.done()
        stage.run(ItemStorage(stage.engine, stage.policy).register, web(A), 30.0)
        stage.pass_time(10.0)
        assert task.done()
        assert stage.told() == [(1, IN, A)]


# The end of a registration.


def test_nothing_is_sent_after_the_lease_of_a_registration_has_ended() -> None:
    with RegistryStage() as stage:
        registration = stage.listen("l", WEB, ttl=100.0)
        stage.register(web(A), 1000.0)
        assert stage.renew(registration, 200.0) == 200.0
        assert stage.renew(registration, 0.0) == 0.0
        stage.register(web(B))
        assert stage.told() == [(1, IN, A)]
        assert isinstance(stage.renew(registration), UnknownLease)


@pytest.mark.parametrize("error", [NoSuchObject("listener", "l"), LeaseDenied("go away")])
def test_an_unknown_event_or_a_definite_failure_cancels_that_registration_only(
    error: Exception,
) -> None:
    with RegistryStage() as stage:
        first, second = stage.listen("first", WEB), stage.listen("second", WEB)
        version = stage.register(web(A), 1000.0)
        stage.pass_time()
        stage.inbox.errors["first"] = error
        stage.register(web(B), 1000.0)
        assert stage.told("first") == [(1, IN, A)]
        assert stage.told("second") == [(1, IN, A), (2, IN, B)]
        assert isinstance(stage.renew(first), UnknownLease)
        assert stage.renew(second, 100.0) == 100.0
        assert stage.renew(f"{A}.{version.registration}", 1000.0) == 1000.0


def test_an_indefinite_failure_is_retried_until_the_event_is_received() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB, ttl=3600.0 * 24 * 3)
        stage.inbox.errors["l"] = LOST
        stage.register(web(A), 3600.0)
        stage.pass_time(3000.0)
        del stage.inbox.errors["l"]
        stage.pass_time(400.0)
        assert stage.told() == [(1, IN, A)]


# Restart.


def test_after_a_restart_events_that_were_not_received_are_sent_with_the_same_numbers() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.pass_time(10.0)  # it is received, and that is written
        stage.inbox.errors["l"] = LOST
        version = stage.register(web(B), 1000.0)
        stage.register(web(C), 1000.0)
        stage.cancel(version)
        del stage.inbox.errors["l"]
        stage.crash()
        stage.pass_time(5.0)
        stage.register(web(B), 1000.0)
        assert stage.told() == [
            (1, IN, A),
            (2, IN, B),
            (3, IN, C),
            (4, OUT, B),
            (5, IN, B),
        ]


def test_events_whose_progress_was_not_written_are_sent_again_with_the_same_numbers() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.register(web(B), 1000.0)
        first = stage.told()
        stage.crash()
        stage.pass_time(5.0)
        assert stage.told() == first + first
        assert stage.inbox.events("l")[0] == stage.inbox.events("l")[2]


def test_events_whose_progress_was_written_are_not_sent_again() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.pass_time(6.0)
        stage.crash()
        stage.pass_time(5.0)
        stage.register(web(B))
        assert stage.told() == [(1, IN, A), (2, IN, B)]


def test_progress_is_written_when_the_server_stops_in_order() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.told()
        stage.run(stage.close)
        stage.crash()
        stage.pass_time(5.0)
        assert stage.told() == [(1, IN, A)]


def test_what_expired_while_no_server_ran_is_an_event_after_the_restart() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 20.0)
        stage.pass_time(6.0)
        stage.crash(30.0)
        stage.pass_time(60.0)
        assert stage.told() == [(1, IN, A), (2, OUT, A)]


def test_one_replay_serves_all_registrations() -> None:
    with RegistryStage() as stage:
        for number in range(5):
            stage.listen(f"l{number}", WEB)
            stage.register(web(), 1000.0)
        stage.pass_time(6.0)
        stage.inbox.errors.update({f"l{number}": LOST for number in range(5)})
        stage.register(web(A), 1000.0)
        stage.inbox.errors.clear()
        stage.crash()
        stage.pass_time(5.0)
        assert stage.faulty.calls.count("watch") == 3  # of items, of the replay, of deleted records
        for number in range(5):
            told = stage.told(f"l{number}")
            assert [each[0] for each in told] == list(range(1, 7 - number))
            assert told[-1][2] == A


def test_an_idle_registration_is_not_replayed_from_its_beginning() -> None:
    with RegistryStage() as stage:
        stage.listen("l", Template(id=C))
        for _ in range(5):
            stage.register(web())
        stage.pass_time(130.0)
        (registration,) = stage.events._live
        assert registration.stored.number == 0
        assert registration.stored.revision > 10


def test_an_idle_registry_writes_nothing() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.pass_time(300.0)
        before = stage.revision
        stage.pass_time(2000.0)
        assert stage.revision == before


def test_the_events_of_one_revision_are_sent_again_from_its_first() -> None:
    """A listener has received some events of a revision when the server is killed."""
    registration = ListenerRegistration(_request(), ReplayProgress(0, 10), "s")
    for item_id in (A, B, C):
        registration.examine(IndexChange(item_id, None, _version(web(item_id)), 11))
    registration.received(2)
    assert registration.progress(12) == ReplayProgress(0, 10)
    registration.received(3)
    assert registration.progress(12) == ReplayProgress(3, 12)


def test_a_registration_that_has_ended_leaves_no_keys() -> None:
    with RegistryStage() as stage:
        registration = stage.listen("l", WEB)
        stage.renew(registration, 0.0)
        stage.pass_time(10.0)
        prefix = b"leasehold/registry/"
        assert stage.run(stage.engine.range, prefix, prefix_end(prefix)).total == 0


def _request() -> EventRequest:
    return EventRequest(EVERYTHING, ALL_TRANSITIONS, EventTarget("", "l"), b"")


def _version(registered: object) -> ItemVersion:
    return ItemVersion(registered, "r", 0, 0.0, 0)  # type: ignore[arg-type]


def _change(registration: ListenerRegistration, revision: int) -> bool:
    return registration.examine(IndexChange(A, None, _version(web(A)), revision))
