"""How a client gets a lock: its key is put in line, and waits for the one before it.

Theory of operation. The key that was created first owns the lock. Each other one waits for its
predecessor alone, so whoever leaves wakes one waiter, not all of them. When the predecessor is gone
we read our own key and those ahead at one revision: our own gone means that the session is over,
another one ahead means to wait again. Nothing that happens after a read is missed: the predecessor
is watched from the next revision on.

Who only asks waits for a definite answer: the predecessor is gone, or it has written a *mark* that
names our key's revision, or it says nothing for `recall_s`. Only the owner gives such an answer, so
who finds others waiting ahead is denied at once: it is their turn first.

Everything here runs in the one task that a lock of a client has (`cell`). Those who ask for the
lock come and go meanwhile; when none is left, the key is taken back.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold.core.ops import Compare, Delete, Put, Range, Relation, Target
from leasehold.engine.values import KeyValue, RangeResult
from leasehold.errors import CallRefused, Compacted, LeaseholdError, is_definite
from leasehold.recipes.naming import Claim, is_contender, line, prefix_of, text_of, who_has
from leasehold.recipes.session import OutcomeUnknown, Session
from leasehold.stored_errors import fresh

if TYPE_CHECKING:
    from leasehold.engine.interface import Engine
    from leasehold.recipes.asker import Askers

PAGE: Final = 16
"""Keys that are read on each side of ours at first. More, if all turn out to be of other locks."""

PAGE_GROWTH: Final = 8


def created_at(key: bytes, revision: int) -> Compare:
    """Make a condition: the key is the one that was created at this revision; 0 for none."""
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)


class Look(NamedTuple):
    """The line of a lock at one revision, as one of its keys sees it."""

    revision: int
    own: KeyValue | None
    ahead: KeyValue | None
    """The predecessor; None for who owns the lock."""
    owner: KeyValue | None
    behind: list[KeyValue]
    """Those that wait, the first of them."""
    more: bool
    """Whether there are more of them."""


async def look(session: Session, name: bytes, key: bytes, revision: int) -> Look:
    """Read the line around a key that was created at `revision`."""
    limit = PAGE
    while True:
        done = await session.read(
            [
                Range(key),
                line(name, limit=limit, descending=True, before=revision),
                line(name, limit=limit),
                line(name, limit=limit, after=revision),
            ]
        )
        own, before, first, after = done.results
        seen = _seen(name, done.revision, own, before, first)
        behind = contenders(name, after)
        if seen is not None and (behind or not after.more):
            pair = seen.own
            if pair is not None and pair.create_revision != revision:
                pair = None  # somebody has deleted it, and made another one
            return seen._replace(own=pair, behind=behind, more=after.more)
        limit *= PAGE_GROWTH


def _seen(
    name: bytes, revision: int, own: RangeResult, before: RangeResult, first: RangeResult
) -> Look | None:
    """Make out who is ahead and who owns it; None if more has to be read for that."""
    pair = own.pairs[0] if own.pairs else None
    ahead = [each for each in contenders(name, before) if pair is None or each.key != pair.key]
    owner = contenders(name, first)
    if (before.more and not ahead) or (first.more and not owner):
        return None
    return Look(revision, pair, _first(ahead), _first(owner), [], more=False)


def contenders(name: bytes, found: RangeResult) -> list[KeyValue]:
    """Pick those keys that count in the line of a lock."""
    prefix = prefix_of(name)
    return [pair for pair in found.pairs if is_contender(prefix, pair.key)]


def _first(pairs: list[KeyValue]) -> KeyValue | None:
    return pairs[0] if pairs else None


class Contention:
    """One attempt of a client to get a lock, from putting its key to owning it or giving up."""

    def __init__(self, name: bytes, engine: "Engine", session: Session, askers: "Askers") -> None:
        self._name = name
        self._engine = engine
        self._askers = askers
        self.session = session
        """What it is under."""
        self._key = prefix_of(name) + session.hex
        self._revision = 0
        self._is_gone = False
        """Whether the predecessor is, or its end cannot be told from here."""
        self.answer: Claim | None = None
        """What the owner says to who only asks."""
        self._failure: LeaseholdError | None = None
        self._may_be_there = False
        """Whether our key was put without an answer."""
        self.is_withdrawn = False
        """Whether there is no key of ours, or no more: then this attempt is over."""

    @property
    def key(self) -> bytes:
        """Our key."""
        return self._key

    async def enter(self, claim: Claim) -> Look:
        """Put our key in line, if it is not there already."""
        if self._revision:
            return await self.look()
        put = Put(self._key, claim.encode(), self.session.lease.id)
        name = self._name
        own = Range(self._key)
        ahead = [line(name, limit=PAGE, descending=True), line(name, limit=PAGE)]
        while True:
            try:
                done = await self.session.write(
                    [created_at(self._key, 0)], [put, own, *ahead], [own]
                )
            except OutcomeUnknown:
                self._may_be_there = True
                continue  # if it was put we will find it
            if done.succeeded:
                seen = _seen(name, done.revision, *done.results[1:])
                self._revision = done.revision
                return seen or await self.look()
            if not self._may_be_there:
                self.is_withdrawn = True
                raise CallRefused(
                    f"{text_of(self._name)!r} is in use by this client for something else, such as "
                    "an election: take another name"
                )
            if found := done.results[0].pairs:
                self._revision = found[0].create_revision
                return await self.look()

    async def look(self) -> Look:
        """Read where we are."""
        return await look(self.session, self._name, self._key, self._revision)

    async def wait(self, seen: Look, within_s: float | None) -> bool:
        """Wait until something has changed: the one ahead, the mark, those who ask, the session.

        False if that takes longer than `within_s`.
        """
        assert seen.ahead is not None, "there is somebody to wait for"
        self._is_gone = False
        self._failure = self.answer = None
        stir, asked = self._askers.stir, self._askers.only_ask()
        watcher = asyncio.get_running_loop().create_task(self._watch(seen))
        unlisten = self.session.on_lost(lambda _error: stir.set())
        try:
            async with asyncio.timeout(within_s):
                while not self._has_changed(asked):
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

    @property
    def may_be_there(self) -> bool:
        """Whether a key of ours is in line, or may be."""
        return not self.is_withdrawn and (self._may_be_there or self._revision > 0)

    def _has_changed(self, asked: bool) -> bool:
        self.session.check()
        if asked != self._askers.only_ask():
            return True  # somebody else is next here, and wants it in another way
        has_answer = self._is_gone or self.answer is not None
        return has_answer or not self._askers or self._failure is not None

    async def _watch(self, seen: Look) -> None:
        """Watch the one ahead of us, from what was seen on."""
        assert seen.ahead is not None
        watch = self._engine.watch(seen.ahead.key, start=seen.revision + 1)
        try:
            async for events in watch:
                for event in events.events:
                    if event.pair is None:
                        self._is_gone = True
                    else:
                        self._hear(event.pair)
                self._askers.stir.set()
        except Compacted:
            self._is_gone = True  # perhaps: we will see
        except LeaseholdError as error:
            if is_definite(error):
                self._failure = error
            self._is_gone = True
        finally:
            watch.cancel()
            self._askers.stir.set()

    def _hear(self, ahead: KeyValue) -> None:
        """Take what the one ahead says, if it is about us: other marks do not count."""
        claim = Claim.decode(ahead.value)
        if claim is not None and claim.denies == self._revision:
            self.answer = claim

    async def withdraw(self) -> Look | None:
        """Take our key back. If we own the lock by now we keep it: what we see then is returned."""
        kept = None if self.is_withdrawn else await self._withdraw()
        self.is_withdrawn = kept is None
        return kept

    async def _withdraw(self) -> Look | None:
        while True:
            if not self._revision:  # it may be there all the same
                found = (await self.session.read([Range(self._key)])).results[0].pairs
                if not found:
                    return None
                self._revision = found[0].create_revision
            seen = await self.look()
            if seen.own is None:
                return None
            if seen.ahead is None:
                return seen
            still = created_at(seen.ahead.key, seen.ahead.create_revision)
            mine = created_at(self._key, self._revision)
            try:
                done = await self.session.write([mine, still], [Delete(self._key)])
            except OutcomeUnknown:
                continue
            if done.succeeded:
                return None


def holder_of(seen: Look) -> str:
    """Say who owns the lock."""
    return "" if seen.owner is None else who_has(seen.owner)
