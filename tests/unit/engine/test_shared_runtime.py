"""An engine on the runtime of a server, beside other users of the same store."""

import threading
from pathlib import Path

import pytest

from leasehold import Closed, JournalFailed
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.values import Limits
from leasehold.keyspace.operations import Put
from leasehold.store.runtime import Runtime
from tests.support.asynchronous import asynchronous


@asynchronous
async def test_it_reads_and_watches_the_changes_of_other_users(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    engine = EmbeddedEngine.on(runtime, Limits(keys_per_lease=5))
    runtime.start()
    watch = engine.watch(b"a")
    runtime.store.apply(Put(b"a", b"1", 0))
    events = await anext(watch)
    assert [event.key for event in events.events] == [b"a"]
    assert (await engine.range(b"a")).pairs[0].value == b"1"
    await engine.put(b"b", b"2")
    assert runtime.store.keyspace.get(b"b") is not None
    assert engine.cluster_id == runtime.journal.identity.cluster_id
    assert engine.limits.keys_per_lease == 5
    await runtime.stop()
    await engine.close()
    runtime.journal.close()


@asynchronous
async def test_it_adds_no_thread_that_commits(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.start()
    await EmbeddedEngine.on(runtime).put(b"a", b"1")
    before = set(threading.enumerate())  # some of them, of earlier tests, may end meanwhile
    for _ in range(3):
        await EmbeddedEngine.on(runtime).put(b"a", b"1")
    assert set(threading.enumerate()) <= before
    await runtime.stop()
    runtime.journal.close()


@asynchronous
async def test_closing_it_ends_its_watches_and_not_the_runtime(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    engine, other = EmbeddedEngine.on(runtime), EmbeddedEngine.on(runtime)
    runtime.start()
    watch = engine.watch(b"a")
    await engine.close()
    with pytest.raises(Closed):
        await anext(watch)
    await other.put(b"a", b"1")
    await runtime.stop()
    with pytest.raises(Closed):
        await other.put(b"a", b"1")
    with pytest.raises(Closed):
        other.watch(b"a")
    runtime.journal.close()


@asynchronous
async def test_a_failure_of_the_runtime_ends_the_watches_of_every_engine(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    engines = [EmbeddedEngine.on(runtime) for _ in range(2)]
    told: list[Exception] = []
    runtime.failure_callbacks.append(told.append)
    runtime.start()
    watches = [engine.watch(b"a") for engine in engines]
    runtime.fail(OSError("disk"))
    for engine, watch in zip(engines, watches, strict=True):
        with pytest.raises(JournalFailed):
            await anext(watch)
        with pytest.raises(JournalFailed):
            await engine.put(b"a", b"1")
    assert len(told) == 1
    await runtime.stop()
    runtime.journal.close()
