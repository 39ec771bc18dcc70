"""Stores that fail while a file is written: flushed bytes survive, and the file stays open."""

import asyncio

import pytest

from leasehold.errors import FileDamaged, LeaseholdError, RecoveryInProgress, TooFewReplicas
from leasehold.files.file_keys import REPAIRS
from leasehold.testing import seeds
from tests.support.files_stage import APPENDING, PIECES, FilesStage, play

KINDS = [pytest.param(APPENDING, id="appending"), pytest.param(PIECES, id="pieces")]
FIVE = (*APPENDING, "/4", "/5")


@pytest.mark.parametrize("trouble", ["fail", "hang"])
@pytest.mark.parametrize("at", ["first flush", "later flush", "close"])
@pytest.mark.parametrize("stores", KINDS)
def test_writing_goes_on_without_a_store_that_fails(
    stores: tuple[str, ...], at: str, trouble: str
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        if at != "first flush":
            await file.write(b"one ")
            await file.flush()
        await file.write(b"two ")
        getattr(stage.stores, trouble)(stores[0])
        if at != "close":
            await file.flush()
            await file.write(b"three")
        await file.close()
        stage.stores.heal(stores[0])
        assert await b.read("x") == (b"" if at == "first flush" else b"one ") + b"two " + (
            b"" if at == "close" else b"three"
        )
        for block in stage.blocks(file.id)[-1:]:
            assert stores[0] not in stage.objects_of(block)
        assert stage.keys(REPAIRS)

    play(scene, stores=stores)


def test_the_stamp_rises_before_the_next_acknowledgement() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"one ")
        await file.flush()
        before = stage.record(file.id)
        await file.write(b"two ")
        stage.stores.fail("/1")
        # The transaction that strikes the store off is executed, and the writer stops there.
        original = a.engine.calls.count("txn")

        async def stop_after_first(name: str) -> None:
            if name == "txn" and a.engine.calls.count("txn") > original:
                a.stop()

        a.on_step = stop_after_first
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(1)
        assert not flushing.done()
        after = stage.record(file.id)
        assert after.stamp == before.stamp + 1
        assert after.blocks == 1
        assert "/1" not in stage.objects_of(stage.blocks(file.id)[0])
        flushing.cancel()
        stage.stores.heal("/1")
        assert await b.files.recover("x")
        assert await b.read("x") in (b"one ", b"one two ")

    play(scene)


@pytest.mark.parametrize("stores", KINDS)
def test_a_stale_replica_that_returns_never_decides_the_length(stores: tuple[str, ...]) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"one ")
        await file.flush()
        stage.stores.fail(stores[0])
        await file.write(b"two")
        await file.flush()
        a.stop()
        stage.stores.heal(stores[0])
        assert await b.files.recover("x")
        assert await b.read("x") == b"one two"

    play(scene, stores=stores)


def test_another_store_takes_the_place_of_one_that_fails() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        await file.write(b"one ")
        await file.flush()
        (used,) = stage.blocks(file.id)
        failed = next(iter(stage.objects_of(used)))
        stage.stores.fail(failed)
        await file.write(b"two")
        await file.close()
        last = stage.blocks(file.id)[-1]
        assert len(last.replicas) == 3
        assert failed not in stage.objects_of(last)
        assert await a.read("x") == b"one two"

    play(scene, stores=FIVE)


@pytest.mark.parametrize(("min_replicas", "needed"), [(0, 2), (1, 1), (2, 2), (3, 3)])
def test_a_flush_needs_min_replicas(min_replicas: int, needed: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        await file.write(b"one")
        await file.flush()
        for number, url in enumerate(APPENDING, 1):
            stage.stores.fail(url)
            await file.write(b"!")
            if len(APPENDING) - number >= needed:
                await file.flush()
                continue
            with pytest.raises(TooFewReplicas):
                await file.flush()
            assert not await a.files.is_closed("x"), "the file stays open"
            break
        written = file.tell()
        for url in APPENDING:
            stage.stores.heal(url)
        await file.flush()
        assert file.flushed == written
        await file.close()
        assert await a.read("x") == b"one" + b"!" * (written - 3)

    play(scene, min_replicas=min_replicas)


@pytest.mark.parametrize("at", ["first flush", "later flush"])
@pytest.mark.parametrize("call", ["flush", "close"])
@pytest.mark.parametrize("stores", KINDS)
@pytest.mark.parametrize("trouble", ["fail", "hang"])
@pytest.mark.parametrize("pause_s", [0.0, 120.0])
def test_too_few_replicas_and_then_the_stores_return(
    stores: tuple[str, ...], call: str, at: str, trouble: str, pause_s: float
) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        if at == "later flush":
            await file.write(b"one ")
            await file.flush()
        await file.write(b"two ")
        for url in stores[:2]:
            getattr(stage.stores, trouble)(url)
        for _ in range(3):
            with pytest.raises(TooFewReplicas):
                await getattr(file, call)()
            await asyncio.sleep(pause_s)
        assert not file.closed
        await file.write(b"three")
        for url in stores[:2]:
            stage.stores.heal(url)
        await getattr(file, call)()
        await file.close()
        expected = (b"one " if at == "later flush" else b"") + b"two three"
        assert await a.read("x") == expected

    play(scene, stores=stores)


def test_with_all_stores_gone_and_back_nothing_is_lost() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        expected = b""
        for number in range(5):
            data = b"%d " % number
            expected += data
            await file.write(data)
            for url in APPENDING:
                stage.stores.fail(url)
            with pytest.raises(TooFewReplicas):
                await file.flush()
            for url in APPENDING:
                stage.stores.heal(url)
            await file.flush()
            assert await a.read("x") == expected
        await file.close()
        assert await a.read("x") == expected

    play(scene)


def test_create_with_fewer_stores_than_a_flush_needs_is_refused() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        with pytest.raises(TooFewReplicas, match="no replica store is configured"):
            await a.files.create("x")

    play(scene, stores=())


def test_a_block_ends_at_its_size_and_the_next_one_follows() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        async with a.files.create("x") as file:
            await file.write(bytes(range(100)) * 30)
        assert [block.length for block in stage.blocks(file.id)] == [1000, 1000, 1000]
        assert await a.read("x") == bytes(range(100)) * 30

    play(scene, block_bytes=1000)


def test_a_block_with_200_pieces_is_sealed() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        async with a.files.create("x") as file:
            for _ in range(450):
                await file.write(b"12")
                await file.flush()
        assert [len(block.replicas[0].pieces) for block in stage.blocks(file.id)] == [200, 200, 50]
        assert await a.read("x") == b"12" * 450
        assert len(stage.keys(REPAIRS)) == 2, "the full ones are merged later"

    play(scene, stores=PIECES)


def test_append_copies_nothing_and_starts_a_new_block() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x", b"one ")
        reads = sum(n for (_, method), n in stage.stores.calls.items() if method == "read")
        async with a.files.append("x") as file:
            await file.write(b"two")
        assert reads == sum(n for (_, method), n in stage.stores.calls.items() if method == "read")
        assert [block.length for block in stage.blocks(file.id)] == [4, 3]
        assert await a.read("x") == b"one two"

    play(scene)


# Readers.


def test_a_reader_has_a_fixed_length_and_refresh_looks_again() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"one ")
        await file.flush()
        await file.write(b"two ")
        async with b.files.open("x") as reader:
            await file.flush()
            assert await reader.read() == b"one "
            assert await reader.refresh() == 8
            assert await reader.read() == b"two "
            assert await reader.read() == b""
            await file.write(b"three")
            await file.close()
            assert await reader.refresh() == 13
            assert await reader.read() == b"three"

    play(scene)


@pytest.mark.parametrize("damage", ["corrupt", "gone", "short", "down", "hangs"])
def test_a_reader_goes_to_the_next_replica(damage: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"data")
        file_id = (await a.files.stat("x")).id
        for number, url in enumerate(APPENDING):
            name = stage.bytes_of(url, file_id)[0][0]
            match damage:
                case "corrupt":
                    stage.stores.corrupt(url, name, 1)
                case "gone":
                    del stage.stores.objects[url][name]
                case "short":
                    stage.stores.shorten(url, name, 2)
                case "down":
                    stage.stores.fail(url)
                case "hangs":
                    stage.stores.hang(url)
            if number < 2:
                assert await b.read("x") == b"data"
        with pytest.raises(FileDamaged):
            await b.read("x")

    play(scene, with_stores=False)


def test_a_reader_that_opened_before_a_recovery_can_finish() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"flushed")
        await file.flush()
        async with b.files.open("x") as reader:
            assert await b.files.recover("x")
            assert await reader.read() == b"flushed"
            assert await reader.refresh() == 7
        await file.close()

    play(scene)


# All together.


@pytest.mark.parametrize("stores", KINDS)
@pytest.mark.parametrize("seed", seeds(30))
def test_flushed_bytes_survive_any_failures_of_single_stores(
    seed: int, stores: tuple[str, ...]
) -> None:
    async def scene(stage: FilesStage) -> None:
        random = stage.random
        flushed = written = b""
        for number in range(6):
            a = stage.machine(f"m{number}")
            try:
                file = await a.files.open("x", "ab")
            except (TooFewReplicas, RecoveryInProgress):
                continue
            for _ in range(random.randint(1, 6)):
                for url in stores:
                    stage.stores.heal(url)
                if random.random() < 0.6:
                    trouble = random.choice((stage.stores.fail, stage.stores.hang))
                    trouble(random.choice(stores), times=random.choice((None, 1, 2)))
                if random.random() < 0.2:
                    stage.stores.fail(random.choice(stores))
                data = random.randbytes(random.randint(1, 30))
                await file.write(data)
                written += data
                try:
                    await file.flush()
                except TooFewReplicas:
                    continue
                flushed = written
            for url in stores:
                stage.stores.heal(url)
            if random.random() < 0.5:
                a.stop_at(random.randint(1, 12), is_executed=random.random() < 0.5)
                closing = asyncio.ensure_future(file.close())
                await asyncio.wait([closing], timeout=5)
                closing.cancel()
                a.stop()
            else:
                a.stop()
            other = stage.machine(f"r{number}")
            if random.random() < 0.5:
                stage.stores.fail(random.choice(stores))
            for _ in range(10):
                try:
                    if await other.files.recover("x"):
                        break
                except LeaseholdError:
                    pass
                for url in stores:
                    stage.stores.heal(url)
                await asyncio.sleep(20)
            for url in stores:
                stage.stores.heal(url)
            found = await other.read("x")
            assert found.startswith(flushed)
            assert written.startswith(found)
            flushed = written = found

    play(scene, seed=seed, stores=stores)
