"""A store and its committer, on a journal in memory."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from leasehold.keyspace.operations import Put
from leasehold.store.committer import (
    Committer,
)
from leasehold.store.store import Store

DEADLINE_S = 60.0


class FakeJournal:
    """A journal in memory. Appends wait for `gate` and raise `failure`, if there is one."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, bytes]] = []
        self.threads: list[str] = []
        self.checkpoints: list[int] = []
        self.wants_checkpoint = False
        self.used_bytes = 0
        self.has_failed = False
        self.gate: threading.Event | None = None
        self.failure: Exception | None = None
        self.entered = threading.Event()

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure
        self.rows.append((first_revision, last_revision, changes))
        self.threads.append(threading.current_thread().name)

    def checkpoint(self) -> None:
        self.checkpoints.append(len(self.rows))
        self.wants_checkpoint = False


class Bench:
    """A store and its committer, on a fake journal and a clock that says what commits cost."""

    def __init__(self, journal: FakeJournal | None = None) -> None:
        self.store = Store()
        self.store.start()
        self.journal = journal or FakeJournal()
        self.failures: list[BaseException] = []
        self.now = 0.0
        self.cost_s = 0.0
        self.durable: list[int] = []
        self._released: asyncio.Future[None] | None = None
        self.store.on_durable = self._on_durable
        fake: Any = self.journal
        self.committer = Committer(
            self.store,
            fake,
            self.failures.append,
            clock=self.clock,
        )

    def clock(self) -> float:
        self.now += self.cost_s
        return self.now

    def put(self, count: int = 1) -> int:
        for _ in range(count):
            _, position = self.store.apply(Put(b"key", b"value"))
        return position

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  what it waits for sets no event
                await asyncio.sleep(0)

    async def put_and_wait(self) -> None:
        position = self.put()
        await self.until(lambda: self.store.durable >= position)

    async def put_and_idle(self) -> None:
        """Put, and leave the loop with nothing to do until that is durable."""
        self._released = asyncio.get_running_loop().create_future()
        self.put()
        async with asyncio.timeout(DEADLINE_S):
            await self._released

    def _on_durable(self, position: int) -> None:
        self.durable.append(position)
        if self._released is not None and not self._released.done():
            self._released.set_result(None)

    async def until_it_waits(self) -> None:
        while not self.committer.patience.waits:
            await self.put_and_wait()


def with_bench(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        bench = Bench()
        await test(bench)
        if not bench.failures:
            await bench.committer.close()

    def run() -> None:
        asyncio.run(main())

    run.__name__ = test.__name__
    return run
