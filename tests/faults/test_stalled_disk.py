"""A real server whose disk was fast, and then stalls for longer than the terms of its leases.

Renewals do not wait for the disk, so the holders keep what they have. A commit that is made on the
event loop keeps them waiting, and they lose it.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import leasehold
from tests.faults.server_process import FAULTY_SERVER, ServerProcess

TTL_S: Final = 8.0
"""Longer than a busy machine keeps the holder from renewing."""
TTL_IN_STARTS: Final = 2
"""On a busy machine, where a start takes longer, the TTL is longer, too."""
STALL_IN_TTLS: Final = 1.5
PUTS: Final = 100
"""Enough for the server to learn that the disk is fast."""

DEADLINE_S: Final = 60.0


def test_a_stall_of_the_disk_costs_no_holder_its_lease(tmp_path: Path) -> None:
    began_at = time.monotonic()
    with ServerProcess(tmp_path, (FAULTY_SERVER, "hiccuping-disk")) as server:
        server.wait_until_ready()
        ttl_s = max(TTL_S, TTL_IN_STARTS * (time.monotonic() - began_at))
        asyncio.run(_hold_through_a_stall(server.endpoint, tmp_path / "stall", ttl_s))


async def _hold_through_a_stall(endpoint: str, stall: Path, ttl_s: float) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        leasehold.connect(endpoint) as holder,
        leasehold.connect(endpoint, timeout=DEADLINE_S) as writer,
        holder.lease(ttl_s) as lease,
    ):
        for number in range(PUTS):
            await writer.kv.put("key", str(number))
        stall.touch()  # noqa: ASYNC240  which takes no time
        put = asyncio.ensure_future(writer.kv.put("key", "stalled"))
        await asyncio.sleep(STALL_IN_TTLS * ttl_s)
        assert not put.done(), "the disk does not stall"
        stall.unlink()  # noqa: ASYNC240  which takes no time
        await put
        assert lease.is_held
        assert not lease.lost
