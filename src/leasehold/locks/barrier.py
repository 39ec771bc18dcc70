"""`client.barrier`: all parties wait until a given number of them is present.

Theory of operation. A party that arrives puts a key `<name>/parties/<parties>.<lease in
hex>.<number>` under its session. The party that has all others of the first `parties` ahead of it
is the last one: in one transaction, which compares the create revisions of all of them, it deletes
their keys and puts the key `<name>/parties/opened`, which lists them. So all of them were present
together, at the revision before. Exactly the parties in that list have passed; a party that died or
left before does not count. No key is left that a later arrival could count, so the barrier can be
used again.

A party that finds its own key deleted, or has no answer to its put, must not arrive again: it would
count twice. It reads the history: its key was deleted either at the revision at which the barrier
was opened, or at another one.

The key `opened` is under the session of the party that opened the barrier, and is deleted with it.
"""

import asyncio
import json
from typing import Final

from leasehold.basics.backoff import Backoff
from leasehold.engine.interface import Watch
from leasehold.engine.key import BytesOrText
from leasehold.engine.time_limits import Timeout
from leasehold.engine.values import Event, Events, RangeResult
from leasehold.errors import Compacted, ConnectFailed, NoSpace, SessionExpired, TooBusy, fresh
from leasehold.fencing.token import Token
from leasehold.keyspace.operations import Delete, Put
from leasehold.locks.guards import check_wait
from leasehold.locks.lock_keys import Claim, name_of, text_of
from leasehold.locks.queue import CountedQueue, QueuePosition, check_count, created_at
from leasehold.locks.recipe_context import DetachedTask, RecipeContext
from leasehold.sessions.session import RETRIES, OutcomeUnknown

OPENED: Final = b"opened"
"""The last part of the key that records an opening."""

SPARE: Final = 1
"""Operations of the opening transaction besides the parties' keys: one comparison and one put."""


class _Passed(Exception):  # raised during an arrival, before its position is known
    """The barrier was opened for a key whose put had no answer."""

    def __init__(self, token: Token) -> None:
        super().__init__(token)
        self.token = token


class _Arrival(QueuePosition):
    """A position at a barrier. It detects whether the barrier was opened for it."""

    def __init__(self, context: RecipeContext, queue: CountedQueue) -> None:
        super().__init__(context, queue, Claim(context.who).encode())
        self.opened = queue.prefix + OPENED
        self.began_at = 0
        """A revision before that of its key."""
        self.token: Token | None = None
        """The token of the opening, once the party has passed."""
        self.on_other = self._told

    @property
    def passed(self) -> Token | None:
        """The token of the opening, if the party is known to have passed; its key is gone then."""
        if self.token is not None:
            self.taken()
        return self.token

    def _told(self, event: Event) -> None:
        if event.key == self.opened and event.pair is not None and self.is_named(event.pair.value):
            self.token = Token(event.revision, 1)
            self.wake()

    def tail_of(self, key: bytes) -> str:
        """Return the part of a key that identifies it within the barrier."""
        return key[len(self.queue.prefix) :].decode()

    def is_named(self, opened: bytes) -> bool:
        """Return whether the value of the key `opened` lists this party."""
        try:
            passed = json.loads(opened)["passed"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return isinstance(passed, dict) and self.tail_of(self.key) in passed

    async def was_absent(self, revision: int) -> None:
        """Check whether the key is absent because the barrier was opened for it."""
        if await self.find_opening(until=revision):
            assert self.token is not None, "it was found"
            raise _Passed(self.token)

    async def find_opening(self, until: int = 0) -> bool:
        """Read the history of its key, up to a revision or its deletion; True if it was opened.

        Raises `SessionExpired` if there is no answer while the session lasts.
        """
        while True:
            try:
                return await self._find_opening(until)
            except TimeoutError:
                self.session.check()

    async def _find_opening(self, until: int) -> bool:
        start = max(self.created, self.began_at) + 1
        watch = self.context.engine.watch(*self.queue.span, start=start)
        try:
            async with asyncio.timeout(self.context.patience.timeout_s):
                return await self._read_history(watch, until)
        except Compacted as error:
            why = (
                "its key was deleted, and the history that would show whether the barrier opened "
                "was compacted"
            )
            raise SessionExpired(self.session.lease.id, why) from error
        finally:
            watch.cancel()

    async def _read_history(self, watch: Watch, until: int) -> bool:
        if until:
            watch.request_progress()
        backoff = Backoff(RETRIES, self.context.random)
        while True:
            received = await anext(watch)
            if self._is_opening(received):
                return True
            if any(event.key == self.key and event.is_delete for event in received.events):
                return False
            if until and received.revision >= until:
                return False
            if until and not received.events:
                await asyncio.sleep(backoff.next_s())  # the watch is behind
                watch.request_progress()

    def _is_opening(self, received: Events) -> bool:
        for event in received.events:
            self._told(event)
        return self.token is not None


class _Meeting(DetachedTask[Token]):
    """One arrival, until the party has passed or left."""

    def __init__(
        self, context: RecipeContext, queue: CountedQueue, parties: int, *, only_asks: bool
    ) -> None:
        self._position = _Arrival(context, queue)
        self._parties = parties
        self._only_asks = only_asks
        self._waited_s = 0.0
        super().__init__(context)

    def leave(self, waited_s: float) -> None:
        """Leave, unless the party has passed by then; `outcome` has the result."""
        self._waited_s = waited_s
        self._give_up()

    def _give_up(self) -> None:
        self._position.give_up()

    async def _run(self) -> None:
        try:
            try:
                self._succeed(await self._meet())
            except Exception as error:  # noqa: BLE001  reported before the key is deleted
                self._fail(error)
        finally:
            await self._position.leave()

    async def _meet(self) -> Token:
        position = self._position
        found = await position.insist(self._find_opened)
        position.began_at = found.revision
        try:
            await position.join()
        except _Passed as passed:
            position.taken()
            return passed.token
        while position.is_wanted:
            await self._open_if_last()
            if (token := await self._find_token()) is not None:
                return token
            if self._only_asks:
                break
            await position.change()
        if not await position.leave():  # its key was deleted by another client
            position.session.check()
            if await position.find_opening():
                assert position.token is not None, "it was found"
                return position.token
        raise TimeoutError(
            f"barrier {text_of(position.queue.name)!r}: only {len(position.ahead) + 1} of "
            f"{self._parties} parties arrived within {self._waited_s:g} s"
        )

    async def _find_opened(self) -> RangeResult:
        return await self._context.patience.wait(
            self._context.engine.range(self._position.opened), None
        )

    async def _find_token(self) -> Token | None:
        """Return the token if the party has passed, else None; raise if it cannot pass any more."""
        position = self._position
        if position.passed is not None or position.loss is None:
            return position.passed
        if not position.session.is_live or not await position.find_opening():
            raise fresh(position.loss)
        return position.passed

    async def _open_if_last(self) -> None:
        """Open the barrier if this party is the last one."""
        position = self._position
        backoff = Backoff(RETRIES, self._context.random)
        while position.loss is None and len(position.ahead) == self._parties - 1:
            revisions = {key: pair.create_revision for key, pair in position.ahead.items()}
            revisions[position.key] = position.created
            compares = [created_at(key, created) for key, created in revisions.items()]
            names = {position.tail_of(key): created for key, created in revisions.items()}
            value = json.dumps({"who": self._context.who, "passed": names}).encode()
            put = Put(position.opened, value, position.session.lease.id)
            try:
                done = await position.session.write(compares, [*map(Delete, revisions), put])
            except (OutcomeUnknown, ConnectFailed, NoSpace, TooBusy):
                await asyncio.sleep(backoff.next_s())
            else:
                if done.succeeded:
                    position.token = Token(done.revision, 1)
                    return
            await position.look()


class Barrier:
    """Opens for a fixed number of parties at a time. A handle: creating it sends nothing."""

    def __init__(self, context: RecipeContext, name: BytesOrText, parties: int) -> None:
        self._context = context
        data = name_of(name)
        self.name = text_of(data)
        """Its name."""
        operations = context.engine.limits.txn_operations
        why = f"all parties pass in one transaction, which is limited to {operations} operations"
        self.parties = check_count(parties, "parties", operations - SPARE, why)
        """The number of parties it opens for."""
        self._queue = CountedQueue(data, b"parties", parties, "parties")

    async def wait(self, timeout: Timeout = None) -> Token:  # noqa: ASYNC109
        """Wait until all parties are present; return the token of the opening, the same for all.

        `timeout` is how long to wait for others: None for no limit, 0 to pass only if this is the
        last party. Raises `TimeoutError` if the barrier was not opened for this party in time. A
        caller that is cancelled may have been counted.
        """
        timeout_s = check_wait(timeout)
        self._context.check_call()
        only_asks = timeout_s == 0.0
        meeting = _Meeting(self._context, self._queue, self.parties, only_asks=only_asks)
        call_s = self._context.patience.timeout_s
        limit_s = call_s if only_asks else timeout_s
        if not await meeting.wait(limit_s):
            assert limit_s is not None, "a wait without a timeout has a result"
            meeting.leave(limit_s)
            if not await meeting.wait(call_s):
                meeting.abandon()
                why = self._context.engine.trouble or "the server does not answer"
                raise TimeoutError(f"barrier {self.name!r}: {why}")
        return meeting.outcome.result()
