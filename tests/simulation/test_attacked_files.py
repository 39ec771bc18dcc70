"""Single-writer files: interleavings that a reviewer has found, each with a process that is paused.

Stores are added, removed and dropped while a writer, a repairer or a recovery is under way.
"""

import asyncio
from typing import Any

import pytest

from leasehold.errors import FileDamaged, LeaseExpired, LeaseholdError, TooFewReplicas
from leasehold.files.collector import CONCURRENT_CHANGES
from leasehold.files.file_keys import CONFIG, REPAIRS
from leasehold.files.known_config import CONFIG_S
from leasehold.files.recovery import RETRIES_S
from leasehold.files.repairer import Repairer
from leasehold.files.service import FilesService, _repeat
from leasehold.files.state import KEEP_S, LATE_S, FileState, store_id
from leasehold.files.threaded_store import MAX_WAITING_CALLS, OWNER
from leasehold.files.writer import MAX_PIECES
from tests.support.faulty_engine import Fault
from tests.support.files_stage import (
    APPENDING,
    PIECES,
    FilesStage,
    Machine,
    abandoned,
    last_object,
    open_file,
    play,
    url_of,
)
from tests.support.memory_stores import WRITES

COPY_S = 20.0
"""How long a slow store takes for a write."""


def slow_down(machine: Machine) -> None:
    """Let each append of a machine take long."""

    async def wait(called: str) -> None:
        if called == "append":
            await asyncio.sleep(COPY_S)

    machine.on_step = wait


def repairer_of(machine: Machine) -> Repairer:
    files = machine.files
    return Repairer(files.namespace, files.stores, files.known_config)


async def recover(machine: Machine) -> None:
    """Recover a file."""
    while not await machine.files.recover("x"):  # noqa: ASYNC110
        await asyncio.sleep(1)


async def make_rounds(repairer: Repairer, rounds: int, interval_s: float) -> None:
    """Let a repairer work in the background of a server."""
    for _ in range(rounds):
        await asyncio.sleep(interval_s)
        while await repairer.make_pass():
            pass


@pytest.mark.parametrize("how", ["store fails", "block is full"])
def test_no_flush_is_acknowledged_in_a_store_that_has_left_before_it_was_recorded(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, server, c = (stage.machine(each) for each in ("a", "operator", "server", "c"))
        file = await open_file(a, data=b"12")  # in /2
        if how == "store fails":
            stage.stores.fail("/2", times=1, methods=("append",))
            await file.write(b"34")
            with pytest.raises(TooFewReplicas):
                await file.flush()
        await operator.files.configure(add=["/1"])
        await asyncio.sleep(CONFIG_S + 1)
        await a.read("x")  # which opens the new store
        stores: Any = a.files.stores
        stores._random.shuffle = lambda ids: ids.sort(key=lambda each: each != store_id("/1"))
        held: Any = file._file
        commit, reached, go_on = held.commit, asyncio.Event(), asyncio.Event()

        async def paused(*arguments: Any, **named: Any) -> None:
            held.commit = commit
            reached.set()
            await go_on.wait()
            await commit(*arguments, **named)

        held.commit = paused
        await file.write(b"345678" if how == "block is full" else b"5678")
        flushing = asyncio.ensure_future(file.flush())
        await reached.wait()
        await operator.files.configure(remove=["/1"])
        await make_rounds(repairer_of(server), 10, 30.0)
        assert {each.url for each in (await server.files.config()).stores} == {"/2"}
        go_on.set()
        await flushing
        assert await c.read("x") == b"12345678"
        await file.close()

    size = 4 if how == "block is full" else 1_000
    play(scene, stores=("/2",), replicas=1, block_bytes=size)


def test_no_flush_is_acknowledged_in_a_store_that_is_dropped_meanwhile() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, c = (stage.machine(each) for each in ("a", "operator", "c"))
        file = await a.files.create("x")
        slow_down(a)
        await file.write(b"acknowledged")
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(COPY_S / 2)
        await operator.files.configure(add=["/2"], drop=["/1"])
        await flushing
        a.on_step = None
        await asyncio.sleep(CONFIG_S + 1)
        assert await c.read("x") == b"acknowledged"
        await file.close()

    play(scene, stores=("/1",), replicas=1)


def test_a_repair_keeps_the_replica_of_a_store_that_leaves_if_its_copy_is_dropped() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, server, c = (stage.machine(each) for each in ("a", "operator", "server", "c"))
        await a.put("x", b"data")
        await operator.files.configure(add=["/2"], remove=["/1"])
        await asyncio.sleep(CONFIG_S + 1)
        slow_down(server)
        repairer = repairer_of(server)
        repairing = asyncio.ensure_future(make_rounds(repairer, 1, 0.0))
        await asyncio.sleep(COPY_S / 2)
        (block,) = stage.blocks((await a.files.stat("x")).id)
        assert [url_of(each) for each in block.replicas] == ["/1"], "the copy is not done yet"
        await operator.files.configure(add=["/3"], drop=["/2"])
        await repairing
        server.on_step = None
        await make_rounds(repairer, 20, 60.0)
        assert await c.read("x") == b"data"

    play(scene, stores=("/1",), replicas=1)


def test_a_recovery_keeps_the_replica_of_a_store_that_leaves_if_its_copy_is_dropped() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, b, c = (stage.machine(each) for each in ("a", "operator", "b", "c"))
        await open_file(a)
        a.stop()
        await operator.files.configure(add=["/2"], remove=["/1"])
        await asyncio.sleep(CONFIG_S + 1)
        slow_down(b)
        recovering = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(COPY_S / 2)
        await operator.files.configure(add=["/3"], drop=["/2"])
        await recovering
        b.on_step = None
        while not await b.files.recover("x"):  # noqa: ASYNC110
            await asyncio.sleep(60)
        assert await c.read("x") == b"flushed"

    play(scene, stores=("/1",), replicas=1)


@pytest.mark.parametrize("how", ["flush", "repair", "recovery"])
def test_nothing_is_published_in_a_store_that_was_dropped_just_before(how: str) -> None:
    """The process is stopped between its last look at the configuration and its transaction."""

    async def scene(stage: FilesStage) -> None:
        a, operator, b, c = (stage.machine(each) for each in ("a", "operator", "b", "c"))
        file = await open_file(a)
        reached, go_on = asyncio.Event(), asyncio.Event()

        def pause(owner: Any, method: str) -> None:
            original = getattr(owner, method)

            async def paused(*arguments: Any, **named: Any) -> Any:
                setattr(owner, method, original)
                reached.set()
                await go_on.wait()
                return await original(*arguments, **named)

            setattr(owner, method, paused)

        repairer = repairer_of(b)
        if how == "flush":
            await operator.files.configure(add=["/2"], remove=["/1"])
            await asyncio.sleep(CONFIG_S + 1)
            await file.write(b" more")
            pause(file, "_record_flush")
            work = asyncio.ensure_future(file.flush())
        elif how == "repair":
            await file.close()
            await operator.files.configure(add=["/2"], remove=["/1"])
            pause(repairer, "_publish")
            work = asyncio.ensure_future(make_rounds(repairer, 1, 0.0))
        else:
            a.stop()
            await operator.files.configure(add=["/2"], remove=["/1"])
            pause(b.files.recoverer, "_commit")
            work = asyncio.ensure_future(recover(b))
        await reached.wait()
        await operator.files.configure(add=["/3"], drop=["/2"])
        go_on.set()
        await work
        assert await c.read("x") == (b"flushed more" if how == "flush" else b"flushed")
        await make_rounds(repairer, 20, 60.0)
        assert {each.url for each in (await c.files.config()).stores} >= {"/3"}
        assert await c.read("x") == (b"flushed more" if how == "flush" else b"flushed")
        if how == "flush":
            await file.close()

    play(scene, stores=("/1",), replicas=1)


@pytest.mark.parametrize("is_added", [True, False])
def test_a_repairer_that_does_not_know_the_present_number_of_replicas_deletes_no_record(
    is_added: bool,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, first, second = (
            stage.machine(each) for each in ("a", "operator", "first", "second")
        )
        await a.put("x", b"data")
        file_id = (await a.files.stat("x")).id
        old = repairer_of(first)
        await first.files.config()
        changes: Any = {"add": ["/3"], "replicas": 3} if is_added else {"replicas": 3}
        await operator.files.configure(**changes)
        looks = repairer_of(second)._changes
        while await looks.make_pass():
            pass
        assert stage.keys(REPAIRS)
        await old.make_pass()  # it plans with the configuration that it knows
        await make_rounds(repairer_of(second), 5, 60.0)
        (block,) = stage.blocks(file_id)
        assert len(block.replicas) == 3

    stores = ("/1", "/2") if is_added else ("/1", "/2", "/3")
    play(scene, stores=stores, replicas=2)


def test_a_reader_finds_a_store_that_was_added_since_it_knows_the_configuration() -> None:
    async def scene(stage: FilesStage) -> None:
        b, operator = stage.machine("b"), stage.machine("operator")
        await b.files.config()
        await operator.files.configure(add=["/2"], remove=["/1"])
        await operator.put("x", b"data")
        reader = await b.files.open("x")
        assert await reader.read() == b"data"

    play(scene, stores=("/1",), replicas=1)


def test_no_loss_is_accepted_for_a_store_that_was_added_since() -> None:
    async def scene(stage: FilesStage) -> None:
        b, operator, c = (stage.machine(each) for each in ("b", "operator", "c"))
        await b.files.config()
        await operator.files.configure(add=["/2"], remove=["/1"])
        file = await operator.files.create("x")
        await file.write(b"data")
        await file.flush()
        operator.stop()
        assert await b.files.recover("x", accept_loss=True)
        assert await c.read("x") == b"data"

    play(scene, stores=("/1",), replicas=1)


@pytest.mark.parametrize("is_used", [True, False])
def test_a_file_that_was_opened_again_without_an_answer_is_closed(is_used: bool) -> None:
    """The client has another file open, so its lease stays; and an older writer of the file."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        old = await open_file(a, "x")
        assert await b.files.recover("x")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)  # the append, which is executed
        for number in range(3, 200):
            a.engine.trouble_with("txn", number, Fault.REQUEST_LOST)
        with pytest.raises((LeaseholdError, OSError)):
            await a.files.append("x")
        a.engine.no_more_trouble()
        assert stage.record(old.id).state == FileState.OPEN
        if is_used:
            with pytest.raises(LeaseExpired):
                await old.flush()
        async with b.monitored():
            await asyncio.sleep(5_000)
        assert stage.record(old.id).state == FileState.CLOSED
        await other.close()

    play(scene)


def test_an_append_without_an_answer_does_not_cost_the_writer_its_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        for number in range(1, 200):
            a.engine.trouble_with("txn", number, Fault.REQUEST_LOST)
        with pytest.raises((LeaseholdError, OSError)):
            await a.files.append("x")
        a.engine.no_more_trouble()
        await asyncio.sleep(600)
        await file.write(b" more")
        await file.close()
        assert await a.read("x") == b"flushed more"

    play(scene)


def test_a_recovery_that_begins_after_it_was_given_up_blocks_no_other_one() -> None:
    """Its process has another recovery under way, so the lease of its key does not end."""

    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(each) for each in ("a", "b", "c"))
        slow = await open_file(a, "slow")
        file = await open_file(a, "x")
        a.stop()
        go_on = asyncio.Event()
        recoverer: Any = b.files.recoverer
        copied = recoverer._copied

        async def paused(begun: Any, *arguments: Any) -> Any:
            if begun.id == slow.id:
                await go_on.wait()
            return await copied(begun, *arguments)

        recoverer._copied = paused
        recovering = asyncio.ensure_future(b.files.recover("slow"))
        await asyncio.sleep(11)
        found = await b.files.namespace.find_file("x")
        b.engine.straggle_s = 40.0
        b.engine.trouble_with("txn", 1, Fault.STRAGGLES)
        for number in range(2, 200):
            b.engine.trouble_with("txn", number, Fault.REQUEST_LOST)

        async def heal() -> None:
            await asyncio.sleep(31)
            b.engine.no_more_trouble()

        healing = asyncio.ensure_future(heal())
        with pytest.raises((LeaseholdError, OSError)):
            await recoverer.recover(found)
        await healing
        async with c.monitored(), b.monitored():
            await asyncio.sleep(3_600)
        assert stage.record(file.id).state == FileState.CLOSED
        go_on.set()
        await recovering

    play(scene)


def test_a_bad_replica_beside_enough_good_ones_is_given_up() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        await a.put("x", b"data")
        file_id = (await a.files.stat("x")).id
        ((name, _),) = stage.bytes_of("/2", file_id)
        del stage.stores.objects["/2"][name]
        await a.files.configure(replicas=1)
        report = await server.files.repair()
        assert (report.dropped, report.incomplete) == (1, 0)
        assert not stage.keys(REPAIRS)

    play(scene, stores=("/1", "/2"), replicas=2, with_stores=False)


def test_a_recovery_copies_beside_a_bad_replica_if_the_good_one_is_in_a_full_store() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        a.stop()
        del stage.stores.objects["/2"][last_object(stage, "/2", file)]
        stage.stores.fail("/1", methods=WRITES)
        async with b.monitored():
            await asyncio.sleep(5_000)
        assert stage.record(file.id).state == FileState.CLOSED
        assert await b.read("x") == b"flushed"

    play(scene, stores=("/1", "/2"), with_stores=False)


def test_a_piece_of_a_stamp_before_is_not_collected_and_then_acknowledged() -> None:
    orphan_s = 1_200 + KEEP_S + LATE_S

    async def scene(stage: FilesStage) -> None:
        a, operator, server, c = (stage.machine(each) for each in ("a", "operator", "server", "c"))
        file: Any = await open_file(a)
        for number in range(1, 200):
            a.engine.trouble_with("txn", number, Fault.REQUEST_LOST)
        with pytest.raises((LeaseholdError, OSError)):
            await file.flush()  # of nothing: it raises the stamp later, when there is an answer
        a.engine.no_more_trouble()
        await operator.files.configure(hard_limit=1_200)  # for new holders
        await file.write(b" acknowledged")
        record_flush = file._record_flush

        async def paused(*arguments: Any, **named: Any) -> None:
            await asyncio.sleep(orphan_s + 60)
            await record_flush(*arguments, **named)

        file._record_flush = paused
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(orphan_s + 30)
        await server.files.collect()
        await flushing
        assert await c.read("x") == b"flushed acknowledged"
        await file.close()

    play(scene, stores=PIECES, hard_limit=4 * 3_600, with_stores=False)


def test_a_repairer_with_an_old_plan_does_not_delete_a_newer_record() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, first, second = (
            stage.machine(each) for each in ("a", "operator", "first", "second")
        )
        await a.put("x", b"data")
        file_id = (await a.files.stat("x")).id
        old: Any = repairer_of(first)
        set_recorded, go_on = old._set_recorded, asyncio.Event()

        async def paused(*arguments: Any, **named: Any) -> None:
            await go_on.wait()
            await set_recorded(*arguments, **named)

        old._set_recorded = paused
        repairing = asyncio.ensure_future(old.repair_path())
        await asyncio.sleep(1)
        await operator.files.configure(replicas=2)
        (other,) = [each for each in ("/1", "/2") if not stage.bytes_of(each, file_id)]
        stage.stores.fail(other)
        repairer = repairer_of(second)
        await make_rounds(repairer, 80, 60.0)
        assert stage.keys(REPAIRS)
        go_on.set()
        await repairing
        stage.stores.heal(other)
        await make_rounds(repairer, 100, 120.0)
        (block,) = stage.blocks(file_id)
        assert len(block.replicas) == 2

    play(scene, stores=("/1", "/2"), replicas=1)


def test_replicas_that_a_writer_leaves_out_stay_for_readers() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(each) for each in ("a", "b", "server"))
        file = await open_file(a)
        await asyncio.sleep(2 * KEEP_S)
        reader = await b.files.open("x")
        for url in ("/1", "/2"):
            stage.stores.fail(url, times=1, methods=("append",))
        await file.write(b" more")
        await file.flush()
        await file.close()
        await server.files.repair()
        await server.files.collect()
        stage.stores.fail("/3")
        assert await server.read("x") == b"flushed more"
        assert await reader.read() == b"flushed"

    play(scene, min_replicas=1, with_stores=False)


def test_flushed_bytes_keep_the_replicas_that_their_flush_has_needed() -> None:
    """Two of three stores fail, one after the other: both replicas of the second block stay."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a, data=b"one")
        stage.stores.fail("/1")
        await file.write(b"two")
        await file.flush()
        stage.stores.fail("/2")
        await file.write(b"three")
        with pytest.raises(TooFewReplicas):
            await file.flush()
        await file.abort()
        for url in ("/1", "/2"):
            stage.stores.heal(url)
        stage.stores.fail("/3")
        assert await b.read("x") == b"onetwo"
        stage.stores.heal("/3")
        assert not (await b.files.repair()).incomplete
        for block in stage.blocks(file.id):
            assert {url_of(each) for each in block.replicas} == {"/1", "/2", "/3"}

    play(scene)


def test_a_configuration_that_cannot_be_decoded_does_not_end_the_repairer() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        await server.files.config()
        repeating = asyncio.ensure_future(_repeat(repairer_of(server).make_pass, 30.0))
        await asyncio.sleep(60)
        good = stage.keys(CONFIG)[CONFIG].value
        await a.engine.put(CONFIG, b"\xff\xff garbage")
        await asyncio.sleep(60)
        await a.engine.put(CONFIG, good)
        await asyncio.sleep(60)
        assert not repeating.done()
        repeating.cancel()

    play(scene)


def test_the_pieces_of_deleted_files_are_deleted_within_a_limit() -> None:
    """A thousand waiting calls are a failure of the store."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        for number in range(2 * CONCURRENT_CHANGES):
            file = await a.files.create(f"d/{number}")
            for _ in range(MAX_PIECES // 2):
                await file.write(b"piece ")
                await file.flush()
            await file.close()
        await b.files.delete("d", recursive=True)
        calls, most = 0, 0

        async def take_a_moment(called: str) -> None:
            nonlocal calls, most
            if called == "delete":
                calls += 1
                most = max(most, calls)
                await asyncio.sleep(0.001)
                calls -= 1

        b.on_step = take_a_moment
        await b.files.collect()
        assert 0 < most < MAX_WAITING_CALLS
        assert set(stage.stores.objects["mem://1"]) == {OWNER}

    play(scene, stores=("mem://1",), keep=0)


def test_a_client_waits_longer_and_longer_to_recover_a_file_that_it_could_not_close() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        other = await open_file(a, "other")  # it keeps the holder
        file = await open_file(a)
        await file.write(b" more")
        for url in APPENDING:
            stage.stores.fail(url)
        with pytest.raises(TooFewReplicas):
            async with file:
                pass
        await asyncio.sleep(600)
        attempts = (await a.files.namespace.recovery(file.id)).attempts
        assert 5 < attempts < 12
        for url in APPENDING:
            stage.stores.heal(url)
        await asyncio.sleep(RETRIES_S[-1] + 10)
        assert await a.files.is_closed("x")
        await other.close()

    play(scene)


def test_a_block_is_repaired_from_the_replicas_that_it_had_before_its_recovery() -> None:
    """The recovery has reached one store only, which is lost before the others have copies."""

    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        await abandoned(stage, a)
        for url in ("/2", "/3"):
            stage.stores.fail(url)
        assert await b.files.recover("x")
        for url in ("/2", "/3"):
            stage.stores.heal(url)
        stage.stores.fail("/1")  # for good
        await asyncio.sleep(KEEP_S + LATE_S)
        await c.files.collect()
        assert (await c.files.repair()).copied == 2
        assert await c.read("x") == b"flushed"

    play(scene, with_stores=False)


def test_a_configuration_that_cannot_be_decoded_is_not_replaced() -> None:
    """Its stores would be lost, and those that are added would belong to another keyspace."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x")
        good = stage.keys(CONFIG)[CONFIG].value
        bad = good + b"\x28\x00"  # a soft limit of 0 ms, such as of another version
        await a.engine.put(CONFIG, bad)
        server = FilesService(b.engine, ["/4"], clock=stage.host.clock, open_store=b._open_store)
        server.start()
        for call in (b.files.configure(add=["/4"]), b.files.configure(replicas=2), b.read("x")):
            with pytest.raises(FileDamaged, match="the configuration of files cannot be decoded"):
                await call
        await asyncio.sleep(100)
        await server.close()
        assert stage.keys(CONFIG)[CONFIG].value == bad
        await a.engine.put(CONFIG, good)
        await b.files.configure(add=["/4"])
        assert await b.read("x") == b"data"

    play(scene)


def test_a_soft_limit_that_cannot_be_stored_is_refused() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        with pytest.raises(ValueError, match=r"soft_limit must be at least 0\.001 s"):
            await a.files.configure(soft_limit=0.0004)
        await a.files.configure(soft_limit=0.001)
        await asyncio.sleep(CONFIG_S + 1)
        assert (await a.files.config()).stores

    play(scene)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_lost_answer_to_reading_the_configuration_fails_no_flush(fault: Fault) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        await file.write(b" more")
        await asyncio.sleep(CONFIG_S + 1)
        a.engine.trouble_with("range", 1, fault)
        await file.flush()
        await file.close()

    play(scene)


def test_a_writer_uses_a_store_that_was_added_since_for_its_next_block() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator = stage.machine("a"), stage.machine("operator")
        file = await open_file(a, data=b"one")
        await operator.files.configure(add=["/3"])
        await asyncio.sleep(CONFIG_S + 1)
        await file.write(b"four")
        await file.flush()
        await file.close()
        stored = [{url_of(each) for each in block.replicas} for block in stage.blocks(file.id)]
        assert stored == [{"/1", "/2"}, {"/1", "/2", "/3"}]

    play(scene, stores=("/1", "/2"), block_bytes=4)


def test_a_recovery_that_finds_no_valid_configuration_is_not_reported_as_a_loss() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(each) for each in ("a", "b", "c"))
        file = await abandoned(stage, a)
        good = stage.keys(CONFIG)[CONFIG].value

        async def damage(called: str) -> None:
            if called == "append":
                b.on_step = None
                await c.engine.put(CONFIG, b"\xff\xff garbage")

        b.on_step = damage
        assert not await b.files.recover("x")
        progress = await b.files.namespace.recovery(file.id)
        assert "cannot be decoded" in progress.last_error
        assert not progress.is_locked
        await c.engine.put(CONFIG, good)
        await asyncio.sleep(RETRIES_S[0] + CONFIG_S)
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"

    play(scene)
