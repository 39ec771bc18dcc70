"""Ends leases, as far as that is possible: what cannot be ended ends by itself, with its term."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final, TypeVar

from leasehold.engine.interface import Engine
from leasehold.errors import LeaseholdError, UnknownLease, is_definite
from leasehold.lease_ids import shown_lease
from leasehold.rpc.backoff import Backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")

END_S: Final = 2.0
"""How long whoever ends a lease waits for that."""

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
"""Bounds of the random pauses between attempts while calls fail."""

LOOK_PAUSES_S: Final = (0.0, 0.1, 0.4, 1.0)
"""Pauses before each look for a lease or key whose request had no answer and may still arrive on a
connection that is lost. They have no jitter: full jitter could shorten the 1.5 s in all to nothing,
and an attempt that failed before has already spread the clients."""

AT_ONCE: Final = 64
"""Leases that are ended at the same time, where all are."""


async def end_one(
    engine: Engine, lease: int, within_s: float, random: Random, *, may_come: bool = False
) -> bool:
    """Revoke a lease, with retries; return True if it has ended. With `may_come` it may appear."""
    try:
        async with asyncio.timeout(within_s):
            await _end(engine, lease, LOOK_PAUSES_S if may_come else (0.0,), random)
    except (LeaseholdError, OSError) as error:
        why = str(error) or engine.trouble or f"no answer within {within_s:.1f} s"
        logger.warning(
            "lease %s was not ended, and will end by itself: %s", shown_lease(lease), why
        )
        return False
    return True


async def _end(engine: Engine, lease: int, looks_s: Iterable[float], random: Random) -> None:
    backoff = Backoff(random, PAUSE_MIN_S, PAUSE_MAX_S)

    async def revoke() -> bool:
        try:
            await engine.revoke(lease)
        except UnknownLease:
            return False  # it has ended already, or has not been granted yet
        return True

    for look_s in looks_s:
        await asyncio.sleep(look_s)
        if await retry_until_answered(revoke, backoff):
            return


async def retry_until_answered(call: Callable[[], Awaitable[T]], backoff: Backoff) -> T:
    """Repeat a call after each indefinite error, with pauses; raise a definite one.

    The caller sets the time limit.
    """
    while True:
        try:
            return await call()
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
        await asyncio.sleep(backoff.next_s())


async def end_all(engine: Engine, leases: Iterable[int], random: Random) -> None:
    """Revoke leases, many at a time, until the engine does not answer within `END_S`."""
    left = list(leases)

    async def end_some() -> None:
        while left:
            if not await end_one(engine, left.pop(), END_S, random):
                return

    await asyncio.gather(*(end_some() for _ in range(min(AT_ONCE, len(left)))))
    if left:
        logger.warning("%d more leases were not ended, and will end by themselves", len(left))
