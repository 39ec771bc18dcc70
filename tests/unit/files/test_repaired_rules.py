"""Lost answers, late requests, failed stores and wrong clocks harm neither files nor writers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leasehold.errors import Closed, FileAlreadyOpen, FileNotFound, LeaseExpired, TooFewReplicas
from leasehold.files.file_keys import (
    DIRENTS,
    OPEN_FILES,
    RECOVERIES,
    TRASH,
    decode_recovery,
    decode_trash,
    id_in,
    worker_key,
)
from leasehold.files.state import FileState
from leasehold.files.writer import MAX_UNFLUSHED_BYTES, FileWriter
from tests.support.faulty_engine import Fault
from tests.support.files_stage import (
    APPENDING,
    HARD_S,
    FilesStage,
    Machine,
    abandoned,
    blocked,
    open_file,
    play,
    silent,
)

CALLS = 60
"""More calls than are made within the time limit of one operation."""

YEAR_S = 365 * 86400


def before_call(
    machine: Machine, name: str, number: int, action: Callable[[], Awaitable[object]]
) -> None:
    """Run an action before a call with a name, the next being number 1."""
    seen = 0

    async def step(called: str) -> None:
        nonlocal seen
        seen += called == name
        if called == name and seen == number:
            await action()

    machine.on_step = step


def trouble(machine: Machine, fault: Fault, first: int = 1, name: str = "txn") -> None:
    """Let all calls with a name meet with a fault, beginning with number `first`."""
    for number in range(first, CALLS):
        machine.engine.trouble_with(name, number, fault)


async def state(machine: Machine, path: str = "x") -> FileState | None:
    """Return the state of a file."""
    return (await machine.files.stat(path)).state


# Writers.


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_close_without_an_answer_that_was_executed_ends_the_writer(is_stopped: bool) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"first")
        trouble(a, Fault.ANSWER_LOST)
        with pytest.raises(TimeoutError):
            await file.close()
        a.engine.no_more_trouble()
        await file.write(b" second")
        with pytest.raises(Closed):
            await file.flush()
        if is_stopped:
            await silent(a, 3000)
        else:
            with pytest.raises(Closed):
                await file.close()
        assert await b.read("x") == b"first"
        async with b.files.append("x") as other:
            await other.write(b"+b")
        assert await b.read("x") == b"first+b"

    play(scene)


def test_a_writer_that_lost_its_file_does_not_take_over_that_of_its_own_client() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")  # the holder stays the same
        old = await open_file(a, data=b"12345")
        await old.write(b"67890")  # the block is full: its flush writes the record
        trouble(a, Fault.ANSWER_LOST)
        with pytest.raises(TimeoutError):
            await old.flush()
        a.engine.no_more_trouble()
        assert await b.files.recover("x")
        new = await a.files.append("x")
        await old.write(b"OLD!!")
        with pytest.raises(LeaseExpired):
            await old.flush()
        await new.write(b"new!!")
        await new.flush()
        await old.abort()
        await new.close()
        assert await b.read("x") == b"1234567890new!!"
        await other.close()

    play(scene, block_bytes=10)


def test_a_write_that_is_overtaken_by_a_close_fails_and_the_file_is_closed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        stage.stores.delay_s = a.engine.delay_s = 0.01
        file = await a.files.create("x")
        data = bytes(2 * MAX_UNFLUSHED_BYTES + 1)
        written, closed = await asyncio.gather(
            file.write(data), file.close(), return_exceptions=True
        )
        assert isinstance(written, Closed)
        assert closed is None
        assert file.closed
        assert await state(b) == FileState.CLOSED
        assert (await b.files.stat("x")).size_bytes == MAX_UNFLUSHED_BYTES

    play(scene)


def test_a_flush_without_new_bytes_fails_if_the_file_was_deleted() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await b.files.delete("x")
        with pytest.raises(FileNotFound):
            await file.flush()
        with pytest.raises(FileNotFound):
            await file.close()

    play(scene)


def test_a_flush_in_a_deleted_tree_fails_however_deep_the_file_is() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a, "/".join(f"s{i}" for i in range(60)) + "/x")
        top = "/".join(f"t{i}" for i in range(58))
        await b.files.make_directory(top)
        await b.files.rename("s0", f"{top}/s0")
        await file.write(b"1")
        await file.flush()
        await b.files.delete("t0", recursive=True)
        await file.write(b"2")
        with pytest.raises(FileNotFound):
            await file.flush()
        with pytest.raises(FileNotFound):
            await file.close()

    play(scene, leaves=(OPEN_FILES,))  # a collector deletes the key of the open file


def test_a_writer_keeps_a_file_that_is_renamed_while_it_settles_an_earlier_flush() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b"+more")
        trouble(a, Fault.REQUEST_LOST)
        with pytest.raises(TimeoutError):
            await file.flush()
        a.engine.no_more_trouble()
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        before_call(a, "txn", 2, lambda: b.files.rename("x", "y"))
        await file.flush()
        a.on_step = None
        await asyncio.sleep(100)
        with pytest.raises(FileAlreadyOpen):
            await b.files.append("y")
        await file.close()
        assert await b.read("y") == b"flushed+more"

    play(scene)


def test_a_flush_that_is_executed_after_its_failure_is_taken_over_by_the_writer() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a, "d/x")
        await file.write(b"+1")
        a.engine.straggle_s = 60
        a.engine.trouble_with("txn", 1, Fault.STRAGGLES)

        async def rename() -> None:
            await b.files.rename("d", "e")
            trouble(a, Fault.REQUEST_LOST, name="range")

        before_call(a, "txn", 2, rename)
        with pytest.raises(TimeoutError):
            await file.flush()
        a.on_step = None
        a.engine.no_more_trouble()
        await b.files.rename("e", "d")
        await asyncio.sleep(60)
        assert await b.read("d/x") == b"flushed+1", "the request was executed late"
        await file.write(b"+2")
        await file.flush()
        await file.close()
        assert await b.read("d/x") == b"flushed+1+2"

    play(scene)


# Deletes, renames and replacements.


def test_a_delete_whose_answer_is_lost_deletes_no_file_that_was_created_since() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"old")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        before_call(a, "txn", 3, lambda: b.put("x", b"new"))
        await a.files.delete("x")
        a.on_step = None
        assert await b.read("x") == b"new"

    play(scene)


def test_a_rename_whose_answer_is_lost_moves_no_file_that_was_created_since() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x", b"first")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        before_call(a, "txn", 3, lambda: b.put("x", b"second"))
        await a.files.rename("x", "y", overwrite=True)
        a.on_step = None
        assert (await b.read("y"), await b.read("x")) == (b"first", b"second")

    play(scene)


def test_a_rename_whose_answer_is_lost_succeeds_if_the_writer_goes_on() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(b, data=b"12345")

        async def fill_the_block() -> None:  # this writes the record
            await file.write(b"67890")
            await file.flush()

        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        before_call(a, "txn", 3, fill_the_block)
        await a.files.rename("x", "y")
        a.on_step = None
        assert await a.read("y") == b"1234567890"
        await file.close()

    play(scene, block_bytes=10)


def test_mode_wb_does_not_replace_a_file_that_another_client_opens_after_its_recovery() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file_id = (await open_file(a)).id
        await silent(a)
        opened: list[FileWriter] = []

        async def step(called: str) -> None:
            is_closed = stage.record(file_id).state == FileState.CLOSED
            if called == "range" and is_closed and not opened:
                opened.append(await c.files.append("x"))

        b.on_step = step
        with pytest.raises(FileAlreadyOpen):
            await b.files.open("x", "wb")
        b.on_step = None
        await opened[0].write(b"+c")
        await opened[0].close()
        assert await b.read("x") == b"flushed+c"

    play(scene)


# Files that are left without a writer.


@pytest.mark.parametrize("is_engine", [False, True])
def test_a_file_whose_close_fails_is_closed_by_its_client_later(is_engine: bool) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")  # its lease goes on

        async def use() -> None:
            async with a.files.create("x") as file:
                await file.write(b"data")
                if is_engine:
                    trouble(a, Fault.REQUEST_LOST)
                    raise KeyError("the program fails")
                for url in APPENDING[:2]:
                    stage.stores.fail(url)

        with pytest.raises(TimeoutError if is_engine else TooFewReplicas):
            await use()
        a.engine.no_more_trouble()
        for url in APPENDING[:2]:
            stage.stores.heal(url)
        await asyncio.sleep(100)
        assert await state(b) == FileState.CLOSED
        async with b.files.append("x"):
            pass
        await other.close()

    play(scene)


@pytest.mark.parametrize("call", ["append", "create"])
def test_a_file_whose_opening_had_no_answer_is_closed_by_its_client_later(call: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        if call == "append":
            await b.put("x")
        trouble(a, Fault.ANSWER_LOST, first=2 if call == "append" else 1)
        with pytest.raises(TimeoutError):
            await (a.files.append("x") if call == "append" else a.files.create("x"))
        a.engine.no_more_trouble()
        assert await state(b) == FileState.OPEN
        await asyncio.sleep(100)
        assert await state(b) == FileState.CLOSED
        assert list(a.files.holder.files) == [other.id]
        await other.close()

    play(scene)


def test_an_append_that_is_executed_after_its_failure_leaves_no_open_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("x")
        other = await open_file(a, "other")
        a.engine.straggle_s = 45
        a.engine.trouble_with("txn", 2, Fault.STRAGGLES)
        trouble(a, Fault.REQUEST_LOST, first=3)
        with pytest.raises(TimeoutError):
            await a.files.append("x")
        a.engine.no_more_trouble()
        assert await b.files.is_closed("x")
        await asyncio.sleep(600)
        assert await b.files.is_closed("x")
        await other.close()

    play(scene)


def test_a_holder_is_judged_by_the_soft_limit_that_it_began_with() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await b.files.configure(soft_limit=5)
        await asyncio.sleep(40)
        with pytest.raises(FileAlreadyOpen):
            await b.files.append("x")
        await file.write(b"+1")
        await file.close()
        assert await b.read("x") == b"flushed+1"

    play(scene)


# Recoveries.


def test_a_file_that_is_renamed_while_its_recovery_begins_keeps_its_new_name() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c, d = (stage.machine(name) for name in "abcd")
        file = await open_file(a)
        b.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)
        before_call(b, "txn", 3, lambda: c.files.rename("x", "y"))
        assert await b.files.recover("x")
        b.on_step = None
        await file.close()
        assert stage.record(file.id).name == "y"
        assert [id_in(key, DIRENTS).partition("/")[2] for key in stage.keys(DIRENTS)] == ["y"]
        other = await d.files.append("y")
        await other.write(b"!")
        await other.flush()
        d.stop()
        async with c.monitored():
            await asyncio.sleep(HARD_S + 100)
            assert await state(c, "y") == FileState.CLOSED

    play(scene)


def test_recover_returns_false_while_a_later_recovery_is_under_way() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        tasks: list[asyncio.Task[bool]] = []
        may_copy = blocked(c, "append")

        async def begin_again() -> None:
            b.on_step = None
            await stage.engine.delete(worker_key(file.id))  # as if the lease of b had expired
            tasks.append(asyncio.ensure_future(c.files.recover("x")))
            await asyncio.sleep(1)

        before_call(b, "txn", 3, begin_again)
        assert not await b.files.recover("x")
        assert stage.record(file.id).state == FileState.RECOVERING
        may_copy.set()
        assert await tasks[0]
        await file.close()

    play(scene)


def test_a_monitor_survives_stores_that_fail_while_a_block_is_copied() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await abandoned(stage, a, sent=b"sent")
        reads = 0

        async def step(called: str) -> None:
            nonlocal reads
            reads += called == "read"
            if called == "read" and reads == len(APPENDING) + 1:
                for url in APPENDING:
                    stage.stores.fail(url)

        b.on_step = step
        async with b.monitored():
            await asyncio.sleep(HARD_S + 100)
            assert reads > len(APPENDING)
            assert await state(b) == FileState.RECOVERING
            b.on_step = None
            for url in APPENDING:
                stage.stores.heal(url)
            await asyncio.sleep(HARD_S)
            assert await state(b) == FileState.CLOSED
        assert (await b.read("x")).startswith(b"flushed")

    play(scene)


def test_a_failure_recorded_by_a_clock_that_is_ahead_does_not_delay_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        for url in APPENDING:
            stage.stores.fail(url)
        wall = stage.host.clock.wall
        with monkeypatch.context() as patched:
            patched.setattr(stage.host.clock, "wall", lambda: wall() + YEAR_S)
            assert not await b.files.recover("x")
        for url in APPENDING:
            stage.stores.heal(url)
        async with c.monitored():
            await asyncio.sleep(3000)
            assert await state(c) == FileState.CLOSED
        await file.abort()

    play(scene)


def test_a_recovery_copies_to_spare_stores_what_other_stores_cannot_take() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        a.stop()
        used = stage.objects_of(stage.blocks(file.id)[0])
        lost = sorted(used)[:2]
        for url in lost:
            stage.stores.fail(url)
        assert await b.files.recover("x")
        copies = stage.objects_of(stage.blocks(file.id)[0])
        assert len(copies) == 3
        assert not set(copies) & set(lost)
        assert set(copies.values()) == {b"flushed"}
        kept = [decode_trash(pair.value).replicas for pair in stage.keys(TRASH).values()]
        assert [len(replicas) for replicas in kept] == [3], "the old objects stay for a while"

    play(scene, stores=(*APPENDING, "/4", "/5"), replicas=3)


def test_accept_loss_applies_to_a_recovery_that_is_under_way() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        a.stop()
        for url in APPENDING:
            stage.stores.hang(url)
        first = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        await b.files.recover("x", accept_loss=True)
        await first
        await asyncio.sleep(60)
        assert await state(b) == FileState.CLOSED

    play(scene)


def test_clients_that_ask_for_a_recovery_again_and_again_do_not_delay_its_retry() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        a.stop()
        for url in APPENDING:
            stage.stores.fail(url)
        for _ in range(20):
            assert not await b.files.recover("x")
        [recovery] = stage.keys(RECOVERIES).values()
        assert decode_recovery(recovery.value).attempts == 1
        for url in APPENDING:
            stage.stores.heal(url)
        async with c.monitored():
            await asyncio.sleep(20)
            assert await state(c) == FileState.CLOSED
        assert await c.read("x") == b"flushed"
        assert file.id

    play(scene)


@pytest.mark.parametrize(("call", "closed_after_s"), [("append", 1), ("recover", 7)])
def test_a_call_during_which_the_client_is_closed_raises_closed(
    call: str, closed_after_s: float
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        if call == "append":
            async with a.files.create("x"):
                pass
        else:
            await open_file(a)
            a.stop()
        b.engine.delay_s = 2
        calling = asyncio.ensure_future(getattr(b.files, call)("x"))
        await asyncio.sleep(closed_after_s)
        assert not calling.done()
        await b.close()
        with pytest.raises(Closed):
            await calling

    play(scene)
