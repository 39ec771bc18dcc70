"""The monitor: it closes the files of holders past the hard limit, in bounded passes."""

import asyncio
import logging

import pytest

from leasehold.errors import ConnectionLost, LeaseExpired, NoSpace
from leasehold.files.file_keys import HOLDERS, OPEN_FILES, RECORDS, RECOVERIES, WORKERS, record_key
from leasehold.files.monitor import FILES_PER_PASS
from leasehold.files.state import FileState
from leasehold.testing import seeds
from tests.support.files_stage import (
    APPENDING,
    HARD_S,
    SOFT_S,
    FilesStage,
    Machine,
    last_object,
    open_file,
    play,
)

PASSES_S = 10.0
"""Time for some passes of a monitor."""


async def open_files(stage: FilesStage, machine: Machine, count: int) -> list[str]:
    """Open files of a machine that stops then; return their paths."""
    paths = [f"{machine.name}/{number}" for number in range(count)]
    for path in paths:
        await open_file(machine, path)
    machine.stop()
    return paths


def closed(stage: FilesStage) -> int:
    """Count the files that are closed."""
    return len(stage.keys(RECORDS)) - len(stage.keys(OPEN_FILES)) - len(stage.keys(RECOVERIES))


def test_files_are_closed_at_the_hard_limit_and_not_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, server, b = (stage.machine(name) for name in ("a", "server", "b"))
        async with server.monitored():
            file = await open_file(a)
            holder = a.files.holder.id
            a.stop()
            with caplog.at_level(logging.INFO):
                await asyncio.sleep(HARD_S - 5)
                assert not await b.files.is_closed("x"), "the soft limit alone is not enough"
                await asyncio.sleep(5 + PASSES_S)
            assert await b.files.is_closed("x")
            assert await b.read("x") == b"flushed"
            assert holder in caplog.text
            a.wake()
            await file.write(b"late")
            with pytest.raises(LeaseExpired):
                await file.flush()
            await file.abort()

    play(scene)


def test_without_a_monitor_nothing_happens_at_the_hard_limit_until_a_client_asks() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        a.stop()
        await asyncio.sleep(3 * HARD_S)
        assert not await b.files.is_closed("x")
        async with b.files.append("x") as file:
            await file.write(b"!")
        assert await b.read("x") == b"flushed!"

    play(scene)


def test_a_holder_that_ended_while_no_monitor_ran_is_found() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        await open_files(stage, a, 5)
        await asyncio.sleep(HARD_S + 5)
        assert not stage.keys(HOLDERS)
        async with server.monitored():
            await asyncio.sleep(PASSES_S)
        assert not stage.keys(OPEN_FILES)
        assert await server.read("a/3") == b"flushed"

    play(scene)


def test_a_holder_that_ended_before_a_restart_is_found() -> None:
    async def before(stage: FilesStage) -> None:
        await open_files(stage, stage.machine("a"), 3)
        await asyncio.sleep(HARD_S + 5)

    async def after(stage: FilesStage) -> None:
        server = stage.machine("server")
        async with server.monitored():
            await asyncio.sleep(PASSES_S)
        assert not stage.keys(OPEN_FILES)
        assert await server.read("a/2") == b"flushed"

    play(before, after)


def test_a_live_holder_is_left_alone() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        async with server.monitored():
            file = await open_file(a)
            await asyncio.sleep(3 * HARD_S)
            await file.write(b" on")
            await file.close()
        assert await server.read("x") == b"flushed on"
        assert server.files.recoverer.recovered == 0

    play(scene)


def test_a_file_that_has_a_new_holder_is_left_alone() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        await open_file(a)
        a.stop()
        await asyncio.sleep(SOFT_S + 1)
        file = await b.files.append("x")
        async with server.monitored():
            await asyncio.sleep(2 * HARD_S)
            await file.write(b"!")
            await file.close()
        assert await b.read("x") == b"flushed!"

    play(scene)


def test_the_lease_that_ended_first_is_recovered_first() -> None:
    async def scene(stage: FilesStage) -> None:
        machines = [stage.machine(f"m{number}") for number in (3, 1, 2)]
        server = stage.machine("server")
        order: list[str] = []
        for each in machines:
            await open_files(stage, each, 20)
            await asyncio.sleep(10)
        async with server.monitored(interval_s=HARD_S + 100) as monitor:
            await asyncio.sleep(HARD_S + 50)  # all have ended, and the next pass is yet to come
            assert len(stage.keys(OPEN_FILES)) == 60
            ids = {key[-32:]: key.split(b"/")[-2] for key in stage.keys(OPEN_FILES)}

            async def look(name: str) -> None:
                if name != "txn":
                    return
                for file_id in list(ids):
                    if record_key(file_id.decode()) not in stage.keys(RECORDS):
                        continue
                    if stage.record(file_id.decode()).state != FileState.OPEN:
                        order.append(ids.pop(file_id).decode()[:2])

            server.on_step = look
            await monitor.make_pass()
            server.on_step = None
        firsts = [order.index(each.name) for each in machines]
        assert firsts == sorted(firsts)

    play(scene)


@pytest.mark.slow
def test_ten_thousand_files_of_a_dead_holder_are_closed_in_bounded_passes() -> None:
    count = 10_000

    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        for number in range(count):
            await a.files.create(f"{number}")
        a.stop()
        await asyncio.sleep(HARD_S + 5)
        async with server.monitored() as monitor:
            worst_s, left = 0.0, count
            while stage.keys(OPEN_FILES):
                begun, passes = stage.now, monitor.passes
                async with b.files.open("other", "ab") as file:
                    await file.write(b".")
                worst_s = max(worst_s, stage.now - begun)
                await asyncio.sleep(0.1)
                now_left = len(stage.keys(OPEN_FILES))
                assert left - now_left <= FILES_PER_PASS * (monitor.passes - passes + 1)
                left = now_left
            assert monitor.passes >= count / FILES_PER_PASS
        assert worst_s < 1, "other calls go on"

    play(scene)


def test_one_bad_file_never_stops_the_rest_and_is_retried_with_backoff() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        bad = await open_file(a, "bad")
        for url in APPENDING:
            stage.stores.corrupt(url, last_object(stage, url, bad))
        await open_files(stage, a, 30)
        async with server.monitored():
            await asyncio.sleep(HARD_S + PASSES_S)
            assert not stage.keys(OPEN_FILES)
            assert len(stage.keys(RECOVERIES)) == 1
            attempts = server.files.recoverer.failed
            await asyncio.sleep(600)
            assert 4 < server.files.recoverer.failed - attempts < 12, "with backoff"
            for url in APPENDING:
                stage.stores.corrupt(url, stage.bytes_of(url, bad.id)[0][0])
            await asyncio.sleep(620)
            assert await server.files.is_closed("bad")
            assert await server.read("bad") == b"flushed"

    play(scene)


@pytest.mark.parametrize("state", [FileState.OPEN, FileState.RECOVERING])
def test_a_recovery_that_cannot_begin_is_retried_with_backoff(state: FileState) -> None:
    """Such as on an engine without space: the failure cannot be recorded, either."""

    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        await open_file(a)
        a.stop()
        if state == FileState.RECOVERING:
            for url in APPENDING:
                stage.stores.fail(url)
            assert not await b.files.recover("x")
            for url in APPENDING:
                stage.stores.heal(url)
        refused = 0

        async def refuse(name: str) -> None:
            nonlocal refused
            if name == "grant":  # of the lease of the process that recovers
                refused += 1
                raise NoSpace(100, 100)

        async with server.monitored():
            server.on_step = refuse
            await asyncio.sleep(HARD_S + PASSES_S)
            assert refused
            await asyncio.sleep(3600)
            before = refused
            await asyncio.sleep(3600)
            assert 5 < refused - before < 40, "on average every 5 minutes"
            server.on_step = None
            await asyncio.sleep(700)
            assert await b.files.is_closed("x")

    play(scene)


def test_a_recovery_that_fails_late_and_unrecorded_is_retried_with_backoff() -> None:
    """It takes longer than a pass waits for it, and the engine has no space for its result."""

    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        await open_file(a)
        a.stop()
        begun = 0

        async def refuse(name: str) -> None:
            nonlocal begun
            begun += name == "grant"
            if name == "txn" and stage.keys(WORKERS):
                raise NoSpace(100, 100)

        async with server.monitored():
            await asyncio.sleep(HARD_S - PASSES_S)
            stage.stores.delay_s = 7.0
            server.on_step = refuse
            await asyncio.sleep(3600)
            assert begun
            before = begun
            await asyncio.sleep(3600)
            assert begun - before < 40, "on average every 5 minutes"
            server.on_step, stage.stores.delay_s = None, 0.0
            await asyncio.sleep(700)
            assert await b.files.is_closed("x")

    play(scene)


def test_a_record_that_cannot_be_decoded_stops_no_other_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        bad = await open_file(a, "bad")
        await open_files(stage, a, 5)
        key = record_key(bad.id)
        good = stage.keys(RECORDS)[key].value
        await stage.engine.put(key, b"\xff\xff")
        async with server.monitored():
            await asyncio.sleep(HARD_S + PASSES_S)
            assert len(stage.keys(OPEN_FILES)) == 1
            assert bad.id in caplog.text
            await stage.engine.put(key, good)
            await asyncio.sleep(120)
            assert not stage.keys(OPEN_FILES)

    play(scene)


def test_a_file_whose_stores_hang_does_not_delay_other_holders() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        bad = await open_file(a, "bad")
        a.stop()
        await asyncio.sleep(10)
        await open_files(stage, b, 5)
        (block,) = stage.blocks(bad.id)
        server.hanging = {each.name for each in block.replicas}
        async with server.monitored():
            await asyncio.sleep(HARD_S + 5)  # the recovery of the first file hangs for 30 s
            assert stage.record(bad.id).state == FileState.RECOVERING
            assert not stage.keys(OPEN_FILES)
            server.hanging.clear()
            await asyncio.sleep(120)
            assert await server.files.is_closed("bad")

    play(scene)


def test_a_monitor_whose_watch_ends_finds_ended_holders_all_the_same() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        await open_files(stage, a, 3)
        async with server.monitored():
            await asyncio.sleep(HARD_S - 5)
            server.engine.is_deaf = True
            await asyncio.sleep(10)
            server.engine.is_deaf = False
            server.engine.break_watches(ConnectionLost("the connection was lost"))
            await asyncio.sleep(PASSES_S)
            assert not stage.keys(OPEN_FILES)

    play(scene)


def test_a_monitor_goes_on_after_an_outage() -> None:
    async def scene(stage: FilesStage) -> None:
        a, server = stage.machine("a"), stage.machine("server")
        await open_files(stage, a, 3)
        async with server.monitored():
            await asyncio.sleep(HARD_S - 5)
            server.engine.is_cut_off = True
            server.engine.is_deaf = True
            await asyncio.sleep(200)
            server.engine.is_cut_off = False
            server.engine.is_deaf = False
            await asyncio.sleep(120)
            assert not stage.keys(OPEN_FILES)

    play(scene)


def test_a_recovery_whose_worker_is_gone_is_continued() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        await open_file(a)
        a.stop()
        async with server.monitored():
            stage.stores.delay_s = 5.0
            recovery = asyncio.ensure_future(b.files.recover("x"))
            await asyncio.sleep(1)
            b.stop()
            recovery.cancel()
            stage.stores.delay_s = 0.0
            assert not await server.files.is_closed("x")
            await asyncio.sleep(10 + PASSES_S)
            assert await server.files.is_closed("x")
            assert await server.read("x") == b"flushed"

    play(scene)


@pytest.mark.parametrize("seed", seeds(10))
def test_several_monitors_close_every_file_once(seed: int) -> None:
    async def scene(stage: FilesStage) -> None:
        servers = [stage.machine(f"server{number}") for number in range(3)]
        a = stage.machine("a")
        paths = await open_files(stage, a, 40)

        async def dawdle(_name: str) -> None:
            await asyncio.sleep(stage.random.choice((0.0, 0.0, 0.0, 0.05, 0.2)))

        for each in servers:
            each.on_step = dawdle
        async with servers[0].monitored(), servers[1].monitored(), servers[2].monitored():
            await asyncio.sleep(HARD_S + 20)
            servers[0].stop()
            await asyncio.sleep(200)
        assert not stage.keys(OPEN_FILES)
        assert not stage.keys(RECOVERIES)
        for path in paths:
            assert await servers[1].read(path) == b"flushed"
            assert len(stage.blocks((await servers[1].files.stat(path)).id)) == 1

    play(scene, seed=seed)


def test_a_deleted_tree_is_no_trouble_for_the_monitor() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = (stage.machine(name) for name in ("a", "b", "server"))
        await open_files(stage, a, 5)
        await b.files.delete("a", recursive=True)
        await open_file(b)
        b.stop()
        async with server.monitored():
            await asyncio.sleep(HARD_S + PASSES_S)
            assert await server.files.is_closed("x")

    play(scene)
