"""The holder: one lease for all open files of a client, and its renewals."""

import asyncio
import gc
import logging
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock
from weakref import WeakValueDictionary

import pytest

from leasehold.errors import FileAlreadyOpen, FileNotFound, LeaseExpired
from leasehold.files import opening
from leasehold.files.file_keys import HOLDERS, OPEN_FILES
from leasehold.files.holder import FINISH_S, TAKEN_S, OpenedFile
from leasehold.files.opening import HolderState
from leasehold.files.writer import FileWriter
from tests.support.faulty_engine import Fault
from tests.support.files_stage import HARD_S, SOFT_S, FilesStage, Machine, open_file, play


def renewals(machine: Machine) -> int:
    """The renewals that a machine has sent."""
    return machine.engine.calls.count("renew") + machine.engine.calls.count("renew_all")


def holder_ids(stage: FilesStage) -> list[str]:
    """The holders that have a key."""
    return [key[len(HOLDERS) :].decode() for key in stage.keys(HOLDERS)]


def no_renewals(machine: Machine, count: int) -> None:
    """Let the next renewals fail."""
    for number in range(1, count + 1):
        machine.engine.trouble_with("renew", number, Fault.REQUEST_LOST)


def test_one_lease_covers_all_files_of_a_holder() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        before = stage.leases()
        files = [await a.files.create(f"x{number}") for number in range(10)]
        assert stage.leases() == before + 1
        (holder,) = holder_ids(stage)
        assert holder.startswith("a-")
        assert len(holder) == 2 + 32
        assert {stage.record(file.id).holder for file in files} == {holder}
        other = await b.files.create("y")
        assert len(holder_ids(stage)) == 2
        for file in [*files, other]:
            await file.close()

    play(scene)


def test_only_the_holder_key_is_attached_to_the_lease() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        leased = [key for key, pair in stage.keys().items() if pair.lease]
        assert leased == list(stage.keys(HOLDERS))
        await file.close()

    play(scene)


def test_the_lease_is_renewed_when_half_the_soft_limit_has_passed() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        await asyncio.sleep(SOFT_S / 2 - 1.5)
        assert renewals(a) == 0
        await asyncio.sleep(3)
        assert renewals(a) == 1
        await asyncio.sleep(10 * SOFT_S)
        assert 19 <= renewals(a) <= 21
        await file.close()

    play(scene)


@pytest.mark.slow
def test_ten_thousand_files_are_renewed_by_one_message() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        for number in range(10_000):
            await a.files.create(f"{number}")
        before = len(a.steps), renewals(a)
        await asyncio.sleep(SOFT_S * 5)
        assert 9 <= renewals(a) - before[1] <= 11
        sent = len(a.steps) - before[0]
        assert sent <= renewals(a) - before[1] + 1, "one look whether others have taken them"
        assert sum(each.files for each in await a.files.holders()) == 10_000
        a.stop()  # closing all of them is another matter

    play(scene)


def test_nothing_is_renewed_while_no_file_is_open() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        await asyncio.sleep(1)
        assert not stage.keys(HOLDERS)
        before = len(a.steps)
        await asyncio.sleep(10 * SOFT_S)
        assert len(a.steps) == before
        async with a.files.append("x"):
            await asyncio.sleep(SOFT_S)
            assert renewals(a) >= 1, "the checker starts with the next open"

    play(scene)


def test_the_last_close_revokes_the_lease() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        files = [await a.files.create(f"x{number}") for number in range(3)]
        for file in files[:2]:
            await file.close()
        await asyncio.sleep(5)
        assert len(holder_ids(stage)) == 1
        await files[2].close()
        await asyncio.sleep(1)
        assert holder_ids(stage) == []
        assert stage.leases() == 0

    play(scene)


def test_a_holder_id_is_used_for_one_lease_only() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        seen = set()
        for number in range(20):
            async with a.files.create(f"x{number}"):
                seen.add(a.files.holder.id)
        assert len(seen) == 20

    play(scene)


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.01, 0.1])
def test_an_open_during_the_last_close_succeeds(delay_s: float) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        a.engine.delay_s = 0.02
        for number in range(10):
            file = await a.files.create(f"x{number}")
            closing = asyncio.ensure_future(file.close())
            await asyncio.sleep(delay_s)
            other = await a.files.create(f"y{number}")
            await other.write(b"data")
            await closing
            await other.close()
            assert await a.read(f"y{number}") == b"data"

    play(scene)


def test_opening_and_flushing_renew_the_lease() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        for number in range(10):
            await asyncio.sleep(SOFT_S / 4)
            if number % 2:
                await (await a.files.create(f"y{number}")).close()
            else:
                await file.write(b"data")
                await file.flush()
            (info,) = await a.files.holders()
            assert info.elapsed_s is not None
            assert info.elapsed_s < 1
        await file.close()

    play(scene)


def test_a_failed_renewal_is_a_warning_and_is_tried_again_at_the_next_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        no_renewals(a, 5)
        await asyncio.sleep(SOFT_S / 2 + 4.5)  # between two looks
        assert 3 <= renewals(a) <= 5, "one each second"
        warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert len(warnings) == renewals(a)
        assert a.files.holder.id in warnings[0].getMessage()
        await asyncio.sleep(4)
        (info,) = await a.files.holders()
        assert info.elapsed_s is not None
        assert info.elapsed_s < 5
        await file.write(b"data")
        await file.close()
        assert await a.read("x") == b"data"

    play(scene)


def test_between_the_limits_writing_goes_on() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        no_renewals(a, 10_000)
        await asyncio.sleep(HARD_S - 10)
        await file.write(b"data")
        await file.flush()
        assert (await a.files.stat("x")).size_bytes == 4
        await file.close()
        assert await a.read("x") == b"data"

    play(scene)


def test_past_the_hard_limit_files_are_aborted_and_the_client_stays_usable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b" lost")
        holder = a.files.holder.id
        no_renewals(a, 10_000)
        await asyncio.sleep(HARD_S + 3)
        assert holder in caplog.text
        assert "aborted" in caplog.text
        calls = len(a.steps)
        with pytest.raises(LeaseExpired):
            await file.write(bytes(5 * 1024 * 1024))
        with pytest.raises(LeaseExpired):
            await file.flush()
        assert len(a.steps) == calls, "it is known without a call"
        a.engine.no_more_trouble()
        await a.put("y", b"new")
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"
        await file.abort()

    play(scene)


@pytest.mark.parametrize("how", ["create", "append"])
def test_an_open_that_finds_its_holder_key_gone_takes_a_new_id_once(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("y")
        file = await open_file(a)
        holder = a.files.holder.id
        (key,) = stage.keys(HOLDERS).values()
        a.engine.trouble_with("renew", 1, Fault.REQUEST_LOST)
        await stage.engine.revoke(key.lease)  # as if it had expired
        if how == "create":
            other = await a.files.create("z")
        else:
            other = await a.files.append("y")
        assert a.files.holder.id not in ("", holder)
        await other.write(b"!")
        await other.close()
        with pytest.raises(LeaseExpired):
            await file.flush()
        await file.abort()
        assert await a.files.recover("x")

    play(scene)


def test_a_lease_that_has_ended_ends_its_files() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        (key,) = stage.keys(HOLDERS).values()
        await stage.engine.revoke(key.lease)
        async with b.files.append("x") as other:
            await other.write(b"!")
        await file.write(b"late")
        with pytest.raises(LeaseExpired):
            await file.flush()
        assert await b.read("x") == b"flushed!"
        await file.abort()

    play(scene)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_nothing_is_flushed_after_the_end_of_the_lease_even_if_the_file_was_not_taken(
    call: str,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        (key,) = stage.keys(HOLDERS).values()
        await stage.engine.revoke(key.lease)
        await file.write(b"late")
        with pytest.raises(LeaseExpired):
            await getattr(file, call)()
        assert await b.files.recover("x")
        assert await b.read("x") == b"flushed"
        await file.abort()

    play(scene)


# The limits, exactly.


@pytest.mark.parametrize(("elapsed_s", "is_taken"), [(59.9, False), (60.01, True)])
def test_elapsed_must_be_greater_than_the_soft_limit(elapsed_s: float, is_taken: bool) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        a.stop()
        await b.put("y")
        (info,) = await b.files.holders()
        assert info.elapsed_s is not None
        await asyncio.sleep(elapsed_s - info.elapsed_s)
        if is_taken:
            await (await b.files.append("x")).close()
        else:
            with pytest.raises(FileAlreadyOpen):
                await b.files.append("x")

    play(scene)


def test_elapsed_equal_to_the_limit_is_not_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        record = stage.record(file.id)
        for elapsed_s, is_past in [(59.999, False), (60.0, False), (60.001, True)]:
            state = HolderState(elapsed_s, SOFT_S)
            monkeypatch.setattr(opening, "holder_state", AsyncMock(return_value=state))
            assert await b.files.opener.is_past_soft_limit(record) == is_past
        await file.close()

    play(scene)


@pytest.mark.parametrize(("unit_s", "is_taken"), [(0.001, True), (1.0, False)])
def test_on_an_engine_with_whole_seconds_another_second_is_subtracted(
    unit_s: float, is_taken: bool
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        a.stop()
        b.engine.limits = replace(b.engine.limits, ttl_unit=unit_s)
        await asyncio.sleep(SOFT_S + 0.5)
        if not is_taken:
            with pytest.raises(FileAlreadyOpen):
                await b.files.append("x")
            await asyncio.sleep(1)
        await (await b.files.append("x")).close()
        assert await b.read("x") == b"flushed"

    play(scene)


def test_the_time_is_asked_for_only_when_another_client_wants_the_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await asyncio.sleep(2 * SOFT_S)
        assert a.engine.calls.count("time_to_live") == 0
        with pytest.raises(FileAlreadyOpen):
            await b.files.append("x")
        assert b.engine.calls.count("time_to_live") == 1
        await file.close()

    play(scene)


def test_a_renewal_between_the_look_and_the_take_over_comes_too_late() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        a.stop()
        await asyncio.sleep(SOFT_S + 1)
        other = await b.files.create("y")
        renewed = asyncio.Event()

        async def renew(name: str) -> None:
            if name == "grant" and not renewed.is_set():  # of the worker, after the look
                a.wake()
                await a.files.holder.renew()
                renewed.set()

        b.on_step = renew
        await (await b.files.append("x")).close()
        assert renewed.is_set()
        await file.write(b"late")
        with pytest.raises(LeaseExpired):
            await file.flush()
        assert await b.read("x") == b"flushed"
        await file.abort()
        await other.close()

    play(scene)


def test_the_hard_limit_is_the_ttl_of_the_lease() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        (key,) = stage.keys(HOLDERS).values()
        assert (await stage.engine.time_to_live(key.lease)).ttl == 300.0
        await file.close()

    play(scene, hard_limit=300.0)


def test_giving_back_a_file_that_is_not_open_changes_nothing() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        other = await a.files.create("y")
        await other.close()
        await other.close()
        await other.abort()
        await file.write(b"!")
        await file.close()
        assert await a.read("x") == b"flushed!"

    play(scene)


def test_closing_the_client_closes_its_files_at_their_flushed_length() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        for number in range(5):
            file = await open_file(a, f"x{number}")
            await file.write(b" lost")
        await a.files.close()
        for number in range(5):
            assert await b.files.is_closed(f"x{number}")
            assert await b.read(f"x{number}") == b"flushed"
        assert not stage.keys(HOLDERS)

    play(scene)


def test_an_open_that_was_cancelled_leaves_no_open_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        a.engine.delay_s = 0.1

        async def create(path: str) -> None:
            await a.files.create(path)

        for number in range(20):
            task = asyncio.ensure_future(create(f"x{number}"))
            await asyncio.sleep(number * 0.05)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await b.files.delete(f"x{number}")
        await asyncio.sleep(10)
        for number in range(20):
            try:
                assert await b.files.is_closed(f"x{number}")
            except FileNotFound:
                continue
        assert not stage.keys(OPEN_FILES)

    play(scene)


# Writers that are forgotten.


@pytest.mark.filterwarnings("ignore:the writer of .* was garbage-collected:ResourceWarning")
@pytest.mark.parametrize("has_other", [True, False])
def test_a_writer_that_is_forgotten_gives_its_file_up_and_is_reported(
    caplog: pytest.LogCaptureFixture, *, has_other: bool
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await a.files.create("other") if has_other else None
        file = await a.files.create("x")
        await file.write(b"flushed")
        await file.flush()
        await file.write(b" and not")
        file_id = file.id
        a.files.writers.remove(file)
        del file
        await asyncio.sleep(FINISH_S + 2)
        async with b.files.open("x", "ab") as second:
            await second.write(b" by another client")
        assert await b.read("x") == b"flushed by another client"
        text = "the writer of 'x' was garbage-collected without being closed"
        assert sum(text in each.getMessage() for each in caplog.records) == 1
        assert file_id not in a.files.holder.files
        if other is not None:
            await other.write(b"goes on")
            await other.close()
        await asyncio.sleep(5)
        assert not a.files.holder.id

    play(scene)


def test_a_writer_that_was_closed_or_lost_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        closed, aborted, lost = [await a.files.create(each) for each in ("x", "y", "z")]
        await closed.close()
        await aborted.abort()
        assert await b.files.recover("z")
        with pytest.raises(LeaseExpired):
            await lost.verify()
        a.files.writers.clear()
        del closed, aborted, lost
        await asyncio.sleep(5)
        assert "garbage-collected" not in caplog.text

    play(scene)


class _Collecting(WeakValueDictionary[str, OpenedFile]):
    """A dictionary one of whose values is collected just after its keys were read."""

    def __init__(self, dropped: list[FileWriter]) -> None:
        super().__init__()
        self._dropped = dropped

    def keys(self) -> Any:
        found = list(super().keys())
        self._dropped.clear()
        return iter(found)


@pytest.mark.filterwarnings("ignore:the writer of .* was garbage-collected:ResourceWarning")
def test_the_checker_goes_on_if_a_writer_is_collected_while_it_looks() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        kept, forgotten = await open_file(a, "x"), [await open_file(a, "y")]
        a.files.writers.clear()
        holder = a.files.holder
        holder.files = _Collecting(forgotten)
        holder.files.update({kept.id: kept, forgotten[0].id: forgotten[0]})
        for path in ("x", "y"):
            assert await b.files.recover(path)
        await asyncio.sleep(TAKEN_S + SOFT_S)
        assert not holder.id, "all files were taken"
        file = await open_file(a, "z")
        await asyncio.sleep(2 * HARD_S)
        await file.write(b" more")
        await file.close()
        assert await b.read("z") == b"flushed more"

    play(scene)


@pytest.mark.filterwarnings("ignore:the writer of .* was garbage-collected:ResourceWarning")
def test_a_writer_that_a_finalizer_has_revived_has_lost_its_file() -> None:
    """The collector clears the weak references to all objects of a cycle, revived or not."""
    revived: list[Any] = []

    class Owner:
        def __init__(self, file: FileWriter) -> None:
            self.file = file
            self.itself = self

        def __del__(self) -> None:
            revived.append(self.file)

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        other = await open_file(a, "other")
        Owner(await open_file(a, "x"))
        a.files.writers.remove(next(each for each in a.files.writers if each is not other))
        gc.collect()
        (file,) = revived
        await asyncio.sleep(FINISH_S + 2)
        assert await b.files.is_closed("x")
        await file.write(b" more")
        for _ in range(2):
            with pytest.raises(LeaseExpired):
                await file.flush()
        assert await b.read("x") == b"flushed"
        await other.close()

    play(scene)
