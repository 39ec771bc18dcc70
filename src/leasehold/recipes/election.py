"""`client.election`: one leader at a time, what it proclaims, and who wants to know.

The layout is etcd's own: each candidate has a key `<name>/<lease in hex>` with what it proclaims
as the value, and the one with the lowest create revision leads. So `etcdctl elect`, Go's
`concurrency.Election` and the election service of a server take part. There is one key for a
session: campaigns of one client for one election go one after the other.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets, octets_of
from leasehold.core.ops import Compare, Put, Relation, Target
from leasehold.engine.values import KeyValue
from leasehold.errors import LeaseholdError
from leasehold.lease_ids import shown_lease
from leasehold.pending import Pending
from leasehold.recipes.line import Line, Place
from leasehold.recipes.line_guard import LineGuard, OnLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import LEASE_HEX, contender_span, name_of, text_of
from leasehold.recipes.observation import Leader, Observation, leader_of, read_candidates
from leasehold.recipes.options import check_wait
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, OutcomeUnknown
from leasehold.recipes.stay import stay
from leasehold.rpc.backoff import Backoff

SHOWN: Final = 60
"""How many characters of what is proclaimed are shown in an error."""


class _Candidates(Line):
    def __init__(self, name: bytes) -> None:
        super().__init__(name, b"", LEASE_HEX)

    @property
    def span(self) -> tuple[bytes, bytes]:
        return contender_span(self.prefix)

    def tail(self, lease: bytes, number: int) -> bytes:
        del number
        return lease

    def lets_in(self, ahead: Sequence[KeyValue]) -> bool:
        return not ahead

    def who(self, pair: KeyValue) -> str:
        said = pair.value.decode(errors="backslashreplace")[:SHOWN]
        return f"{said!r} (lease {shown_lease(pair.lease)})"


class Leadership(LineGuard):
    """What a leader has until it resigns, or has lost it."""

    __slots__ = ("_turn", "value")

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
        place, session = self._place, self._place.session
        mine = Compare(place.key, Target.CREATE_REVISION, Relation.EQUAL, place.created)
        put = Put(place.key, value, session.lease.id)
        backoff = Backoff(place.lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
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
            await asyncio.sleep(backoff.next_s())


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
            lambda: stay(self._lines, self._line, octets, guard, timeout_s, in_turn=True),
            f"campaign() of election {self.name!r}",
        )

    async def leader(self, *, timeout: Timeout = None) -> Leader | None:  # noqa: ASYNC109
        """Ask who leads now; None if nobody does."""
        reading = read_candidates(self._lines.engine, self._line)
        _, candidates = await self._lines.patience.wait(reading, timeout)
        return next(map(leader_of, candidates.values()), None)

    def observe(self) -> Observation:
        """Observe who leads, and what it proclaims: an async iterator of `Leader`.

            async for leader in election.observe():
                ...

        It begins with the leader there is, and gives each change of it, or of what it says. While
        nobody leads there is nothing to tell. It goes on whatever happens to the connection; what
        was compacted before it was read is left out, but never the last. It ends with
        `HistoryLost` or `Closed`.
        """
        return Observation(self._lines, self._line)
