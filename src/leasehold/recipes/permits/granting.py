"""Grants and revokes permits, such that nothing is left behind and nothing comes back to life.

Theory of operation. Each write is a transaction that compares the revision of the permit's key with
the one that was read, so it replaces what was seen and nothing else; if somebody was faster it is
tried again on what is there now. What becomes of leases:

- a lease that a grant has begun is ended if the grant fails, is given up, or has no answer. Its id
  is chosen here, so that this can be done whatever was answered;
- the lease of a permit that is replaced or revoked is ended if a grant has begun it (`own_lease`)
  and it has no key any more. Whoever keeps it alive learns by that. The two questions are not one:
  a key that is put under it in the very moment between them goes with it. Other leases are left
  as they are: they are somebody's.

A call without an answer may be done yet, when a connection that was given up is read to its end. It
must not be, once a later call has seen what there is: a permit that was revoked in the meantime
would be there again. So a grant is *taken back* first: its lease is ended, without which a put is
refused; or for a lease that was given, the key is deleted that its transaction compares, and which
was put under that lease before (`naming.CALLS`). Later grants and revocations of the same permit by
this client wait for that. A revocation without an answer is carried through: done late it harms
nobody, since what is granted then has another revision; so it may as well be done.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Final

from leasehold.client.ending import (
    LOOK_PAUSES_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    end_one,
    retry_until_answered,
)
from leasehold.client.keeper import LOST_S, Keeper
from leasehold.client.key import Key
from leasehold.core.ops import Step
from leasehold.engine.interface import Engine
from leasehold.engine.values import KeyValue, TxnResult
from leasehold.errors import CallFailed, LeaseholdError, UnknownLease, is_definite
from leasehold.lease_ids import shown_lease
from leasehold.recipes.permits import naming
from leasehold.recipes.permits.naming import Names
from leasehold.recipes.permits.permit import Permit, end_after, read, written
from leasehold.rpc.backoff import Backoff

logger = logging.getLogger(__name__)

TRIES: Final = 32
"""How often a write is tried if others change the permit each time."""

SETTLED_AT_ONCE: Final = 64
"""Calls without an answer that are seen to at the same time; the others wait."""


class _Attempt:
    """A grant under way, and what it has met with."""

    __slots__ = ("before", "call", "ends_at", "has_begun", "is_own", "lease", "names")

    def __init__(self, names: Names, lease: int, ends_at: datetime | None) -> None:
        self.names = names
        self.lease = lease
        self.ends_at = ends_at
        """The permit's wall-clock end, if the lease was begun for it."""
        self.is_own = is_own = ends_at is not None
        self.call = b"" if is_own else naming.CALLS + secrets.token_hex(8).encode()
        """The key that must be there, for a lease that was given."""
        self.has_begun = is_own
        """Whether there is something to be taken back: the lease, or that key, with an answer."""
        self.before: Permit | None = None
        """What is replaced, as it was seen last."""


class Grants:
    """Writes permits, and sees to their leases."""

    def __init__(self, engine: Engine, keeper: Keeper, on_change: Callable[[Names], None]) -> None:
        self._engine = engine
        self._keeper = keeper
        self._on_change = on_change
        """Told of each permit before and after it is written."""
        self._settling: dict[bytes, asyncio.Task[object]] = {}
        """What has yet to be settled before a permit is written again. It has a limit in time."""
        self._turns = asyncio.Semaphore(SETTLED_AT_ONCE)

    # Granting.

    async def grant_for(
        self, names: Names, rights: frozenset[str], granted_by: str, ttl_s: float
    ) -> Permit:
        """Grant a permit under a lease that is begun for it."""
        await self._settled(names.key)
        lease, granted_s = await self._keeper.begin(ttl_s)
        ends_at = end_after(self._keeper.clock.wall(), granted_s)
        return await self._grant(_Attempt(names, lease, ends_at), rights, granted_by)

    async def grant_under(
        self, names: Names, rights: frozenset[str], granted_by: str, lease: int
    ) -> Permit:
        """Grant a permit under a lease that is there."""
        await self._settled(names.key)
        return await self._grant(_Attempt(names, lease, None), rights, granted_by)

    async def _grant(self, attempt: _Attempt, rights: frozenset[str], granted_by: str) -> Permit:
        key = attempt.names.key
        self._on_change(attempt.names)
        try:
            permit = await self._write(attempt, rights, granted_by)
        except BaseException as error:
            if attempt.has_begun or not is_definite(error):
                self._settle_later(key, partial(self._take_back, attempt))
            raise
        finally:
            self._on_change(attempt.names)
        if attempt.before is not None and attempt.before.lease != permit.lease:
            self._end_unused_later(attempt.before)
        return permit

    async def _write(self, attempt: _Attempt, rights: frozenset[str], granted_by: str) -> Permit:
        key, lease = attempt.names.key, attempt.lease
        needs = []
        closes: list[Step] = []
        if attempt.call:
            await self._engine.put(attempt.call, b"", lease=lease)
            attempt.has_begun = True
            needs, closes = [Key(attempt.call).exists()], [Key(attempt.call).delete()]
        found = (await self._engine.range(key)).pairs
        for _ in range(TRIES):
            before = attempt.before = read(found[0]) if found else None
            own_lease, ends_at = attempt.is_own, attempt.ends_at
            if before is not None and before.lease == lease:  # new rights, the lease as it was
                own_lease, ends_at = before.own_lease, before.ends_at
            permit = Permit(*attempt.names, rights, lease, granted_by, own_lease, 0, ends_at)
            done = await self._engine.txn(
                [Key(key).mod_revision == _revision(found), *needs],
                [Key(key).put(written(permit), lease=lease), *closes],
                [Key(key).get(), *([Key(attempt.call).get()] if attempt.call else [])],
            )
            if done.succeeded:
                return replace(permit, revision=done.revision)
            if attempt.call and not done.results[1].pairs:
                raise UnknownLease(lease)  # which has taken the key of the call with it
            found = done.results[0].pairs
        raise _too_often(attempt.names)

    # Revoking.

    async def revoke(self, names: Names) -> bool:
        """Delete a permit; False if there is none."""
        key = names.key
        await self._settled(key)
        self._on_change(names)
        try:
            found = (await self._engine.range(key)).pairs
            for _ in range(TRIES):
                if not found:
                    return False
                seen = found[0]
                try:
                    done = await self._delete(seen)
                except BaseException as error:
                    if not is_definite(error):
                        self._settle_later(key, partial(self._carry_through, names, seen))
                    raise
                if done.succeeded:
                    break
                found = done.results[0].pairs
            else:
                raise _too_often(names)
        finally:
            self._on_change(names)
        if (before := read(seen)) is not None:
            self._end_unused_later(before)
        return True

    async def _delete(self, seen: KeyValue) -> TxnResult:
        key = Key(seen.key)
        return await self._engine.txn(
            [key.mod_revision == seen.mod_revision], [key.delete()], [key.get()]
        )

    async def _carry_through(self, names: Names, seen: KeyValue) -> None:
        """Have a revocation done that had no answer."""
        await _until_answered(
            lambda: self._delete(seen), f"permit {seen.key!r}", self._keeper.random
        )
        self._on_change(names)
        if (before := read(seen)) is not None:
            await self._end_unused(before)

    # Leases, and calls without an answer.

    def _end_unused_later(self, permit: Permit) -> None:
        """End the lease of a permit that is no more, if it has no other use."""
        if permit.own_lease:
            self._keeper.see_to(self._end_unused(permit))

    async def _end_unused(self, permit: Permit) -> None:
        if not permit.own_lease:
            return

        async def end() -> None:
            try:
                info = await self._engine.time_to_live(permit.lease, keys=True)
                if not info.key_count:
                    await self._engine.revoke(permit.lease)
            except UnknownLease:
                return

        await _until_answered(
            end,
            f"lease {shown_lease(permit.lease)}, which has no permit any more,",
            self._keeper.random,
        )

    async def undo(self, permit: Permit) -> None:
        """Take back a permit that was granted, and that nobody has got."""
        if permit.own_lease:
            await end_one(self._engine, permit.lease, LOST_S, self._keeper.random)

    async def _take_back(self, attempt: _Attempt) -> None:
        """See to it that a grant that has failed is not done later."""
        if attempt.is_own:
            await end_one(self._engine, attempt.lease, LOST_S, self._keeper.random)
        else:
            await self._hang_up(attempt)
        if attempt.before is not None and attempt.before.lease != attempt.lease:
            await self._end_unused(attempt.before)

    async def _hang_up(self, attempt: _Attempt) -> None:
        """Delete the key of a call; one whose put had no answer may appear yet."""

        async def delete() -> None:
            for look_s in (0.0,) if attempt.has_begun else LOOK_PAUSES_S:
                await asyncio.sleep(look_s)
                if (await self._engine.delete(attempt.call)).deleted:
                    return

        await _until_answered(delete, f"key {attempt.call!r}", self._keeper.random)

    def _settle_later(self, key: bytes, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do what must be done before the permit is written again."""
        earlier = self._settling.get(key)

        async def settle() -> None:
            if earlier is not None:
                await asyncio.wait([earlier])
            async with self._turns:
                await work()

        def done(task: asyncio.Task[object]) -> None:
            if self._settling.get(key) is task:
                del self._settling[key]

        task = self._settling[key] = self._keeper.see_to(settle())
        task.add_done_callback(done)

    async def _settled(self, key: bytes) -> None:
        """Wait until what was given up can do no more."""
        self._keeper.check()
        settling = self._settling.get(key)
        if settling is not None:
            await asyncio.wait([settling])


async def _until_answered(call: Callable[[], Awaitable[object]], what: str, random: Random) -> None:
    """Repeat a call, with random pauses, until it is answered or `LOST_S` have passed."""
    try:
        async with asyncio.timeout(LOST_S):
            await retry_until_answered(call, Backoff(random, PAUSE_MIN_S, PAUSE_MAX_S))
    except (LeaseholdError, OSError) as error:
        logger.warning(
            "%s was not ended, and will end by itself: %s", what, str(error) or "no answer"
        )


def _revision(found: Sequence[KeyValue]) -> int:
    """Give the revision of what was read; 0 if it is not there, as transactions have it."""
    return found[0].mod_revision if found else 0


def _too_often(names: Names) -> CallFailed:
    return CallFailed(
        f"the permit of {names.subject!r} for {names.resource!r} was changed by others {TRIES} "
        "times meanwhile: try again"
    )
