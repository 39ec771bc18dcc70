"""Queues: which keys belong to one, one key in it, and the keys ahead. For all recipes.

Theory of operation. A client waits in a queue by a key under the lease of its session. The queue is
ordered by create revisions: those *ahead* of a key are the keys of its queue with lower ones. No
new key can get ahead of an existing one, so that set only shrinks. A `QueueEntry` puts the key and
deletes it:

- A put without an answer is settled by looking for the key: `Session.write` makes sure that it
  cannot be put later.
- Every later write compares the create revision of the key, so that it has no effect once the key
  was deleted, even if it was created again.
- An entry whose key was deleted by another client, or with the session, is over for good.

How the keys ahead are followed differs. A `QueuePosition` follows all of them: a semaphore counts
them, a reader waits for the writers among them. They are read in the transaction that puts the key,
and followed from the next revision on; if the changes to follow were compacted they are read again.
It is always left with its key deleted; a delete without an answer is repeated. If the session is
over its keys are deleted, too.

A lock waits for its predecessor only (`lock_queue.py`), because the queue of a lock may be long,
and a key that is deleted must not wake all of it. It also has one key for all callers of a client,
and keeps it after a release.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from leasehold.basics.backoff import Backoff
from leasehold.basics.event_loop import call_on, post
from leasehold.basics.forgotten import post_forgotten
from leasehold.engine.interface import prefix_end
from leasehold.engine.values import Event, KeyValue, TxnResult
from leasehold.errors import (
    Closed,
    Compacted,
    Forked,
    LeaseholdError,
    LeaseLost,
    NoSpace,
    SessionExpired,
    is_definite,
)
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
)
from leasehold.locks.lock_keys import LEASE_HEX, text_of, who_has
from leasehold.locks.recipe_context import RecipeContext
from leasehold.locks.watch_subscriptions import WatchSubscription
from leasehold.sessions.session import RETRIES, OutcomeUnknown, Session

logger = logging.getLogger(__name__)

T = TypeVar("T")

PUTS: Final = 3
"""How often to put a key that was found absent, each time without an answer."""

DELETED: Final = "its key was deleted or replaced by another client"

FIRST: Final = b"0"
LAST: Final = b":"
"""The range end for keys that begin with a digit."""


def created_at(key: bytes, revision: int) -> Compare:
    """Return a comparison: the key was created at this revision; 0 if it must not exist."""
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)


def modified_at(key: bytes, found: KeyValue | None) -> Compare:
    """Return a comparison: the key has not changed since it was found; None if it was absent."""
    revision = 0 if found is None else found.mod_revision
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, revision)


class QueueDefinition(ABC):
    """Which keys belong to a queue, and which of them are admitted."""

    def __init__(self, name: bytes, kind: bytes, pattern: bytes) -> None:
        """In keys `kind` follows the name, and a text that matches `pattern` follows the kind."""
        self.name = name
        self.prefix = name + b"/" + kind + b"/" if kind else name + b"/"
        self._pattern = re.compile(pattern)

    @property
    def span(self) -> tuple[bytes, bytes]:
        """The range of its keys, which may contain others."""
        return self.prefix, prefix_end(self.prefix)

    def counts(self, key: bytes) -> bool:
        """Return whether a key belongs to this queue."""
        return (
            key.startswith(self.prefix)
            and self._pattern.fullmatch(key, len(self.prefix)) is not None
        )

    @abstractmethod
    def tail(self, lease: bytes, number: int) -> bytes:
        """Return the part of a new key after the prefix."""

    @abstractmethod
    def admits(self, ahead: Sequence[KeyValue]) -> bool:
        """Return whether a key with these ahead of it, in order, is admitted."""

    @property
    def excluded(self) -> Sequence[tuple[bytes, bytes]]:
        """Ranges that must contain no key when a new one is put."""
        return ()

    def is_as_put(self, found: bytes, value: bytes) -> bool:
        """Return whether a key with the value `found` may be one that was put with `value`."""
        return found == value

    def conflict(self, other: KeyValue) -> Exception:
        """Return the error for a key in an excluded range, or in the place of a new one."""
        return ValueError(
            f"{text_of(self.name)!r} is already used by this client for another purpose, at key "
            f"{other.key!r}: choose another name"
        )

    def who(self, pair: KeyValue) -> str:
        """Return the name of a key's owner, for people."""
        return who_has(pair)


class CountedQueue(QueueDefinition):
    """A queue whose members must agree on a number: limit of a semaphore, parties of a barrier.

    The number is the first part of each key, `<name>/<kind>/<number>.<lease in hex>.<number>`. So
    the transaction that puts a key can compare that there is no key with another number.
    """

    def __init__(self, name: bytes, kind: bytes, count: int, noun: str) -> None:
        """`noun` is the name of the number."""
        super().__init__(name, kind, rb"%d\.%b\.[0-9]{1,19}" % (count, LEASE_HEX))
        self._count = count
        self._noun = noun

    def tail(self, lease: bytes, number: int) -> bytes:
        """Return the part of a new key after the prefix."""
        return b"%d.%b.%d" % (self._count, lease, number)

    @property
    def excluded(self) -> Sequence[tuple[bytes, bytes]]:
        """The ranges of all keys with another number."""
        own = self.prefix + b"%d" % self._count
        return [(self.prefix + FIRST, own + b"."), (own + b"/", self.prefix + LAST)]

    def admits(self, ahead: Sequence[KeyValue]) -> bool:
        """Return whether fewer keys than the number are ahead."""
        return len(ahead) < self._count

    def conflict(self, other: KeyValue) -> Exception:
        """Return the error that names the client with another number."""
        theirs = other.key[len(self.prefix) :].split(b".")[0].decode()
        return ValueError(
            f"{text_of(self.name)!r} is in use with {self._noun}={theirs} by {self.who(other)}, "
            f"so it cannot be used with {self._noun}={self._count}: all clients must use the same "
            "value"
        )


def check_count(count: int, name: str, maximum: int, why: str) -> int:
    """Check a number that all members must agree on; `why` is the reason for the maximum."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an int, not {count!r}")
    if not 1 <= count <= maximum:
        raise ValueError(f"{name} must be between 1 and {maximum} ({why}), got {count}")
    return count


class QueueEntry:
    """One key in a queue, from the time that it is put until it is gone. For one task."""

    def __init__(self, context: RecipeContext, queue: QueueDefinition, value: bytes) -> None:
        self.context = context
        self.queue = queue
        self._value = value
        self.session: Session
        self.key = b""
        self.created = 0
        """Its create revision, once it is known to exist."""
        self.may_exist = False
        """Whether its key exists, or may exist."""
        self._had_no_answer = False
        """Whether a put had no answer: a key that is found later may be ours."""

    def use(self, session: Session) -> None:
        """Choose the key, under a session."""
        self.session = session
        number = next(self.context.numbers)
        self.key = self.queue.prefix + self.queue.tail(session.hex, number)

    async def put(self, reads: Sequence[Range]) -> TxnResult | None:
        """Put the key, behind all others, and read in the same transaction.

        The results are those of `reads`. Returns None if there was no answer, and the key is found
        to exist. Raises the error of the last attempt if it was absent each time.
        """
        cause: BaseException | None = None
        for _ in range(PUTS):
            try:
                return await self._put(reads)
            except OutcomeUnknown as unknown:
                cause = unknown.__cause__
                self._had_no_answer = True
            found = await self.session.read([Range(self.key)])
            if self.find(found.results[0].pairs):
                return None
            await self.was_absent(found.revision)
            self.may_exist = False
        assert cause is not None, "a call without an answer has a cause"
        raise cause

    async def _put(self, reads: Sequence[Range]) -> TxnResult | None:
        put = Put(self.key, self._value, self.session.lease.id)
        new = [(self.key, b""), *self.queue.excluded]
        compares = [
            Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0, end) for key, end in new
        ]
        others = [Range(key, end, limit=1, sort_by=SortBy.CREATE_REVISION) for key, end in new]
        self.may_exist = True
        try:
            done = await self.session.write(compares, [put, *reads], others)
        except (LeaseholdError, OSError):
            self.may_exist = False  # it was not executed, or the key is deleted with its session
            raise
        if not done.succeeded:
            if self._had_no_answer and self.find(done.results[0].pairs):
                return None
            self.may_exist = False
            found = [pair for other in done.results for pair in other.pairs]
            raise self.queue.conflict(found[0])
        self.created = done.revision
        return TxnResult(done.revision, done.succeeded, done.results[1:])

    def find(self, own: Sequence[KeyValue]) -> bool:
        """Record what a read of the key has found; return False if the key is not there.

        Not every key belongs to one entry only: that of a candidate has the name of a lock's. So a
        key that was put without an answer is identified by its value.
        """
        if not own or (self.created and own[0].create_revision != self.created):
            return False
        is_ours = own[0].lease == self.session.lease.id
        if not self.created and not (is_ours and self.queue.is_as_put(own[0].value, self._value)):
            self.may_exist = False
            raise self.queue.conflict(own[0])
        self.created = own[0].create_revision
        return True

    async def was_absent(self, revision: int) -> None:
        """Called if a key without an answer is absent at a revision: so it was not put."""

    async def write(
        self,
        steps: Sequence[Step],
        compares: Sequence[Compare] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Execute a transaction on condition that the key is still the one that was put."""
        mine = created_at(self.key, self.created)
        return await self.session.write([mine, *compares], steps, failure)


class QueuePosition(QueueEntry):
    """A key in a queue, and the keys ahead of it. Watch events arrive while its task waits."""

    def __init__(self, context: RecipeContext, queue: QueueDefinition, value: bytes) -> None:
        super().__init__(context, queue, value)
        self.ahead: dict[bytes, KeyValue] = {}
        """The keys with lower create revisions, in order."""
        self.is_wanted = True
        """Whether it is still wanted."""
        self.loss: LeaseLost | None = None
        """Why it is over, if it is."""
        self.on_loss: Callable[[LeaseLost, BaseException | None], object] | None = None
        """Called immediately with that, and with its cause if that is known."""
        self.on_other: Callable[[Event], object] | None = None
        """Called with events of keys that do not belong to the queue."""
        self._loop = asyncio.get_running_loop()
        self._is_joined = False
        self._changed = asyncio.Event()
        self._gap: LeaseholdError | None = None
        self._subscription: WatchSubscription | None = None
        self._stop_listening: Callable[[], object] | None = None

    # Joining.

    async def ask(self) -> Sequence[KeyValue]:
        """Read the keys that would be ahead of a new key, in order."""
        first, last = self.queue.span
        found = await self.context.engine.range(first, last, sort_by=SortBy.CREATE_REVISION)
        return [pair for pair in found.pairs if self.queue.counts(pair.key)]

    async def join(self) -> None:
        """Put the key, behind all others. In any case `leave` has to follow."""
        session = await self.insist(self.context.sessions.live)
        session.use()
        self.use(session)
        self._is_joined = True
        self._stop_listening = session.on_lost(self._session_lost)
        done = await self.put([self._range()])
        if done is None:
            await self.look()
        else:
            self._follow(done.revision, done.results[0].pairs)

    async def insist(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a call that changes nothing until there is an answer, while the key is wanted.

        A caller without a timeout waits for a silent server without limit.
        """
        backoff = Backoff(RETRIES, self.context.random)
        while True:
            try:
                return await call()
            except (LeaseholdError, OSError) as error:
                if is_definite(error) or isinstance(error, NoSpace) or not self.is_wanted:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._changed.wait()  # it may be given up in the meantime

    # Waiting and holding.

    async def look(self) -> bool:
        """Read the keys ahead; return False if its own key is absent: then it is over."""
        done = await self.session.read([Range(self.key), self._range()])
        if not self.find(done.results[0].pairs):
            if self.created:
                self.was_deleted()
            return False
        self._follow(done.revision, done.results[1].pairs)
        return True

    async def change(self) -> None:
        """Wait until fewer keys are ahead, or it is over or not wanted any more."""
        await self._changed.wait()
        self._changed.clear()
        gap, self._gap = self._gap, None
        if gap is not None and self.loss is None and self.is_wanted:
            if not isinstance(gap, Compacted):
                raise gap
            await self.look()

    def was_deleted(self) -> None:
        """Mark its key as deleted."""
        self.lose(SessionExpired(self.session.lease.id, DELETED), None)

    def wake(self) -> None:
        """Wake the task that waits for a change."""
        self._changed.set()

    def give_up(self) -> None:
        """Mark it as not wanted any more."""
        self.is_wanted = False
        self._changed.set()

    def give_up_in_any_loop(self) -> None:
        """Thread-safe `give_up`: a guard may be released in any event loop."""
        call_on(self._loop, self.give_up)

    def give_up_soon(self) -> None:
        """Schedule `give_up` on the loop. Thread-safe."""
        post(self._loop, self.give_up)

    def forgotten(self, claim: "list[QueuePosition]") -> None:
        """Report and release a garbage-collected guard; called by its finalizer."""

        def release() -> None:
            if claim:
                claim.clear()
                self.give_up()

        def is_held() -> bool:
            return bool(claim) and self.is_wanted and self.loss is None

        wait_s = self.context.sessions.ttl_s
        post_forgotten(self._loop, text_of(self.queue.name), wait_s, is_held, release)

    def _range(self) -> Range:
        """Return a read of the keys ahead or, before its position is known, of all keys."""
        first, last = self.queue.span
        before = self.created - 1 if self.created else 0
        return Range(
            first, last, sort_by=SortBy.CREATE_REVISION, max_create_revision=max(before, 0)
        )

    def _follow(self, revision: int, pairs: Sequence[KeyValue]) -> None:
        """Store the result of a read at a revision, and follow the changes after it."""
        self.ahead = {
            pair.key: pair
            for pair in pairs
            if pair.create_revision < self.created and self.queue.counts(pair.key)
        }
        self._stop_following()
        self._subscription = self.context.subscriptions.subscribe(
            self.queue.prefix, revision + 1, self._on_event, self._missed
        )

    def _stop_following(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    def _on_event(self, event: Event) -> None:
        if event.key == self.key:
            if event.pair is None or event.pair.create_revision != self.created:
                self.was_deleted()
        elif event.is_delete and self.ahead.pop(event.key, None) is not None:
            self._changed.set()
        elif self.on_other is not None and not self.queue.counts(event.key):
            self.on_other(event)

    def _missed(self, error: LeaseholdError) -> None:
        """Handle the end of the watch."""
        self._gap = error
        self._changed.set()

    def _session_lost(self, error: BaseException | None) -> None:
        self.lose(self.session.as_expired(), error)

    def lose(self, loss: LeaseLost, error: BaseException | None) -> None:
        """Mark it as lost, with the cause."""
        if self.loss is not None:
            return
        self.loss = loss
        self._changed.set()
        if self.on_loss is not None:
            self.on_loss(loss, error)

    # Leaving.

    async def leave(self) -> bool:
        """Delete the key and stop using the session; return True if this call has deleted it."""
        if not self._is_joined:
            return False
        self._stop_following()
        try:
            return self.may_exist and await self._delete()
        finally:
            self._is_joined = False
            if self._stop_listening is not None:
                self._stop_listening()
            self.session.unuse()

    def taken(self) -> None:
        """Mark the key as gone by the intention of its owner."""
        self.may_exist = False
        self._stop_following()

    async def _delete(self) -> bool:
        if self.created:
            mine = created_at(self.key, self.created)
        else:  # the key may exist, or be another client's, which is not deleted
            mine = Compare(self.key, Target.VALUE, Relation.EQUAL, self._value)
        backoff = Backoff(RETRIES, self.context.random)
        while True:
            try:
                done = await self.session.write([mine], [Delete(self.key)])
            except OutcomeUnknown:
                pass
            except SessionExpired:
                return False  # it is deleted with the lease
            except (LeaseholdError, OSError, ValueError) as error:
                if is_definite(error):
                    self._abandon(error)
                    return False
            else:
                return done.succeeded
            await asyncio.sleep(backoff.next_s())

    def _abandon(self, error: BaseException) -> None:
        """Abandon the whole session: a key that cannot be deleted must not outlast its owner."""
        if not isinstance(error, Closed | Forked):
            logger.warning("giving up the session because of key %r: %s", self.key, error)
            self.context.sessions.give_up(self.session, error)
