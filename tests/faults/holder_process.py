"""A process that holds a lease and a key under it, and writes down whenever a check has passed.

    python -m tests.faults.holder_process ENDPOINT KEY TTL_S

Lines on standard output, each written at once, with readings of a clock that all processes share:

    held AT UNTIL     `check` has passed, begun at AT; it may be relied on until UNTIL
    lost AT WHY
"""

import asyncio
import logging
import os
import sys

import leasehold
from leasehold.basics.durations import seconds_of
from leasehold.clock import SYSTEM_CLOCK

POLL_S = 0.01


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def hold(endpoint: str, key: str, ttl_s: float) -> None:
    """Hold it until it is lost."""
    now = SYSTEM_CLOCK.boottime
    async with leasehold.connect(endpoint) as client, client.lease(ttl_s) as lease:
        await client.kv.put(key, "held", lease=lease)
        while True:
            at = now()
            try:
                lease.check()
            except leasehold.LeaseLost as error:
                _say("lost", at, error)
                return
            _say("held", at, at + seconds_of(lease.remaining))
            await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(hold(sys.argv[1], sys.argv[2], float(sys.argv[3])))
