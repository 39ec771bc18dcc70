"""Cancels a coroutine at any of the points at which it waits."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Interrupted:
    """Drives a coroutine like a task, and counts how often it waits; cancels it at one of them."""

    def __init__(self, work: Coroutine[Any, Any, None], cancel_at: int) -> None:
        self._work = work
        self._cancel_at = cancel_at
        self.waits = 0

    async def run(self) -> None:
        """Do all of it, or what can be done of it."""
        await self

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        sent = None
        error: BaseException | None = None
        while True:
            try:
                waited_for = self._work.send(sent) if error is None else self._work.throw(error)
            except StopIteration:
                return
            error = None
            self.waits += 1
            if self.waits == self._cancel_at:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                sent = yield waited_for
            except BaseException as thrown:  # noqa: BLE001  it is passed on
                error = thrown
