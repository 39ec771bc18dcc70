"""An engine in memory, in virtual time, whose watches deliver only as much as a test allows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Watch
from leasehold.engine.values import Events
from leasehold.errors import CallRefused
from leasehold.journal.journal import Journal
from leasehold.store import runtime
from leasehold.store.store import Store
from leasehold.testing import current_host
from tests.property.engine_kit import HandCommitter

T = TypeVar("T")

TURNS = 50
"""After this many turns of the loop all pending work is done."""


MAX_MADE = 1_000
"""No test has a reason to make more watches."""


class PromptCommitter(HandCommitter):
    """Has everything on disk a turn later, without a thread."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__(store, journal, on_failure)
        store.on_pending = self._commit_soon

    def _commit_soon(self) -> None:
        self.is_pending = True
        asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        if self.commit():
            self.release()

    def do(self, chore: Callable[[Journal], Any], *, is_ours: bool = False) -> Any:
        """Do it in the next turn."""
        done = super().do(chore, is_ours=is_ours)
        if self.chores:
            asyncio.get_running_loop().call_soon(self.work)
        return done


class HeldWatch(Watch):
    """A watch whose reader gets one revision for each release by the test."""

    def __init__(self, inner: Watch, key: bytes, *, is_free: bool, is_refused: bool) -> None:
        self._inner = inner
        self.key = key
        self.is_free = is_free
        self.is_refused = is_refused
        self.is_over = False
        self._allowed = asyncio.Semaphore(0)

    def let(self, revisions: int) -> None:
        """Let a number of revisions through."""
        for _ in range(revisions):
            self._allowed.release()

    def free(self) -> None:
        """Let everything through from now on."""
        self.is_free = True
        self._allowed.release()

    def __aiter__(self) -> AsyncIterator[Events]:
        return self

    async def __anext__(self) -> Events:
        if not self.is_free:
            await self._allowed.acquire()
        if self.is_refused:
            raise CallRefused("the server refuses the watch: no right to read there")
        return await anext(self._inner)

    def request_progress(self) -> None:
        self._inner.request_progress()

    def cancel(self) -> None:
        self.is_over = True
        self._inner.cancel()
        self.free()


class HeldEngine(EmbeddedEngine):
    """An engine that holds its watches back while `holds`."""

    holds = False

    def __init__(self) -> None:
        super().__init__(None, clock=current_host().clock)
        self.made: list[HeldWatch] = []
        """All watches that were ever made."""
        self.refused: set[bytes] = set()
        """Keys at which no watch may begin."""

    def watch(self, key: bytes, end: bytes = b"", **options: Any) -> Watch:
        assert len(self.made) < MAX_MADE, "it goes on and on"
        inner = super().watch(key, end, **options)
        is_refused = key in self.refused
        watch = HeldWatch(inner, key, is_free=not self.holds, is_refused=is_refused)
        self.made.append(watch)
        return watch

    @property
    def open(self) -> list[HeldWatch]:
        """The watches that there are."""
        return [watch for watch in self.made if not watch.is_over]

    @property
    def open_keys(self) -> list[bytes]:
        """Where they begin."""
        return sorted(watch.key for watch in self.open)

    def hold(self) -> None:
        """Hold back what is not being waited for already."""
        self.holds = True
        for watch in self.open:
            watch.is_free = False

    def free(self) -> None:
        """Hold nothing back any more."""
        self.holds = False
        for watch in self.open:
            watch.free()


@asynccontextmanager
async def held_engine() -> AsyncIterator[HeldEngine]:
    """Open one."""
    engine = HeldEngine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "Committer", PromptCommitter)
        patch.setattr(asyncio, "to_thread", _at_once)
        engine.start()
        async with engine:
            yield engine


async def _at_once(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


async def settled() -> None:
    """Let all pending work be done."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
