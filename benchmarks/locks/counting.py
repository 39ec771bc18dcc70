"""Counting what acquiring and releasing a lock sends, on the wire."""

import asyncio
from collections.abc import Awaitable, Callable
from time import sleep
from typing import Final

from benchmarks.locks.driving import BYTES, MESSAGES
from benchmarks.locks.relay import Relay, Traffic
from benchmarks.transport.samples import Figures

QUIET_S: Final = 0.1
"""For so long nothing may go over the wire before counting begins, and after it ends."""
LOOKS: Final = 50


def quiet(relay: Relay) -> Traffic:
    """Wait until the wire is idle, and return the traffic. Blocks."""
    last = relay.traffic()
    for _ in range(LOOKS):
        sleep(QUIET_S)
        now = relay.traffic()
        if now == last:
            return now
        last = now
    raise TimeoutError(f"the wire was not quiet for {QUIET_S} s within {LOOKS * QUIET_S:g} s")


def count(relay: Relay, pairs: int, pair_off: Callable[[int], None]) -> Figures:
    """What each of so many pairs sends; one before them is not counted."""
    pair_off(1)
    before = quiet(relay)
    pair_off(pairs)
    return _each(quiet(relay).since(before), pairs)


async def count_async(
    relay: Relay, pairs: int, pair_off: Callable[[int], Awaitable[None]]
) -> Figures:
    """The same on an event loop."""
    await pair_off(1)
    before = await asyncio.to_thread(quiet, relay)
    await pair_off(pairs)
    return _each((await asyncio.to_thread(quiet, relay)).since(before), pairs)


def _each(traffic: Traffic, pairs: int) -> Figures:
    return {
        MESSAGES: traffic.messages / pairs,
        BYTES: (traffic.sent + traffic.received) / pairs,
    }
