"""`client.election`: one leader at a time, what it proclaims, and who wants to know.

The layout is etcd's own: each candidate has a key `<name>/<lease in hex>` with what it proclaims
as the value, and the one with the lowest create revision leads. So `etcdctl elect`, Go's
`concurrency.Election` and the election service of a server take part. There is one key for a
session: campaigns of one client for one election go one after the other.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets, octets_of
from leasehold.core.ops import Compare, Put, Relation, SortBy, Target
from leasehold.engine.values import Events, KeyValue
from leasehold.errors import Compacted, LeaseholdError, is_definite
from leasehold.pending import Pending
from leasehold.recipes.line import LEASE_HEX, Line, Place
from leasehold.recipes.line_guard import LineGuard, OnLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import name_of, text_of
from leasehold.recipes.options import check_wait
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, OutcomeUnknown
from leasehold.recipes.stay import stay
from leasehold.recipes.token import Token

SHOWN: Final = 60
"""How many characters of what is proclaimed are shown in an error."""


class _Candidates(Line):
    def __init__(self, name: bytes) -> None:
        super().__init__(name, b"", LEASE_HEX)

    @property
    def span(self) -> tuple[bytes, bytes]:
        return self.prefix + b"0", self.prefix + b"g"

    def tail(self, lease: bytes, number: int) -> bytes:
        del number
        return lease

    def lets_in(self, ahead: Sequence[KeyValue]) -> bool:
        return not ahead

    def who(self, pair: KeyValue) -> str:
        said = pair.value.decode(errors="backslashreplace")[:SHOWN]
        return f"{said!r} (lease {pair.lease:x})"


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


def _leader(pair: KeyValue) -> Leader:
    return Leader(pair.value, pair.key, pair.lease, Token(pair.create_revision, 1))


class Leadership(LineGuard):
    """What a leader has until it resigns, or has lost it."""

    def __init__(
        self,
        place: Place,
        value: bytes,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        super().__init__(place, on_loss=on_loss, cancel_on_loss=cancel_on_loss)
        self.value = value
        """What was proclaimed last."""
        self._turn = asyncio.Lock()

    def resign(self) -> None:
        """Let the next one lead, at once; what `release` does."""
        self.release()

    async def proclaim(self, value: Octets) -> None:
        """Say something else to whoever observes.

        It is written only while this leadership lasts: else `LockLost`, or `NotHeld` after
        `resign`. Whether it was, is not known if the caller is cancelled.
        """
        octets = octets_of(value, "value")
        async with self._turn:  # what was said last is there in the end
            self.check()
            await self._say(octets)
            self.value = octets

    async def _say(self, value: bytes) -> None:
        place, session = self._place, self._session
        mine = Compare(place.key, Target.CREATE_REVISION, Relation.EQUAL, place.created)
        put = Put(place.key, value, session.lease.id)
        pause_s = AGAIN_MIN_S
        while True:
            try:
                done = await session.write([mine], [put])
            except OutcomeUnknown:
                self.check()  # to say it twice does no harm
            except LeaseholdError:
                self.check()
                raise
            else:
                if not done.succeeded:
                    place.was_deleted()
                    self.check()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)


class Election:
    """An election of one leader. A handle: it costs nothing until something is asked of it."""

    def __init__(self, lines: Lines, name: Octets) -> None:
        self._lines = lines
        self._name = name_of(name)
        self._line = _Candidates(self._name)
        self.name = text_of(self._name)
        """What it is called."""

    def campaign(
        self,
        value: Octets,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[Leadership]:
        """Become the leader, and proclaim `value`: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only asks;
        `LockDenied` then. `on_loss(leadership, error)` is told if it is lost; with `cancel_on_loss`
        the block is cancelled then, and raises `LockLost`.
        """
        octets = octets_of(value, "value")
        timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")

        def guard(place: Place) -> Leadership:
            return Leadership(place, octets, on_loss=on_loss, cancel_on_loss=cancel_on_loss)

        return Pending(
            lambda: stay(self._lines, self._line, octets, guard, timeout_s, in_turn=True)
        )

    async def leader(self, *, timeout: Timeout = None) -> Leader | None:  # noqa: ASYNC109
        """Ask who leads now; None if nobody does."""
        patience = self._lines.patience
        _, candidates = await patience.wait(self._read(), timeout)
        return next(map(_leader, candidates.values()), None)

    async def observe(self) -> AsyncGenerator[Leader, None]:
        """Give the leader, and from then on each change of it, or of what it proclaims.

        While nobody leads there is nothing to tell. It goes on whatever happens to the connection,
        and ends with `HistoryLost` or `Closed`.
        """
        last: KeyValue | None = None
        while True:
            revision, candidates = await self._read_at_last()
            first = next(iter(candidates.values()), None)
            if first is not None and first != last:
                last = first
                yield _leader(first)
            async with aclosing(self._changes(revision + 1)) as changes:
                async for told in changes:
                    self._apply(candidates, told)
                    first = min(candidates.values(), key=_age, default=None)
                    if first is not None and first != last:
                        last = first
                        yield _leader(first)

    async def _changes(self, start: int) -> AsyncGenerator[Events, None]:
        """Watch the candidates, until that cannot go on because of a compaction."""
        watch = self._lines.engine.watch(*self._line.span, start=start)
        try:
            async for told in watch:
                yield told
        except Compacted:
            return
        finally:
            watch.cancel()

    def _apply(self, candidates: dict[bytes, KeyValue], told: Events) -> None:
        for event in told.events:
            if event.pair is None:
                candidates.pop(event.key, None)
            elif self._line.counts(event.key):
                candidates[event.key] = event.pair

    async def _read(self) -> tuple[int, dict[bytes, KeyValue]]:
        """Read the candidates, in order, and the revision of that."""
        first, last = self._line.span
        found = await self._lines.engine.range(first, last, sort_by=SortBy.CREATE_REVISION)
        counted = {pair.key: pair for pair in found.pairs if self._line.counts(pair.key)}
        return found.revision, counted

    async def _read_at_last(self) -> tuple[int, dict[bytes, KeyValue]]:
        """Read them, however often that has to be tried."""
        pause_s = AGAIN_MIN_S
        while True:
            self._lines.check()
            try:
                return await self._lines.patience.wait(self._read(), None)
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)


def _age(pair: KeyValue) -> int:
    return pair.create_revision
