"""Locks and elections of ours beside keys of leases with negative ids, on both servers.

etcd grants a lease under any id but 0, and Go's `%x` writes a negative one with a minus sign: its
Lock and Election services, `etcdctl` and Go's `concurrency` package put the key `<name>/-<hex>`.
"""

import asyncio
import itertools

import pytest

import leasehold
from leasehold.locks.election import Election, Leadership
from tests.conformance.client import Client, Granter
from tests.conformance.etcdctl import Names
from tests.conformance.locks import Locks
from tests.support.asynchronous import asynchronous
from tests.support.servers import RunningServer

MIN_INT64 = -(2**63)
_ids = itertools.count(-0x7A, -1)


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


@pytest.fixture(params=["small", "least"])
def lease(request: pytest.FixtureRequest, grant: Granter) -> int:
    """A lease with a negative id: one that no other test uses, or the least that there is."""
    return grant(600, next(_ids) if request.param == "small" else MIN_INT64)


@asynchronous
async def test_a_lock_of_a_negative_lease_is_held(
    server: RunningServer, locks: Locks, names: Names, lease: int
) -> None:
    held = await asyncio.to_thread(locks.lock, names.lock.encode(), lease)
    assert held.key == f"{names.lock}/{lease:x}".encode()
    async with leasehold.connect(server.endpoint) as client:
        lock = client.lock(names.lock, recall_timeout=0.1)
        with pytest.raises(leasehold.LockDenied, match=rf"lease {lease:016x}"):
            await lock.acquire(timeout=0)
        holder = await lock.holder()
        assert holder is not None
        assert (holder.lease, holder.who) == (lease, f"lease {lease:016x}")
        waiting = asyncio.ensure_future(lock.acquire())
        await asyncio.to_thread(locks.waiting, names.lock.encode(), 2)
        assert not waiting.done()
        await asyncio.to_thread(locks.unlock, held.key)
        guard = await waiting
        guard.release()


@asynchronous
async def test_an_idle_lock_of_ours_yields_to_a_negative_lease(
    server: RunningServer, locks: Locks, names: Names, lease: int
) -> None:
    async with leasehold.connect(server.endpoint, session_ttl=600.0) as client:
        async with client.lock(names.lock):
            theirs = locks.begin_lock(names.lock.encode(), lease)
            await asyncio.to_thread(locks.waiting, names.lock.encode(), 2)
            assert not theirs.is_done
        await asyncio.to_thread(theirs.answer)
        await asyncio.to_thread(locks.unlock, f"{names.lock}/{lease:x}".encode())


@asynchronous
async def test_a_leader_of_a_negative_lease_leads(
    server: RunningServer, locks: Locks, names: Names, lease: int
) -> None:
    name = names.elect.encode()
    theirs = await asyncio.to_thread(locks.campaign, name, lease, b"theirs")
    async with leasehold.connect(server.endpoint) as client:
        election = client.election(names.elect)
        leader = await election.leader()
        assert leader is not None
        assert (leader.lease, leader.text) == (lease, "theirs")
        async with election.observe() as observed:
            assert (await anext(observed)).text == "theirs"
            with pytest.raises(leasehold.LockDenied, match=rf"'theirs' \(lease {lease:016x}\)"):
                await election.campaign("ours", timeout=0)
            waiting = asyncio.ensure_future(_elected(election))
            await asyncio.to_thread(locks.waiting, name, 2)
            assert not waiting.done()
            await asyncio.to_thread(locks.resign, theirs.leader)
            leadership = await waiting
            assert (await anext(observed)).text == "ours"
            leadership.resign()


async def _elected(election: Election) -> Leadership:
    return await election.campaign("ours")
