"""Requests and answers that are lost: an operation is executed once, or fails, and never half.

Each operation runs once without faults, which shows its transactions and its result. Then it runs
again with a fault at each of its transactions in turn. Afterwards another client changes what was
done, such as deleting a new file: a request that is executed late must not bring it back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

import pytest

from leasehold.errors import FileNotFound, LeaseholdError
from leasehold.testing import seeds
from tests.support.faulty_engine import Fault
from tests.support.files_stage import FilesStage, Machine, open_file, play

FAULTS: Final = (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES, Fault.EXHAUSTED)
LATE_S: Final = 20.0
"""After this time no late request is left."""

Act: TypeAlias = Callable[[], Awaitable[object]]
Tree: TypeAlias = list[tuple[str, bytes | None, bool]]


class Prepared(NamedTuple):
    """An operation that is about to run."""

    act: Act
    change: Act
    """What another client does afterwards."""


Operation: TypeAlias = Callable[[FilesStage, Machine, Machine], Awaitable[Prepared]]


async def tree(machine: Machine, path: str = "") -> Tree:
    """All paths, with the flushed bytes of files, and whether they are open."""
    found: Tree = []
    async for info in machine.files.list(path):
        if info.is_directory:
            found.append((info.path, None, False))
            found += await tree(machine, info.path)
        else:
            found.append((info.path, await machine.read(info.path), info.is_open))
    return found


async def create(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Create a file."""

    async def act() -> None:
        await a.files.create("x")

    return Prepared(act, lambda: b.files.delete("x"))


async def create_again(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Create a file, and it is renamed."""

    async def act() -> None:
        await a.files.create("x")

    return Prepared(act, lambda: b.files.rename("x", "y"))


async def create_in_new_directories(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Create a file with its directories, and all are deleted."""

    async def act() -> None:
        await a.files.create("d/e/x")

    return Prepared(act, lambda: b.files.delete("d", recursive=True))


async def create_in_renamed_directories(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Create a file with its directories, and they are renamed."""

    async def act() -> None:
        await a.files.create("d/e/x")

    return Prepared(act, lambda: b.files.rename("d", "f"))


async def overwrite(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Replace an open file."""
    await open_file(b)

    async def act() -> None:
        await a.files.create("x", overwrite=True)

    return Prepared(act, lambda: b.files.delete("x"))


async def append(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Append to a file."""
    await a.put("x")

    async def act() -> None:
        await a.files.append("x")

    return Prepared(act, lambda: b.files.recover("x"))


async def append_past_the_soft_limit(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Take a file over."""
    await open_file(b)
    b.stop()
    await asyncio.sleep(70)
    b.wake()

    async def act() -> None:
        await a.files.append("x")

    return Prepared(act, lambda: b.files.recover("x"))


async def first_flush(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Flush the first bytes of a block."""
    file = await a.files.create("x")
    await file.write(b"one")
    return Prepared(file.flush, lambda: b.files.recover("x"))


async def later_flush(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Flush further bytes."""
    file = await open_file(a)
    await file.write(b" two")
    return Prepared(file.flush, lambda: b.files.recover("x"))


async def flush_of_several_blocks(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Flush bytes that fill several blocks."""
    file = await open_file(a)
    await file.write(b"0123456789" * 5)
    return Prepared(file.flush, lambda: b.files.recover("x"))


async def flush_without_a_store(stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Flush when a store fails."""
    file = await open_file(a)
    await file.write(b" two")
    stage.stores.fail("/1", methods=("append",))
    return Prepared(file.flush, lambda: b.files.recover("x"))


async def close(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Close a file with its last bytes."""
    file = await open_file(a)
    await file.write(b" two")

    async def change() -> None:
        async with b.files.append("x") as other:
            await other.write(b" three")

    return Prepared(file.close, change)


async def close_without_bytes(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Close a file that is flushed."""
    file = await open_file(a)
    return Prepared(file.close, lambda: b.files.create("x", overwrite=True).__aenter__())


async def abort(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Close a file without its last bytes."""
    file = await open_file(a)
    await file.write(b" two")
    return Prepared(file.abort, lambda: b.files.append("x").__aenter__())


async def rename(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Rename a file, and it is renamed back."""
    await open_file(b, "d/x")
    return Prepared(lambda: a.files.rename("d/x", "y"), lambda: b.files.rename("y", "d/x"))


async def rename_of_a_directory(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Rename a directory, and another one takes its place."""
    await a.put("d/x")

    async def change() -> None:
        await b.files.rename("e", "f")
        await b.put("d/x", b"other")

    return Prepared(lambda: a.files.rename("d", "e"), change)


async def rename_with_overwrite(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Rename a file onto another one that is open."""
    await a.put("x", b"x")
    await open_file(b, "y")

    async def change() -> None:
        await b.files.rename("y", "x")
        await b.put("y", b"other")

    return Prepared(lambda: a.files.rename("x", "y", overwrite=True), change)


async def delete(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Delete an open file, and another one takes its place."""
    await open_file(b)
    return Prepared(lambda: a.files.delete("x"), lambda: b.put("x", b"other"))


async def delete_of_a_tree(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Delete a directory, and another one takes its place."""
    await a.put("d/e/x")
    return Prepared(lambda: a.files.delete("d", recursive=True), lambda: b.put("d/e/x", b"other"))


async def make_directory(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Create directories, and they are deleted."""
    return Prepared(
        lambda: a.files.make_directory("d/e"), lambda: b.files.delete("d", recursive=True)
    )


async def recover(_stage: FilesStage, a: Machine, b: Machine) -> Prepared:
    """Recover a file, and it is appended to."""
    await open_file(b)

    async def change() -> None:
        async with b.files.append("x") as other:
            await other.write(b" three")

    async def act() -> None:
        if not await a.files.recover("x"):
            raise TimeoutError("it is tried again later")

    return Prepared(act, change)


OPERATIONS: Final[tuple[Operation, ...]] = (
    create,
    create_again,
    create_in_new_directories,
    create_in_renamed_directories,
    overwrite,
    append,
    append_past_the_soft_limit,
    first_flush,
    later_flush,
    flush_of_several_blocks,
    flush_without_a_store,
    close,
    close_without_bytes,
    abort,
    rename,
    rename_of_a_directory,
    rename_with_overwrite,
    delete,
    delete_of_a_tree,
    make_directory,
    recover,
)


class Outcome:
    """What an operation has done."""

    def __init__(self) -> None:
        self.transactions = 0
        self.error: Exception | None = None
        self.before: Tree = []
        self.after: Tree = []
        self.changed: Tree = []


def run(
    operation: Operation,
    disturb: Callable[[Machine], None] = lambda _machine: None,
    seed: int = 0,
) -> Outcome:
    """Run an operation, and what follows."""
    outcome = Outcome()

    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        prepared = await operation(stage, a, b)
        outcome.before = await tree(c)
        count = a.engine.calls.count("txn")
        disturb(a)
        try:
            await prepared.act()
        except (LeaseholdError, OSError) as error:
            outcome.error = error
        a.engine.no_more_trouble()
        a.wake()
        outcome.transactions = a.engine.calls.count("txn") - count
        outcome.after = await tree(c)
        stage.check()
        if outcome.error is None:
            await prepared.change()
            outcome.changed = await tree(c)
            stage.check()
            await asyncio.sleep(LATE_S)
            assert await tree(c) == outcome.changed, "a late request has changed something"
        else:
            await asyncio.sleep(LATE_S)
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)

    play(scene, seed=seed, block_bytes=16, leaves=(b"leasehold/files/open/",))
    return outcome


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_an_operation_that_loses_one_transaction_is_executed_once(
    operation: Operation, fault: Fault
) -> None:
    expected = run(operation)
    assert expected.error is None
    assert expected.transactions > 0
    for number in range(1, expected.transactions + 1):

        def disturb(machine: Machine, number: int = number) -> None:
            machine.engine.trouble_with("txn", number, fault)

        found = run(operation, disturb)
        assert found.error is None, number
        assert found.after == expected.after, number
        assert found.changed == expected.changed, number


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_an_operation_that_loses_its_connection_fails_or_succeeds_as_a_whole(
    operation: Operation,
) -> None:
    expected = run(operation)
    for number in range(1, expected.transactions + 1):
        for first in (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES):

            def disturb(machine: Machine, number: int = number, first: Fault = first) -> None:
                machine.engine.trouble_with("txn", number, first)
                for later in range(number + 1, number + 200):
                    machine.engine.trouble_with("txn", later, Fault.REQUEST_LOST)

            found = run(operation, disturb)
            if found.error is None:
                assert found.after == expected.after, (number, first)
                assert found.changed == expected.changed, (number, first)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("seed", seeds(10))
def test_an_operation_with_many_faults_fails_or_succeeds_as_a_whole(
    operation: Operation, seed: int
) -> None:
    expected = run(operation, seed=seed)

    def disturb(machine: Machine) -> None:
        random = machine.files.namespace.random
        for name in ("txn", "range", "grant", "renew", "revoke", "put"):
            for number in range(1, 60):
                if random.random() < 0.4:
                    machine.engine.trouble_with(name, number, random.choice(FAULTS))

    found = run(operation, disturb, seed)
    if found.error is None:
        assert found.after == expected.after
        assert found.changed == expected.changed


@pytest.mark.parametrize("seed", seeds(20))
def test_a_writer_on_a_bad_connection_loses_and_repeats_nothing(seed: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        random = stage.random
        file = await a.files.create("x")
        written, flushed = b"", 0
        for _ in range(30):
            for name in ("txn", "range", "renew"):
                for number in range(1, 8):
                    if random.random() < 0.3:
                        a.engine.trouble_with(name, number, random.choice(FAULTS))
            if random.random() < 0.3:
                for number in range(1, 100):
                    a.engine.trouble_with("txn", number, random.choice(FAULTS))
            data = random.randbytes(random.randint(1, 20))
            await file.write(data)
            written += data
            try:
                await file.flush()
                flushed = len(written)
            except (LeaseholdError, OSError):
                pass
            a.engine.no_more_trouble()
            found = await b.read("x")
            assert written.startswith(found)
            assert len(found) >= flushed
            if random.random() < 0.1:
                target = random.choice(("y", "z"))
                await b.files.rename("x", target)
                await b.files.rename(target, "x")
        await file.close()
        assert await b.read("x") == written

    play(scene, seed=seed, block_bytes=64)


@pytest.mark.parametrize("how", ["xb", "ab", "wb"])
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES])
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_an_open_that_failed_leaves_no_file_locked_by_a_holder_that_goes_on(
    how: Literal["xb", "ab", "wb"], fault: Fault, exists: bool, first: int
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        if exists:
            await b.put("x", b"data")
        a.engine.straggle_s = 45.0
        for number in range(first, 200):
            a.engine.trouble_with("txn", number, fault)
        with suppress(LeaseholdError, OSError):
            opened = await a.files.open("x", how)
            a.engine.no_more_trouble()
            await opened.close()
        a.engine.no_more_trouble()
        await asyncio.sleep(90)
        await other.write(b" on")
        await other.flush()
        async with b.files.open("x", "ab") as file:
            await file.write(b"!")
        assert await b.read("x") in (b"data!", b"!")
        await other.close()
        assert await b.read("other") == b"flushed on"

    play(scene)


def test_an_append_that_is_late_leaves_no_file_open_when_its_directory_returns() -> None:
    """The directory was renamed while the request was repeated, so the append had failed."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("d/x")
        other = await open_file(a, "other")  # it keeps the holder
        a.engine.straggle_s = 60.0
        a.engine.trouble_with("txn", 2, Fault.STRAGGLES)  # the first one reads the record
        txns = 0

        async def rename_before_the_repetition(called: str) -> None:
            nonlocal txns
            txns += called == "txn"
            if txns == 3:
                a.on_step = None
                await b.files.rename("d", "e")

        a.on_step = rename_before_the_repetition
        with pytest.raises(FileNotFound):
            await a.files.append("d/x")
        await b.files.rename("e", "d")
        await asyncio.sleep(a.engine.straggle_s + LATE_S)
        assert await b.files.is_closed("d/x")
        await b.files.append("d/x")
        await other.close()

    play(scene)
