"""A holder's own check: a lease is renewed only while it says that all is well."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from leasehold.core.renewal_times import SESSION_RETRY, SESSION_RETRY_MIN_S
from leasehold.errors import Unhealthy
from leasehold.lease_ids import shown_lease

Check: TypeAlias = Callable[[], bool | Awaitable[bool]]
"""Whether its holder is well: plain, or to be awaited."""


class Health:
    """Asks a check before each renewal of a lease.

    One that takes long goes on in a task of its own, while the renewal has failed, and is tried
    again: so it holds up no other lease, and may take as long as the term lets it.
    """

    __slots__ = ("_check", "_shown", "_task")

    def __init__(self, lease: int, check: Check) -> None:
        self._shown = shown_lease(lease)
        self._check = check
        self._task: asyncio.Future[bool] | None = None

    async def check(self, term_s: float) -> None:
        """Raise `Unhealthy` unless the check says yes, soon."""
        try:
            is_well = await self._ask(max(SESSION_RETRY_MIN_S, term_s * SESSION_RETRY))
        except Exception as error:
            raise Unhealthy(f"the check for lease {self._shown} has failed: {error!r}") from error
        if is_well is None:
            raise Unhealthy(f"the check for lease {self._shown} has not answered yet")
        if not is_well:
            raise Unhealthy(f"the check for lease {self._shown} says no: it is not renewed")

    async def _ask(self, patience_s: float) -> bool | None:
        """Give what the check says; None if it does not say anything yet."""
        if self._task is None:
            said = self._check()
            if not isinstance(said, Awaitable):
                return said
            self._task = asyncio.ensure_future(_bool(said))
        done, _ = await asyncio.wait([self._task], timeout=patience_s)
        if not done:
            return None
        task, self._task = self._task, None
        if task.cancelled():
            raise RuntimeError("it was cancelled")
        return task.result()

    def close(self) -> None:
        """Ask no more: the lease is over."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


async def _bool(said: Awaitable[bool]) -> bool:
    return bool(await said)
