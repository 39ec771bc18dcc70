"""One blocking call: what becomes of it if its caller waits no longer."""

import asyncio

import pytest

from leasehold.errors import Closed
from leasehold.sync.blocking_call import BlockingCall
from tests.support.asynchronous import asynchronous, until


class _Work:
    """Something to be done, and undone."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.began = False
        self.ended = "not at all"
        self.undone: list[str] = []

    async def do(self) -> str:
        self.began = True
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "well"
        return "done"

    async def undo(self, value: str) -> None:
        self.undone.append(value)


@asynchronous
async def test_a_call_gives_what_was_done() -> None:
    work = _Work()
    call = BlockingCall(work.do, work.undo)
    call.start()
    assert not call.is_done(0.0)
    work.may_end.set()
    await until(lambda: call.is_done(0.0))
    assert call.outcome() == "done"
    assert not work.undone


@asynchronous
async def test_a_call_that_nobody_waits_for_is_cancelled() -> None:
    work = _Work()
    call = BlockingCall(work.do, work.undo)
    call.start()
    await until(lambda: work.began)
    call.stop()
    await until(lambda: call.is_done(0.0))
    assert (work.ended, work.undone) == ("cancelled", [])
    with pytest.raises(Closed):
        call.outcome()


@asynchronous
async def test_a_call_that_nobody_waits_for_is_undone_if_it_was_done() -> None:
    work = _Work()
    call = BlockingCall(work.do, work.undo)
    call.start()
    work.may_end.set()
    await until(lambda: call.is_done(0.0))
    call.stop()
    await until(lambda: bool(work.undone))
    assert work.undone == ["done"]


@asynchronous
async def test_a_call_that_nobody_waits_for_is_undone_if_it_cannot_be_cancelled() -> None:
    work = _Work()
    go_on = asyncio.Event()

    async def stubborn() -> str:
        try:
            return await work.do()
        except asyncio.CancelledError:
            await go_on.wait()
            return "anyway"

    call = BlockingCall(stubborn, work.undo)
    call.start()
    await until(lambda: work.began)
    call.stop()
    go_on.set()
    await until(lambda: call.is_done(0.0))
    assert work.undone == ["anyway"]


@asynchronous
async def test_a_call_that_was_stopped_before_it_began_never_begins() -> None:
    work = _Work()
    call = BlockingCall(work.do, work.undo)
    call.stop()
    call.start()
    await until(lambda: call.is_done(0.0))
    assert call.is_cancelled
    assert not work.began


@asynchronous
async def test_a_call_that_is_cancelled_before_its_first_step_is_done() -> None:
    work = _Work()
    call = BlockingCall(work.do)
    call.start()
    call.cancel()
    await until(lambda: call.is_done(0.0))
    assert call.is_cancelled
    assert not work.began


@asynchronous
async def test_a_call_that_is_done_is_not_cancelled_nor_undone_by_a_loss() -> None:
    work = _Work()
    call = BlockingCall(work.do, work.undo)
    call.start()
    work.may_end.set()
    await until(lambda: call.is_done(0.0))
    call.cancel()
    await asyncio.sleep(0)
    assert call.outcome() == "done"
    assert not work.undone


@asynchronous
async def test_a_call_is_begun_once() -> None:
    work = _Work()
    call = BlockingCall(work.do)
    call.start()
    call.start()
    work.may_end.set()
    await until(lambda: call.is_done(0.0))
    assert call.outcome() == "done"
