"""`client.barrier`: nobody goes on until so many are there.

Theory of operation. Who arrives puts a key `<name>/parties/<parties>.<lease in hex>.<number>`
there, under its session. Who has all others of the first `parties` ahead of it is the last of them:
in one transaction, which compares the create revisions of all, it deletes their keys and puts the
key `<name>/parties/opened`, which names them. So they have been there all at once, at the revision
before. Whoever is named has passed, and nobody else has; who died before, or went away, does not
count. There is nothing left then that a later arrival could count: the barrier can be used again.

A party that finds its own key gone, or does not know whether it was ever put there, must not arrive
again: it would count twice. It looks in the history, where its key was deleted at the revision at
which the barrier was opened, or was not.

The key `opened` is under the session of whoever opened it, and goes with it.
"""

import asyncio
import json
from typing import Final

from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.core.ops import Compare, Delete, Put, Relation, Target
from leasehold.engine.interface import Watch
from leasehold.engine.values import Event, Events, RangeResult
from leasehold.errors import Compacted, ConnectFailed, NoSpace, SessionExpired, TooBusy
from leasehold.recipes.counted import CountedLine, check_count
from leasehold.recipes.errand import Errand
from leasehold.recipes.line import Place
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import Claim, name_of, text_of
from leasehold.recipes.options import check_wait
from leasehold.recipes.session import AGAIN_MAX_S, AGAIN_MIN_S, OutcomeUnknown
from leasehold.recipes.token import Token
from leasehold.rpc.backoff import Backoff
from leasehold.stored_errors import fresh

OPENED: Final = b"opened"
"""The last part of the key that tells of an opening."""

SPARE: Final = 1
"""What a transaction that opens has beside the keys of the parties: one condition, and one put."""


class _Passed(Exception):  # it ends an arrival before that knows where it stands
    """The barrier was opened for a key that had no answer."""

    def __init__(self, token: Token) -> None:
        super().__init__(token)
        self.token = token


class _Arrival(Place):
    """A place at a barrier. It can tell whether it was opened for it."""

    def __init__(self, lines: Lines, line: CountedLine) -> None:
        super().__init__(lines, line, Claim(lines.who).encode())
        self.opened = line.prefix + OPENED
        self.began_at = 0
        """A revision before that of its key."""
        self.token: Token | None = None
        """That of the opening, once it has passed."""
        self.on_other = self._told

    @property
    def passed(self) -> Token | None:
        """The token of the opening, if it is known to have passed; then its key is gone."""
        if self.token is not None:
            self.taken()
        return self.token

    def _told(self, event: Event) -> None:
        if event.key == self.opened and event.pair is not None and self.is_named(event.pair.value):
            self.token = Token(event.revision, 1)
            self.give_notice()

    def tail_of(self, key: bytes) -> str:
        """Give what names a key among those of the barrier."""
        return key[len(self.line.prefix) :].decode()

    def is_named(self, opened: bytes) -> bool:
        """Say whether an opening was for it."""
        try:
            passed = json.loads(opened)["passed"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        return isinstance(passed, dict) and self.tail_of(self.key) in passed

    async def was_absent(self, revision: int) -> None:
        """Look whether the key is not there because the barrier was opened for it."""
        if await self.find_opening(until=revision):
            assert self.token is not None, "it was found"
            raise _Passed(self.token)

    async def find_opening(self, until: int = 0) -> bool:
        """Look in the history for what became of its key, up to a revision, or its deletion.

        Raises `SessionExpired` if there is no answer while the session lasts.
        """
        while True:
            try:
                return await self._find_opening(until)
            except TimeoutError:
                self.session.check()

    async def _find_opening(self, until: int) -> bool:
        start = max(self.created, self.began_at) + 1
        watch = self._engine.watch(*self.line.span, start=start)
        try:
            async with asyncio.timeout(self.lines.patience.timeout_s):
                return await self._read_history(watch, until)
        except Compacted as error:
            why = "its key is gone, and whether the barrier was opened for it was compacted"
            raise SessionExpired(self.session.lease.id, why) from error
        finally:
            watch.cancel()

    async def _read_history(self, watch: Watch, until: int) -> bool:
        if until:
            watch.request_progress()
        backoff = Backoff(self.lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while True:
            told = await anext(watch)
            if self._is_opening(told):
                return True
            if any(event.key == self.key and event.is_delete for event in told.events):
                return False
            if until and told.revision >= until:
                return False
            if until and not told.events:
                await asyncio.sleep(backoff.next_s())  # the watch is behind
                watch.request_progress()

    def _is_opening(self, told: Events) -> bool:
        for event in told.events:
            self._told(event)
        return self.token is not None


class _Meeting(Errand[Token]):
    """One arrival, until it has passed or gone away."""

    def __init__(self, lines: Lines, line: CountedLine, parties: int, *, only_asks: bool) -> None:
        self._place = _Arrival(lines, line)
        self._parties = parties
        self._only_asks = only_asks
        self._waited_s = 0.0
        super().__init__(lines)

    def leave(self, waited_s: float) -> None:
        """Go away, unless it has passed by then; the outcome says which."""
        self._waited_s = waited_s
        self._give_up()

    def _give_up(self) -> None:
        self._place.give_up()

    async def _run(self) -> None:
        try:
            try:
                self._succeed(await self._meet())
            except Exception as error:  # noqa: BLE001  whoever waits is told before it is left
                self._fail(error)
        finally:
            await self._place.leave()

    async def _meet(self) -> Token:
        place = self._place
        found = await place.insist(self._find_opened)
        place.began_at = found.revision
        try:
            await place.join()
        except _Passed as passed:
            place.taken()
            return passed.token
        while place.is_wanted:
            await self._open_if_last()
            if (token := await self._find_token()) is not None:
                return token
            if self._only_asks:
                break
            await place.change()
        if not await place.leave():  # its key was deleted by another
            place.session.check()
            if await place.find_opening():
                assert place.token is not None, "it was found"
                return place.token
        raise TimeoutError(
            f"barrier {text_of(place.line.name)!r}: not more than {len(place.ahead) + 1} of "
            f"{self._parties} were there after {self._waited_s:g} s"
        )

    async def _find_opened(self) -> RangeResult:
        return await self._lines.patience.wait(self._lines.engine.range(self._place.opened), None)

    async def _find_token(self) -> Token | None:
        """Give the token if it has passed; raise if it never will."""
        place = self._place
        if place.passed is not None or place.loss is None:
            return place.passed
        if not place.session.is_live or not await place.find_opening():
            raise fresh(place.loss)
        return place.passed

    async def _open_if_last(self) -> None:
        """Open it if that is up to this one."""
        place = self._place
        backoff = Backoff(self._lines.random, AGAIN_MIN_S, AGAIN_MAX_S)
        while place.loss is None and len(place.ahead) == self._parties - 1:
            revisions = {key: pair.create_revision for key, pair in place.ahead.items()}
            revisions[place.key] = place.created
            compares = [
                Compare(key, Target.CREATE_REVISION, Relation.EQUAL, created)
                for key, created in revisions.items()
            ]
            names = {place.tail_of(key): created for key, created in revisions.items()}
            said = json.dumps({"who": self._lines.who, "passed": names}).encode()
            put = Put(place.opened, said, place.session.lease.id)
            try:
                done = await place.session.write(compares, [*map(Delete, revisions), put])
            except (OutcomeUnknown, ConnectFailed, NoSpace, TooBusy):
                await asyncio.sleep(backoff.next_s())
            else:
                if done.succeeded:
                    place.token = Token(done.revision, 1)
                    return
            await place.look()


class Barrier:
    """Opens for so many at a time. A handle: it costs nothing until it is waited at."""

    def __init__(self, lines: Lines, name: Octets, parties: int) -> None:
        self._lines = lines
        octets = name_of(name)
        self.name = text_of(octets)
        """What it is called."""
        operations = lines.engine.limits.txn_operations
        why = f"they pass in one transaction, which has {operations} operations at most"
        self.parties = check_count(parties, "parties", operations - SPARE, why)
        """How many it opens for."""
        self._line = CountedLine(octets, b"parties", parties, "parties")

    async def wait(self, timeout: Timeout = None) -> Token:  # noqa: ASYNC109
        """Wait until all are there, and give the token of the opening, the same to each of them.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only if this is
        the last of them. `TimeoutError` then: it was not opened for this one. Who is cancelled may
        have been counted.
        """
        timeout_s = check_wait(timeout)
        self._lines.check_call()
        only_asks = timeout_s == 0.0
        meeting = _Meeting(self._lines, self._line, self.parties, only_asks=only_asks)
        call_s = self._lines.patience.timeout_s
        limit_s = call_s if only_asks else timeout_s
        if not await meeting.wait(limit_s):
            assert limit_s is not None, "it is waited for as long as it takes"
            meeting.leave(limit_s)
            if not await meeting.wait(call_s):
                meeting.abandon()
                why = self._lines.engine.trouble or "the server does not answer"
                raise TimeoutError(f"barrier {self.name!r}: {why}")
        return meeting.outcome.result()
