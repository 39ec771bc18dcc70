"""Answers about permits, kept for as long as they can be relied on.

Theory of operation. An answer is a permit as it was read, and how long its lease has to run. It is
trusted until its *trusted end*: counted from when the second question was *sent*, on a clock that
runs through suspend, less a margin (`session_margin_s`), never beyond the permit's wall-clock end
(`permit.is_over`), and never for longer than `MAX_AGE_S`. The
server cannot end the lease before, unless somebody revokes it, and that is what the watch is for:

- one watch of all permits drops an answer as soon as its key is changed or deleted. It begins with
  the revision after the first answer, so nothing between the two is missed. An answer that is older
  than the watch is given, but not kept;
- an event that only extends the wall-clock end of a permit leaves its answer, with the trusted end
  that it had;
- what is changed while a question is under way, and after what it has read, spoils its answer:
  given, but not kept. News that is older than an answer says nothing about it;
- a watch that ends (`Compacted`, `HistoryLost`, the end of the engine) takes all answers with it,
  and the next question begins another one. A watch that is merely out of touch cannot be told from
  one that has nothing to tell: then answers are good until their trusted end, and no longer. After
  that the question is asked, and raises what it meets with. Nobody is told yes by heart;
- when an event comes and every answer is past its end, the watch is given up, too: a client that
  checks no more is told nothing more.

*No permit* is not kept. It has no end that would bound its trust: a client out of touch would say
no for ever, long after the permit was granted. And anybody could fill the memory with questions
about names that are not there. A right that is missing from a permit that *is* there is answered
from what is kept.

`get` may be called in any thread; all else belongs to the loop.
"""

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace
from typing import Final, NamedTuple

from leasehold.clock import Clock
from leasehold.core.duration import NEVER
from leasehold.core.holding import session_margin_s
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import Event
from leasehold.errors import LeaseholdError, UnknownLease
from leasehold.recipes.permits import naming
from leasehold.recipes.permits.naming import Names, read_names
from leasehold.recipes.permits.permit import Permit, honoured_until_s, is_over, read

logger = logging.getLogger(__name__)

MAX_CACHED: Final = 10_000
"""Permits that are kept; then the oldest goes."""

MAX_AGE_S: Final = 60.0
"""How long an answer is relied on, however long its lease has to run. It is what a revocation may
take to reach a client whose watch is cut off."""


class _Kept(NamedTuple):
    permit: Permit
    end: float
    revision: int
    """The one that it was read at."""


class _Question:
    """One that is under way, and the last revision that is known to have changed its permit."""

    __slots__ = ("changed_at",)

    def __init__(self) -> None:
        self.changed_at: float = 0


class PermitCache:
    """Asks for permits, and keeps what can be relied on."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._kept: dict[Names, _Kept] = {}
        self._questions: defaultdict[Names, set[_Question]] = defaultdict(set)
        self._watch: Watch | None = None
        self._watched_from = 0
        self._following: asyncio.Task[None] | None = None
        self._last_end = 0.0
        """When no answer can be relied on any more, of those that were kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, names: Names) -> Permit | None:
        """Give a permit that can be relied on now; None if that is not known here."""
        self._engine.check()
        kept = self._kept.get(names)
        return kept.permit if kept is not None and self._clock.boottime() < kept.end else None

    async def ask(self, names: Names, *, keep: bool) -> Permit | None:
        """Ask for a permit that can be relied on now, and keep it; None if there is none.

        One whose trusted end has passed when the answer comes is none.
        """
        question = _Question()
        self._questions[names].add(question)
        try:
            return await self._ask(names, question if keep else None)
        finally:
            self._questions[names].discard(question)
            if not self._questions[names]:
                del self._questions[names]

    async def _ask(self, names: Names, question: _Question | None) -> Permit | None:
        found = await self._engine.range(names.key)
        permit = read(found.pairs[0]) if found.pairs else None
        if permit is None or is_over(permit, self._clock.wall()):
            return None
        if question is not None:
            self._begin_watch(found.revision + 1)
        sent_at, sent_wall_s = self._clock.boottime(), self._clock.wall()
        try:
            info = await self._engine.time_to_live(permit.lease)
        except UnknownLease:
            return None  # it has ended since
        left_s = info.remaining - session_margin_s(info.remaining)
        if (until_s := honoured_until_s(permit)) is not None:
            left_s = min(left_s, until_s - sent_wall_s)
        if self._clock.boottime() >= sent_at + left_s:
            return None
        if question is not None and self._is_current(question, found.revision):
            self._keep(names, _Kept(permit, sent_at + min(left_s, MAX_AGE_S), found.revision))
        return permit

    def _is_current(self, question: _Question, revision: int) -> bool:
        """Say whether all that has happened since a revision is told, and has changed nothing."""
        is_told = self.is_watching and self._watched_from <= revision + 1
        return is_told and question.changed_at <= revision

    def _keep(self, names: Names, kept: _Kept) -> None:
        self._kept.pop(names, None)  # so that the first one is the oldest
        while len(self._kept) >= MAX_CACHED:
            del self._kept[next(iter(self._kept))]
        self._kept[names] = kept
        self._last_end = max(self._last_end, kept.end)

    def _changed(self, names: Names, event: Event) -> None:
        """Forget a permit that was changed, unless only its end was extended."""
        kept = self._kept.get(names)
        permit = None if event.pair is None else read(event.pair)
        self.drop(names, event.revision)
        if kept is None or permit is None or names in self._kept:
            return
        before = kept.permit
        if before.ends_at is None or permit.ends_at is None or permit.ends_at < before.ends_at:
            return
        if replace(before, ends_at=permit.ends_at, revision=permit.revision) == permit:
            self._keep(names, _Kept(permit, kept.end, event.revision))

    def drop(self, names: Names, revision: float = NEVER) -> None:
        """Forget a permit that was changed, at this revision or who knows when.

        What is being asked for just now is not kept either.
        """
        kept = self._kept.get(names)
        if kept is not None and kept.revision < revision:
            del self._kept[names]
        for question in self._questions.get(names, ()):
            question.changed_at = max(question.changed_at, revision)

    def clear(self) -> None:
        """Forget all permits."""
        for names in [*self._kept, *self._questions]:
            self.drop(names)

    # The watch.

    @property
    def is_watching(self) -> bool:
        """Whether it is told of changes."""
        return self._watch is not None

    def _begin_watch(self, start: int) -> None:
        if self._watch is not None:
            return
        watch = self._engine.watch(naming.PREFIX, naming.END, start=start)
        self._watch, self._watched_from = watch, start
        self._following = asyncio.get_running_loop().create_task(self._follow(watch))

    async def _follow(self, watch: Watch) -> None:
        try:
            async for events in watch:
                for event in events.events:
                    if (names := read_names(event.key)) is not None:
                        self._changed(names, event)
                if self._clock.boottime() >= self._last_end:
                    return
        except LeaseholdError as error:
            logger.info("permits are watched no longer, and none is relied on: %s", error)
        finally:
            watch.cancel()
            self._watch = None
            self.clear()

    async def close(self) -> None:
        """Watch no longer, and forget all."""
        following, self._following = self._following, None
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait([following])
        if self._watch is not None:  # the task was cancelled before it began
            self._watch.cancel()
            self._watch = None
        self.clear()
