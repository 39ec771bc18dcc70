"""How a holder is notified of a loss: by a signal to wait for, or by a block that is cancelled."""

import asyncio


class Signal:
    """Set or not. It only notifies: whether a lease is held is decided by the clock."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._event.wait()

    def set(self) -> None:
        """Set it."""
        self._event.set()

    def clear(self) -> None:
        """Clear it."""
        self._event.clear()

    def __repr__(self) -> str:
        return f"<Signal: {'set' if self else 'not set'}>"


class CancelScope:
    """A block, and the task in it, which a loss cancels; as `asyncio.timeout` does.

    A cancellation from elsewhere is not taken for the loss.
    """

    __slots__ = ("_cancels_before", "_task", "is_cancelled")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self.is_cancelled = False
        """Whether the loss has cancelled it."""

    def enter(self) -> None:
        """Enter the block, in the running task."""
        self._task = asyncio.current_task()
        assert self._task is not None, "a block is entered by a task"
        self._cancels_before = self._task.cancelling()

    def cancel(self) -> None:
        """Cancel the task, if it is in the block."""
        if self._task is not None and not self._task.done():
            self.is_cancelled = True
            self._task.cancel()

    def leave(self) -> bool:
        """Exit, and undo the cancellation; return True if there was one, and no other."""
        task, self._task = self._task, None
        was_cancelled, self.is_cancelled = self.is_cancelled, False
        return task is not None and was_cancelled and task.uncancel() <= self._cancels_before
