"""Our elections beside etcdctl's, on both servers: one line for all, and all see one leader."""

import asyncio

import leasehold
from leasehold.basics.pending import Pending
from leasehold.locks.election import Leadership
from tests.conformance.etcdctl import Etcdctl, Names
from tests.support.asynchronous import asynchronous
from tests.support.servers import RunningServer


async def elected(pending: Pending[Leadership]) -> Leadership:
    return await pending


async def _until_waiting(client: leasehold.Client, name: str, count: int) -> None:
    """Wait until so many are in line; the deadline is the test's."""
    while (await client.kv.range(f"{name}/", prefix=True)).total != count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@asynchronous
async def test_etcdctl_listens_to_ours_and_leads_after_it(
    etcdctl: Etcdctl, server: RunningServer, names: Names
) -> None:
    async with leasehold.connect(server.endpoint) as client:
        election = client.election(names.elect)
        with etcdctl.going_on("elect", "-l", names.elect) as listening:
            async with election.campaign("ours") as leadership:
                key = leadership.key.decode()
                assert await asyncio.to_thread(listening.lines, 2) == [key, "ours"]
                await leadership.proclaim("still ours")
                assert await asyncio.to_thread(listening.lines, 2) == [key, "still ours"]
                with etcdctl.going_on("elect", names.elect, "theirs") as candidate:
                    await _until_waiting(client, names.elect, 2)
                    assert not await asyncio.to_thread(candidate.has_said, 0.2)
                    leadership.resign()
                    theirs, value = await asyncio.to_thread(candidate.lines, 2)
                    assert value == "theirs"
                    assert await asyncio.to_thread(listening.lines, 2) == [theirs, "theirs"]
                    leader = await election.leader()
                    assert leader is not None
                    assert (leader.key.decode(), leader.text) == (theirs, "theirs")


@asynchronous
async def test_ours_waits_for_etcdctl_and_observes_it(
    etcdctl: Etcdctl, server: RunningServer, names: Names
) -> None:
    async with leasehold.connect(server.endpoint) as client:
        election = client.election(names.elect)
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def observe() -> None:
            async for leader in election.observe():
                await seen.put(leader.text)

        observing = asyncio.ensure_future(observe())
        with etcdctl.going_on("elect", names.elect, "theirs") as theirs:
            await asyncio.to_thread(theirs.lines, 2)
            assert await seen.get() == "theirs"
            waiting = asyncio.ensure_future(elected(election.campaign("ours")))
            await _until_waiting(client, names.elect, 2)
            assert not waiting.done()
            theirs.process.terminate()
            leadership = await waiting
            assert await seen.get() == "ours"
            leadership.resign()
        observing.cancel()
        await asyncio.wait([observing])
