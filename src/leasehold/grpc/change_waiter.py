"""Waiting for something to change, one task at a time."""

import asyncio


class ChangeWaiter:
    """Lets one task wait until it is woken; `what` names the operation in errors."""

    __slots__ = ("_future", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._future: asyncio.Future[None] | None = None

    def check_free(self) -> None:
        """Raise an error if another task waits."""
        if self._future is not None:
            raise RuntimeError(f"another task is {self._what} on this call; one at a time")

    async def wait(self) -> None:
        """Wait until something has changed."""
        self.check_free()
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None

    def wake(self) -> None:
        """Wake the waiting task."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
