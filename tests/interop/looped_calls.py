"""Calls of clients with an event loop, which is in a thread of its own."""

import asyncio
import queue
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

from tests.interop.callers import Call, Outcome, Request
from tests.interop.demo import DEADLINE_S, Pairs
from tests.interop.loops import LoopThread


class LoopedCall(Call):
    """A call that lives in an event loop: a task makes it, and tells what has come of it."""

    def __init__(self, thread: LoopThread, request: Request) -> None:
        self._thread = thread
        self.request = request
        self._came: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        for message in request.messages:
            self._said.put_nowait(message)
        self._wanted = asyncio.Semaphore(0)
        self._done: Future[Outcome] = Future()

    async def go(self, channel: Any) -> None:
        """Make the call, whatever comes of it."""
        try:
            self._done.set_result(await self.make(channel))
        except BaseException as error:  # noqa: BLE001  it is for the thread that waits
            self._done.set_exception(error)
        self._came.put(None)

    async def make(self, channel: Any) -> Outcome:
        """Make the call."""
        raise NotImplementedError

    # What a test does.

    def send(self, message: bytes) -> None:
        self._thread.call_soon(self._said.put_nowait, message)

    def end(self) -> None:
        self._thread.call_soon(self._said.put_nowait, None)

    def head(self) -> Pairs:
        return self._thread.run(self.head_here())

    async def head_here(self) -> Pairs:
        """Wait for the head of the answer, in the loop of the call."""
        raise NotImplementedError

    def receive(self) -> bytes | None:
        self._thread.call_soon(self._wanted.release)
        message = self._came.get(timeout=DEADLINE_S)
        if message is None:
            self._came.put(None)
        return message

    def cancel(self) -> None:
        self._thread.call_soon(self.cancel_here)

    def cancel_here(self) -> None:
        """Take the call back, in its loop."""
        raise NotImplementedError

    def outcome(self) -> Outcome:
        while self.receive() is not None:
            pass
        return self._done.result(DEADLINE_S)

    # What the task does.

    async def asked(self) -> AsyncIterator[bytes]:
        """Go through what is to be said."""
        while (message := await self._said.get()) is not None:
            yield message

    async def wanted(self) -> None:
        """Wait until the test reads; no answer is read before."""
        await self._wanted.acquire()

    def came(self, message: bytes) -> None:
        """Hand on an answer."""
        self._came.put(message)
