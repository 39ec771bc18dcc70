"""Defects of single-writer files that a review has found."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import ConnectionLost, TooFewReplicas
from leasehold.files import store_changes
from leasehold.files.file_keys import RECOVERIES, REPAIRS, TRASH, WORKERS
from leasehold.files.known_config import KnownConfig
from leasehold.files.recovery import WORKER_TTL_S
from leasehold.files.repairer import Repairer
from leasehold.files.replica_io import COPY_BYTES, STORE_S
from leasehold.files.replica_store import ReplicaStore
from leasehold.files.state import (
    HARD_LIMIT_S,
    KEEP_S,
    LATE_S,
    FilesConfig,
    FileState,
    object_name,
)
from leasehold.files.threaded_store import OWNER
from leasehold.sync.blocking_call import BlockingCall
from tests.simulation import far_disk
from tests.support.faulty_engine import Fault
from tests.support.files_stage import (
    APPENDING,
    HARD_S,
    PIECES,
    FilesStage,
    Machine,
    last_object,
    open_file,
    play,
    settled,
    url_of,
)


def second_stage(stage: FilesStage, *, backup: bool) -> FilesStage:
    """Another keyspace on the same stores: restored from a backup of the first one, or empty."""
    image = far_disk.restored(far_disk.image_of(stage.engine)) if backup else None
    engine = far_disk.open_engine(stage.host, Random("second"), image)
    return FilesStage(stage.host, engine, Random("second stage"), stage.stores)


@asynccontextmanager
async def another(stage: FilesStage, *, backup: bool) -> AsyncIterator[FilesStage]:
    made = second_stage(stage, backup=backup)
    try:
        yield made
    finally:
        for machine in made.machines:
            await machine.close()
        made.engine.discard()


# Restored keyspaces, and stores of two keyspaces.


def test_a_writer_from_before_a_restore_cannot_overwrite_the_objects_of_a_new_writer() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x", b"before the backup ")
        image = far_disk.restored(far_disk.image_of(stage.engine))
        # After the backup: a writer has opened the file, and its first flush is on the way to the
        # stores when the server is lost.
        late = await a.files.append("x")
        await late.write(b"of a former writer")
        may_go_on = asyncio.Event()

        async def wait(called: str) -> None:
            if called == "put":
                await may_go_on.wait()

        a.on_step = wait
        flushing = asyncio.ensure_future(late.flush())
        await asyncio.sleep(1)
        # The restored keyspace has another writer, which gets the same stamp.
        engine = far_disk.open_engine(stage.host, Random("second"), image)
        other = FilesStage(stage.host, engine, Random("second stage"), stage.stores)
        b = other.machine("b")
        for url in PIECES:
            await b.files.claim_store(url)
        async with b.files.append("x") as file:
            await file.write(b"acknowledged")
            await file.flush()
        assert await b.read("x") == b"before the backup acknowledged"
        for store in a.files.stores._stores.values():
            store.keyspace = ""  # the owner was checked before the store was claimed
        may_go_on.set()
        await asyncio.wait([flushing])
        await late.close()
        try:
            assert await b.read("x") == b"before the backup acknowledged"
        finally:
            await b.close()
            engine.discard()

    play(scene, stores=PIECES, with_stores=False)


def test_a_restored_copy_does_not_delete_objects_of_stores_that_it_does_not_own() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.files.collect()  # the stores belong to the first keyspace
        file = await open_file(a)
        async with another(stage, backup=True) as drill:
            c = drill.machine("c")
            async with c.monitored():
                await asyncio.sleep(HARD_S + 100)  # the copy recovers the file: nobody renews there
            assert not await c.files.is_closed("x"), "it cannot write to the stores"
            await asyncio.sleep(KEEP_S + 1)
            await c.files.collect()
        assert stage.record(file.id).state == FileState.OPEN
        assert await b.read("x") == b"flushed"
        await file.close()

    play(scene, with_stores=False)


def test_a_store_belongs_to_the_first_keyspace_that_adds_it() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")  # only clients: no collector has run here
        await asyncio.sleep(HARD_S + KEEP_S + 1)
        async with another(stage, backup=False) as other:
            b = other.machine("b")
            await b.files.configure(add=APPENDING)
            assert set(b.files.failed_stores()) == set(APPENDING)
            await b.files.collect()
        assert await a.read("x") == b"data"

    play(scene, with_stores=False)


def test_keyspaces_with_the_same_cluster_id_do_not_share_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster id of etcd is a hash of its peer URLs and token."""

    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        await asyncio.sleep(HARD_S + KEEP_S + 1)
        async with another(stage, backup=False) as other:
            b = other.machine("b")
            await b.files.configure(add=APPENDING)
            assert set(b.files.failed_stores()) == set(APPENDING)
            await b.files.collect()
        assert await a.read("x") == b"data"

    monkeypatch.setattr(EmbeddedEngine, "cluster_id", 1)
    play(scene, with_stores=False)


def test_an_append_after_a_restore_passes_over_stamps_that_were_used_before() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        file_id = (await a.files.stat("x")).id
        # Left by a writer that the backup does not know.
        for url in APPENDING:
            stage.stores.add(url, object_name(file_id, 1, 2), b"lost future")
        async with a.files.append("x") as file:
            await file.write(b" more")
        assert await a.read("x") == b"data more"

    play(scene)


# Repairs.

STOPPED_S = HARD_S + KEEP_S + LATE_S + 2
"""Long enough for objects without a name to be deleted."""


def test_a_repair_that_is_stopped_before_its_transaction_does_not_publish_deleted_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Repairer._publish

    async def stopped(*args: object, **named: object) -> bool:
        await asyncio.sleep(STOPPED_S)  # SIGSTOP
        return await original(*args, **named)  # type: ignore[arg-type]

    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        file = await a.files.create("x")
        for _ in range(200):
            await file.write(b"0123456789")
            await file.flush()
        await file.close()
        assert stage.keys(REPAIRS)
        monkeypatch.setattr(Repairer, "_publish", stopped)
        repairing = asyncio.ensure_future(b.files.repair())
        await asyncio.sleep(STOPPED_S - 1)
        await c.files.collect()
        await repairing
        assert await c.read("x") == b"0123456789" * 200
        await asyncio.sleep(KEEP_S + 1)
        await c.files.collect()
        assert await c.read("x") == b"0123456789" * 200

    play(scene, stores=PIECES, with_stores=False)


def test_a_store_that_returns_is_checked_before_it_counts() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        stage.stores.fail("/3")
        await file.write(b" more")
        await file.close()
        stage.stores.heal("/3")
        assert stage.keys(REPAIRS)
        stage.stores.fail("/2")  # while the repairer works, another store does not answer
        repairer = Repairer(b.files.namespace, b.files.stores, b.files.known_config)

        async def make_round() -> None:
            while await repairer.make_pass():
                pass

        await make_round()
        for name in set(stage.stores.objects["/2"]) - {OWNER}:  # it returns without the data
            del stage.stores.objects["/2"][name]
        stage.stores.heal("/2")
        for _ in range(10):
            await asyncio.sleep(60)
            await make_round()
        for block in stage.blocks(file.id):
            assert all(stage.objects_of(block).values()), "a replica that is missing counts"

    play(scene, with_stores=False)


# Stores that are removed.


def test_a_flush_after_the_removal_of_a_store_does_not_count_it() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator, b = stage.machine("a"), stage.machine("operator"), stage.machine("b")
        file = await open_file(a)
        await operator.files.configure(add=["/2"], remove=["/1"])
        await asyncio.sleep(60)  # "a change applies to all clients within 5 seconds"
        await file.write(b" acknowledged after the removal")
        await file.flush()
        await file.write(b" and again")
        await file.close()
        block = stage.blocks(file.id)[-1]
        assert "/2" in [url_of(each) for each in block.replicas]
        async with b.files.open("x") as reader:
            reader.seek(len(b"flushed"))
            assert await reader.read() == b" acknowledged after the removal and again"

    play(scene, stores=("/1",), with_stores=False)


def test_a_recovery_does_not_copy_to_a_store_that_was_removed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("other")  # b has opened all stores
        file = await open_file(a)
        a.stop()
        await b.files.configure(remove=["/1"])
        await asyncio.sleep(10)
        await settled(b)
        (block,) = stage.blocks(file.id)
        assert "/1" not in [url_of(each) for each in block.replicas]

    play(scene)


def test_a_recovery_begins_again_if_it_copies_to_a_store_that_is_being_removed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in "abs")
        file = await open_file(a, data=bytes(4 * COPY_BYTES))
        a.stop()
        stage.stores.objects["/2"].pop(last_object(stage, "/2", file))
        await server.files.configure(add=["/3"])

        async def be_slow(called: str) -> None:
            if called == "append":
                await asyncio.sleep(STORE_S - 1)

        b.on_step = be_slow
        recovering = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        await server.files.configure(remove=["/3"])
        files = server.files
        repairer = Repairer(files.namespace, files.stores, files.known_config)
        for _ in range(100):
            await repairer.make_pass()
            await asyncio.sleep(5)
        assert recovering.done()
        await settled(b)
        assert {each.url for each in (await files.config()).stores} == {"/1", "/2"}
        (block,) = stage.blocks(file.id)
        assert {url_of(each) for each in block.replicas} == {"/1", "/2"}

    play(scene, stores=("/1", "/2"), replicas=2)


def test_a_recoverer_that_was_stopped_does_not_publish_to_a_store_that_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_changes, "PAUSE_S", 1.0)  # it goes on before its calls time out

    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in "abs")
        file = await open_file(a)
        a.stop()
        stage.stores.objects["/2"].pop(last_object(stage, "/2", file))
        await server.files.configure(add=["/3"])
        woken, copied = asyncio.Event(), list[str]()

        async def stop_after_copying(called: str) -> None:
            if called == "append":
                copied.append(called)
            elif len(copied) == 2:
                await woken.wait()

        b.on_step = stop_after_copying
        recovering = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(WORKER_TTL_S + 5)
        assert len(stage.bytes_of("/3", file.id)) == 1
        await server.files.configure(remove=["/3"])
        files = server.files
        repairer = Repairer(files.namespace, files.stores, files.known_config)
        for _ in range(10):
            await repairer.make_pass()
            await asyncio.sleep(1)
        assert {each.url for each in (await files.config()).stores} == {"/1", "/2"}
        woken.set()
        await recovering
        await settled(server)
        (block,) = stage.blocks(file.id)
        assert {url_of(each) for each in block.replicas} <= {"/1", "/2"}
        assert await server.read("x") == b"flushed"

    play(scene, stores=("/1", "/2"), replicas=2)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_recovery_copies_from_a_store_that_is_being_removed(is_damaged: bool) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        if is_damaged:
            stage.stores.corrupt("/1", last_object(stage, "/1", file))
        else:
            del stage.stores.objects["/1"][last_object(stage, "/1", file)]
        await b.files.configure(remove=["/2"])
        a.stop()
        await asyncio.sleep(70)
        assert await b.files.recover("x")
        (block,) = stage.blocks(file.id)
        assert [url_of(each) for each in block.replicas] == ["/1"]
        assert await b.read("x") == b"flushed"

    play(scene, stores=("/1", "/2"))


@pytest.mark.parametrize("allowed", [["/elsewhere"], ["/1"]])
def test_a_server_leaves_a_file_to_clients_whose_stores_it_may_not_use(allowed: list[str]) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = stage.machine("a"), stage.machine("b"), stage.machine("server")
        server.files.stores._allowed = frozenset(allowed)
        file = await open_file(a)
        a.stop()
        async with server.monitored():
            await asyncio.sleep(HARD_LIMIT_S + 3_600)
            assert stage.record(file.id).state == FileState.OPEN
            async with b.files.append("x") as writer:
                await writer.write(b" and more")
        assert len(stage.blocks(file.id)[0].replicas) == 3
        assert await b.read("x") == b"flushed and more"

    play(scene)


def test_a_server_that_may_use_most_of_the_stores_recovers_files() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        server.files.stores._allowed = frozenset(["/1", "/2"])
        file = await open_file(a)
        a.stop()
        async with server.monitored():
            await asyncio.sleep(HARD_LIMIT_S + 60)
        assert stage.record(file.id).state == FileState.CLOSED
        assert {url_of(each) for each in stage.blocks(file.id)[0].replicas} == {"/1", "/2"}

    play(scene)


def test_a_recovery_whose_lease_is_lost_closes_the_file_unless_another_one_has_begun() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        a.stop()
        await asyncio.sleep(HARD_LIMIT_S + 60)

        async def lose_the_lease(called: str) -> None:
            if called == "append":
                for worker in stage.keys(WORKERS).values():
                    await stage.engine.revoke(worker.lease)

        b.on_step = lose_the_lease
        assert await b.files.recover("x")
        assert stage.record(file.id).state == FileState.CLOSED
        assert not stage.keys(RECOVERIES)
        assert await b.read("x") == b"flushed"

    play(scene)


def test_a_block_with_a_replica_in_a_store_that_was_dropped_meanwhile_is_repaired() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = stage.machine("a"), stage.machine("b"), stage.machine("server")
        files = server.files
        repairer = Repairer(files.namespace, files.stores, files.known_config)

        async def repair(seconds: float) -> None:
            for _ in range(round(seconds / 30)):
                while await repairer.make_pass():
                    pass
                await asyncio.sleep(30)

        file = await open_file(a, data=bytes(7 * COPY_BYTES))
        used = [url_of(each) for each in stage.blocks(file.id)[0].replicas]
        (spare,) = {"/1", "/2", "/3", "/4"} - set(used)
        stage.stores.corrupt(used[0], last_object(stage, used[0], file))
        a.stop()
        await repair(300)

        async def be_slow(called: str) -> None:
            if called == "append":
                await asyncio.sleep(STORE_S - 1)

        b.on_step = be_slow
        found = await b.files.namespace.find_file("x")
        recovering = asyncio.ensure_future(b.files.recoverer.recover(found))
        await repair(240)
        await server.files.configure(drop=[spare])
        await repair(300)
        assert await recovering
        b.on_step = None
        await repair(600)
        (block,) = stage.blocks(file.id)
        assert {url_of(each) for each in block.replicas} == set(used)

    play(scene, stores=("/1", "/2", "/3", "/4"), replicas=3)


def test_a_long_flush_leaves_a_store_that_is_being_removed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator = stage.machine("a"), stage.machine("operator")
        file = await a.files.create("x")

        async def be_slow(called: str) -> None:
            if called == "append":
                await asyncio.sleep(STORE_S - 1)

        a.on_step = be_slow
        await file.write(bytes(24))
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(1)
        await operator.files.configure(remove=["/3"])
        await flushing
        stores = [{url_of(each) for each in block.replicas} for block in stage.blocks(file.id)]
        assert stores == [{"/1", "/2"}] * 6
        await file.close()

    play(scene, block_bytes=4, replicas=3)


def test_a_new_block_has_at_least_min_replicas_stores() -> None:
    async def scene(stage: FilesStage) -> None:
        a, operator = stage.machine("a"), stage.machine("operator")
        file = await a.files.create("x")
        usable = a.files.stores._open_store

        def open_store(store_id: str, url: str) -> ReplicaStore:
            if url in ("/4", "/5"):
                raise ValueError("the package of this store is not installed here")
            return usable(store_id, url)

        a.files.stores._open_store = open_store
        await operator.files.configure(remove=["/2", "/3"], add=["/4", "/5"])
        await asyncio.sleep(10)
        await file.write(b"0123")  # the block is full, and another one begins
        for _ in range(2):
            with pytest.raises(TooFewReplicas):
                await file.flush()
        assert all(len(each.replicas) >= 2 for each in stage.blocks(file.id))
        a.stop()

    play(scene, block_bytes=4, min_replicas=2, with_stores=False)


# Lost answers.


def test_a_delete_whose_answer_was_lost_does_not_delete_a_directory_created_since() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("d/old")
        txns: list[int] = []

        async def look(name: str) -> None:
            if name != "txn":
                return
            txns.append(1)
            if len(txns) == 3:  # find, delete (its answer is lost), delete again
                await b.files.collect()
                await b.put("d/new", b"flushed by another client")

        a.on_step = look
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        await a.files.delete("d", recursive=True)
        assert await b.read("d/new") == b"flushed by another client"

    play(scene)


def test_a_rename_whose_answer_was_lost_is_not_done_to_another_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("log", b"yesterday")
        txns: list[int] = []

        async def look(name: str) -> None:
            if name != "txn":
                return
            txns.append(1)
            if len(txns) == 3:  # find, rename (its answer is lost), rename again
                await b.files.rename("log.1", "archive")
                await b.put("log", b"today")

        a.on_step = look
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        with pytest.raises(ConnectionLost):
            await a.files.rename("log", "log.1")
        assert await b.read("archive") == b"yesterday"
        assert await b.read("log") == b"today"

    play(scene)


# Holders.


def test_an_append_that_fails_does_not_end_the_writer_of_another_task() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        other = await open_file(a, "other")  # the holder stays in any case
        opener = a.files.opener
        original = opener._ns.find_file

        async def slow(path: str) -> object:
            found = await original(path)  # it is closed
            await asyncio.sleep(1)
            return found

        # Two tasks open the file. Both find it closed; the transaction of the second one fails.
        opener._ns.find_file = slow  # type: ignore[method-assign, assignment]
        second = asyncio.ensure_future(a.files.append("x").__aenter__())
        await asyncio.sleep(0.5)
        opener._ns.find_file = original  # type: ignore[method-assign]
        first = await a.files.append("x")
        await first.write(b" first")
        await first.flush()
        a.engine.trouble_with("txn", 1, Fault.REFUSED)
        await asyncio.wait([second])
        assert second.exception() is not None
        await asyncio.sleep(20)
        await first.write(b" goes on")
        await first.close()  # LeaseExpired: the client has recovered its own file
        await other.close()
        assert await a.read("x") == b"data first goes on"

    play(scene)


def test_a_file_left_open_is_closed_even_if_the_client_always_opens_others() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        left = await open_file(a, "left")
        stage.stores.fail("/1")
        stage.stores.fail("/2")
        stage.stores.fail("/3")
        await left.write(b"not flushed")
        with pytest.raises(TooFewReplicas):
            async with left:
                pass
        for url in APPENDING:
            stage.stores.heal(url)

        async def keep_opening() -> None:
            while True:
                async with a.files.holder.opening():  # such as a recovery that is waited for
                    await asyncio.sleep(10)

        tasks = [asyncio.ensure_future(keep_opening())]
        await asyncio.sleep(5)
        tasks.append(asyncio.ensure_future(keep_opening()))
        await asyncio.sleep(HARD_S)
        try:
            assert await b.files.is_closed("left"), "locked as long as the client opens files"
        finally:
            for task in tasks:
                task.cancel()
        await other.close()

    play(scene)


def test_a_blocking_writer_that_ends_during_a_partition_does_not_hold_the_file_for_ever() -> None:
    """`FileWriterBase.__exit__`: `close` fails, and so does the `abort` that `abandon` starts."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        file = await open_file(a)
        await file.write(b" more")
        a.engine.is_cut_off = True
        with pytest.raises(TimeoutError):
            await file.close()
        BlockingCall(file.abort).start()
        await asyncio.sleep(120)
        a.engine.is_cut_off = False
        await asyncio.sleep(3 * HARD_S)
        assert await b.files.is_closed("x")
        await other.close()

    play(scene)


# Recoveries.


def test_a_recovery_that_ends_with_an_error_leaves_no_worker() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        slow = await open_file(a, "slow")
        await open_file(a, "x")
        a.stop()
        # A recovery of the same process takes long: the lease of the process stays.
        hold = asyncio.Event()
        original = b.files.recoverer._copied

        async def copied(begun: object, *arguments: object) -> object:
            if begun.id == slow.id:  # type: ignore[attr-defined]
                await hold.wait()
            return await original(begun, *arguments)  # type: ignore[arg-type]

        b.files.recoverer._copied = copied  # type: ignore[method-assign, assignment]
        first = asyncio.ensure_future(b.files.recover("slow"))
        await asyncio.sleep(6)  # the configuration must be read again
        found = await b.files.namespace.find_file("x")
        known, calls = b.files.known_config, iter(range(100))

        class Failing(KnownConfig):
            async def __call__(self) -> FilesConfig:
                if next(calls) == 1:  # after the first transaction
                    raise TimeoutError
                return await known()

        b.files.recoverer._config = Failing(b.files.namespace)
        assert not await b.files.recoverer.recover(found)
        assert await c.files.recover("x"), "no process can recover it"
        hold.set()
        await first

    play(scene)


# Clocks.


class _Behind:
    """A clock whose wall time is wrong."""

    def __init__(self, machine: Machine, by_s: float) -> None:
        self._clock = machine.files.namespace.clock
        self._by_s = by_s

    def wall(self) -> float:
        return self._clock.wall() - self._by_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def boottime(self) -> float:
        return self._clock.boottime()


def test_a_reader_can_finish_after_a_delete_by_a_client_whose_clock_is_wrong() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        await a.put("x")
        b.files.namespace.clock = _Behind(b, 2 * KEEP_S)
        reader = await a.files.open("x")
        await b.files.delete("x")
        await c.files.collect()
        assert await reader.read() == b"data"

    play(scene)


def test_deleted_bytes_are_collected_after_a_delete_by_a_client_whose_clock_is_ahead() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        await a.put("x")
        b.files.namespace.clock = _Behind(b, -10 * 365 * 86_400)
        await b.files.delete("x")
        await c.files.collect()
        await asyncio.sleep(KEEP_S + 1)
        await c.files.collect()
        assert not stage.keys(TRASH)

    play(scene)


# Names.


def test_a_path_does_not_become_deeper_than_the_limit() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        deep = "/".join("b" * 1 for _ in range(60))
        file = await open_file(a, f"{deep}/file")
        target = "/".join("a" * 1 for _ in range(60))
        await a.files.make_directory(target)
        with suppress(ValueError):  # depth at most 100
            await a.files.rename("b", f"{target}/b")
        found = [each async for each in a.files.open_files()]
        assert [each.id for each in found] == [file.id]
        await file.close()

    play(scene)


def test_a_close_that_was_executed_succeeds_even_if_another_client_has_opened_the_file_since() -> (
    None
):
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x")
        file = await a.files.append("x")
        taken: list[object] = []
        txns: list[int] = []

        async def look(name: str) -> None:
            if name == "txn":
                txns.append(1)
                if len(txns) == 2:
                    taken.append(await b.files.append("x"))

        a.on_step = look
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        await file.close()
        assert taken
        await taken[0].close()  # type: ignore[attr-defined]

    play(scene)
