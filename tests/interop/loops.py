"""An event loop in a thread of its own, for tests that are plain functions."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tests.interop.demo import DEADLINE_S

T = TypeVar("T")


class LoopThread:
    """Runs coroutines of other threads."""

    def __init__(
        self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    ) -> None:
        self._loop = make_loop()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, which must come."""
        return self.begin(coroutine).result(DEADLINE_S)

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a plain function in the loop."""
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """End the loop; what should not be left there is complained about."""
        self.run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the loop never ends"
        self._loop.close()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_default_executor()
