"""`Session`: one lease for all that a client holds, and writes that cannot come back to life.

Theory of operation. A call may be lost on the way, and a request that nobody waits for any more may
still lie in some buffer, to be executed seconds later: a delete of a key that was made anew, a put
that nobody takes away. So the session has a key of its own, under its lease, and every write
compares the *mod revision* of that key, the session's `epoch`. After a call of unknown outcome the
key is rewritten, until there is an answer: that begins a new epoch, and what was sent in an earlier
one cannot be executed any more. Only then is it worth reading what is there.

So a write is in doubt exactly while the epoch is one in which some call had no answer. A write that
fails because the epoch has changed was not executed, and is made again in the new one. An answer
that never came may also have been that of a rewrite: then the key is found in a later epoch than
was known, which is as good as any.

If the session's lease ends its key goes with it, and nothing of the session can be executed later.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from leasehold.client.held_lease import HeldLease
from leasehold.client.patience import time_limit
from leasehold.core.ops import Compare, Put, Range, Relation, Step, Target
from leasehold.engine.interface import Engine
from leasehold.engine.values import TxnResult
from leasehold.errors import (
    Closed,
    Forked,
    HistoryLost,
    LeaseholdError,
    SessionExpired,
    UnknownLease,
    is_definite,
)
from leasehold.recipes.naming import SESSIONS, hex_of
from leasehold.rpc.backoff import Backoff

if TYPE_CHECKING:
    from leasehold.recipes.sessions import Sessions

logger = logging.getLogger(__name__)

CALL: Final = 0.5
CALL_MAX_S: Final = 10.0
"""How long one call may take: a part of a term, so that there is time for another one."""

AGAIN_MIN_S: Final = 0.05
AGAIN_MAX_S: Final = 1.0
"""Bounds of the random pauses between attempts while calls fail."""


_OVER: Final = (Closed, Forked, HistoryLost)
"""Errors of an engine that will make no further call."""


class OutcomeUnknown(Exception):
    """A write had no answer, and cannot be executed any more: what is there now stays."""


class Session:
    """A live lease, its own key, and what is under it."""

    def __init__(self, sessions: "Sessions", engine: Engine, who: bytes) -> None:
        self._sessions = sessions
        self._engine = engine
        self._who = who
        self.lease: HeldLease
        """Set once it was granted."""
        self.hex = b""
        """The lease's number, as keys have it."""
        self._key = b""
        self._created = 0
        self._epoch = 0
        self._doubted = -1
        """The last epoch in which a call had no answer."""
        self._rewriting: asyncio.Task[None] | None = None
        self._on_lost: dict[Callable[[BaseException | None], object], None] = {}
        self.users = 0
        """How many keep it from being idle."""
        self.used_at = 0.0
        """When the last of them has left, by the clock that runs through suspend."""

    async def begin(self, lease: HeldLease) -> None:
        """Put the session's key there."""
        self.lease = lease
        self.hex = hex_of(lease.id)
        self._key = SESSIONS + self.hex
        is_new = Compare(self._key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        put = Put(self._key, self._who, lease.id)
        done = await self._ask([is_new], [put], [Range(self._key)])
        if done.succeeded:
            self._created = self._epoch = done.revision
        else:  # a call before this one had no answer
            pair = done.results[0].pairs[0]
            self._created, self._epoch = pair.create_revision, pair.mod_revision

    # What may be relied on.

    @property
    def is_live(self) -> bool:
        """Whether it can be relied on now."""
        return self.lease.is_held

    def check(self) -> None:
        """Raise `SessionExpired` unless it can be relied on now: by the clock."""
        if not self.lease.is_held:
            raise self.as_expired()

    def found_over(self) -> None:
        """Learn, in any thread, that somebody has found it over: then it is, for good."""
        self._sessions.found_over(self)

    def as_expired(self) -> SessionExpired:
        """Make the error for whoever relies on it for too long."""
        return SessionExpired(self.lease.id, self.lease.as_lost().why)

    def on_lost(self, callback: Callable[[BaseException | None], object]) -> Callable[[], object]:
        """Have something told, once, when it is lost; what is returned takes that back."""
        self._on_lost[callback] = None
        return lambda: self._on_lost.pop(callback, None)

    def lost(self, error: BaseException | None) -> None:
        """Learn that the lease is lost."""
        told, self._on_lost = self._on_lost, {}
        for callback in told:
            callback(error)

    # Who keeps it from being idle.

    def use(self) -> None:
        """Need it until `unuse`."""
        self.users += 1

    def unuse(self) -> None:
        """Need it no longer."""
        assert self.users > 0, "it was used"
        self.users -= 1
        self.used_at = self._sessions.now
        self._sessions.may_be_idle()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Need it while the block runs."""
        self.use()
        try:
            yield
        finally:
            self.unuse()

    # Writing.

    async def write(
        self,
        compares: Sequence[Compare],
        success: Sequence[Step],
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Make a transaction that is executed now or never.

        Raises `OutcomeUnknown` if there was no answer: it was executed, or never will be, so now is
        the time to look. `SessionExpired` if all is over, and also if a doubt cannot be settled.
        Every other error of the engine but `Closed`, `Forked` and `HistoryLost` is `not_executed`.
        """
        while True:
            await self._settle()
            epoch = self._epoch
            mine = Compare(self._key, Target.MOD_REVISION, Relation.EQUAL, epoch)
            try:
                done = await self._ask([mine, *compares], success, [Range(self._key), *failure])
            except (LeaseholdError, OSError) as error:
                if isinstance(error, UnknownLease):
                    raise self._gone() from error
                if _was_not_executed(error) or isinstance(error, _OVER):
                    raise
                self._doubted = max(self._doubted, epoch)
                await self._settle()
                raise OutcomeUnknown from error
            except BaseException:  # its caller was cancelled
                self._doubted = max(self._doubted, epoch)
                raise
            if done.succeeded:
                return done
            if self._found(done) == epoch:
                return TxnResult(done.revision, done.succeeded, done.results[1:])

    def _found(self, done: TxnResult) -> int:
        """Take the epoch that was found."""
        pairs = done.results[0].pairs
        if not pairs:
            raise self._gone()
        found: int = pairs[0].mod_revision
        self._epoch = max(self._epoch, found)
        return found

    def _gone(self) -> SessionExpired:
        """Learn that the key is gone: with the lease, or by somebody's hand; it is over."""
        self._sessions.give_up(self, UnknownLease(self.lease.id))
        return self.as_expired()

    async def _settle(self) -> None:
        """If there is doubt, begin a new epoch; one who does it is enough."""
        self.check()
        while self._doubted >= self._epoch:
            if self._rewriting is None:
                self._rewriting = asyncio.get_running_loop().create_task(self._rewrite())
                self._rewriting.add_done_callback(self._rewritten)
            await asyncio.shield(self._rewriting)
            self.check()

    def _rewritten(self, task: asyncio.Task[None]) -> None:
        self._rewriting = None
        if not task.cancelled():
            task.exception()  # whoever waits is told; there may be nobody

    async def _rewrite(self) -> None:
        """Begin a new epoch, with an answer."""
        is_ours = Compare(self._key, Target.CREATE_REVISION, Relation.EQUAL, self._created)
        try:
            done = await self._insist([is_ours], [Put(self._key, self._who, self.lease.id)])
        except (SessionExpired, Closed, Forked):
            raise
        except Exception as error:
            # What had no answer stays in doubt, so nothing more can be done under this lease.
            logger.warning("the session is given up, its key cannot be rewritten: %s", error)
            self._sessions.give_up(self, error)
            raise self.as_expired() from error
        if not done.succeeded:
            raise self._gone()
        self._epoch = max(self._epoch, done.revision)

    async def read(self, steps: Sequence[Range]) -> TxnResult:
        """Read, all at one revision, as often as it takes while the session lives."""
        return await self._insist([], steps)

    async def _insist(self, compares: Sequence[Compare], steps: Sequence[Step]) -> TxnResult:
        """Ask for what may be done twice until there is an answer, or the session is over."""
        backoff = Backoff(self._sessions.keeper.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while True:
            self.check()
            try:
                return await self._ask(compares, steps, [])
            except (LeaseholdError, OSError) as error:
                if isinstance(error, UnknownLease):
                    raise self._gone() from error
                if is_definite(error):
                    raise
            await asyncio.sleep(backoff.next_s())

    async def _ask(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step]
    ) -> TxnResult:
        """Make a call that does not take for ever."""
        async with time_limit(self.call_s, self._engine):
            return await self._engine.txn(compares, success, failure)

    @property
    def call_s(self) -> float:
        """How long one call may take."""
        return min(CALL_MAX_S, self.lease.holding.term_s * CALL)


def _was_not_executed(error: BaseException) -> bool:
    return isinstance(error, LeaseholdError) and error.not_executed
