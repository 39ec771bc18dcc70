"""The block of a lease that is cancelled when the lease is lost, as `asyncio.timeout` does it."""

import asyncio


class Body:
    """A task in its block. Who cancels it, too, is not taken for the loss."""

    __slots__ = ("_cancels_before", "_task", "is_cancelled")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self.is_cancelled = False
        """Whether the loss has cancelled it."""

    def enter(self) -> None:
        """Begin, in the running task."""
        self._task = asyncio.current_task()
        assert self._task is not None, "a block is entered by a task"
        self._cancels_before = self._task.cancelling()

    def cancel(self) -> None:
        """End what is in the block, if anything is."""
        if self._task is not None and not self._task.done():
            self.is_cancelled = True
            self._task.cancel()

    def leave(self) -> bool:
        """End, and take the cancellation back; True if there was one, and no other."""
        task, self._task = self._task, None
        was_cancelled, self.is_cancelled = self.is_cancelled, False
        return task is not None and was_cancelled and task.uncancel() <= self._cancels_before
