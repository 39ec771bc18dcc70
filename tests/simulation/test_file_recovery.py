"""Lease recovery, step by step, with a failure at each step. Flushed bytes survive always."""

import asyncio
import logging

import pytest

from leasehold.errors import RecoveryInProgress
from leasehold.files.file_keys import (
    RECOVERIES,
    REPAIRS,
    TRASH,
    WORKERS,
    decode_recovery,
    recovery_key,
)
from leasehold.files.recovery import RETRIES_S
from leasehold.files.replica_io import CONCURRENT_PIECES
from leasehold.files.state import CHUNK_BYTES, FileState
from leasehold.testing import seeds
from tests.support.files_stage import (
    APPENDING,
    PIECES,
    FilesStage,
    abandoned,
    last_object,
    open_file,
    play,
    settled,
)

KINDS = [pytest.param(APPENDING, id="appending"), pytest.param(PIECES, id="pieces")]
MIXED = ("/1", "/2", "mem://3")


# The beginning.


def test_the_first_transaction_locks_the_file_with_a_new_stamp_before_anything_else() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        before = stage.record(file.id)
        seen: list[FileState] = []

        async def look(name: str) -> None:
            if name in ("size", "read", "append"):
                record = stage.record(file.id)
                seen.append(record.state)
                assert record.stamp > before.stamp
                assert not stage.keys(b"leasehold/files/open/")
                assert stage.keys(WORKERS)

        b.on_step = look
        assert await b.files.recover("x")
        assert set(seen) == {FileState.RECOVERING}
        assert not stage.keys(WORKERS)
        assert not stage.keys(RECOVERIES)

    play(scene)


def test_old_objects_are_neither_truncated_nor_renamed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a, sent=b" sent")
        stage.stores.shorten("/2", last_object(stage, "/2", file), 9)
        before = {url: dict(stage.bytes_of(url, file.id)) for url in APPENDING}
        assert await b.files.recover("x")
        for url in APPENDING:
            after = dict(stage.bytes_of(url, file.id))
            assert before[url].items() <= after.items()
            assert len(after) == 2
        assert await b.read("x") == b"flushed"
        assert [key for key in stage.keys(TRASH) if file.id.encode() in key], "for the collector"

    play(scene)


# Which bytes count.


@pytest.mark.parametrize("stores", KINDS)
@pytest.mark.parametrize("bad", [0, 2])
def test_bytes_that_were_not_flushed_do_not_count_even_if_all_replicas_have_them(
    bad: int, stores: tuple[str, ...]
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await abandoned(stage, a, sent=b" sent")
        for url in stores[:bad]:
            stage.stores.fail(url)
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"

    play(scene, stores=stores)


@pytest.mark.parametrize("stores", KINDS)
def test_bytes_that_the_writer_sends_after_the_file_was_taken_do_not_count(
    stores: tuple[str, ...],
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"flushed")
        await file.flush()
        await file.write(b" late")
        late: list[asyncio.Future[None]] = []

        async def send(called: str) -> None:
            if called == "size" and not late:
                late.append(asyncio.ensure_future(file.flush()))
                await asyncio.wait(late)

        b.on_step = send
        assert await b.files.recover("x")
        assert isinstance(late[0].exception(), RecoveryInProgress)
        assert await b.read("x") == b"flushed"

    play(scene, stores=stores)


def test_a_block_of_which_nothing_was_flushed_is_dropped() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"closed")
        file = await a.files.append("x")
        await file.write(b" sent")
        a.on_step = None
        a.engine.trouble_with("txn", 1, ConnectionResetError("lost"))
        a.stop_at(4, is_executed=False)  # after the three stores
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(1)
        flushing.cancel()
        assert await b.files.recover("x")
        assert await b.read("x") == b"closed"
        assert len(stage.blocks(file.id)) == 1

    play(scene)


@pytest.mark.parametrize("length", [0, 1, 6])
@pytest.mark.parametrize("bad", [("/1",), ("/1", "/3")])
def test_a_replica_that_is_shorter_than_the_flushed_length_is_left_out(
    bad: tuple[str, ...], length: int
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a, sent=b" sent")
        for url in bad:
            stage.stores.shorten(url, last_object(stage, url, file), length)
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"
        (block,) = stage.blocks(file.id)
        assert set(stage.objects_of(block)) == set(APPENDING) - set(bad)
        assert stage.keys(REPAIRS)

    play(scene)


@pytest.mark.parametrize("stores", KINDS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_replica_that_fails_its_checksum_is_left_out(stores: tuple[str, ...], count: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        for url in stores[:count]:
            stage.stores.corrupt(url, last_object(stage, url, file), 3)
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"
        (block,) = stage.blocks(file.id)
        assert set(stage.objects_of(block)) == set(stores[count:])

    play(scene, stores=stores)


@pytest.mark.parametrize("stores", KINDS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_replica_whose_object_is_gone_is_left_out(stores: tuple[str, ...], count: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        for url in stores[:count]:
            stage.stores.objects[url].clear()
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"
        assert len(stage.blocks(file.id)[0].replicas) == 3 - count

    play(scene, stores=stores)


@pytest.mark.parametrize("stores", [*KINDS, pytest.param(MIXED, id="mixed")])
@pytest.mark.parametrize("trouble", ["fail", "hang"])
@pytest.mark.parametrize("methods", [("size",), ("read",), ("append", "put")])
def test_a_store_that_fails_or_hangs_in_a_step_is_left_out(
    methods: tuple[str, ...], trouble: str, stores: tuple[str, ...]
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a, sent=b" sent")
        getattr(stage.stores, trouble)(stores[0], methods=methods)
        done = await b.files.recover("x")
        assert done == (trouble == "fail"), "it does not wait for a store that hangs"
        await asyncio.sleep(60)
        stage.stores.heal(stores[0])
        assert await b.files.is_closed("x"), "recovery has gone on without it"
        assert await b.read("x") == b"flushed"
        assert stores[0] not in stage.objects_of(stage.blocks(file.id)[0])

    play(scene, stores=stores)


def test_pieces_are_read_at_the_same_time_within_a_limit() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        for _ in range(3 * CONCURRENT_PIECES):
            await file.write(b"piece ")
            await file.flush()
        a.stop()
        calls, most = 0, 0

        async def take_a_second(called: str) -> None:
            nonlocal calls, most
            if called == "read":
                calls += 1
                most = max(most, calls)
                await asyncio.sleep(1)
                calls -= 1

        b.on_step = take_a_second
        started = stage.host.clock.monotonic()
        await settled(b)
        assert stage.host.clock.monotonic() - started < 10, "twice three seconds to read them"
        assert most == len(PIECES) * CONCURRENT_PIECES
        b.on_step = None
        assert await b.read("x") == b"piece " * (3 * CONCURRENT_PIECES)

    play(scene, stores=PIECES)


def test_a_copy_that_is_damaged_while_it_is_read_comes_from_another_replica() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        name = last_object(stage, "/1", file)

        async def damage(called: str) -> None:
            if called == "append" and stage.stores.objects["/1"].get(name, b"")[:1] == b"f":
                stage.stores.corrupt("/1", name)

        b.on_step = damage
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"

    play(scene)


def test_an_empty_last_block_is_dropped() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        await a.put("x", b"closed")
        await a.files.append("x")
        a.stop()
        empty = await b.files.create("y")
        b.stop()
        assert await c.files.recover("x")
        assert await c.files.recover("y")
        assert await c.read("x") == b"closed"
        assert await c.read("y") == b""
        assert stage.blocks(empty.id) == []

    play(scene)


# No replica has the flushed data.


def test_without_any_valid_replica_the_file_stays_locked_and_is_retried_with_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        for url in APPENDING:
            stage.stores.corrupt(url, last_object(stage, url, file))
        waits: list[float] = []
        for attempt in range(1, 12):
            assert not await b.files.recover("x")
            found = decode_recovery(stage.keys(RECOVERIES)[recovery_key(file.id)].value)
            assert found.attempts == attempt
            assert found.path == "x"
            assert found.last_error
            waits.append(round(found.retry_ms / 1000 - stage.host.clock.wall(), 1))
            assert not stage.keys(WORKERS)
            await asyncio.sleep(waits[-1] + 1)
        with pytest.raises(RecoveryInProgress):
            await b.files.append("x")
        assert waits == sorted(waits)
        assert waits[-1] == 600
        assert (await b.files.stat("x")).state == FileState.RECOVERING
        assert "no replica has the flushed data" in caplog.text
        for url in APPENDING:
            name = stage.bytes_of(url, file.id)[0][0]
            stage.stores.corrupt(url, name)  # the byte is as it was
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"

    play(scene)


def test_others_may_retry_a_failed_recovery_while_its_process_recovers_another_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        slow, file = await open_file(a, "slow"), await open_file(a)
        a.stop()
        b.hanging = {last_object(stage, url, slow) for url in APPENDING}
        recovering = asyncio.ensure_future(b.files.recover("slow"))  # keeps the lease of b's keys
        damaged = [(url, last_object(stage, url, file)) for url in APPENDING]
        for url, name in damaged:
            stage.stores.corrupt(url, name)
        assert not await b.files.recover("x")
        for url, name in damaged:
            stage.stores.corrupt(url, name)  # the same byte again: as it was
        assert await c.files.recover("x")
        assert not recovering.done()
        b.hanging.clear()
        assert not await recovering
        await settled(c, "slow")

    play(scene)


def test_the_backoff_ends_at_ten_minutes() -> None:
    assert max(RETRIES_S) == 600.0
    assert list(RETRIES_S) == sorted(RETRIES_S)


@pytest.mark.parametrize("flushed", [b"flushed", bytes(3 * 1024 * 1024) + b"tail"])
def test_accept_loss_closes_the_file_with_what_there_is(
    flushed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"before ")
        file = await a.files.append("x")
        await file.write(flushed)
        await file.flush()
        a.stop()
        for url in APPENDING:
            stage.stores.corrupt(url, last_object(stage, url, file), len(flushed) - 1)
        assert not await b.files.recover("x")
        with caplog.at_level(logging.ERROR):
            assert await b.files.recover("x", accept_loss=True)
        assert "data loss" in caplog.text
        whole = len(flushed) // (1024 * 1024) * 1024 * 1024
        assert await b.read("x") == b"before " + flushed[:whole]
        async with b.files.append("x") as after:
            await after.write(b"after")
        assert (await b.read("x")).endswith(b"after")

    play(scene)


def test_replicas_that_are_damaged_in_different_places_are_complete_together() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        flushed = bytes(2 * CHUNK_BYTES) + b"tail"
        file = await abandoned(stage, a, flushed=flushed)
        stage.stores.fail("/1")
        stage.stores.corrupt("/2", last_object(stage, "/2", file), 7)
        stage.stores.corrupt("/3", last_object(stage, "/3", file), len(flushed) - 1)
        assert await b.files.recover("x")
        assert await b.read("x") == flushed
        assert set(stage.objects_of(stage.blocks(file.id)[0])) == {"/2", "/3"}

    play(scene)


def test_accept_loss_loses_nothing_if_a_replica_is_valid() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        stage.stores.corrupt("/1", last_object(stage, "/1", file))
        stage.stores.fail("/2")
        assert await b.files.recover("x", accept_loss=True)
        assert await b.read("x") == b"flushed"

    play(scene)


def test_accept_loss_of_a_store_that_does_not_answer_is_needed_too() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await abandoned(stage, a)
        for url in APPENDING:
            stage.stores.fail(url)
        assert not await b.files.recover("x")
        assert await b.files.recover("x", accept_loss=True)
        for url in APPENDING:
            stage.stores.heal(url)
        assert await b.read("x") == b""

    play(scene)


# The recovering process stops at any step.


@pytest.mark.parametrize("is_executed", [False, True])
@pytest.mark.parametrize("stores", KINDS)
def test_a_recovery_that_stops_at_any_step_is_continued_with_a_new_stamp(
    stores: tuple[str, ...], is_executed: bool
) -> None:
    steps: list[str] = []

    def stopped_at(number: int) -> None:
        async def scene(stage: FilesStage) -> None:
            a, b, c = (stage.machine(name) for name in "abc")
            file = await abandoned(stage, a, sent=b" sent")
            stamp = stage.record(file.id).stamp
            if number:
                b.stop_at(number, is_executed=is_executed)
            recovering = asyncio.ensure_future(b.files.recover("x"))
            await asyncio.wait([recovering], timeout=5)
            if not number:
                steps[:] = b.steps
                return
            recovering.cancel()
            locked = stage.record(file.id)
            await asyncio.sleep(15)
            assert await c.files.recover("x")
            assert await c.read("x") == b"flushed"
            after = stage.record(file.id)
            assert after.stamp > stamp
            if locked.state == FileState.RECOVERING:
                assert after.stamp > locked.stamp
            # The first one wakes up, and changes nothing.
            async with c.files.append("x") as appended:
                await appended.write(b" appended")
            b.wake()
            await asyncio.sleep(120)
            assert await c.read("x") == b"flushed appended"

        play(scene, stores=stores)

    stopped_at(0)
    assert len(steps) > 10
    for number in range(1, len(steps) + 1):
        stopped_at(number)


@pytest.mark.parametrize("seed", seeds(20))
def test_several_recoverers_at_the_same_time_close_the_file_once(seed: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, *others = (stage.machine(name) for name in "abcd")
        file = await abandoned(stage, a, sent=b" sent")

        async def dawdle(_name: str) -> None:
            await asyncio.sleep(stage.random.choice((0.0, 0.0, 0.01, 0.5, 4.0)))

        for each in others:
            each.on_step = dawdle
        await asyncio.gather(*(settled(each) for each in others))
        assert await others[0].read("x") == b"flushed"
        assert len(stage.blocks(file.id)) == 1

    play(scene, seed=seed)


@pytest.mark.parametrize("seed", seeds(20))
def test_a_recoverer_that_is_slower_than_its_lease_changes_nothing(seed: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        await abandoned(stage, a, sent=b" sent")
        b.stop_at(stage.random.randint(1, 20), is_executed=stage.random.random() < 0.5)
        recovering = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(stage.random.choice((1.0, 9.0, 11.0, 15.0)))
        b.wake()
        await settled(c)
        assert await c.read("x") == b"flushed"
        async with c.files.append("x") as file:
            await file.write(b"!")
        await asyncio.wait([recovering], timeout=200)
        if recovering.done() and not recovering.cancelled():
            recovering.exception()
        assert await c.read("x") == b"flushed!"

    play(scene, seed=seed)
