"""`Session`: one lease for all that a client holds, and writes that are never executed late.

Theory of operation. A call may be lost on the way, and an abandoned request may remain in some
buffer, to be executed seconds later: a delete of a key that was created anew, a put of a key that
is never deleted. So the session has its own key, under its lease, and every write compares the *mod
revision* of that key, the session's `epoch`. After a call of unknown outcome the key is rewritten,
until there is an answer: that begins a new epoch, and a request that was sent in an earlier one
cannot be executed any more. Only then is a read reliable.

So a write is in doubt exactly while the epoch is one in which some call had no answer. A write that
fails because the epoch has changed was not executed, and is repeated in the new one. The missing
answer may also have been that of a rewrite: then the key is found in a later epoch than was known,
which serves equally well.

If the session's lease ends its key is deleted with it, and nothing of the session can be executed
later.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.clock import Clock
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import TxnResult
from leasehold.errors import (
    Closed,
    Forked,
    HistoryLost,
    LeaseholdError,
    NoSpace,
    SessionExpired,
    UnknownLease,
    is_definite,
)
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Step, Target
from leasehold.sessions.kept_lease import KeptLease

logger = logging.getLogger(__name__)

SESSIONS: Final = b"leasehold/sessions/"
"""Prefix of the keys of sessions, one for each."""

CALL: Final = 0.5
CALL_MAX_S: Final = 10.0
"""How long one call may take: a part of a term, so that there is time for another one."""

RETRIES: Final = exponential(0.05, 1.0)
"""The waits between attempts while calls fail."""


OVER: Final = (Closed, Forked, HistoryLost)
"""Errors after which an engine makes no further calls."""


def hex_of(lease: int) -> bytes:
    """Format a lease id as it is written in keys."""
    return b"%x" % lease


class OutcomeUnknown(Exception):
    """A write had no answer, and cannot be executed any more: the state can be read now."""


class Session:
    """A live lease, its own key, and the keys under it."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        random: Random,
        who: bytes,
        *,
        give_up: "Callable[[Session, BaseException | None], object]",
        found_over: "Callable[[Session], object]",
        on_unused: Callable[[], object],
    ) -> None:
        """`give_up` ends it for good, `found_over` does so in any thread, if it is not over.

        `on_unused` is called when one of its users has left.
        """
        self._engine = engine
        self._clock = clock
        self._random = random
        self._who = who
        self._give_up = give_up
        self._found_over = found_over
        self._on_unused = on_unused
        self.lease: KeptLease
        """Set once it was granted."""
        self.hex = b""
        """The lease's id, as written in keys."""
        self._key = b""
        self._created = 0
        self._epoch = 0
        self._doubted = -1
        """The last epoch in which a call had no answer."""
        self._rewriting: asyncio.Task[None] | None = None
        self._on_lost: dict[Callable[[BaseException | None], object], None] = {}
        self.users = 0
        """The number of users; with none it is idle."""
        self.used_at = 0.0
        """When the last user has left, by the clock that runs through suspend."""

    async def begin(self, lease: KeptLease) -> None:
        """Put the session's key."""
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

    # Validity.

    @property
    def is_live(self) -> bool:
        """Whether it is valid now."""
        return self.lease.is_held

    def check(self) -> None:
        """Raise `SessionExpired` unless it is valid now, by the clock."""
        if not self.lease.is_held:
            raise self.as_expired()

    def found_over(self) -> None:
        """Mark it as over for good. Thread-safe."""
        self._found_over(self)

    def as_expired(self) -> SessionExpired:
        """Return the error for a caller that relies on it after its end."""
        return SessionExpired(self.lease.id, self.lease.as_lost().why)

    def on_lost(self, callback: Callable[[BaseException | None], object]) -> Callable[[], object]:
        """Call `callback` once when it is lost; returns a function that removes it."""
        self._on_lost[callback] = None
        return lambda: self._on_lost.pop(callback, None)

    def lost(self, error: BaseException | None) -> None:
        """Mark the lease as lost."""
        callbacks, self._on_lost = self._on_lost, {}
        for callback in callbacks:
            callback(error)

    # Users.

    def use(self) -> None:
        """Add a user, until `unuse`."""
        self.users += 1

    def unuse(self) -> None:
        """Remove a user."""
        assert self.users > 0, "it was used"
        self.users -= 1
        self.used_at = self._clock.boottime()
        self._on_unused()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use it while the block runs."""
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
        """Execute a transaction now or never.

        Raises `OutcomeUnknown` if there was no answer: it was executed, or never will be, so the
        state can be read now. Raises `SessionExpired` if the session is over, and also if a doubt
        cannot be settled. Every other error of the engine but `Closed`, `Forked` and `HistoryLost`
        is `not_executed`.
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
                if _was_not_executed(error) or isinstance(error, OVER):
                    raise
                self._doubted = max(self._doubted, epoch)
                await self._settle()
                raise OutcomeUnknown from error
            except BaseException:  # its caller was cancelled
                self._doubted = max(self._doubted, epoch)
                raise
            if done.succeeded:
                return done
            if self._found(done, epoch) == epoch:
                return TxnResult(done.revision, done.succeeded, done.results[1:])

    def _found(self, done: TxnResult, epoch: int) -> int:
        """Return the epoch that a write of `epoch` has found, and store it."""
        pairs = done.results[0].pairs
        if not pairs:
            raise self._gone()
        found: int = pairs[0].mod_revision
        if found < epoch:  # a member of a cluster with other data: no write could succeed there
            why = f"the session's key went back from revision {epoch} to {found}"
            self._give_up(self, HistoryLost(f"{why}: the servers have different data"))
            raise self.as_expired()
        self._epoch = max(self._epoch, found)
        return found

    def _gone(self) -> SessionExpired:
        """End the session: its key was deleted, with the lease or by another client."""
        self._give_up(self, UnknownLease(self.lease.id))
        return self.as_expired()

    async def _settle(self) -> None:
        """If there is doubt, begin a new epoch; concurrent callers share one attempt."""
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
            task.exception()  # the waiting callers get it; there may be none

    async def _rewrite(self) -> None:
        """Begin a new epoch, with an answer."""
        is_ours = Compare(self._key, Target.CREATE_REVISION, Relation.EQUAL, self._created)
        try:
            done = await self._insist([is_ours], [Put(self._key, self._who, self.lease.id)])
        except (SessionExpired, Closed, Forked):
            raise
        except Exception as error:
            # Calls without an answer stay in doubt, so nothing more can be done under this lease.
            logger.warning("giving up the session, its key cannot be rewritten: %s", error)
            self._give_up(self, error)
            raise self.as_expired() from error
        if not done.succeeded:
            raise self._gone()
        self._epoch = max(self._epoch, done.revision)

    async def read(self, steps: Sequence[Range]) -> TxnResult:
        """Read, all at one revision, with retries while the session lives."""
        return await self._insist([], steps)

    async def _insist(self, compares: Sequence[Compare], steps: Sequence[Step]) -> TxnResult:
        """Repeat an idempotent request until there is an answer, or the session is over."""
        backoff = Backoff(RETRIES, self._random)
        while True:
            self.check()
            try:
                return await self._ask(compares, steps, [])
            except (LeaseholdError, OSError) as error:
                if isinstance(error, UnknownLease):
                    raise self._gone() from error
                # Without space the key cannot be rewritten, perhaps for days. Keys whose deletes
                # are in doubt would stay as long, while the session can still be revoked.
                if is_definite(error) or isinstance(error, NoSpace):
                    raise
            await asyncio.sleep(backoff.next_s())

    async def _ask(
        self, compares: Sequence[Compare], success: Sequence[Step], failure: Sequence[Step]
    ) -> TxnResult:
        """Make a call with a time limit."""
        async with time_limit(self.call_s, self._engine):
            return await self._engine.txn(compares, success, failure)

    @property
    def call_s(self) -> float:
        """How long one call may take."""
        return min(CALL_MAX_S, self.lease.holding.term_s * CALL)


def _was_not_executed(error: BaseException) -> bool:
    return isinstance(error, LeaseholdError) and error.not_executed
