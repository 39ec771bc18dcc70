"""Ends leases, as far as that is possible: what cannot be ended ends by itself, with its term."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from leasehold.engine.interface import Engine
from leasehold.errors import LeaseholdError, UnknownLease, is_definite
from leasehold.lease_ids import shown_lease

logger = logging.getLogger(__name__)

END_S: Final = 2.0
"""How long whoever ends a lease waits for that."""

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
"""Between two attempts, twice as long each time."""

LOOKS: Final = 4
"""How often to look for a lease whose grant may be under way still, on a connection that is lost:
over a second and a half in all."""

AT_ONCE: Final = 64
"""Leases that are ended at the same time, where all are."""


async def end_one(engine: Engine, lease: int, within_s: float, *, may_come: bool = False) -> bool:
    """End a lease, trying again if need be; True if it is over. With `may_come` it may appear."""
    try:
        async with asyncio.timeout(within_s):
            await _end(engine, lease, LOOKS if may_come else 1)
    except (LeaseholdError, OSError) as error:
        why = str(error) or engine.trouble or f"no answer within {within_s:.1f} s"
        logger.warning(
            "lease %s was not ended, and will end by itself: %s", shown_lease(lease), why
        )
        return False
    return True


async def _end(engine: Engine, lease: int, looks: int) -> None:
    pause_s = PAUSE_MIN_S
    while True:
        try:
            await engine.revoke(lease)
        except UnknownLease:
            looks -= 1  # it is over already, or not there yet
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
        else:
            return
        if not looks:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


async def end_all(engine: Engine, leases: Iterable[int]) -> None:
    """End leases, many at a time; those that are left once the engine does not answer, are left."""
    left = list(leases)

    async def end_some() -> None:
        while left:
            if not await end_one(engine, left.pop(), END_S):
                return

    await asyncio.gather(*(end_some() for _ in range(min(AT_ONCE, len(left)))))
    if left:
        logger.warning("%d more leases were not ended, and will end by themselves", len(left))
