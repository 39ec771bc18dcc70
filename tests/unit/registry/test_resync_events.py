"""Events that tell a listener to look up again, because others were lost."""

import asyncio

import pytest

from leasehold.engine.values import Events
from leasehold.errors import Compacted, ConnectionLost
from leasehold.events.state import EventTarget
from leasehold.registry.event_registration import (
    MAX_QUEUED_BYTES,
    SKIPPED_PER_REVISION,
    EventRequest,
    ListenerRegistration,
    ReplayProgress,
)
from leasehold.registry.item_events import VAIN_S
from leasehold.registry.item_feed import IndexChange
from leasehold.registry.state import ALL_TRANSITIONS, EVERYTHING, ItemVersion, Transition
from leasehold.registry.storage import ItemStorage
from leasehold.wire import registry_pb2 as pb
from tests.support.faulty_engine import FaultyWatch
from tests.support.registry_stage import (
    WEB,
    A,
    B,
    C,
    RegistryStage,
    moved_to,
    web,
    without_progress,
)

IN, STILL = "NOMATCH_MATCH", "MATCH_MATCH"
LOST = ConnectionLost("the listener does not answer")


def test_after_a_compaction_the_number_jumps_and_a_resync_event_is_sent_immediately() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.pass_time(6.0)
        stage.inbox.errors["l"] = LOST
        stage.register(web(B), 1000.0)
        stage.register(web(C), 1000.0)
        stage.run(stage.engine.compact, stage.revision)
        del stage.inbox.errors["l"]
        stage.crash()
        stage.pass_time(5.0)
        stage.register(web(B), 1000.0)
        told = stage.told()
        assert told[0] == (1, IN, A)
        (number, kind, item_id), after = told[1], told[2]
        assert (kind, item_id) == ("resync", "")
        assert number > SKIPPED_PER_REVISION
        assert after == (number + 1, STILL, B)
        assert stage.events.resyncs == 1


def test_a_number_is_not_given_twice_over_several_compactions() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        for _ in range(4):
            stage.register(web(A), 1000.0)
            stage.told()
            stage.run(stage.engine.compact, stage.revision)
            stage.crash()
            stage.pass_time(3.0)
        numbers = [number for number, _, _ in stage.told()]
        assert numbers == sorted(set(numbers))


def test_changes_that_the_index_has_missed_are_a_resync_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.told()
        stage.faulty.is_deaf = True
        stage.run(ItemStorage(stage.engine, stage.policy).register, web(B), 1000.0)
        stage.faulty.is_deaf = False
        stage.faulty.break_watches(Compacted(1, stage.revision))
        stage.pass_time(5.0)
        stage.register(web(C), 1000.0)
        kinds = [(kind, item_id) for _, kind, item_id in stage.told()]
        assert kinds == [(IN, A), ("resync", ""), (IN, C)]


def test_a_queue_that_overflows_is_replaced_by_a_resync_event() -> None:
    registration = ListenerRegistration(_request(), ReplayProgress(0, 10), "s", max_events=3)
    queue = registration.queue
    _change(registration, 11)
    attempt = queue.begin()
    for revision in (12, 13):
        assert not _change(registration, revision)
    assert _change(registration, 14)
    assert queue.pending == [1, 4]
    assert registration.progress(14) == ReplayProgress(0, 10)
    queue.succeeded(attempt)
    registration.received(1)
    assert registration.progress(14) == ReplayProgress(1, 11), "the lost ones can be replayed"
    attempt = queue.begin()
    payload = pb.ItemEvent.FromString(attempt.events[0].payload)
    assert (payload.transition, payload.id, payload.revision) == (pb.NO_TRANSITION, "", 14)
    assert not _change(registration, 15)
    queue.succeeded(attempt)
    registration.received(4)
    assert registration.progress(15) == ReplayProgress(4, 14)


def test_a_listener_that_is_too_slow_gets_a_resync_event() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.inbox.errors["l"] = LOST
        version = stage.register(web(A), 3000.0)
        (registration,) = stage.events._live
        registration.queue.max_events = 5
        for number in range(10):
            stage.change(version, moved_to(f"{number}"))
        del stage.inbox.errors["l"]
        stage.pass_time(100.0)
        told = stage.told()
        assert ("resync", "") in [each[1:] for each in told]
        assert told[-1][0] == 11
        assert stage.events.resyncs >= 1


def test_a_replay_whose_progress_cannot_be_trusted_is_a_resync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_progress(monkeypatch)
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.pass_time(6.0)
        stage.crash()
        stage.pass_time(2 * VAIN_S)
        stage.register(web(B), 1000.0)
        kinds = [(kind, item_id) for _, kind, item_id in stage.told()]
        assert kinds == [(IN, A), ("resync", ""), (IN, B)]


def test_a_replay_waits_for_changes_that_are_sent_after_requests_for_progress_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: dict[FaultyWatch, Events] = {}
    original = FaultyWatch.__anext__

    async def late(watch: FaultyWatch) -> Events:
        """Answer with too little progress first, as a busy etcd server does."""
        loop = asyncio.get_running_loop()
        if watch not in held:
            held[watch] = await original(watch)
        if not held[watch].events or loop.time() >= sent_from:
            return held.pop(watch)
        await asyncio.sleep(0.2)
        return Events(0, ())

    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.pass_time(6.0)
        stage.register(web(A), 1000.0)
        stage.crash()
        sent_from = stage.run(_now) + 3.0
        monkeypatch.setattr(FaultyWatch, "__anext__", late)
        stage.pass_time(10.0)
        stage.register(web(B), 1000.0)
        assert {(kind, item_id) for _, kind, item_id in stage.told()} == {(IN, A), (IN, B)}
        assert not stage.events.resyncs


async def _now() -> float:
    return asyncio.get_running_loop().time()


def test_an_engine_that_was_restored_from_an_older_backup_is_a_resync() -> None:
    with RegistryStage() as stage:
        stage.listen("l", WEB)
        stage.register(web(A), 1000.0)
        stage.pass_time(6.0)
        (registration,) = stage.events._live
        key = next(iter(stage.events._by_queue.values())).key + b"/p"
        value = pb.StoredEventProgress(number=7, revision=10_000).SerializeToString()
        stage.run(stage.engine.put, key, value)
        stage.crash()
        stage.pass_time(5.0)
        stage.register(web(B), 1000.0)
        kinds = [(kind, item_id) for _, kind, item_id in stage.told()]
        assert kinds == [(IN, A), ("resync", ""), (IN, B)]
        assert registration.queue.number < stage.inbox.numbers("l")[-1]


def _request() -> EventRequest:
    return EventRequest(EVERYTHING, ALL_TRANSITIONS, EventTarget("", "l"), b"")


def _version(registered: object) -> ItemVersion:
    return ItemVersion(registered, "r", 0, 0.0, 0)  # type: ignore[arg-type]


def _change(registration: ListenerRegistration, revision: int) -> bool:
    return registration.examine(IndexChange(A, None, _version(web(A)), revision))


def test_a_queue_of_large_events_becomes_a_resync_event() -> None:
    registration = ListenerRegistration(
        EventRequest(EVERYTHING, ALL_TRANSITIONS, EventTarget("", "l"), b""),
        ReplayProgress(0, 0),
        "s",
    )
    large = web(A, text="x" * 200_000)
    resyncs = 0
    for revision in range(1, 101):
        version = ItemVersion(large, f"r{revision}", 1, 1.0, revision)
        resyncs += registration.examine(IndexChange(A, None, version, revision))
        attempt = registration.queue.begin()
        size_bytes = sum(len(event.payload) for event in attempt.events)
        registration.queue.interrupted(attempt)
        assert size_bytes <= MAX_QUEUED_BYTES
        assert len(registration.queue) <= 1 + MAX_QUEUED_BYTES // 200_000
    assert resyncs >= 100 * 200_000 // MAX_QUEUED_BYTES - 1
    assert registration.progress(100) == ReplayProgress(0, 0)


def test_listeners_of_a_change_share_the_bytes_of_its_event() -> None:
    change = IndexChange(A, None, ItemVersion(web(A), "r", 1, 1.0, 1), 1)
    assert change.event(Transition.NOMATCH_MATCH) is change.event(Transition.NOMATCH_MATCH)


def test_a_number_stays_in_range_if_the_revision_of_a_restored_store_jumps_ahead() -> None:
    registration = ListenerRegistration(
        EventRequest(EVERYTHING, ALL_TRANSITIONS, EventTarget("", "l"), b""),
        ReplayProgress(7, 5),
        "s",
    )
    registration.lost(5, 1 << 52)
    assert 7 < registration.queue.number < 1 << 63
    pb.StoredEventProgress(number=registration.queue.number)
