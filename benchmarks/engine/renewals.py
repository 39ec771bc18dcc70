"""Renewals during other work: one is due every few milliseconds.

How long one took is counted from when it was due, not from when its turn came: a holder that asks
while the loop stands still has to wait for all of it.
"""

import asyncio
import math
from time import monotonic
from typing import Final, Self

from benchmarks.common.stats import quantile
from leasehold.engine.interface import Engine

EVERY_S: Final = 0.005
RENEW_P50_S, RENEW_P99_S, RENEW_MAX_S = "renew_p50_s", "renew_p99_s", "renew_max_s"


class Renewals:
    """Renews a lease of its own, from entering to leaving."""

    def __init__(self, engine: Engine, ttl_s: float = 60.0) -> None:
        self._engine = engine
        self._ttl_s = ttl_s
        self._over_s = math.inf
        self._took_s: list[float] = []

    async def __aenter__(self) -> Self:
        lease = (await self._engine.grant(self._ttl_s)).id
        self._task = asyncio.create_task(self._renew(lease))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._over_s = monotonic()
        await self._task

    async def _renew(self, lease: int) -> None:
        due_s = monotonic()
        while due_s < self._over_s:
            await self._engine.renew(lease)
            self._took_s.append(monotonic() - due_s)
            due_s += EVERY_S
            left_s = due_s - monotonic()
            if left_s > 0.0:  # else the next one has been waiting as well, and is not kept longer
                await asyncio.sleep(left_s)
        await self._engine.revoke(lease)

    def figures(self) -> dict[str, float]:
        """How long they took."""
        return {
            RENEW_P50_S: quantile(self._took_s, 0.50),
            RENEW_P99_S: quantile(self._took_s, 0.99),
            RENEW_MAX_S: max(self._took_s),
        }
