"""Locks of a client of a real server, in a child process, and on another event loop."""

import asyncio

import pytest

from leasehold import (
    HistoryLost,
    LockLost,
)
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous
from tests.support.scripts import printed_by


@asynchronous
async def test_another_event_loop_is_refused_and_costs_nothing() -> None:
    with LocalServer() as server:
        async with server.connect() as client:
            mine = await client.lock("mine").acquire()

            async def elsewhere() -> None:
                async with client.lock("fresh"):
                    pytest.fail("it belongs to another loop")

            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                await asyncio.to_thread(asyncio.run, elsewhere())
            mine.check()
            mine.release()


@asynchronous
async def test_a_changed_cluster_id_ends_every_guard_and_every_watch() -> None:
    with LocalServer() as server:
        async with server.connect(session_ttl=9.0) as a:
            lock = a.lock("idle", idle_timeout=60.0)
            async with lock:
                pass
            guard = await a.lock("x").acquire()
            async with a.kv.watch("y") as watch:
                await watch.ready()
                server.wipe()
                async with asyncio.timeout(30.0):
                    with pytest.raises(HistoryLost):
                        await anext(watch)
                    await guard.lost.wait()
            with pytest.raises(LockLost):
                guard.release()
            assert lock.acquire_cached() is None


def test_a_guard_is_of_no_use_in_a_child_and_stays_with_its_parent() -> None:
    assert (
        printed_by("""
            import asyncio, os
            import leasehold

            def says(call):
                try:
                    call()
                except leasehold.LeaseholdError as error:
                    return type(error).__name__

            async def main():
                async with leasehold.open("memory:") as client:
                    async with client.rwlock("x").write() as guard:
                        child = os.fork()
                        if not child:
                            print(guard.is_held, says(guard.check), says(guard.release), flush=True)
                            for wait in (client.rwlock("x").read(), client.barrier("x", 1).wait()):
                                try:
                                    await wait
                                except leasehold.Forked:
                                    print("Forked", flush=True)
                            await guard.__aexit__(None, None, None)
                            os._exit(0)
                        os.waitpid(child, 0)
                        guard.check()
                        print(len((await client.kv.range("x/", prefix=True)).pairs))
                    print(guard.is_held)

            asyncio.run(main())
        """)
        == "False LockLost Forked\nForked\nForked\n1\nFalse\n"
    )
