"""What has gone wrong with other clients of etcd in Python, and must not go wrong here.

Each test says what was reported of one or another of them. The server is a real one.
"""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest.mock import patch

import pytest

import leasehold
from leasehold import Client, HistoryLost, LeaseLost, UnknownLease
from leasehold.engine.remote.etcd_leases import EtcdLeases
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.errors import CallFailed, Status
from leasehold.grpc.protocol import RpcError
from leasehold.server.etcd.lease import LeaseService as EtcdLeaseService
from leasehold.server.leases.service import Batches
from leasehold.testing.local_server import LocalServer
from tests.support.cost import relative, untraced

TTL_S = 2.0
KEPT_TTL_S = 8.0
"""Of leases that must not be lost, although a busy machine may keep a process waiting for long."""
DEADLINE_S = 30.0
POLL_S = 0.01

Work = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as started:
        yield started


def run(server: LocalServer, work: Work) -> None:
    """Do something with a client of the server."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), server.connect() as client:
            await work(client)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the server sets no event
            await asyncio.sleep(POLL_S)


async def leases_of(client: Client) -> list[int]:
    return [lease.id for lease in await client.leases()]


# Leases leaked on failure.


def test_a_body_that_fails_leaves_no_lease(server: LocalServer) -> None:
    """A lock that could not be taken left the lease that it was to be taken with, for its term."""

    async def work(client: Client) -> None:
        async def fail() -> None:
            async with client.lease(3600) as lease:
                await client.kv.put("a", "b", lease=lease)
                raise KeyError("what")

        with pytest.raises(KeyError):
            await fail()
        assert await leases_of(client) == []
        assert await client.kv.get("a") is None

    run(server, work)


def test_a_grant_that_is_given_up_leaves_no_lease(server: LocalServer) -> None:
    """The server was busy, the caller gave up, the grant was done; nobody knew the id of it."""

    async def work(client: Client) -> None:
        entered = []

        async def hold() -> None:
            async with client.lease(3600, timeout=0.2):
                entered.append("it")

        with server.frozen(), pytest.raises(TimeoutError):
            await hold()
        assert not entered, "a body has run without its lease"
        async with asyncio.timeout(DEADLINE_S):
            while await leases_of(client):  # noqa: ASYNC110  nor of this
                await asyncio.sleep(POLL_S)

    run(server, work)
    # And it stays so: whatever came late was taken back before the client was closed.

    async def look(client: Client) -> None:
        assert await leases_of(client) == []

    run(server, look)


def test_a_client_that_is_closed_leaves_no_lease(server: LocalServer) -> None:
    """Leaving a program's block closed the connection, and left all leases to their terms."""

    async def work(client: Client) -> None:
        for _ in range(10):
            await client.lease(3600)
        assert len(await leases_of(client)) == 10

    async def look(client: Client) -> None:
        assert await leases_of(client) == []

    run(server, work)
    run(server, look)


# Renewal dying unseen.


def test_a_lease_is_renewed_with_no_thread_or_loop_of_the_users(server: LocalServer) -> None:
    """`refresh` renewed once; whose thread did not call it again and again lost the key, unseen."""

    async def work(client: Client) -> None:
        lease = await client.lease(KEPT_TTL_S)
        await client.kv.put("a", "b", lease=lease)
        await asyncio.sleep(1.5 * KEPT_TTL_S)  # longer than a term: that is the test
        lease.check()
        assert await client.kv.get("a") is not None

    run(server, work)


def test_renewals_survive_the_loss_of_any_connection(server: LocalServer) -> None:
    """The thread that renewed ended with the first error of the connection, and said nothing."""

    async def work(client: Client) -> None:
        lease = await client.lease(KEPT_TTL_S)
        end_at = time.monotonic() + 1.5 * KEPT_TTL_S
        while time.monotonic() < end_at:
            server.hang_up()
            await asyncio.sleep(TTL_S / 10)
        lease.check()
        assert lease.id in await leases_of(client)

    run(server, work)


def test_renewals_survive_that_every_task_of_theirs_is_cancelled(server: LocalServer) -> None:
    """A task that renewed was cancelled with a group of others; the lease ran out, unseen."""

    async def work(client: Client) -> None:
        lease = await client.lease(KEPT_TTL_S)
        end_at = time.monotonic() + 1.5 * KEPT_TTL_S
        cancelled: set[asyncio.Task[Any]] = set()
        while time.monotonic() < end_at:
            for task in asyncio.all_tasks() - {asyncio.current_task()} - cancelled:
                if len(cancelled) < 3:
                    cancelled.add(task)
                    task.cancel()
            await asyncio.sleep(0 if len(cancelled) < 3 else 0.01)
        assert len(cancelled) == 3
        lease.check()

    run(server, work)


def test_an_error_that_nobody_thought_of_is_told_at_once(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer without a TTL, as for a lease that is gone, was a KeyError in a thread."""

    async def work(client: Client) -> None:
        told: list[BaseException | None] = []
        lease = await client.lease(TTL_S, on_loss=lambda _, error: told.append(error))

        async def renew(_lease: int) -> float:
            raise KeyError("TTL")

        with patch.object(client.engine, "renew", renew):
            await lease.lost.wait()
        assert isinstance(told[0], KeyError)
        with pytest.raises(LeaseLost, match="TTL"):
            lease.check()

    with caplog.at_level(logging.WARNING):
        run(server, work)
    assert "is lost" in caplog.text


def test_a_lease_that_somebody_revoked_is_lost_with_the_next_renewal(server: LocalServer) -> None:
    """Keeping a lease that was revoked went on for ever, as if it were there."""

    async def work(client: Client) -> None:
        lease = await client.lease(TTL_S)
        await client.engine.revoke(lease.id)
        await lease.lost.wait()
        with pytest.raises(LeaseLost, match="has ended"):
            lease.check()

    run(server, work)


def test_a_lease_that_is_over_has_an_error_with_a_name(server: LocalServer) -> None:
    """A put under a lease that had ended raised what the transport raised, with no name."""

    async def work(client: Client) -> None:
        lease = await client.lease(TTL_S)
        number = lease.id
        await lease.end()
        with pytest.raises(UnknownLease):
            await client.kv.put("a", "b", lease=number)
        with pytest.raises(LeaseLost):
            await client.kv.put("a", "b", lease=lease)

    run(server, work)


def test_a_server_that_is_gone_costs_hardly_any_time(server: LocalServer) -> None:
    """With the server gone, a thread tried to reach it all the time, with all of a processor."""

    async def work(client: Client) -> None:
        lease = await client.lease(60.0)
        with server.outage(), untraced():
            began = time.process_time()
            for _ in range(5):
                with pytest.raises((TimeoutError, leasehold.ConnectionLost)):
                    await client.kv.put("a", "b", timeout=0.2)
            used_s = time.process_time() - began
        assert relative(used_s) < 45
        lease.check()

    run(server, work)


# A watch that stops silently.


@pytest.mark.parametrize("how", ["hang up", "outage"])
def test_a_watch_goes_on_after_its_connection_is_lost(server: LocalServer, how: str) -> None:
    """After a reconnect the watch was there, and no event came of it ever again."""

    async def work(client: Client) -> None:
        async with client.kv.watch("a") as watch:
            for number in range(3):
                if how == "hang up":
                    server.hang_up()
                else:
                    server.stop()
                    server.start()
                await _put(client, "a", str(number))
                events = await anext(watch)
                assert [event.pair.text for event in events.events if event.pair] == [str(number)]

    run(server, work)


async def _put(client: Client, key: str, value: str) -> None:
    """Put until it is there: what becomes of a call that met the loss is not known."""
    while True:
        found = await client.kv.get(key)
        if found is not None and found.text == value:
            return
        try:
            await client.kv.put(key, value)
        except leasehold.ConnectionLost:
            continue
        return


def test_a_watch_that_is_begun_while_the_server_is_away_works_when_it_is_back(
    server: LocalServer,
) -> None:
    """The thread for watches ended while there was no server; later ones all timed out."""

    async def work(client: Client) -> None:
        with server.outage():
            watch = client.kv.watch("a")
            entering = asyncio.create_task(watch.ready())
            await asyncio.sleep(0.1)
            assert not entering.done()
        await entering
        await _put(client, "a", "1")
        assert (await anext(watch)).events
        watch.cancel()

    run(server, work)


def test_a_watch_that_cannot_go_on_says_so(server: LocalServer) -> None:
    """What was watched was lost with its server; the watch waited for it, without an error."""

    async def work(client: Client) -> None:
        async with client.kv.watch("a") as watch:
            server.wipe()
            with pytest.raises(HistoryLost):
                await anext(watch)

    run(server, work)


# Token expiry.


@pytest.mark.parametrize("kind", ["ours", "etcd's"])
def test_renewals_are_tried_again_while_the_server_knows_no_token(kind: str) -> None:
    """A token ran out after five minutes; from then on every call failed, renewals included."""
    refused = [0]
    refuses = [False]
    service: Any = Batches if kind == "ours" else EtcdLeaseService
    method = "renew_all" if kind == "ours" else "keep_alive"
    original = getattr(service, method)

    def handle(self: Any, message: bytes) -> Any:
        if refuses[0]:
            refused[0] += 1
            raise RpcError(Status.UNAUTHENTICATED, "etcdserver: invalid auth token")
        return original(self, message)

    async def work(client: Client) -> None:
        engine = client.engine
        assert isinstance(engine, RemoteEngine)
        if kind != "ours":
            engine._leases = EtcdLeases(engine._caller)
        told: list[object] = []
        lease = await client.lease(KEPT_TTL_S, on_loss=lambda *args: told.append(args))
        granted_until = time.monotonic() + KEPT_TTL_S
        refuses[0] = True
        await until(lambda: refused[0] >= 3)
        refuses[0] = False
        await until(lambda: time.monotonic() > granted_until)
        lease.check()
        assert not told

    with patch.object(service, method, handle), LocalServer() as server:
        run(server, work)


def test_a_call_without_a_token_fails_by_itself_and_not_those_after_it(
    server: LocalServer,
) -> None:
    """One refusal left the client of no use; only another one would do."""

    async def work(client: Client) -> None:
        refusal = RpcError(Status.UNAUTHENTICATED, "etcdserver: invalid auth token")

        async def unary(*_args: object, **_named: object) -> bytes:
            raise refusal

        engine = client.engine
        assert isinstance(engine, RemoteEngine)
        with (
            patch.object(engine.channel, "unary", unary),
            pytest.raises(CallFailed, match="invalid auth token"),
        ):
            await client.kv.put("a", "b")
        await client.kv.put("a", "b")

    run(server, work)


# Fork.

CHILD = """
import asyncio, os, sys, traceback, warnings
import leasehold

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads: they are the point


async def refused(call):
    try:
        await call
    except leasehold.Forked as error:
        assert "after the fork" in str(error), error
    else:
        raise AssertionError("it works in a child")


async def child(client, lease):
    await refused(client.kv.get("a"))
    await refused(client.kv.put("a", "child"))
    await refused(client.lease(10))
    try:
        lease.check()
    except leasehold.LeaseLost as error:
        assert isinstance(error.__cause__, leasehold.Forked), error
    else:
        raise AssertionError("a child relies on its parent's lease")
    await lease.end()
    await client.close()


async def main(endpoint):
    client = await leasehold.connect(endpoint)
    lease = await client.lease(8)
    await client.kv.put("a", "parent", lease=lease)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            await child(client, lease)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # closing the loop would take the parent's files from its epoll
    waited = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(waited[1]) == 0
    await asyncio.sleep(9)  # longer than its term
    lease.check()
    assert (await client.kv.get("a")).text == "parent"
    await client.close()


asyncio.run(main(sys.argv[1]))
"""


def test_a_child_process_is_refused_and_its_parent_goes_on(server: LocalServer) -> None:
    """In a child of a fork calls hung for ever, or took answers that were the parent's."""
    done = subprocess.run(  # noqa: S603  our own interpreter, our own code
        [sys.executable, "-c", CHILD, server.endpoint],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
