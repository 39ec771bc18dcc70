"""Deletes and renames whose answer is lost: a late execution changes nothing that came since."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leasehold.errors import ConnectionLost
from leasehold.files.file_keys import RECORDS
from tests.support.faulty_engine import Fault
from tests.support.files_stage import FilesStage, Machine, play

Change = Callable[[Machine], Awaitable[None]]

STRAGGLE_S = 100.0
"""When the late request is executed."""


def _delete(machine: Machine) -> Awaitable[None]:
    return machine.files.delete("d", recursive=True)


def _rename(machine: Machine) -> Awaitable[None]:
    return machine.files.rename("d", "e")


def _replace(machine: Machine) -> Awaitable[None]:
    return machine.files.rename("d/old", "target", overwrite=True)


CHANGES = pytest.mark.parametrize("change", [_delete, _rename, _replace])


async def _given_up(machine: Machine, change: Change, *, is_cancelled: bool) -> None:
    """Make a change whose one request is executed late; the call ends without an answer."""
    engine = machine.engine
    engine.straggle_s = STRAGGLE_S
    reads = 2 if change is _replace else 1  # transactions that read come first
    engine.trouble_with("txn", reads + 1, Fault.STRAGGLES)
    sent = engine.calls.count("txn") + reads + 1

    async def cut_off(_name: str) -> None:
        engine.is_cut_off = engine.is_cut_off or engine.calls.count("txn") >= sent

    machine.on_step = cut_off
    if is_cancelled:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(change(machine), 5)
    else:
        with pytest.raises(TimeoutError):
            await change(machine)
    assert engine.is_cut_off
    machine.on_step = None
    engine.is_cut_off = False


@CHANGES
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_change_that_was_given_up_is_not_executed_later(
    change: Change, is_cancelled: bool
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("d/old")
        await b.put("target")
        await _given_up(a, change, is_cancelled=is_cancelled)
        await b.put("d/sub/new")
        await asyncio.sleep(2 * STRAGGLE_S)
        assert await b.read("d/old") == b"data"
        assert await b.read("d/sub/new") == b"data"
        assert await b.read("target") == b"data"

    play(scene)


@CHANGES
def test_an_open_file_stays_open_when_a_late_change_is_prevented(change: Change) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await b.files.create("d/old")
        await b.put("target")
        await file.write(b"one")
        await file.flush()
        await _given_up(a, change, is_cancelled=False)
        await asyncio.sleep(2 * STRAGGLE_S)
        await file.write(b"two")
        await file.close()
        assert await b.read("d/old") == b"onetwo"

    play(scene)


@pytest.mark.parametrize("how", ["create", "append", "make_directory"])
def test_the_next_change_of_the_same_client_comes_after_the_prevention(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("d/old")
        await _given_up(a, _delete, is_cancelled=True)
        before = a.engine.calls.count("txn")
        if how == "make_directory":
            await a.files.make_directory("d/new")
        else:
            file = await getattr(a.files, how)("d/new" if how == "create" else "d/old")
            await file.close()
        assert a.engine.calls.count("txn") > before
        # A copy of the delete that comes now finds another revision.
        await asyncio.sleep(2 * STRAGGLE_S)
        assert (await b.files.stat("d/old")).size_bytes == 4

    play(scene)


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_delete_without_an_answer_does_not_delete_what_was_created_since(
    is_directory: bool,
) -> None:
    """The collector has removed all traces of the first one."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await (b.files.make_directory("x") if is_directory else b.put("x"))
        before = set(stage.keys(RECORDS))
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)

        async def create(_name: str) -> None:
            if before - set(stage.keys(RECORDS)) or a.engine.calls.count("txn") == 2:
                a.on_step = None
                await asyncio.sleep(1)
                await b.files.collect()
                await (b.files.make_directory("x") if is_directory else b.put("x"))

        a.on_step = create
        await a.files.delete("x")
        assert (await b.files.stat("x")).is_directory is is_directory

    play(scene, keep=0.001)


@pytest.mark.parametrize("change", ["delete", "rename"])
def test_a_rename_without_an_answer_does_not_move_what_was_created_since(change: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("x", b"old")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)

        async def disturb(_name: str) -> None:
            if a.engine.calls.count("txn") == 2:
                a.on_step = None
                await (b.files.delete("y") if change == "delete" else b.files.rename("y", "z"))
                await b.put("x", b"new")

        a.on_step = disturb
        with pytest.raises(ConnectionLost, match=r"'x'.*may have been renamed to 'y'"):
            await a.files.rename("x", "y")
        assert await b.read("x") == b"new"

    play(scene)
