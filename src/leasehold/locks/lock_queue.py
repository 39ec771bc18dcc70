"""The queue of a lock: how a client enters it, waits in it, answers it, and leaves it.

Theory of operation. The key that was created first owns the lock. Each other key waits for its
predecessor only, so a key that is deleted wakes one waiter, not all of them. When the predecessor
is gone we read our own key and those ahead at one revision: if our own is gone, the session is
over; if there is another one ahead, we wait again. Nothing that happens after a read is missed: the
predecessor is watched from the next revision on.

A lock differs from the other queues (`queued_locks.py`) in three ways: a client has one key
for all its local callers, which come and go while it waits; it reads a page of the queue around its
key, not all keys ahead; and the owner answers.

With `timeout=0` a caller waits for a definite answer: the predecessor is gone, or it has written a
*mark* with our key's revision, or there is no answer within `recall_s`. Only the owner answers, so
a caller that finds other waiters ahead is denied immediately: it is their turn first.

Everything here runs in the one task that a lock of a client has (`client_lock`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from leasehold.engine.values import Event, KeyValue, RangeResult
from leasehold.errors import CallRefused, Compacted, LeaseholdError, NoSpace, fresh, is_definite
from leasehold.keyspace.operations import Compare, Delete, Put, Range, SortBy, Step
from leasehold.locks.lock_keys import (
    LEASE_HEX,
    MAX_NUMBER,
    Claim,
    contender_span,
    encoded,
    fields_of,
    stored_count,
    text_of,
    who_has,
)
from leasehold.locks.queue import QueueDefinition, QueueEntry, created_at, modified_at
from leasehold.locks.recipe_context import RecipeContext
from leasehold.locks.watch_subscriptions import WatchSubscription, WatchSubscriptions
from leasehold.sessions.session import OutcomeUnknown

logger = logging.getLogger(__name__)

PAGE: Final = 16
"""Keys to read on each side of ours at first. More, if all of them belong to other locks."""

PAGE_GROWTH: Final = 8


class EtcdQueue(QueueDefinition):
    """Keys `<name>/<lease in hex>`, one of which is admitted: etcd's own layout."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name, b"", LEASE_HEX)

    @property
    def span(self) -> tuple[bytes, bytes]:
        """The range of its keys, which may contain others."""
        return contender_span(self.prefix)

    def tail(self, lease: bytes, number: int) -> bytes:
        """Return the part of a new key after the prefix."""
        del number
        return lease

    def admits(self, ahead: Sequence[KeyValue]) -> bool:
        """Return whether no key is ahead."""
        return not ahead


class LockQueue(EtcdQueue):
    """The keys of a lock."""

    def is_as_put(self, found: bytes, value: bytes) -> bool:
        """Return whether a key may be ours: a holder may have added its count to the value."""
        theirs, ours = Claim.decode(found), Claim.decode(value)
        return theirs is not None and ours is not None and theirs.who == ours.who

    def conflict(self, other: KeyValue) -> Exception:
        """Return the error for a key in the place of a new one."""
        del other
        return CallRefused(
            f"{text_of(self.name)!r} is already used by this client for another purpose, "
            "such as an election: choose another name"
        )

    def page(
        self, *, limit: int, descending: bool = False, after: int = 0, before: int = 0
    ) -> Range:
        """Return a read of the keys that may count, by their create revisions."""
        first, last = self.span
        return Range(
            first,
            last,
            limit=limit,
            sort_by=SortBy.CREATE_REVISION,
            descending=descending,
            min_create_revision=after + 1 if after else 0,
            max_create_revision=before - 1 if before else 0,
        )

    def contenders(self, found: RangeResult) -> list[KeyValue]:
        """Return the keys that count."""
        return [pair for pair in found.pairs if self.counts(pair.key)]


class QueueSnapshot(NamedTuple):
    """The queue of a lock at one revision, relative to one of its keys."""

    revision: int
    own: KeyValue | None
    ahead: KeyValue | None
    """The predecessor; None if the key owns the lock."""
    owner: KeyValue | None
    behind: list[KeyValue]
    """The first of the waiters behind."""
    more: bool
    """Whether there are more of them."""

    @property
    def holder(self) -> str:
        """The name of the owner of the lock, for people."""
        return "" if self.owner is None else who_has(self.owner)


class LockEntry(QueueEntry):
    """The key of a client in the queue of a lock, while it waits and while it owns the lock."""

    queue: LockQueue

    def __init__(self, context: RecipeContext, queue: LockQueue) -> None:
        super().__init__(context, queue, b"")
        self.is_withdrawn = False
        """Whether our key does not exist, or no longer does: then this attempt is over."""
        self.is_refused = False
        """Whether the owner has refused a caller with `timeout=0`."""
        self._is_gone = False
        """Whether the predecessor is gone, or its end cannot be observed from here."""
        self._failure: Exception | None = None

    @property
    def is_in_queue(self) -> bool:
        """Whether our key is in the queue, or may be."""
        return self.may_exist and not self.is_withdrawn

    # Entering.

    async def enter(self, claim: Claim) -> QueueSnapshot:
        """Put our key in the queue, unless it is there already; return the queue."""
        if self.created:
            return await self.look()
        self._value = claim.encode()
        queue = self.queue
        done = await self.put(
            [Range(self.key), queue.page(limit=PAGE, descending=True), queue.page(limit=PAGE)]
        )
        if done is None:
            return await self.look()
        return self._snapshot(done.revision, *done.results) or await self.look()

    async def look(self) -> QueueSnapshot:
        """Read the queue around our key."""
        queue, limit = self.queue, PAGE
        while True:
            done = await self.session.read(
                [
                    Range(self.key),
                    queue.page(limit=limit, descending=True, before=self.created),
                    queue.page(limit=limit),
                    queue.page(limit=limit, after=self.created),
                ]
            )
            own, before, first, after = done.results
            seen = self._snapshot(done.revision, own, before, first)
            behind = queue.contenders(after)
            if seen is not None and (behind or not after.more):
                pair = seen.own
                if pair is not None and pair.create_revision != self.created:
                    pair = None  # it was deleted, and another one created
                return seen._replace(own=pair, behind=behind, more=after.more)
            limit *= PAGE_GROWTH

    def _snapshot(
        self, revision: int, own: RangeResult, before: RangeResult, first: RangeResult
    ) -> QueueSnapshot | None:
        """Find the predecessor and the owner; None if more keys have to be read for that."""
        queue = self.queue
        pair = own.pairs[0] if own.pairs else None
        ahead = [each for each in queue.contenders(before) if pair is None or each.key != pair.key]
        owner = queue.contenders(first)
        if (before.more and not ahead) or (first.more and not owner):
            return None
        return QueueSnapshot(
            revision, pair, next(iter(ahead), None), next(iter(owner), None), [], more=False
        )

    # Waiting.

    async def wait(
        self,
        seen: QueueSnapshot,
        within_s: float | None,
        stir: asyncio.Event,
        has_changed: Callable[[], bool],
    ) -> bool:
        """Wait for a change: of the key ahead, the mark, the session or the local callers.

        `stir` is set when `has_changed` may return True. Returns False if that takes longer than
        `within_s`.
        """
        assert seen.ahead is not None, "there is a key ahead to wait for"
        self._is_gone = self.is_refused = False
        self._failure = None
        watcher = asyncio.get_running_loop().create_task(self._watch(seen, seen.ahead.key, stir))
        unlisten = self.session.on_lost(lambda _error: stir.set())
        try:
            async with asyncio.timeout(within_s):
                while not (self._has_news() or has_changed()):
                    stir.clear()
                    await stir.wait()
        except TimeoutError:
            return False
        finally:
            unlisten()
            watcher.cancel()
            await asyncio.wait([watcher])
        if self._failure is not None:
            raise fresh(self._failure)
        return True

    def _has_news(self) -> bool:
        self.session.check()
        return self._is_gone or self.is_refused or self._failure is not None

    async def _watch(self, seen: QueueSnapshot, ahead: bytes, stir: asyncio.Event) -> None:
        """Watch the key ahead of us, from the revision after `seen` on."""
        watch = self.context.engine.watch(ahead, start=seen.revision + 1)
        try:
            async for events in watch:
                for event in events.events:
                    if event.pair is None:
                        self._is_gone = True
                    else:
                        self._read_mark(event.pair)
                stir.set()
        except Compacted:
            pass
        except LeaseholdError as error:
            if is_definite(error):
                self._failure = error
        except Exception as error:  # noqa: BLE001  the driver decides
            self._failure = error
        finally:
            self._is_gone = True  # possibly: without a watch, the next read decides
            watch.cancel()
            stir.set()

    def _read_mark(self, ahead: KeyValue) -> None:
        """Read the mark of the key ahead, if it is about us: other marks do not count."""
        claim = Claim.decode(ahead.value)
        if claim is not None and claim.denies == self.created:
            self.is_refused = True

    # Leaving.

    async def withdraw(self) -> QueueSnapshot | None:
        """Delete our key. If we own the lock by now, keep it and return the queue as read."""
        kept = None if self.is_withdrawn else await self._withdraw()
        self.is_withdrawn = kept is None
        return kept

    async def _withdraw(self) -> QueueSnapshot | None:
        while True:
            if not self.created:  # it may exist nevertheless
                found = await self.session.read([Range(self.key)])
                if not self.find(found.results[0].pairs):
                    return None
            seen = await self.look()
            if seen.own is None:
                return None
            if seen.ahead is None:
                return seen
            still = created_at(seen.ahead.key, seen.ahead.create_revision)
            try:
                done = await self.write([Delete(self.key)], [still])
            except OutcomeUnknown:
                continue
            if done.succeeded:
                return None

    async def give_up(self, total: int, heir: KeyValue | None, counter: bytes) -> None:
        """Delete our key, and pass on the number of acquisitions in the same transaction.

        It is added to the number in the key `counter`, if that is given, or else written into the
        key of the next in the queue. Returns when our key is deleted, by this or another client.
        Raises `SessionExpired`.
        """
        stored: KeyValue | None = None  # a guess; if it is wrong, the transaction reads it
        while True:
            compares: list[Compare] = []
            steps: list[Step] = [Delete(self.key)]
            look = [Range(self.key)]
            if total and counter:
                compares.append(modified_at(counter, stored))
                number = min(total + stored_count(stored), MAX_NUMBER)
                steps.append(Put(counter, b"%d" % number))
                look.append(Range(counter))
            elif total and heir is not None and (fields := fields_of(heir.value)) is not None:
                compares.append(created_at(heir.key, heir.create_revision))
                steps.append(Put(heir.key, encoded({**fields, "count": total}), lease=None))
            try:
                done = await self.write(steps, compares, look)
            except OutcomeUnknown:
                continue
            except LeaseholdError as error:
                is_refused = error.not_executed and is_definite(error)
                if len(steps) == 1 or not (is_refused or isinstance(error, NoSpace)):
                    raise
                name = text_of(self.queue.name)
                logger.warning(
                    "the number of acquisitions (%d) of lock %r cannot be stored: %s",
                    total,
                    name,
                    error,
                )
                total = 0  # the delete alone needs no space, and no other permission
                continue
            if done.succeeded or not self.find(done.results[0].pairs):
                return
            if total and counter:
                stored = next(iter(done.results[1].pairs), None)
            else:  # the next in the queue has left
                heir = next(iter((await self.look()).behind), None)

    async def answer(self, total: int, revision: int) -> None:
        """Write a mark: for the waiter, or the request for the count, of this revision."""
        mark = Claim(self.context.who, total, denies=revision).encode()
        try:
            await self.write([Put(self.key, mark, lease=None)])
        except OutcomeUnknown:
            return  # both wait for a limited time only
        except LeaseholdError:
            self.session.check()  # the waiter is denied after its `recall_timeout`


class Successors:
    """The waiters behind the owner of a lock, as received by its watch."""

    def __init__(
        self,
        queue: LockQueue,
        on_change: Callable[[Event], object],
        on_gap: Callable[[LeaseholdError], object],
    ) -> None:
        """`on_change` is called with every change of the queue, including our own key."""
        self._queue = queue
        self._on_change = on_change
        self._on_gap = on_gap
        self._waiters: dict[bytes, KeyValue] = {}
        """In order of their create revisions."""
        self._unanswered: deque[KeyValue] = deque()
        """Those of them that wait for a definite refusal."""
        self._subscription: WatchSubscription | None = None
        self.is_cut_off = False
        """Whether there are more waiters than we have read."""
        self.must_look = False
        """Whether the queue has to be read again."""
        self.asked_at = 0
        """The revision of the latest request for the count, if it is not answered."""

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @property
    def first(self) -> KeyValue | None:
        """The first known waiter."""
        return next(iter(self._waiters.values()), None)

    @property
    def has_work(self) -> bool:
        """Whether a waiter or a request has to be answered, or the queue read."""
        return self.must_look or bool(self._unanswered) or self.asked_at > 0

    def next_unanswered(self) -> KeyValue | None:
        """Remove and return the next waiter with `timeout=0`; None if it has left."""
        waiter = self._unanswered.popleft()
        return waiter if waiter.key in self._waiters else None

    def follow(self, seen: QueueSnapshot, subscriptions: WatchSubscriptions) -> None:
        """Start from the queue as it was read, and follow its changes."""
        self.stop()
        if seen.own is not None:
            self.read_own(seen.own)
        for pair in seen.behind:
            self._add(pair)
        self.is_cut_off = seen.more
        self._subscription = subscriptions.subscribe(
            self._queue.prefix, seen.revision + 1, self._changed, self._missed
        )

    def stop(self) -> None:
        """Stop following, and drop all waiters."""
        self._waiters = {}
        self._unanswered.clear()
        self.is_cut_off = self.must_look = False
        self.asked_at = 0
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    def read_own(self, own: KeyValue) -> None:
        """Read a change of our own key: it may be a request for the count."""
        claim = Claim.decode(own.value)
        if claim is not None and claim.asks:
            self.asked_at = own.mod_revision

    def apply(self, event: Event) -> bool:
        """Apply a change of another client's key; return True if it is new in the queue."""
        if event.pair is None:
            self._waiters.pop(event.key, None)
            self.must_look = self.must_look or (self.is_cut_off and not self._waiters)
            return False
        if event.key in self._waiters:
            return False
        self._add(event.pair)
        return True

    def _add(self, pair: KeyValue) -> None:
        self._waiters[pair.key] = pair
        claim = Claim.decode(pair.value)
        if claim is not None and claim.tries:
            self._unanswered.append(pair)

    def _changed(self, event: Event) -> None:
        if self._queue.counts(event.key):
            self._on_change(event)

    def _missed(self, error: LeaseholdError) -> None:
        self._subscription = None
        self.must_look = isinstance(error, Compacted)
        self._on_gap(error)
