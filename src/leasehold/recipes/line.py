"""`Place`: one key in a line, from the time that it is put there until it is gone.

Theory of operation. Each acquisition has a key of its own, under the lease of the client's session.
The line goes by create revisions: those *ahead* of a place are the keys of its line with lower
ones. Nobody can come in ahead of a place that is there, so that is a set which only shrinks. It is
read in the transaction that puts the key there, and followed from the next revision on. When what
has to be followed was compacted it is read again.

Whether a place is let in is for its `Line` to say, by those ahead of it. What it was told by a
watch may be old, so whoever has waited reads once more before it goes in.

A place is left with its key deleted, whatever has happened: a put without an answer is settled by
looking for the key (`Session.write` sees to it that it cannot be put there later), a delete without
an answer is made again. If the session is over its keys are, too.

A place whose key is *gone*, by somebody else's hand or with the session, is over for good.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from leasehold.core.ops import Compare, Delete, Put, Range, Relation, SortBy, Target
from leasehold.engine.interface import prefix_end
from leasehold.engine.values import Event, KeyValue
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
from leasehold.owner_loop import call_on, post
from leasehold.recipes.feeds import Subscription
from leasehold.recipes.forgotten import post_forgotten
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import text_of, who_has
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, OutcomeUnknown, Session
from leasehold.rpc.backoff import Backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")

PUTS: Final = 3
"""How often a key is put there that was not, each time without an answer."""

DELETED: Final = "its key was deleted or replaced by somebody else"


class Line(ABC):
    """Which keys stand in one line, and who of them is let in."""

    def __init__(self, name: bytes, kind: bytes, pattern: bytes) -> None:
        """`kind` follows the name in keys, and `pattern` the kind, where they count."""
        self.name = name
        self.prefix = name + b"/" + kind + b"/" if kind else name + b"/"
        self._pattern = re.compile(pattern)

    @property
    def span(self) -> tuple[bytes, bytes]:
        """The range that its keys are in, and perhaps others."""
        return self.prefix, prefix_end(self.prefix)

    def counts(self, key: bytes) -> bool:
        """Say whether a key stands in this line."""
        return (
            key.startswith(self.prefix)
            and self._pattern.fullmatch(key, len(self.prefix)) is not None
        )

    @abstractmethod
    def tail(self, lease: bytes, number: int) -> bytes:
        """Give what a new key has after the prefix."""

    @abstractmethod
    def lets_in(self, ahead: Sequence[KeyValue]) -> bool:
        """Say whether one with these ahead of it, in order, is let in."""

    @property
    def excluded(self) -> Sequence[tuple[bytes, bytes]]:
        """Ranges in which there must be no key when a new one is put there."""
        return ()

    def conflict(self, other: KeyValue) -> Exception:
        """Say what is wrong with a key in one of those, or in the place of a new one."""
        return ValueError(
            f"{text_of(self.name)!r} is in use by this client for something else, at key "
            f"{other.key!r}: take another name"
        )

    def who(self, pair: KeyValue) -> str:
        """Say whose key this is, for people."""
        return who_has(pair)


class Place:
    """One key in a line. Its methods are for one task; it is told of what happens meanwhile."""

    def __init__(self, lines: Lines, line: Line, value: bytes) -> None:
        self.lines = lines
        self._engine = lines.engine
        self.line = line
        self._value = value
        self.session: Session
        self.key = b""
        self.created = 0
        """Its create revision, once it is known to be there."""
        self.ahead: dict[bytes, KeyValue] = {}
        """Those with lower create revisions, in order."""
        self.is_wanted = True
        """Whether somebody still wants it."""
        self.loss: LeaseLost | None = None
        """Why it is over, if it is."""
        self.on_loss: Callable[[LeaseLost, BaseException | None], object] | None = None
        """Told of that, at once, and of what is behind it if that is known."""
        self.on_other: Callable[[Event], object] | None = None
        """Told of keys that do not count in the line."""
        self._looked_at = 0
        self._loop = asyncio.get_running_loop()
        self._may_be_there = False
        self._is_joined = False
        self._changed = asyncio.Event()
        self._gap: LeaseholdError | None = None
        self._subscription: Subscription | None = None
        self._stop_listening: Callable[[], object] | None = None

    # Coming.

    async def ask(self) -> Sequence[KeyValue]:
        """Read who would be ahead of a new place, in order."""
        first, last = self.line.span
        found = await self._engine.range(first, last, sort_by=SortBy.CREATE_REVISION)
        return [pair for pair in found.pairs if self.line.counts(pair.key)]

    async def join(self) -> None:
        """Put the key there, behind all others. Whatever happens, `leave` has to follow."""
        self.session = await self.insist(self.lines.sessions.live)
        self.session.use()
        self._is_joined = True
        self._stop_listening = self.session.on_lost(self._session_lost)
        number = self.lines.next_number()
        self.key = self.line.prefix + self.line.tail(self.session.hex, number)
        cause: BaseException | None = None
        for _ in range(PUTS):
            try:
                await self._put()
            except OutcomeUnknown as unknown:
                cause = unknown.__cause__
                if await self.look():
                    return
                await self.was_absent(self._looked_at)
            else:
                return
        assert cause is not None, "it has no answer for a reason"
        raise cause

    async def insist(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call that changes nothing by itself until there is an answer, while it is wanted.

        A caller without a time limit waits for a silent server as long as it takes.
        """
        backoff = Backoff(self.lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while True:
            try:
                return await call()
            except (LeaseholdError, OSError) as error:
                if is_definite(error) or isinstance(error, NoSpace) or not self.is_wanted:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._changed.wait()  # it may be given up in the meantime

    async def was_absent(self, revision: int) -> None:
        """Consider that a key without an answer is not there, at a revision: so it was not put."""

    async def _put(self) -> None:
        put = Put(self.key, self._value, self.session.lease.id)
        new = [(self.key, b""), *self.line.excluded]
        compares = [
            Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0, end) for key, end in new
        ]
        others = [Range(key, end, limit=1, sort_by=SortBy.CREATE_REVISION) for key, end in new]
        self._may_be_there = True
        try:
            done = await self.session.write(compares, [put, self._range()], others)
        except (SessionExpired, Closed, Forked):
            raise  # not of the put: it may have been done before
        except (LeaseholdError, OSError):
            self._may_be_there = False
            raise
        if not done.succeeded:
            self._may_be_there = False
            found = [pair for other in done.results for pair in other.pairs]
            raise self.line.conflict(found[0])
        self.created = done.revision
        self._follow(done.revision, done.results[1].pairs)

    # What happens meanwhile.

    async def look(self) -> bool:
        """Read who is ahead, now; False if its own key is not there: then it is over.

        Not every key is one place's alone: a candidate's is called like that of a lock. So one that
        was put without an answer is known by its value.
        """
        done = await self.session.read([Range(self.key), self._range()])
        self._looked_at = done.revision
        own = done.results[0].pairs
        if not own or (self.created and own[0].create_revision != self.created):
            if self.created:
                self.was_deleted()
            return False
        if not self.created and not self._is_as_put(own[0]):
            self._may_be_there = False
            raise self.line.conflict(own[0])
        self.created = own[0].create_revision
        self._follow(done.revision, done.results[1].pairs)
        return True

    def _is_as_put(self, pair: KeyValue) -> bool:
        """Say whether a key may be the one that was put without an answer, and not another's."""
        return pair.value == self._value and pair.lease == self.session.lease.id

    async def change(self) -> None:
        """Wait until those ahead are fewer, or it is over, or not wanted any more."""
        await self._changed.wait()
        self._changed.clear()
        gap, self._gap = self._gap, None
        if gap is not None and self.loss is None and self.is_wanted:
            if not isinstance(gap, Compacted):
                raise gap
            await self.look()

    def was_deleted(self) -> None:
        """Learn that its key is not there any more."""
        self.lose(SessionExpired(self.session.lease.id, DELETED), None)

    def give_notice(self) -> None:
        """See that whoever waits for a change looks."""
        self._changed.set()

    def give_up(self) -> None:
        """Learn that nobody wants it any more."""
        self.is_wanted = False
        self._changed.set()

    def give_up_in_any_loop(self) -> None:
        """Do what `give_up` does, in any thread: a guard may be released in any event loop."""
        call_on(self._loop, self.give_up)

    def give_up_soon(self) -> None:
        """Do what `give_up` does, soon; in any thread."""
        post(self._loop, self.give_up)

    def forgotten(self, claim: list["Place"]) -> None:
        """Have a guard reported and released that was garbage-collected; from its finalizer."""

        def release() -> None:
            if claim:
                claim.clear()
                self.give_up()

        def is_held() -> bool:
            return bool(claim) and self.is_wanted and self.loss is None

        wait_s = self.lines.sessions.ttl_s
        post_forgotten(self._loop, text_of(self.line.name), wait_s, is_held, release)

    def _range(self) -> Range:
        """Read those ahead, and if it is not known yet where it stands, all."""
        first, last = self.line.span
        before = self.created - 1 if self.created else 0
        return Range(
            first, last, sort_by=SortBy.CREATE_REVISION, max_create_revision=max(before, 0)
        )

    def _follow(self, revision: int, pairs: Sequence[KeyValue]) -> None:
        """Take what was read at a revision, and follow what happens after it."""
        self.ahead = {
            pair.key: pair
            for pair in pairs
            if pair.create_revision < self.created and self.line.counts(pair.key)
        }
        self._stop_following()
        feeds = self.lines.feeds
        self._subscription = feeds.subscribe(
            self.line.prefix, revision + 1, self._on_event, self._missed
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
        elif self.on_other is not None and not self.line.counts(event.key):
            self.on_other(event)

    def _missed(self, error: LeaseholdError) -> None:
        """Learn that what happens now is not told any more."""
        self._gap = error
        self._changed.set()

    def _session_lost(self, error: BaseException | None) -> None:
        self.lose(self.session.as_expired(), error)

    def lose(self, loss: LeaseLost, error: BaseException | None) -> None:
        """Learn that it is over, and what is behind that."""
        if self.loss is not None:
            return
        self.loss = loss
        self._changed.set()
        if self.on_loss is not None:
            self.on_loss(loss, error)

    # Leaving.

    async def leave(self) -> bool:
        """Take the key away, and need the session no more; True if it was this that deleted it."""
        if not self._is_joined:
            return False
        self._stop_following()
        try:
            return self._may_be_there and await self._delete()
        finally:
            self._is_joined = False
            if self._stop_listening is not None:
                self._stop_listening()
            self.session.unuse()

    def taken(self) -> None:
        """Learn that the key is gone by its owner's will."""
        self._may_be_there = False
        self._stop_following()

    async def _delete(self) -> bool:
        if self.created:
            mine = Compare(self.key, Target.CREATE_REVISION, Relation.EQUAL, self.created)
        else:  # it may be there, or another's, which is not deleted
            mine = Compare(self.key, Target.VALUE, Relation.EQUAL, self._value)
        backoff = Backoff(self.lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while True:
            try:
                done = await self.session.write([mine], [Delete(self.key)])
            except OutcomeUnknown:
                pass
            except SessionExpired:
                return False  # it goes with the lease
            except (LeaseholdError, OSError, ValueError) as error:
                if is_definite(error):
                    self._abandon(error)
                    return False
            else:
                return done.succeeded
            await asyncio.sleep(backoff.next_s())

    def _abandon(self, error: BaseException) -> None:
        """Give up the whole session: a key that cannot be deleted must not outlast its place."""
        if not isinstance(error, Closed | Forked):
            logger.warning("the session is given up, because of key %r: %s", self.key, error)
            self.lines.sessions.give_up(self.session, error)
