"""`Cell`: one lock of one client, and all who ask for it there.

Theory of operation. To the others in line a client is one contender, whoever of its tasks and
threads wants the lock. The cell is in one of these states:

- *free*: no key of ours is there;
- *contending*: a driver puts our key in line and waits, for the sake of those who ask;
- *owned*: there is a `Tenure`; its claim is idle, in use by a guard, or in the loop's hands;
- *yielding*: the claim is in the driver's hands, for good: the key is being deleted.

All that talks to the engine is done by the driver, one task, one thing after the other. It is never
cancelled by those who ask: they wait for a future each, in order, and may leave at any time. So
nothing is left half done because somebody has lost patience; a driver that finds nobody left takes
the key back.

While it owns the lock the cell hears of every change of the line. A waiter that appears is given
the lock at once if it is idle; that is one step, after which the cache answers nobody. If it is in
use, who only asks is told no, and the others get it when it is released, before those who wait
here.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.engine.values import Event
from leasehold.errors import (
    Compacted,
    LeaseholdError,
    LockDenied,
    SessionExpired,
    is_definite,
)
from leasehold.owner_loop import call_on
from leasehold.recipes import yielding
from leasehold.recipes.asker import Asker, Askers
from leasehold.recipes.behind import Behind
from leasehold.recipes.contending import Contention, Look, look
from leasehold.recipes.events import LockEventKind as Kind
from leasehold.recipes.forgotten import post_forgotten
from leasehold.recipes.naming import Claim, text_of, who_has
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, Session
from leasehold.recipes.standing import Standing
from leasehold.recipes.tenure import Tenure
from leasehold.rpc.backoff import Backoff

if TYPE_CHECKING:
    from leasehold.recipes.locks import Locks

logger = logging.getLogger(__name__)


class Cell:
    """What one client does about one lock."""

    def __init__(self, locks: "Locks", name: bytes) -> None:
        self._locks = locks
        self._log = locks.log
        self.name = name
        self.text = text_of(name)
        self.tenure: Tenure | None = None
        """What we have of it; may be read in any thread."""
        self._askers = Askers()
        self._standing = Standing(self._askers, self._log, self.text, locks.who)
        self._driver: asyncio.Task[None] | None = None
        self._attempt: Contention | None = None
        """Our key in line, or on its way there."""
        self._is_yielding = False
        self._behind = Behind(name, self._changed, self._missed)
        self._unlisten: Callable[[], object] | None = None
        self._options = locks.defaults
        """As of who has asked last."""
        self._trouble: BaseException | None = None

    def check(self) -> None:
        """Refuse to work after the client's end, and in a child process."""
        self._locks.check()

    def check_process(self) -> None:
        """Refuse to work in a child process."""
        self._locks.check_process()

    # Those who ask.

    @property
    def has_askers(self) -> bool:
        """Whether anybody waits for it here."""
        return bool(self._askers)

    def look_at_clock(self) -> None:
        """Notice a loss that nobody has noticed yet. The cell may be forgotten by that."""
        if self.tenure is not None and not self.tenure.is_live:
            self.lost(None)

    def add(self, asker: Asker) -> None:
        """Let somebody wait for it, after those who do already."""
        tenure = self.tenure
        self._options = asker.options
        is_seized = tenure is not None and not self._askers and tenure.seize()
        is_taken = bool(self._askers) or self._is_owned
        if asker.tries and not asker.counts and not is_seized and is_taken:
            # It is in use here, or others wait: no message could change that.
            if tenure is not None:
                asker.deny(self._locks.who, is_own=True)
            else:
                asker.deny(self._standing.holder)
            return
        asker.answers_before = self._standing.answers
        self._askers.add(asker)
        if tenure is not None:
            tenure.wanted = True
            if is_seized:
                self.returned(tenure)
            else:
                self._look_at_claim(tenure)
        self._kick()

    @property
    def _is_owned(self) -> bool:
        """Whether we have it, and go on having it."""
        return self.tenure is not None and not self._is_yielding

    def remove(self, asker: Asker) -> None:
        """Let somebody go who has waited long enough."""
        if self._askers.remove(asker):
            self._note_wanted()

    def denial(self, asker: Asker, waited_s: float) -> TimeoutError:
        """Say why somebody has not got it."""
        if self.tenure is not None:
            return LockDenied(self.text, self._locks.who, waited_s, is_own=True)
        if self._standing.is_behind or self._standing.answers > asker.answers_before:
            return LockDenied(self.text, self._standing.last_holder, waited_s)
        why = str(self._trouble or "") or self._locks.engine.trouble
        said = f"{self.text!r}: no answer within {waited_s:.3g} s"
        return TimeoutError(f"{said}: {why}" if why else said)

    # The claim.

    def forgotten(
        self, tenure: Tenure, is_held: Callable[[], bool], release: Callable[[], object]
    ) -> None:
        """Have a forgotten guard reported and released; from its finalizer, in any thread."""
        locks = self._locks
        wait_s = locks.sessions.ttl_s
        post_forgotten(locks.owner.loop, tenure.name, wait_s, is_held, release)

    def returned_in_any_loop(self, tenure: Tenure) -> None:
        """Do what `returned` does, in any thread: a guard may be released in any event loop."""
        call_on(self._locks.owner.loop, self.returned, tenure)

    def returned(self, tenure: Tenure) -> None:
        """Have the claim in hand: give it to who is next, keep it, or give up the key."""
        if tenure is not self.tenure or not tenure.is_live:
            return
        if self._behind and tenure.options.recall:
            self._yield(tenure)
        else:
            self._hand_out(tenure)

    def _hand_out(self, tenure: Tenure) -> None:
        """Give the claim in hand to who is next here; keep it, or give up the key, if nobody is."""
        is_given = False
        while self._askers and not is_given:
            asker = self._askers.next()
            if asker.counts:
                asker.count(tenure.total)
            elif asker.is_waiting:
                asker.grant(tenure.give(asker.options))
                is_given = True
        self._note_wanted()
        self._locks.sessions.look_by(tenure.options.idle_s)
        if is_given:
            return
        if tenure.options.cache and not (self._behind and tenure.options.recall):
            tenure.let()
            if tenure.wanted:
                self._look_at_claim(tenure)
        else:
            self._yield(tenure)

    def _look_at_claim(self, tenure: Tenure) -> None:
        """Take the claim if it is idle, and see who gets it."""
        if tenure.seize():
            self.returned(tenure)

    def _note_wanted(self) -> None:
        tenure = self.tenure
        if tenure is not None and not tenure.is_over:
            tenure.has_waiters = bool(self._behind)
            tenure.wanted = bool(self._askers) or (tenure.has_waiters and tenure.options.recall)

    def _yield(self, tenure: Tenure) -> None:
        """Give up the key: from now on, nobody is answered from the cache."""
        tenure.wanted = True
        self._is_yielding = True
        self._kick()

    # What a session does with what is idle for long (`sessions.Tenant`).

    def idle_at(self) -> float:
        """When it may have been idle for long enough, at the earliest."""
        assert self.tenure is not None
        return self.tenure.idle_at()

    def seize(self) -> bool:
        """Answer nobody from now on; False if it is in use, after all."""
        return self.tenure is not None and self.tenure.seize()

    def drop(self) -> None:
        """Be forgotten: its key goes with the session."""
        self._forget("its session has ended: it was idle")

    def give_up(self) -> None:
        """Delete its key."""
        if self.tenure is not None:
            self._yield(self.tenure)

    # The driver.

    def _kick(self) -> None:
        """See that somebody does what there is to do."""
        if self._driver is None:
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        self._askers.stir.set()

    async def _drive(self) -> None:
        backoff = Backoff(self._locks.sessions.keeper.random, AGAIN_MIN_S, AGAIN_MAX_S)
        try:
            while self._has_work():
                try:
                    await self._step()
                    backoff.reset()
                except (LeaseholdError, OSError, ValueError) as error:
                    self._trouble = error
                    if isinstance(error, SessionExpired) and not self._is_in_line:
                        self._attempt = None  # nobody here had a place: in another session, then
                    elif is_definite(error):
                        self._fail(error)
                        continue
                    await asyncio.sleep(backoff.next_s())
        except Exception as error:
            logger.exception("lock %r has failed", self.text)
            attempt, self._attempt = self._attempt, None
            self._fail(error)
            if attempt is not None and attempt.may_be_there:
                self._abandon(attempt.session, error)
        finally:
            self._driver = None
            self._locks.forget_if_unused(self)

    @property
    def _is_in_line(self) -> bool:
        """Whether a key of ours is in line, or may be."""
        return self._attempt is not None and self._attempt.may_be_there

    def _has_work(self) -> bool:
        tenure = self.tenure
        if tenure is None:
            return bool(self._askers) or self._attempt is not None
        if not tenure.is_live:
            if not tenure.is_over:
                self.lost(None)
            return self.tenure is None and bool(self._askers)
        return self._is_yielding or self._behind.has_work

    async def _step(self) -> None:
        tenure = self.tenure
        if tenure is None:
            await self._contend()
        elif self._is_yielding:
            await self._give_up(tenure)
        else:
            await self._attend(tenure)
        self._trouble = None

    def _fail(self, error: BaseException) -> None:
        """Tell all who wait that they wait for nothing."""
        had_askers = self._askers.fail(error)
        attempt = self._attempt
        if isinstance(error, SessionExpired) or (attempt is not None and not attempt.may_be_there):
            self._attempt = None  # its key is gone, or never was there
        elif self.tenure is not None:
            self._abandon(self.tenure.session, error)
        elif attempt is not None and not had_askers:  # nor could it be taken back
            self._attempt = None
            self._abandon(attempt.session, error)

    def _abandon(self, session: Session, error: BaseException) -> None:
        """Give up all of a session whose keys cannot be managed any more: they go with its lease.

        Else a key might stay that nobody looks after, or be taken for one of a later attempt.
        """
        logger.warning("the session is given up, because of lock %r: %s", self.text, error)
        self._locks.sessions.give_up(session, error)

    def is_unused(self) -> bool:
        """Whether there is nothing to remember."""
        is_idle = self._driver is None and self._attempt is None
        return is_idle and self.tenure is None and not self._askers

    # Getting it.

    async def _contend(self) -> None:
        attempt = self._attempt
        if attempt is not None and not attempt.session.is_live:
            self._attempt = attempt = None  # its key goes with its session
        if attempt is None:
            if not self._askers:
                return
            session = await self._locks.sessions.live()
            if not self._askers:
                return
            self._attempt = attempt = Contention(
                self.name, self._locks.engine, session, self._askers
            )
        with attempt.session.used():
            seen = await self._standing.stand(attempt)
        self._attempt = None
        if seen is not None:
            self._own(attempt.session, attempt.key, seen)

    def _own(self, session: Session, key: bytes, seen: Look) -> None:
        """Have it, as of what was seen."""
        assert seen.own is not None
        session.check()
        claim = Claim.decode(seen.own.value)
        options = self._askers.first.options if self._askers else self._options
        self.tenure = Tenure(
            self,
            session,
            key,
            seen.own.create_revision,
            0 if claim is None else claim.count,
            options,
            self._log,
            self._locks.sessions.keeper.clock.boottime,
        )
        self._is_yielding = False
        self._unlisten = session.on_lost(self.lost)
        self._locks.sessions.tenants[self] = None
        self._log.say("client", Kind.GRANTED, self.text)
        self._behind.follow(seen, self._locks.feeds)
        self._hand_out(self.tenure)  # whoever waits elsewhere: it was our turn

    # Having it.

    def _changed(self, event: Event) -> None:
        """Hear of a change of the line."""
        tenure = self.tenure
        if tenure is None or self._is_yielding:
            return
        if event.key == tenure.key:
            if event.pair is None:
                self.lost(None, "its key was deleted")
            elif event.pair.create_revision != tenure.revision:
                self.lost(None, "its key was deleted, and made again by somebody else")
            return
        is_new = self._behind.note(event)
        self._note_wanted()
        if is_new and tenure.options.recall:
            self._look_at_claim(tenure)
        if self._behind.has_work and not self._is_yielding:
            self._kick()

    def _missed(self, error: LeaseholdError) -> None:
        """Hear that changes of the line are not told any more."""
        if self.tenure is None:
            return
        if isinstance(error, Compacted):
            self._kick()
        else:
            self._abandon(self.tenure.session, error)

    async def _attend(self, tenure: Tenure) -> None:
        """Do what is to be done for those behind us: look who they are, or tell one no."""
        if not self._behind.must_look:
            waiter = self._behind.next_unanswered()
            if waiter is not None and tenure.options.recall:
                self._log.say("client", Kind.REFUSED, self.text, who_has(waiter))
                await yielding.refuse(tenure, self._locks.who, waiter.create_revision)
            return
        seen = await look(tenure.session, self.name, tenure.key, tenure.revision)
        if tenure is not self.tenure or self._is_yielding:
            return
        if seen.own is None:
            self.lost(None, "its key was deleted")
            return
        self._behind.follow(seen, self._locks.feeds)
        self._note_wanted()
        self._look_at_claim(tenure)

    # Ending it.

    async def _give_up(self, tenure: Tenure) -> None:
        heir = self._behind.first
        if self._behind.is_cut_off:  # the first of those that we know may not be the next
            seen = await look(tenure.session, self.name, tenure.key, tenure.revision)
            heir = next(iter(seen.behind), None)
        self._log.say("client", Kind.GAVE_UP, self.text, "" if heir is None else who_has(heir))
        await yielding.give_up(tenure, heir)
        if tenure is self.tenure:
            self._forget("it was released")

    def lost(self, error: BaseException | None, why: str = "") -> None:
        """Learn that it is lost, with its session or alone."""
        tenure = self.tenure
        if tenure is None:
            return
        self._forget(why, error, is_lost=True)
        if self._askers:
            self._kick()

    def _forget(
        self, why: str, error: BaseException | None = None, *, is_lost: bool = False
    ) -> None:
        tenure, self.tenure = self.tenure, None
        if tenure is None:
            return
        self._is_yielding = False
        self._behind.stop()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        self._locks.sessions.tenants.pop(self, None)
        if is_lost:
            self._log.say("client", Kind.LOST, self.text)
            tenure.lose(why, error)
        else:
            tenure.end(why)
        self._locks.forget_if_unused(self)

    def close(self, error: BaseException) -> None:
        """End with the client, whose leases take all keys along."""
        self._attempt = None
        self._forget("the client was closed")
        self._fail(error)
        if self._driver is not None:
            self._driver.cancel()
