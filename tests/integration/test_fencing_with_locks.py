"""Fences with the tokens of real locks."""

import pytest

import leasehold
from leasehold.errors import StaleToken
from leasehold.fencing import Fence
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous


@asynchronous
async def test_a_task_that_has_released_is_refused_after_the_next_of_its_client() -> None:
    """The lock goes from one to the other in the cache, so the revision is the same."""
    fence = Fence()
    async with leasehold.open("memory:") as client:
        async with client.lock("stock") as former:
            fence.admit(former.token)
        async with client.lock("stock") as later:
            fence.admit(later.token)
            assert int(former.token) == int(later.token)
            with pytest.raises(StaleToken):
                fence.admit(former.token)
            fence.admit(later.token)


@asynchronous
async def test_a_client_that_has_lost_its_session_is_refused_after_the_next() -> None:
    fence = Fence()
    with LocalServer() as server:
        async with server.connect() as anna, server.connect() as bert:
            hers = await anna.lock("stock").acquire()
            fence.admit(hers.token)
            holder = await bert.lock("stock").holder()
            assert holder is not None
            assert int(holder.token) == int(hers.token)
            await bert.revoke(holder.lease)
            async with bert.lock("stock") as his:
                fence.admit(his.token)
                with pytest.raises(StaleToken):
                    fence.admit(hers.token)
