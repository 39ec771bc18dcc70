"""`Standing`: a client in line for a lock, for the sake of those who ask for it there."""

from typing import NamedTuple

from leasehold.errors import SessionExpired
from leasehold.recipes.asker import Askers
from leasehold.recipes.contending import Contention, Look, holder_of
from leasehold.recipes.events import LockEventKind as Kind
from leasehold.recipes.events import LockLog
from leasehold.recipes.naming import Claim


class Answer(NamedTuple):
    """The no of a lock's owner."""

    kind: Kind
    total: int | None = None
    """How often it was acquired, if the owner has said so."""


class Standing:
    """Waits for the turn of a client, and denies those who only ask when there is an answer."""

    def __init__(self, askers: Askers, log: LockLog, name: str, who: str) -> None:
        self._askers = askers
        self._log = log
        self._name = name
        self._who = who
        self._ahead = ""
        self.last_holder = ""
        """Who was the last that we have waited for."""
        self.answers = 0
        """How often the server has said what the line is like."""

    @property
    def is_behind(self) -> bool:
        """Whether it waits for somebody, whom it knows."""
        return bool(self._ahead)

    @property
    def holder(self) -> str:
        """Who has the lock, or is just getting it."""
        return self._ahead or self._who

    async def stand(self, attempt: Contention) -> Look | None:
        """Wait for our turn; None if nobody here wants it any more, and our key is gone."""
        try:
            return await self._stand(attempt)
        finally:
            self._ahead = ""

    async def _stand(self, attempt: Contention) -> Look | None:
        if not self._askers:
            return await attempt.withdraw()
        seen = await attempt.enter(Claim(self._who, tries=self._askers.only_ask()))
        self._saw(seen)
        self._say(Kind.ASKED)
        while seen.own is not None and seen.ahead is not None:
            if not self._askers:
                return await attempt.withdraw()
            answer = await self._wait(attempt, seen)
            if answer is not None:
                kept = await self._deny(attempt, answer)
                if kept is not None or attempt.is_withdrawn:
                    return kept  # who has come meanwhile begins anew
            seen = await attempt.look()
            self.answers += 1
            if seen.ahead is None and seen.own is not None:
                self._say(Kind.RECALL_ACCEPTED)
        if seen.own is None:
            raise SessionExpired(attempt.session.lease.id, "its key in line was deleted")
        return seen

    def _saw(self, seen: Look) -> None:
        """Note who is ahead."""
        self.answers += 1
        self._ahead = holder_of(seen) if seen.ahead is not None else ""
        self.last_holder = self._ahead or self.last_holder

    def _say(self, kind: Kind) -> None:
        self._log.say("client", kind, self._name, self._ahead)

    async def _wait(self, attempt: Contention, seen: Look) -> Answer | None:
        """Wait for the one ahead; give what that is for who only asks, if it is a no."""
        assert seen.ahead is not None
        self._saw(seen)
        if not self._askers.only_ask():
            await attempt.wait(seen, None)
            return None
        asker = self._askers.first
        is_next = seen.owner is not None and seen.ahead.key == seen.owner.key
        if not is_next and not asker.counts:
            return Answer(Kind.RECALL_REFUSED)
        recall_s = asker.options.recall_s
        is_in_time = await attempt.wait(seen._replace(ahead=seen.owner), recall_s)
        if not self._askers.only_ask():
            return None
        if attempt.answer is not None:
            return Answer(Kind.RECALL_REFUSED, attempt.answer.count)
        return None if is_in_time else Answer(Kind.RECALL_UNANSWERED)

    async def _deny(self, attempt: Contention, answer: Answer) -> Look | None:
        """Tell who only asks that it cannot have it, once our key is gone, unless others need it.

        If it turns out to be ours by then, it can, and what was seen of that is returned.
        """
        self._say(answer.kind)
        asker = self._askers.first
        kept = await attempt.withdraw() if len(self._askers) == 1 else None
        if kept is not None or not self._askers or self._askers.first is not asker:
            return kept
        self._askers.next()
        self._say(Kind.DENIED)
        if asker.counts and answer.total is not None:
            asker.count(answer.total)
        else:
            asker.deny(self._ahead)
        return None
