"""Clients and watches of servers, and whole programs, that are garbage-collected without an end."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from weakref import ref

import pytest

import leasehold
from leasehold import Client
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous, until
from tests.support.scripts import printed_by

CLIENT = "client 'me' was garbage-collected without being closed"
WATCH = "a watch of b'a' was garbage-collected without being cancelled"


async def _collected() -> None:
    """Collect what was forgotten, and let the loop take what finalizers have posted."""
    gc.collect()
    await asyncio.sleep(0.01)


class ServerWatches:
    """The watches of a server, which runs in a thread of its own."""

    def __init__(self, server: LocalServer) -> None:
        self._watchers = server._server.store.watchers

    def __len__(self) -> int:
        while True:
            try:
                return len(self._watchers)
            except RuntimeError:  # the server has changed them meanwhile
                continue


MANY = 10_000


AT_A_TIME = 500


KEPT_BYTES = 1_000_000
"""Allowed to remain of many watches: 100 bytes each. One that is not freed has some thousand."""


@asynchronous
async def test_a_client_on_a_server_that_is_forgotten_is_reported() -> None:
    with LocalServer() as server:
        client = await leasehold.connect(server.endpoint, name="me")
        engine = client.engine
        del client
        with pytest.warns(ResourceWarning, match=CLIENT):
            await _collected()
        await engine.close()


@asynchronous
async def test_a_watch_on_a_server_that_is_forgotten_is_cancelled_there() -> None:
    with LocalServer() as server:
        watchers = ServerWatches(server)
        async with leasehold.connect(server.endpoint) as client:
            hub = client.engine._hub  # type: ignore[attr-defined]
            watch = client.kv.watch("a")
            other = client.kv.watch("b")
            await watch.ready()
            await other.ready()
            assert len(watchers) == 2
            engine_watch = ref(watch._watch)  # type: ignore[attr-defined]
            del watch
            with pytest.warns(ResourceWarning, match=WATCH):
                await _collected()
            await until(lambda: len(watchers) == 1)
            assert (len(hub._watches), len(hub._live)) == (1, 1)
            gc.collect()
            assert engine_watch() is None, "its buffer is freed"
            await client.kv.put("b", "1")
            assert (await anext(other)).events[0].key == b"b"
            other.cancel()


@asynchronous
async def test_a_watch_that_is_left_by_break_is_cancelled_without_a_warning() -> None:
    with LocalServer() as server:
        watchers = ServerWatches(server)
        async with leasehold.connect(server.endpoint) as client:
            start = (await client.kv.put("a", "1")).revision
            async for events in client.kv.watch("a", start=start):
                assert events.revision == start
                assert len(watchers) == 1
                break
            await _collected()  # warnings are errors
            await until(lambda: not watchers)


def _memory_after(drop_many: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        drop_many()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(MANY // AT_A_TIME):
            drop_many()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_many_watches_that_were_dropped_leave_nothing_behind() -> None:
    with LocalServer() as server, asyncio.Runner() as runner:
        watchers = ServerWatches(server)
        client = runner.run(_connected(server))
        hub = client.engine._hub  # type: ignore[attr-defined]

        async def drop() -> None:
            for number in range(AT_A_TIME):
                watch = client.kv.watch(f"a/{number}")
                aiter(watch)  # so it is not reported
                del watch
            await until(lambda: not hub._watches and not watchers)

        assert _memory_after(lambda: runner.run(drop())) < KEPT_BYTES
        assert not hub._live
        assert not hub._outgoing
        runner.run(client.close())


async def _connected(server: LocalServer) -> Client:
    return await leasehold.connect(server.endpoint)


def test_a_child_process_reports_and_ends_nothing() -> None:
    assert (
        printed_by("""
            import asyncio, gc, logging, os
            import leasehold

            logging.basicConfig()

            async def main():
                client = await leasehold.open("memory:")
                lease, watch = await client.lease(10), client.kv.watch("a")
                await client.kv.put("a", "1", lease=lease)
                child = os.fork()
                if not child:
                    loop = asyncio.get_event_loop_policy().get_event_loop()
                    posted = len(loop._ready)
                    del client, lease, watch
                    gc.collect()
                    print(len(loop._ready) - posted, flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                lease.check()
                print((await anext(watch)).events[0].key, len(await client.leases()))
                watch.cancel()
                await client.close()

            asyncio.run(main())
        """)
        == "0\nb'a' 1\n"
    )


def test_a_program_that_closes_everything_ends_without_a_word() -> None:
    assert (
        printed_by("""
            import asyncio, logging
            import leasehold

            logging.basicConfig()

            async def main():
                global client, lease, watch
                async with leasehold.open("memory:") as client:
                    async with client.lease(10) as lease, client.kv.watch("a") as watch:
                        await client.kv.put("a", "1", lease=lease)
                    lease = await client.lease(10)
                    watch = client.kv.watch("a")

            asyncio.run(main())
            print("done")
        """)
        == "done\n"
    )


def test_a_program_that_forgets_its_client_is_told() -> None:
    assert (
        printed_by("""
            import asyncio, logging, sys, warnings
            import leasehold

            warnings.simplefilter("ignore", ResourceWarning)
            logging.basicConfig(stream=sys.stdout, format="%(message)s")

            async def main():
                client = await leasehold.open("memory:", name="me")
                await client.kv.put("a", "1")

            asyncio.run(main())
        """)
        == f"{CLIENT}; its resources stay open until its event loop ends\n"
    )
