"""Opening a file while another client creates or deletes it, at each call of the opening."""

import asyncio
from contextlib import suppress
from typing import Literal

import pytest

from leasehold.errors import FileAlreadyOpen, FileExists, FileNotFound, RecoveryInProgress
from leasehold.files.holder import FINISH_S
from leasehold.files.writer import FileWriter
from tests.support.faulty_engine import Fault
from tests.support.files_stage import SOFT_S, FilesStage, Machine, play

CALLS = 12
"""Opening a file takes fewer calls."""


async def _opened(machine: Machine) -> FileWriter:
    return await machine.files.open("x", "ab")


@pytest.mark.parametrize("number", range(1, CALLS))
def test_append_or_create_opens_a_file_that_another_client_creates_meanwhile(number: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")

        async def create(_name: str) -> None:
            if len(a.steps) == number:
                a.on_step = None
                with suppress(FileAlreadyOpen):  # the first client has it already
                    await b.put("x", b"b")

        a.on_step = create
        file = await _opened(a)
        a.on_step = None
        await file.write(b"a")
        await file.close()
        assert await b.read("x") in (b"a", b"ba")

    play(scene)


@pytest.mark.parametrize("number", range(1, CALLS))
def test_append_or_create_creates_a_file_that_another_client_deletes_meanwhile(number: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("x", b"b")

        async def delete(_name: str) -> None:
            if len(a.steps) == number:
                a.on_step = None
                await b.files.delete("x")

        a.on_step = delete
        file = await _opened(a)
        a.on_step = None
        await file.write(b"a")
        await file.close()
        assert (await b.read("x")).endswith(b"a")

    play(scene)


@pytest.mark.parametrize("number", range(1, CALLS))
def test_append_opens_the_file_that_has_the_path_when_its_directory_is_exchanged(
    number: int,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("d/x", b"old")

        async def exchange(_name: str) -> None:
            if len(a.steps) == number:
                a.on_step = None
                await b.files.rename("d", "before")
                await b.put("d/x", b"new")

        a.on_step = exchange
        async with a.files.append("d/x") as file:
            a.on_step = None
            if len(a.steps) > number:
                assert file.id == (await b.files.stat("d/x")).id
        assert await b.files.is_closed("d/x")

    play(scene)


@pytest.mark.parametrize("mode", ["xb", "wb", "ab"])
@pytest.mark.parametrize("number", range(1, 2 * CALLS))
def test_a_file_that_is_deleted_while_it_is_taken_over_is_created(
    number: int, mode: Literal["xb", "wb", "ab"]
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, former = (stage.machine(name) for name in ("a", "b", "former"))
        file = await former.files.create("x")
        await file.write(b"former")
        await file.flush()
        former.stop()
        await asyncio.sleep(SOFT_S + 1)
        is_deleted = False

        async def delete(_name: str) -> None:
            nonlocal is_deleted
            if len(a.steps) == number:
                a.on_step = None
                await b.files.delete("x")
                is_deleted = True

        a.on_step = delete
        try:
            file = await a.files.open("x", mode)
        except FileExists:
            assert mode == "xb"
            return
        except RecoveryInProgress:  # the caller tries again, and finds no file
            assert is_deleted
            file = await a.files.open("x", mode)
        finally:
            a.on_step = None
        try:
            await file.write(b"a")
            await file.close()
        except FileNotFound:
            assert is_deleted
            return
        assert await b.read("x") in (b"a", *([] if mode == "wb" else [b"formera"]))

    play(scene)


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("before_s", [number / 4 for number in range(16)])
def test_a_file_is_not_recovered_while_its_client_opens_it_again(
    number: int, before_s: float
) -> None:
    """The client has abandoned it before, and looks whether it is still open without a writer."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await b.put("x", b"b")
        other = await a.files.create("other")  # it keeps the holder
        a.files.holder.abandon((await b.files.stat("x")).id)
        a.engine.delay_s = 1.0
        a.engine.trouble_with("txn", number, Fault.ANSWER_LOST)
        await asyncio.sleep(FINISH_S + 1 - before_s)
        file = await _opened(a)
        await file.write(b"a")
        await file.close()
        assert await b.read("x") == b"ba"
        assert stage.record(file.id).stamp == 2, "it was recovered"
        await other.close()

    play(scene)
