"""Leases that are there already, and are kept from now on: `Client.keep` and `release`."""

import asyncio

import pytest

import leasehold
from leasehold.errors import UnknownLease
from leasehold.sessions.lease_keeper import Keeper

WITHIN_S = 30.0


def test_a_lease_of_somebody_else_is_renewed_and_ended_with_the_block() -> None:
    async def work() -> None:
        async with leasehold.open("memory:") as client:
            granted = await client.engine.grant(1.0)
            async with client.keep(granted.id) as lease:
                assert lease.id == granted.id
                await _is_renewed(client, lease.id)
            with pytest.raises(UnknownLease):
                await client.lease_info(granted.id)

    asyncio.run(work())


async def _is_renewed(client: leasehold.Client, lease: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        remaining_s = (await client.lease_info(lease)).remaining
        while (now_s := (await client.lease_info(lease)).remaining) <= remaining_s:
            remaining_s = now_s
            await asyncio.sleep(0.01)


def test_a_lease_that_is_not_there_cannot_be_kept() -> None:
    async def work() -> None:
        async with leasehold.open("memory:") as client:
            with pytest.raises(UnknownLease):
                await client.keep(123)

    asyncio.run(work())


def test_a_lease_that_was_released_is_neither_renewed_nor_ended() -> None:
    async def work() -> None:
        async with leasehold.open_engine("memory:") as engine:
            keeper = Keeper(engine)
            granted = await engine.grant(60.0)
            lease = await keeper.adopt(granted.id)
            keeper.release(lease)
            keeper.release(lease)
            assert not lease.is_held
            await keeper.end(lease)
            await keeper.close()
            assert (await engine.time_to_live(granted.id)).remaining > 0

    asyncio.run(work())


def test_a_loss_of_a_kept_lease_is_told() -> None:
    async def work() -> None:
        async with leasehold.open("memory:") as client:
            granted = await client.engine.grant(1.0)
            lost: list[int] = []
            lease = await client.keep(granted.id, on_loss=lambda lease, _: lost.append(lease.id))
            await client.engine.revoke(granted.id)
            async with asyncio.timeout(WITHIN_S):
                await lease.lost.wait()
            assert lost == [granted.id]

    asyncio.run(work())
