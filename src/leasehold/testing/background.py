"""An event loop in a thread of its own, for what must go on whatever a test's own loop does."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

ANSWER_S: Final = 30.0
"""How long anything that is asked of the thread may take."""

T = TypeVar("T")


class Background:
    """The loop and its thread. Its methods are for any other thread."""

    def __init__(self, name: str) -> None:
        """Start it; `name` is the thread's."""
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ending: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop.result(ANSWER_S)

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop.result()).result(ANSWER_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function there, and wait for it."""
        return self.ask(_called(function))

    def post(self, function: Callable[[], None]) -> None:
        """Call a plain function there soon, if it is not over by then; wait for nothing."""
        try:
            self._loop.result().call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            return

    def close(self) -> None:
        """End the thread, and whatever still goes on there. It may be called again."""
        self.post(self._ending.set)
        self._thread.join(ANSWER_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._loop.done():
                raise
            self._loop.set_exception(error)

    async def _main(self) -> None:
        self._ending = asyncio.Event()
        self._loop.set_result(asyncio.get_running_loop())
        await self._ending.wait()


async def _called(function: Callable[[], T]) -> T:
    return function()
