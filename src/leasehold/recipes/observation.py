"""`Observation`: who leads, from now on.

Theory of operation. The candidates are read once, and watched from the next revision on, so that
each change of the first of them is known. If what is to be told next was compacted they are read
again: some changes are left out then, but not the last.

All that is known is kept between two steps: whoever waits for the next one may be cancelled, and
asks again, and has missed nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from leasehold.core.ops import SortBy
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import Events, KeyValue
from leasehold.errors import Closed, Compacted, LeaseholdError, is_definite
from leasehold.owner_loop import post
from leasehold.recipes.line import Line
from leasehold.recipes.lines import Lines
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S
from leasehold.recipes.token import Token
from leasehold.rpc.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, and what it proclaims."""

    value: bytes
    """What it proclaims."""
    key: bytes
    lease: int
    """The lease that it leads under."""
    token: Token
    """Its fencing token: a later leader has a higher one."""

    @property
    def text(self) -> str:
        """What it proclaims as text, in UTF-8."""
        return self.value.decode()


def leader_of(pair: KeyValue) -> Leader:
    """Make a leader of its key."""
    return Leader(pair.value, pair.key, pair.lease, Token(pair.create_revision, 1))


async def read_candidates(engine: Engine, line: Line) -> tuple[int, dict[bytes, KeyValue]]:
    """Read the candidates of an election, the leader first, and the revision of that."""
    first, last = line.span
    found = await engine.range(first, last, sort_by=SortBy.CREATE_REVISION)
    return found.revision, {pair.key: pair for pair in found.pairs if line.counts(pair.key)}


class Observation:
    """The leaders of an election, one after the other: an async iterator of `Leader`."""

    def __init__(self, lines: Lines, line: Line) -> None:
        self._lines = lines
        self._line = line
        self._candidates: dict[bytes, KeyValue] = {}
        self._told: KeyValue | None = None
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cancelled = False

    def __aiter__(self) -> AsyncIterator[Leader]:
        """Iterate over what happens from now on."""
        return self

    async def __anext__(self) -> Leader:
        """Wait for the next change; at first, for a leader."""
        while True:
            if self._is_cancelled:
                raise StopAsyncIteration
            if self._watch is None:
                self._loop = asyncio.get_running_loop()
                self._watch = await self._begin()
            first = min(self._candidates.values(), key=_age, default=None)
            if first is not None and first != self._told:
                self._told = first
                return leader_of(first)
            try:
                self._apply(await anext(self._watch))
            except Compacted:
                self._stop()
            except Closed:
                if not self._is_cancelled:
                    raise

    def cancel(self) -> None:
        """End the observation, and the iteration with it."""
        if self._watch is not None:
            self._lines.patience.owner.check()
        self._is_cancelled = True
        self._stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        # A loop that was left by `break` has nobody to cancel its watch.
        watch: Watch | None = getattr(self, "_watch", None)
        if watch is not None:
            assert self._loop is not None, "it was begun"
            post(self._loop, watch.cancel)

    def tell_again(self) -> None:
        """Learn that what was told last has not reached anybody."""
        self._told = None

    def _stop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()

    def _apply(self, told: Events) -> None:
        for event in told.events:
            if event.pair is None:
                self._candidates.pop(event.key, None)
            elif self._line.counts(event.key):
                self._candidates[event.key] = event.pair

    async def _begin(self) -> Watch:
        """Read the candidates, however often that has to be tried, and watch them."""
        backoff = Backoff(self._lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
        engine = self._lines.engine
        while True:
            self._lines.check_call()
            reading = read_candidates(engine, self._line)
            try:
                revision, self._candidates = await self._lines.patience.wait(reading, None)
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
                await asyncio.sleep(backoff.next_s())
            else:
                return engine.watch(*self._line.span, start=revision + 1)


def _age(pair: KeyValue) -> int:
    return pair.create_revision
