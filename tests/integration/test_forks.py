"""Forked children of a process that uses Leasehold."""

import asyncio
import gc
import logging
import os
import warnings
from collections.abc import Callable

import pytest

from leasehold.basics.fork_hooks import call_in_child, stop_calling_in_child
from leasehold.grpc.channel import Channel
from tests.support.committer_bench import Bench, with_bench
from tests.support.raw_server import PATH


class Owner:
    def __init__(self, calls: list[str], name: str) -> None:
        self._calls = calls
        self._name = name

    def abandon(self) -> None:
        self._calls.append(self._name)

    def fail(self) -> None:
        self._calls.append(f"{self._name} fails")
        raise ValueError("bad copy")


def in_child(report: Callable[[], str]) -> str:
    """Return what a function returns in a forked child."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test run
        pid = os.fork()
    if pid == 0:
        os.write(writer, report().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_hooks_run_in_the_child_in_the_order_of_registration() -> None:
    calls: list[str] = []
    owners = [Owner(calls, name) for name in "abc"]
    for owner in owners:
        call_in_child(owner, Owner.abandon)
    assert in_child(lambda: ",".join(calls)) == "a,b,c"
    assert calls == []  # the parent is not affected


def test_an_object_is_held_weakly() -> None:
    calls: list[str] = []
    owner, gone = Owner(calls, "kept"), Owner(calls, "gone")
    call_in_child(gone, Owner.abandon)
    call_in_child(owner, Owner.abandon)
    del gone
    gc.collect()
    assert in_child(lambda: ",".join(calls)) == "kept"


def test_a_removed_hook_is_not_called() -> None:
    calls: list[str] = []
    owner, removed = Owner(calls, "kept"), Owner(calls, "removed")
    call_in_child(removed, Owner.abandon)
    call_in_child(owner, Owner.abandon)
    stop_calling_in_child(removed)
    stop_calling_in_child(removed)  # removing it twice does no harm
    assert in_child(lambda: ",".join(calls)) == "kept"


def test_a_hook_that_raises_is_logged_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    failing, owner = Owner(calls, "a"), Owner(calls, "b")
    call_in_child(failing, Owner.fail)
    call_in_child(owner, Owner.abandon)
    with caplog.at_level(logging.ERROR):
        report = in_child(lambda: ",".join([*calls, *(r.exc_text or "" for r in caplog.records)]))
    assert report.startswith("a fails,b,")
    assert report.endswith("ValueError: bad copy")


def test_a_forked_child_is_refused() -> None:
    async def first() -> None:
        with pytest.raises(ConnectionError):
            await channel.ready()

    async def again() -> str:
        await channel.close()  # which does nothing there
        try:
            await channel.unary(PATH, b"x")
        except RuntimeError as error:
            return str(error)
        return ""

    channel = Channel("127.0.0.1:1")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(first())
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = loop.run_until_complete(again())
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert f"was opened in process {os.getpid()}" in said
    loop.run_until_complete(channel.close())
    loop.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # threads are the point
@with_bench
async def test_a_child_process_does_not_wake_the_thread_of_its_parent(bench: Bench) -> None:
    await bench.put_and_wait()
    child = os.fork()
    if not child:
        try:
            bench.committer.abandon()
            bench.committer._give_work(None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)  # noqa: ASYNC222  it ends on its own
    await bench.put_and_wait()
