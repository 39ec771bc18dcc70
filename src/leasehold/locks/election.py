"""`client.election`: one leader at a time, with a proclaimed value that can be observed.

The layout is etcd's own: each candidate has a key `<name>/<lease in hex>` with the proclaimed value
as its value, and the one with the lowest create revision leads. So `etcdctl elect`, Go's
`concurrency.Election` and the election service of a server take part. There is one key for a
session: campaigns of one client for one election run one after the other.

An `Observation` reads the candidates once, and watches them from the next revision on, so it sees
each change of the first of them. If the next changes were compacted, it reads the candidates again:
some changes are skipped then, but not the last. All its state is kept between two steps: a caller
that waits for the next leader may be cancelled and call again, and misses nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Self

from leasehold.basics.backoff import Backoff
from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.event_loop import post
from leasehold.basics.lease_ids import shown_lease
from leasehold.basics.pending import Pending
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.key import BytesOrText, to_bytes
from leasehold.engine.time_limits import Timeout
from leasehold.engine.values import Events, KeyValue
from leasehold.errors import Closed, Compacted, LeaseholdError, is_definite
from leasehold.fencing.token import Token
from leasehold.keyspace.operations import Put, SortBy
from leasehold.locks.guards import OnLoss, check_wait
from leasehold.locks.lock_keys import name_of, text_of
from leasehold.locks.lock_queue import EtcdQueue
from leasehold.locks.queue import QueueDefinition, QueuePosition
from leasehold.locks.queued_locks import QueueGuard, acquire_in_queue
from leasehold.locks.recipe_context import RecipeContext
from leasehold.sessions.session import RETRIES, OutcomeUnknown

SHOWN: Final = 60
"""How many characters of a proclaimed value are shown in an error."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A leader, and the value it proclaims."""

    value: bytes
    """The proclaimed value."""
    key: bytes
    lease: int
    """The lease of its key."""
    token: Token
    """Its fencing token: a later leader has a higher one."""

    @property
    def text(self) -> str:
        """The proclaimed value as text, in UTF-8."""
        return self.value.decode()


def leader_of(pair: KeyValue) -> Leader:
    """Return the leader with this key."""
    return Leader(pair.value, pair.key, pair.lease, Token(pair.create_revision, 1))


async def read_candidates(
    engine: Engine, queue: QueueDefinition
) -> tuple[int, dict[bytes, KeyValue]]:
    """Return the revision and the candidates of an election, the leader first."""
    first, last = queue.span
    found = await engine.range(first, last, sort_by=SortBy.CREATE_REVISION)
    return found.revision, {pair.key: pair for pair in found.pairs if queue.counts(pair.key)}


class Observation:
    """The leaders of an election, one after the other: an async iterator of `Leader`."""

    def __init__(self, context: RecipeContext, queue: QueueDefinition) -> None:
        self._context = context
        self._queue = queue
        self._candidates: dict[bytes, KeyValue] = {}
        self._told: KeyValue | None = None
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cancelled = False

    def __aiter__(self) -> AsyncIterator[Leader]:
        """Iterate over the changes from now on."""
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
            self._context.patience.owner.check()
        self._is_cancelled = True
        self._stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        # After a `break` from the loop nothing else would cancel the watch.
        watch: Watch | None = getattr(self, "_watch", None)
        if watch is not None:
            assert self._loop is not None, "it was begun"
            post(self._loop, watch.cancel)

    def return_again(self) -> None:
        """Return the last leader again: it has not reached the caller."""
        self._told = None

    def _stop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()

    def _apply(self, received: Events) -> None:
        for event in received.events:
            if event.pair is None:
                self._candidates.pop(event.key, None)
            elif self._queue.counts(event.key):
                self._candidates[event.key] = event.pair

    async def _begin(self) -> Watch:
        """Read the candidates, with retries, and watch them."""
        backoff = Backoff(RETRIES, self._context.random)
        engine = self._context.engine
        while True:
            self._context.check_call()
            reading = read_candidates(engine, self._queue)
            try:
                revision, self._candidates = await self._context.patience.wait(reading, None)
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
                await asyncio.sleep(backoff.next_s())
            else:
                return engine.watch(*self._queue.span, start=revision + 1)


def _age(pair: KeyValue) -> int:
    return pair.create_revision


class _Candidates(EtcdQueue):
    def who(self, pair: KeyValue) -> str:
        value = pair.value.decode(errors="backslashreplace")[:SHOWN]
        return f"{value!r} (lease {shown_lease(pair.lease)})"


class Leadership(QueueGuard):
    """The guard of a leader, until it resigns or the leadership is lost."""

    __slots__ = ("_turn", "value")

    def __init__(
        self,
        position: QueuePosition,
        value: bytes,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        super().__init__(position, on_loss=on_loss, cancel_on_loss=cancel_on_loss)
        self.value = value
        """The latest proclaimed value."""
        self._turn = asyncio.Lock()

    def resign(self) -> None:
        """Resign immediately; the same as `release`."""
        self.release()

    async def proclaim(self, value: BytesOrText) -> None:
        """Proclaim another value.

        It is written only while this leadership lasts: otherwise raises `LockLost`, or `NotHeld`
        after `resign`. If the caller is cancelled, the value may or may not have been written.
        """
        data = to_bytes(value, "value")
        async with self._turn:  # so that the latest value is the one that remains
            self.check()
            await self._send(data)
            self.value = data

    async def _send(self, value: bytes) -> None:
        position, session = self._position, self._position.session
        put = Put(position.key, value, session.lease.id)
        backoff = Backoff(RETRIES, position.context.random)
        while True:
            try:
                done = await position.write([put])
            except OutcomeUnknown:
                self.check()  # writing it twice does no harm
            except LeaseholdError:
                self.check()
                raise
            else:
                if not done.succeeded:
                    position.was_deleted()
                    self.check()
                return
            await asyncio.sleep(backoff.next_s())


class Election:
    """An election of one leader. A handle: creating it sends nothing."""

    def __init__(self, context: RecipeContext, name: BytesOrText) -> None:
        self._context = context
        self._name = name_of(name)
        self._queue = _Candidates(self._name)
        self.name = text_of(self._name)
        """Its name."""

    def campaign(
        self,
        value: BytesOrText,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[Leadership]:
        """Become the leader and proclaim `value`: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others: None for no limit, 0 to not wait. Raises
        `LockDenied` after that. `on_loss(leadership, error)` is called if the leadership is lost;
        with `cancel_on_loss` the block is cancelled then, and raises `LockLost`.
        """
        data = to_bytes(value, "value")
        timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")

        def guard(position: QueuePosition) -> Leadership:
            return Leadership(position, data, on_loss=on_loss, cancel_on_loss=cancel_on_loss)

        return Pending(
            lambda: acquire_in_queue(
                self._context, self._queue, data, guard, timeout_s, in_turn=True
            ),
            f"campaign() of election {self.name!r}",
        )

    async def leader(self, *, timeout: Timeout = None) -> Leader | None:  # noqa: ASYNC109
        """Return the current leader; None if there is none."""
        reading = read_candidates(self._context.engine, self._queue)
        _, candidates = await self._context.patience.wait(reading, timeout)
        return next(map(leader_of, candidates.values()), None)

    def observe(self) -> Observation:
        """Observe the leader and its proclaimed value: an async iterator of `Leader`.

            async for leader in election.observe():
                ...

        It begins with the current leader, and returns each change of the leader or its value. While
        there is no leader it waits. It continues after a lost connection; changes that were
        compacted before they were read are skipped, but never the last. It ends with `HistoryLost`
        or `Closed`.
        """
        return Observation(self._context, self._queue)
