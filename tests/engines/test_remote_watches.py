"""Watches of the remote engine against a server that says what a test wants: in virtual time."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from leasehold import CallRefused, Closed, Compacted, Forked, HistoryLost
from leasehold.engine import interface
from leasehold.engine.interface import Watch
from leasehold.engine.remote.watch_hub import PROGRESS_S
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.testing.simulation import run_virtual
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb
from tests.engines.scripted import RANGE, WATCH, ScriptedChannel, ScriptedStream, header


def event(revision: int, key: bytes = b"a") -> kv_pb2.Event:
    return kv_pb2.Event(kv=kv_pb2.KeyValue(key=key, mod_revision=revision, version=1))


async def create(stream: ScriptedStream, revision: int = 1) -> pb.WatchCreateRequest:
    """Take the next request, which is to create a watch, and do so."""
    request = (await stream.heard(pb.WatchRequest)).create_request
    stream.say(pb.WatchResponse(header=header(revision), watch_id=request.watch_id, created=True))
    return request


def tell(stream: ScriptedStream, watch_id: int, *revisions: int, fragment: bool = False) -> None:
    events = [event(revision) for revision in revisions]
    stream.say(
        pb.WatchResponse(header=header(1), watch_id=watch_id, events=events, fragment=fragment)
    )


def progress(stream: ScriptedStream, revision: int, watch_id: int = -1) -> None:
    stream.say(pb.WatchResponse(header=header(revision), watch_id=watch_id))


async def told(watch: Watch, count: int) -> list[int]:
    return [(await anext(watch)).revision for _ in range(count)]


async def settle() -> None:
    """Let everybody do what they can do now."""
    await asyncio.sleep(0.001)


def test_a_watch_goes_on_where_it_was_after_any_number_of_losses() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            for revision in range(2, 10):
                stream = await channel.opened(WATCH)
                request = await create(stream)
                assert request.start_revision == revision
                channel.revision = revision
                tell(stream, request.watch_id, revision)
                assert (await anext(watch)).revision == revision
                channel.lose()

    run_virtual(main)


def test_a_watch_from_now_on_goes_on_from_what_now_was() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a")
            channel.revision = 41
            assert (await create(await channel.opened(WATCH), 41)).start_revision == 0
            await watch.ready()
            channel.lose()
            assert (await create(await channel.opened(WATCH), 50)).start_revision == 42

    run_virtual(main)


def test_every_stream_asks_for_a_leader() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            engine.watch(b"a")
            stream = await channel.opened(WATCH)
            assert ("hasleader", "true") in stream.metadata
            stream.end(RpcError(Status.UNAVAILABLE, "etcdserver: no leader"))
            stream = await channel.opened(WATCH)
            assert ("hasleader", "true") in stream.metadata
            assert len(channel.hung_up) == 1

    run_virtual(main)


# Fragments.


def test_fragments_are_put_together_into_whole_revisions() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            tell(stream, number, 2, 3, 3, fragment=True)
            assert (await anext(watch)).revision == 2
            reader = asyncio.ensure_future(anext(watch))
            await settle()
            assert not reader.done()
            tell(stream, number, 3, fragment=True)
            tell(stream, number, 3, 4)
            third = await reader
            assert (third.revision, len(third.events)) == (3, 4)
            assert (await anext(watch)).revision == 4

    run_virtual(main)


def test_a_stream_lost_in_the_middle_of_fragments_tells_nothing_in_part_or_twice() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            tell(stream, number, 2, 3, 3, fragment=True)
            await settle()
            channel.revision = 3
            channel.lose()
            stream = await channel.opened(WATCH)
            request = await create(stream)
            assert request.start_revision == 3
            tell(stream, request.watch_id, 3, 3, 3)
            both = [await anext(watch), await anext(watch)]
            assert [(each.revision, len(each.events)) for each in both] == [(2, 1), (3, 3)]

    run_virtual(main)


# Slow readers.


def test_a_slow_reader_is_detached_and_catches_up_while_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED", 4)

    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            slow, quick = engine.watch(b"a", start=2), engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            numbers = [(await create(stream)).watch_id for _ in range(2)]
            for revision in range(2, 6):
                for number in numbers:
                    tell(stream, number, revision)
                assert await told(quick, 1) == [revision]
            cancel = (await stream.heard(pb.WatchRequest)).cancel_request
            assert cancel.watch_id == numbers[0]
            stream.say(pb.WatchResponse(header=header(5), watch_id=numbers[0], canceled=True))
            tell(stream, numbers[0], 6)  # was under way
            tell(stream, numbers[1], 6)
            assert await told(quick, 1) == [6]
            assert stream.is_quiet
            assert await told(slow, 3) == [2, 3, 4]
            again = await create(stream)
            assert (again.start_revision, again.watch_id not in numbers) == (6, True)
            tell(stream, again.watch_id, 6, 7)
            assert await told(slow, 3) == [5, 6, 7]

    run_virtual(main)


def test_what_waits_to_be_read_is_bounded_in_bytes_fragments_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED_BYTES", 100)

    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            for _ in range(10):
                tell(stream, number, 2, fragment=True)
            tell(stream, number, 2)
            cancel = (await stream.heard(pb.WatchRequest)).cancel_request
            assert cancel.watch_id == number

    run_virtual(main)


def test_asking_for_progress_does_not_make_a_full_watch_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED", 4)

    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2, 3, 4, 5)
            assert (await stream.heard(pb.WatchRequest)).HasField("cancel_request")
            watch.request_progress()
            await settle()
            assert stream.is_quiet
            assert await told(watch, 4) == [2, 3, 4, 5]
            assert (await create(stream)).start_revision == 6
            assert (await stream.heard(pb.WatchRequest)).HasField("progress_request")
            progress(stream, 9)
            assert await anext(watch) == (9, [])

    run_virtual(main)


# Ends.


def test_a_watch_that_is_cancelled_is_cancelled_there_and_asks_for_nothing() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a")
            other = engine.watch(b"b")
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            await create(stream)
            await watch.ready()
            watch.cancel()
            assert (await stream.heard(pb.WatchRequest)).cancel_request.watch_id == number
            watch.request_progress()
            await settle()
            assert stream.is_quiet
            with pytest.raises(Closed):
                await watch.ready()
            other.cancel()
            assert (await stream.heard(pb.WatchRequest)).HasField("cancel_request")
            stream.say(pb.WatchResponse(header=header(), watch_id=number, canceled=True))
            await settle()
            assert stream.is_over

    run_virtual(main)


def test_a_server_that_cancels_without_a_reason_is_going_away() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            stream.say(pb.WatchResponse(header=header(), watch_id=number, canceled=True))
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2)
            assert await told(watch, 1) == [2]

    run_virtual(main)


def test_a_server_that_ends_the_stream_in_good_order_is_going_away_too() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            await create(stream)
            stream.end()
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2)
            assert await told(watch, 1) == [2]

    run_virtual(main)


def test_a_defect_of_ours_ends_watches_aloud(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a")
            stream = await channel.opened(WATCH)
            stream.end(ZeroDivisionError("a defect"))
            with pytest.raises(ZeroDivisionError):
                await watch.ready()
            with pytest.raises(ZeroDivisionError):
                await anext(watch)

    run_virtual(main)
    assert "watch stream failed" in caplog.text


@pytest.mark.parametrize("number_is_told", [True, False])
def test_a_watch_that_is_refused_ends_alone(number_is_told: bool) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            first, refused, last = (engine.watch(name, start=2) for name in (b"a", b"b", b"c"))
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            bad = (await stream.heard(pb.WatchRequest)).create_request.watch_id
            stream.say(
                pb.WatchResponse(
                    header=header(),
                    watch_id=bad if number_is_told else -1,
                    created=True,
                    canceled=True,
                    cancel_reason="etcdserver: permission denied",
                )
            )
            await create(stream)
            with pytest.raises(CallRefused, match="permission denied"):
                await anext(refused)
            await last.ready()
            tell(stream, number, 2)
            assert await told(first, 1) == [2]

    run_virtual(main)


def test_compaction_while_there_is_no_connection_ends_a_watch_behind_what_was_told() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2)
            await settle()
            channel.revision = 9
            channel.lose()
            stream = await channel.opened(WATCH)
            number = (await create(stream)).watch_id
            stream.say(
                pb.WatchResponse(
                    header=header(9), watch_id=number, canceled=True, compact_revision=8
                )
            )
            assert await told(watch, 1) == [2]
            with pytest.raises(Compacted) as ended:
                await anext(watch)
            assert (ended.value.asked_for, ended.value.revision) == (3, 8)

    run_virtual(main)


def test_a_stream_that_is_refused_for_good_ends_every_watch() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a")
            stream = await channel.opened(WATCH)
            stream.end(RpcError(Status.UNIMPLEMENTED, "unknown service"))
            with pytest.raises(CallRefused, match="unknown service"):
                await watch.ready()

    run_virtual(main)


@pytest.mark.parametrize(
    "status", [Status.DEADLINE_EXCEEDED, Status.UNAUTHENTICATED, Status.UNKNOWN, Status.UNAVAILABLE]
)
def test_what_may_pass_never_ends_a_watch(status: Status, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            await create(stream)
            await watch.ready()
            answer, refusals = channel.answers[RANGE], iter([True, True])

            def refuse(request: bytes) -> pb.RangeResponse:
                if next(refusals, False):
                    raise RpcError(status, "not now")
                found = answer(request)
                assert isinstance(found, pb.RangeResponse)
                return found

            channel.answers[RANGE] = refuse
            stream.end(RpcError(status, "not now"))
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2)
            assert await told(watch, 1) == [2]

    with caplog.at_level(logging.WARNING):
        run_virtual(main)
    said = [
        record.message.split(",")[0]
        for record in caplog.records
        if "watches" in record.name or "watch_hub" in record.name
    ]
    assert said == ["watches are interrupted", "watches resumed"]


# History.


def test_a_server_that_comes_back_with_an_older_state_is_history_lost() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            tell(stream, (await create(stream)).watch_id, 2, 3)
            await settle()
            channel.revision = 2
            channel.lose()
            assert await told(watch, 2) == [2, 3]
            with pytest.raises(HistoryLost, match="revision went back from 3 to 2"):
                await anext(watch)
            with pytest.raises(HistoryLost):
                await engine.range(b"a")
            with pytest.raises(HistoryLost):
                engine.watch(b"a")

    run_virtual(main)


def test_another_cluster_is_history_lost() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            watch = engine.watch(b"a")
            stream = await channel.opened(WATCH)
            await create(stream)
            await watch.ready()
            stream.say(pb.WatchResponse(header=header(9, cluster=8), watch_id=1, events=[event(9)]))
            with pytest.raises(HistoryLost, match="cluster id changed from 7 to 8"):
                await anext(watch)
            with pytest.raises(HistoryLost):
                engine.check()

    run_virtual(main)


def test_the_header_of_a_watch_on_a_member_that_lags_is_not_history_lost() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        channel.revision = 50
        async with await channel.engine() as engine:
            await engine.range(b"a")
            watch = engine.watch(b"a", start=40)
            stream = await channel.opened(WATCH)
            number = (await create(stream, revision=41)).watch_id
            progress(stream, 41, number)
            tell(stream, number, 45)
            assert await told(watch, 1) == [45]
            engine.check()

    run_virtual(main)


def test_a_watch_from_now_on_is_not_told_what_was_there_before_it_by_a_member_that_lags() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        channel.revision = 50
        async with await channel.engine() as engine:
            await engine.range(b"a")
            watch = engine.watch(b"a")
            stream = await channel.opened(WATCH)
            number = (await create(stream, revision=47)).watch_id
            tell(stream, number, 48, 50, 51)
            assert await told(watch, 1) == [51]

    run_virtual(main)


# Progress.


def test_progress_that_is_trusted_is_where_a_watch_goes_on() -> None:
    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            progress(stream, 9, (await create(stream)).watch_id)
            await settle()
            channel.revision = 9
            channel.lose()
            assert (await create(await channel.opened(WATCH))).start_revision == 10

    run_virtual(main)


def test_a_quiet_watch_is_asked_after_and_goes_on_from_where_the_others_are() -> None:
    """Else it would go on from where it began, after a loss, which may be compacted by then."""

    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            engine.watch(b"a", start=1)
            stream = await channel.opened(WATCH)
            await create(stream)
            await asyncio.sleep(PROGRESS_S + 1.0)
            request = await stream.heard(pb.WatchRequest)
            assert request.HasField("progress_request")
            progress(stream, 500)
            await settle()
            channel.revision = 500
            channel.lose()
            assert (await create(await channel.opened(WATCH))).start_revision == 501

    run_virtual(main)


def test_each_member_is_trusted_by_its_own_version() -> None:
    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            engine.watch(b"a", start=2)
            for version, start in (("3.5.1", 2), ("3.5.21", 2), ("3.5.1", 20), ("3.5.1", 20)):
                channel.version = version
                stream = await channel.opened(WATCH)
                request = await create(stream)
                assert request.start_revision == start
                channel.revision += 9
                progress(stream, channel.revision, request.watch_id)
                await settle()
                channel.lose()

    run_virtual(main)


def test_progress_for_all_is_not_for_watches_that_are_not_created_yet() -> None:
    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            engine.watch(b"a", start=2)
            stream = await channel.opened(WATCH)
            assert (await stream.heard(pb.WatchRequest)).HasField("create_request")
            progress(stream, 9)
            await settle()
            channel.lose()
            assert (await create(await channel.opened(WATCH))).start_revision == 2

    run_virtual(main)


def test_watches_that_ask_for_progress_together_ask_once_and_are_all_told() -> None:
    async def main() -> None:
        channel = ScriptedChannel("3.5.21")
        async with await channel.engine() as engine:
            watches = [engine.watch(b"a", start=2) for _ in range(3)]
            stream = await channel.opened(WATCH)
            for _ in watches:
                await create(stream)
            await settle()
            for watch in watches:
                watch.request_progress()
            assert (await stream.heard(pb.WatchRequest)).HasField("progress_request")
            await settle()
            assert stream.is_quiet
            progress(stream, 9)
            assert [await told(watch, 1) for watch in watches] == [[9]] * 3

    run_virtual(main)


# Ends of the engine.


def test_closing_and_forking_end_watches() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        engine = await channel.engine()
        closed = engine.watch(b"a")
        await engine.close()
        with pytest.raises(Closed):
            await anext(closed)
        engine = await channel.engine()
        forked: Sequence[Watch] = [engine.watch(b"a"), engine.watch(b"b")]
        engine.abandon()
        with pytest.raises(Forked):
            await anext(forked[0])
        with pytest.raises(Forked):
            await forked[1].ready()
        with pytest.raises(Forked):
            engine.watch(b"c")

    run_virtual(main)
