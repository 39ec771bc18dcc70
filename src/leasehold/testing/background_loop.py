"""An event loop in its own thread, independent of a test's own loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

ANSWER_S: Final = 30.0
"""How long any request to the thread may take."""

T = TypeVar("T")


class Background:
    """The loop and its thread. Its methods may be called from any other thread."""

    def __init__(self, name: str) -> None:
        """Start it; `name` is the thread's name."""
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ending: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop.result(ANSWER_S)

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop.result()).result(ANSWER_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, and wait for its result."""
        return self.ask(_called(function))

    def post(self, function: Callable[[], None]) -> None:
        """Call a function in the thread soon, unless it is closed by then; do not wait."""
        try:
            self._loop.result().call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            return

    def close(self) -> None:
        """End the thread, and cancel its tasks. It may be called again."""
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
